// Keeps a presence in etcd until its input ends, and writes a line for each of its events; for
// tests that freeze a process.
//
//   coordinator_presence ENDPOINT KEY SECONDS
//
// The callback's thread writes, the main thread waits.
#include <cstdio>
#include <cstdlib>

#include "etcd/coordinator.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto coordinator = forebay::etcd::Coordinator::Open({.endpoints = {argv[1]}});
  if (!coordinator.ok()) return 2;
  const forebay::node::PresenceOptions options{
      .key = argv[2], .value = "here", .time_to_live = absl::Seconds(std::atoi(argv[3]))};
  auto presence = (*coordinator)->Announce(options, [](const forebay::node::PresenceEvent& event) {
    const bool held = event.kind == forebay::node::PresenceEvent::Kind::kHeld;
    std::printf("%s\n", held ? "held" : "lost");
    std::fflush(stdout);
  });
  if (!presence.ok()) return 2;
  while (std::getchar() != EOF) {
  }
  presence->reset();
  return 0;
}
