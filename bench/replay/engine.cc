#include "bench/replay/engine.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/prng.h"

namespace forebay::bench {
namespace {

constexpr uint32_t kWaitMs = 30'000;
constexpr uint64_t kAskAgainMs = 1;
constexpr ShardId kShard(0);

}  // namespace

Engine::Engine(const Workload& workload, uint32_t number, simulation::EventQueue* queue,
               simulation::Node* node, std::function<uint64_t()> steps)
    : workload_(workload),
      number_(number),
      queue_(*queue),
      node_(*node),
      steps_(std::move(steps)),
      session_(number + 1) {}

void Engine::Start() {
  const std::string name = absl::StrCat("engine", number_);
  node_.AskShard<shard::CountReply>(kShard, shard::OpenSession{session_, name, name, "", ""},
                                    [this](const shard::CountReply& reply) {
                                      FOREBAY_CHECK(reply.status.ok());
                                      Ask();
                                    });
}

void Engine::Advance() {
  const double since = Since();
  if (active_.empty()) idle_ms_ += since;
  attempt_ms_ += since * static_cast<double>(active_.size());
  work_ += since * 1e-3 * TokensPerSecond(workload_, active_.size());
  at_ms_ = queue_.now_ms();
}

void Engine::Arm() {
  ++turn_;
  if (active_.empty()) return;
  const double seconds = (active_.top().end - work_) / TokensPerSecond(workload_, active_.size());
  const auto after_ms = static_cast<uint64_t>(std::ceil(std::max(seconds, 0.0) * 1e3));
  queue_.After(after_ms, [this, turn = turn_] {
    if (turn == turn_) EndDue();
  });
}

void Engine::EndDue() {
  Advance();
  while (!active_.empty() && active_.top().end <= work_) {
    const Attempt attempt = active_.top();
    active_.pop();
    Push(attempt);
  }
  Arm();
  Ask();
}

void Engine::Push(const Attempt& attempt) {
  ++pushed_;
  tokens_ += attempt.tokens;
  shard::RolloutMeta meta;
  meta.lease = {attempt.assignment.attempt, attempt.assignment.token};
  meta.duration_ms = queue_.now_ms() - attempt.began_ms;
  meta.rewards_present = 1;
  Prng prng(~attempt.assignment.seed);
  meta.reward = prng.Unit() < SolvedShare(workload_, attempt.assignment.task.value) ? 1 : 0;
  meta.first.tokens = attempt.tokens;
  meta.first.loss_tokens = attempt.tokens;
  meta.payload_bytes = attempt.tokens;
  // What is refused is counted by the shard.
  node_.Push(session_, {std::move(meta)}, [](const shard::PutRolloutsReply&) {});
}

// One at a time: engines take turns, so that none is given much more than the others.
void Engine::Ask() {
  if (asking_ || active_.size() >= workload_.slots) return;
  asking_ = true;
  shard::Assign assign;
  assign.session = session_;
  assign.request_id = ++request_;
  assign.max = 1;
  assign.version = version_;
  node_.Acquire(kShard, assign, kWaitMs, [this](const shard::AssignReply& reply) {
    FOREBAY_CHECK(reply.status.ok());
    Advance();
    for (const shard::Assignment& assignment : reply.assignments) {
      const uint32_t tokens = TokensOf(workload_, assignment.seed, steps_());
      active_.push({work_ + tokens, assignment, tokens, queue_.now_ms()});
    }
    Arm();
    queue_.After(kAskAgainMs, [this] {
      asking_ = false;
      Ask();
    });
  });
}

}  // namespace forebay::bench
