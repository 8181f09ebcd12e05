// A cluster of fakes for tests in other languages:
//
//   fake_cluster BACKEND NODES
//
// Prints the nodes' addresses; then a line for each line that it reads, until the input ends:
// "lead N", "kill N", "freeze N", "revive N" answer "ok"; "served N", "refused N", "watches N"
// answer a number.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/integration/fake_cluster.h"

namespace {

using forebay::integration::FakeCluster;

std::string Do(FakeCluster* cluster, const std::string& command, size_t node) {
  if (command == "served") return std::to_string(cluster->served(node));
  if (command == "refused") return std::to_string(cluster->refused(node));
  if (command == "watches") return std::to_string(cluster->watches(node));
  if (command == "lead") {
    cluster->Lead(node);
  } else if (command == "kill") {
    cluster->Kill(node);
  } else if (command == "freeze") {
    cluster->Freeze(node);
  } else if (command == "revive") {
    cluster->Revive(node);
  } else {
    return "unknown command";
  }
  return "ok";
}

}  // namespace

int main(int argc, char** argv) {
  size_t nodes = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &nodes) || nodes == 0) {
    std::fprintf(stderr, "fake_cluster BACKEND NODES\n");
    return 2;
  }
  FakeCluster cluster(argv[1], nodes);
  std::cout << cluster.seeds() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    size_t node = 0;
    if (!(words >> command >> node) || node > nodes) return 2;
    std::cout << Do(&cluster, command, node) << std::endl;
  }
  return 0;
}
