// Actors in C++ of a cluster under test: they take attempts, push rollouts, reward some of them
// later, give others back, and write down every call with its begin, end and outcome.
//
//   chaos_actor SEEDS SOURCE GROUPS_SOURCE FIRST_TAG JOURNAL
//
// It runs until its standard input ends, and closes its session then. The journal has a line of
// JSON a call, as tests/workload/calls.py reads it. The bytes of a rollout follow from its tag as
// tests/workload/content.py says.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "forebay/actor.h"
#include "forebay/client.h"

namespace forebay::chaos {
namespace {

using client::Assignment;
using client::PushReceipt;
using client::PushResult;

constexpr int kThreads = 3;
constexpr uint32_t kSlots = 8;
constexpr int kGroupSize = 4;  // of the source of groups
constexpr uint64_t kNative = uint64_t{1} << 63;
constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr absl::Duration kNextTimeout = absl::Milliseconds(500);

// Sebastiano Vigna's splitmix64, of `index` steps from `seed`.
uint64_t Mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

double SteadySeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The bytes of the rollout named `tag`.
struct OwnRollout {
  explicit OwnRollout(uint64_t tag) {
    const uint32_t count = 32 + Mix(tag, 0) % 480;
    const uint32_t prompt = 4;
    tokens.resize(count);
    mask.resize(count);
    logprobs.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      tokens[i] = Mix(tag, 1 + i) & 0x7FFFFFFF;
      mask[i] = i >= prompt ? 1 : 0;
      logprobs[i] = -0.25f * static_cast<float>(tokens[i] % 17);
    }
    tokens[0] = static_cast<uint32_t>(tag);
    tokens[1] = static_cast<uint32_t>(tag >> 32);
    text.resize(256u << (Mix(tag, 0) >> 32) % 10);
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<char>(tokens[i % count] + i / count);
    }
    rollout.sequences = {{.tokens = count, .prompt_tokens = prompt, .loss_tokens = count - prompt}};
    rollout.columns = {client::MakeColumn<uint32_t>("tokens", tokens),
                       client::MakeColumn<uint8_t>("loss_mask", mask),
                       client::MakeColumn<float>("logprobs", logprobs),
                       {.name = "text",
                        .dtype = client::DType::kU8,
                        .domain = client::Domain::kBlob,
                        .bytes = text,
                        .sequence_bytes = {text.size()}}};
  }
  OwnRollout(const OwnRollout&) = delete;

  std::vector<uint32_t> tokens;
  std::vector<uint8_t> mask;
  std::vector<float> logprobs;
  std::string text;
  client::Rollout rollout;
};

double RewardOf(uint64_t tag) { return static_cast<double>(Mix(tag, 0) % 1000) / 1000; }

// One call: begun when this is made, written down by Journal::End. Thread-safe.
struct Call {
  Call(std::string client_name, std::string kind_name)
      : client(std::move(client_name)), kind(std::move(kind_name)), begin(SteadySeconds()) {}
  std::string client, kind;
  double begin;
  uint64_t attempt = 0, tag = 0;
  std::string lease, task;
  std::vector<uint64_t> tags;
};

class Journal {
 public:
  explicit Journal(const std::string& path) : file_(path) {}

  // A status that leaves the outcome open is unknown: the call may or may not have taken effect.
  void End(const Call& call, const absl::Status& status, const std::string& result) {
    const bool unknown = absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ||
                         absl::IsCancelled(status) || absl::IsInternal(status) ||
                         absl::IsUnknown(status);
    Write(call, unknown ? "unknown" : status.ok() ? "ok" : "refused", result);
  }
  void EndPush(const Call& call, const absl::StatusOr<PushReceipt>& receipt) {
    if (!receipt.ok()) return End(call, receipt.status(), receipt.status().ToString());
    const char* names[] = {"",           "accepted", "duplicate", "late",
                           "lease_lost", "invalid",  "stale",     "unknown_attempt"};
    const bool taken = receipt->in() || receipt->result == PushResult::kLate;
    Write(call, taken ? "ok" : "refused", names[static_cast<int>(receipt->result)]);
  }

 private:
  void Write(const Call& call, const std::string& outcome, const std::string& result) {
    std::string tags;
    for (const uint64_t tag : call.tags) absl::StrAppend(&tags, tags.empty() ? "" : ", ", tag);
    std::string clean;
    for (const char c : result) clean += c == '"' || c == '\\' || c < ' ' ? ' ' : c;
    char times[80];
    std::snprintf(times, sizeof(times), "\"begin\": %.6f, \"end\": %.6f", call.begin,
                  SteadySeconds());
    const std::string line = absl::StrCat(
        "{\"client\": \"", call.client, "\", \"kind\": \"", call.kind, "\", ", times,
        ", \"outcome\": \"", outcome, "\", \"result\": \"", clean,
        "\", \"attempt\": ", call.attempt, ", \"lease\": \"", call.lease, "\", \"tag\": ", call.tag,
        ", \"tags\": [", tags, "], \"task\": \"", call.task, "\"}\n");
    const std::lock_guard lock(mutex_);
    file_ << line << std::flush;
  }

  std::mutex mutex_;
  std::ofstream file_;
};

struct Load {
  std::string source, groups_source;
  client::Actor* actor = nullptr;
  Journal* journal = nullptr;
  std::atomic<uint64_t> next_tag{0};
  std::atomic<bool> stop{false};
};

void Answer(Load* load, const std::string& name, Assignment assignment, const std::string& lease,
            std::mt19937_64* random) {
  const auto call = [&](const char* kind) {
    Call made(name, kind);
    made.attempt = assignment.info().attempt_id;
    made.lease = lease;
    made.task = assignment.info().external_id;
    return made;
  };
  const uint64_t dice = (*random)() % 100;
  if (dice < 8) {
    const Call back = call("give_back");
    const absl::Status status = dice < 3 ? assignment.Fail("a die fell so") : assignment.Release();
    return load->journal->End(back, status, "");
  }
  const uint64_t tag = load->next_tag.fetch_add(1);
  OwnRollout own(tag);
  const bool late_reward = dice < 28;
  if (!late_reward) own.rollout.rewards = {{"reward", RewardOf(tag)}};
  Call push = call("push");
  push.tag = tag;
  const auto receipt = assignment.Push(own.rollout, {.timeout = kCallTimeout});
  load->journal->EndPush(push, receipt);
  if (!late_reward || !receipt.ok() || !receipt->in()) return;
  Call reward = call("reward");
  reward.tag = tag;
  const client::Actor::LateReward late = {.attempt_id = push.attempt,
                                          .rewards = {{"reward", RewardOf(tag)}}};
  const auto results = load->actor->SetRewards({&late, 1}, {.timeout = kCallTimeout});
  if (!results.ok()) return load->journal->End(reward, results.status(), "");
  load->journal->EndPush(reward, PushReceipt{.result = results->front()});
}

void Act(Load* load, int number) {
  const std::string name = absl::StrCat("native-", getpid(), "-", number);
  std::mt19937_64 random(load->next_tag.load() + static_cast<uint64_t>(number));
  for (uint64_t grants = 0; !load->stop.load();) {
    Call grant(name, "grant");
    auto assignment = load->actor->Next({.timeout = kNextTimeout});
    if (!assignment.ok()) {
      // While nobody leads, the end of the time says so.
      const bool in_time = SteadySeconds() - grant.begin < absl::ToDoubleSeconds(kNextTimeout);
      const bool over = absl::IsDeadlineExceeded(assignment.status()) ||
                        (absl::IsUnavailable(assignment.status()) && !in_time);
      if (!over && !load->stop.load()) {
        Call failed(name, "error");
        load->journal->End(failed, absl::OkStatus(), assignment.status().ToString());
        absl::SleepFor(kNextTimeout);  // poll: not to fill the journal
      }
      continue;
    }
    grant.attempt = assignment->info().attempt_id;
    grant.task = assignment->info().external_id;
    grant.lease = absl::StrCat(name, "/", grants++);
    load->journal->End(grant, absl::OkStatus(), "");
    absl::SleepFor(absl::Milliseconds(random() % 300));  // poll: nothing; it generates
    Answer(load, name, *std::move(assignment), grant.lease, &random);
  }
}

void PushGroups(Load* load) {
  const std::string name = absl::StrCat("native-", getpid(), "-groups");
  std::mt19937_64 random(load->next_tag.load());
  while (!load->stop.load()) {
    std::vector<std::unique_ptr<OwnRollout>> owned;
    Call call(name, "push_group");
    client::PushedGroup group = {.source = load->groups_source};
    const auto published = load->actor->published();
    for (int i = 0; i < kGroupSize; ++i) {
      const uint64_t tag = load->next_tag.fetch_add(1);
      call.tags.push_back(tag);
      owned.push_back(std::make_unique<OwnRollout>(tag));
      owned.back()->rollout.rewards = {{"reward", RewardOf(tag)}};
      if (published.has_value()) {
        auto& sequence = owned.back()->rollout.sequences[0];
        sequence.versions = {{.offset = 0,
                              .branch = published->version.branch,
                              .number = published->version.number,
                              .loss_tokens = sequence.loss_tokens}};
      }
      group.rollouts.push_back(owned.back()->rollout);
    }
    group.external_id = absl::StrCat("native-", call.tags[0]);
    group.task_payload = "{}";
    group.request_id = call.tags[0];
    call.task = group.external_id;
    const auto receipts = load->actor->PushGroup(group, {.timeout = kCallTimeout});
    if (receipts.ok()) {
      load->journal->EndPush(call, receipts->front());
    } else {
      load->journal->End(call, receipts.status(), receipts.status().ToString());
    }
    absl::SleepFor(absl::Milliseconds(300 + random() % 700));  // poll: nothing; it generates
  }
}

int Run(char** words) {
  Load load;
  auto client = client::Client::Connect({.address = words[1], .call_timeout = kCallTimeout});
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  load.source = words[2];
  load.groups_source = words[3];
  uint64_t first_tag = 0;
  if (!absl::SimpleAtoi(words[4], &first_tag)) return 2;
  load.next_tag = first_tag | kNative;
  Journal journal(words[5]);
  load.journal = &journal;
  auto actor = client::Actor::Open(client->get(),
                                   {.actor = "native", .sources = {load.source}, .slots = kSlots});
  if (!actor.ok()) {
    std::fprintf(stderr, "%s\n", actor.status().ToString().c_str());
    return 1;
  }
  load.actor = actor->get();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Act, &load, i);
  threads.emplace_back(PushGroups, &load);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
  load.stop = true;
  for (std::thread& thread : threads) thread.join();
  (*actor)->Close();
  return 0;
}

}  // namespace
}  // namespace forebay::chaos

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: chaos_actor SEEDS SOURCE GROUPS_SOURCE FIRST_TAG JOURNAL\n");
    return 2;
  }
  return forebay::chaos::Run(argv);
}
