// A ledger with shards that keep their word: what goes out is answered, in virtual time, until all
// is quiet.
//
// For tests of one thread. Every command goes through its byte encoding, and is given to a second
// State as well, which must stay equal to the first.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/archive.h"
#include "ledger/primary.h"
#include "ledger/state.h"
#include "tests/unit/ledger/fake_shard.h"

namespace forebay::ledger {

class Harness {
 public:
  explicit Harness(const Options& options = {}) : state(options), primary(state), twin_(options) {
    for (uint32_t i = 0; i < options.shards; ++i) {
      shards.emplace_back(ShardId(static_cast<uint8_t>(i)));
    }
    Deliver();
  }
  ~Harness() {
    state.CheckInvariants();
    FOREBAY_CHECK(state.Hash() == twin_.Hash());
  }

  // Proposes the command and runs what follows from it until nothing is left to do.
  template <class R = StatusReply>
  R Do(Command command) {
    const Tag tag = ++last_tag_;
    Output output;
    primary.Propose(now, tag, std::move(command), &output);
    Log(&output);
    Deliver();
    const auto it = replies_.find(tag);
    FOREBAY_CHECK(it != replies_.end());
    R reply = std::get<R>(it->second);
    replies_.clear();
    return reply;
  }
  absl::Status Run(Command command) { return Do(std::move(command)).status; }

  // Lets the primary do something, and runs what follows from it.
  template <class F>
  void Act(F act) {
    Output output;
    act(&output);
    Log(&output);
    Deliver();
  }

  // All that is ready becomes known to the ledger, which may ask for it.
  void Summarize() {
    for (size_t i = 0; i < shards.size(); ++i) {
      if (away.contains(ShardId(static_cast<uint8_t>(i)))) continue;
      Act([&](Output* output) { primary.SetSummary(now, shards[i].Summary(), output); });
    }
  }

  // The shard answers no more ...
  void Leave(uint8_t shard) {
    away.insert(ShardId(shard));
    primary.SetAnswering(now, ShardId(shard), false);
  }
  // ... or again.
  void Return(uint8_t shard) {
    away.erase(ShardId(shard));
    primary.SetAnswering(now, ShardId(shard), true);
    Tick();
    Deliver();
  }
  void Tick(uint64_t ms = 0) {
    now += ms;
    Act([&](Output* output) { primary.Tick(now, output); });
  }

  // Carries messages both ways until there are none.
  void Deliver() {
    for (bool moved = true; moved && !paused;) {
      moved = false;
      for (size_t i = 0; i < shards.size(); ++i) {
        const ShardId id(static_cast<uint8_t>(i));
        if (away.contains(id)) continue;
        const auto to_shard = state.outbox(id).Unacknowledged();
        for (const auto& message : to_shard) shards[i].Receive(message);
        if (!to_shard.empty()) ApplyNow(ShardAcknowledged{id, shards[i].received()});
        const auto to_ledger = shards[i].outbox().Unacknowledged();
        for (const auto& message : to_ledger) {
          FromShard command{id, message.number, {}};
          FOREBAY_CHECK(codec::Decode(message.body, &command.message));
          ApplyNow(command);
        }
        moved = moved || !to_shard.empty() || !to_ledger.empty();
      }
    }
  }

  // A step of `groups` groups of the default shape, sealed.
  absl::Status OpenFilled(uint64_t step, const StepSpec& spec) {
    const absl::Status status = Run(OpenStep{generation, StepId(step), spec});
    for (uint32_t i = 0; i < spec.groups; ++i) {
      shards[i % shards.size()].AddReady({.version = state.committed_version().number});
    }
    Summarize();
    return status;
  }
  // One trainer rank for each dp rank.
  void Attach(uint32_t dp = 2) {
    mesh.dp = dp;
    for (uint32_t rank = 0; rank < dp; ++rank) {
      const auto reply = Do<AttachReply>(AttachTrainer{"t", 100 + rank, mesh, rank, 0, {}});
      FOREBAY_CHECK(reply.status.ok());
      generation = reply.generation;
    }
  }
  SourceId PutTrainSource(const std::string& name = "math", uint32_t group_size = 4) {
    codec::SourceSettings settings;
    settings.name = name;
    settings.group_size = settings.attempts_per_task = settings.complete_at = group_size;
    const auto reply = Do<PutSourceReply>(PutSource{settings});
    FOREBAY_CHECK(reply.status.ok());
    return reply.source;
  }
  StepSpec Spec(uint32_t groups = 4) const {
    StepSpec spec;
    spec.groups = groups;
    spec.mesh = mesh;
    spec.token_budget = 512;
    return spec;
  }
  const Step& step(uint64_t id) const {
    FOREBAY_CHECK(state.step(StepId(id)) != nullptr);
    return *state.step(StepId(id));
  }
  CommitReply Commit(uint64_t id, uint32_t revision = 1) {
    return Do<CommitReply>(CommitStep{generation, StepId(id), Revision(revision)});
  }

  // Steps from the next one on, `count` of them, opened, filled, and committed.
  void Train(uint32_t count, uint32_t groups = 2) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t next = state.next_step().value;
      FOREBAY_CHECK(OpenFilled(next, Spec(groups)).ok());
      FOREBAY_CHECK(Commit(next, step(next).revision.value).status.ok());
    }
  }
  RewindReply GoBack(uint64_t step, bool replay = false) {
    return Do<RewindReply>(Rewind{++last_rewind_, generation, StepId(step), replay, ""});
  }

  State state;
  Primary primary;
  std::vector<FakeShard> shards;
  uint64_t now = 0;
  Mesh mesh;
  Generation generation;
  bool paused = false;  // messages stay where they are
  std::set<ShardId> away;
  std::vector<Announcement> announced;
  std::vector<PayloadId> dead;
  std::vector<StepId> changed;
  std::vector<Command> log;

 private:
  void Log(Output* output) {
    for (TaggedReply& reply : output->replies) replies_.emplace(reply.tag, std::move(reply.reply));
    std::vector<std::pair<Tag, Command>> commands = std::move(output->commands);
    for (auto& [tag, command] : commands) ApplyNow(command, tag);
  }

  void ApplyNow(const Command& command, Tag tag = 0) {
    Command decoded;
    FOREBAY_CHECK(codec::Decode(codec::Encode(command), &decoded));
    log.push_back(decoded);
    Effects effects, twins;
    state.Apply(decoded, tag, &effects);
    twin_.Apply(decoded, tag, &twins);
    FOREBAY_CHECK(effects.to_shards.size() == twins.to_shards.size());
    for (TaggedReply& reply : effects.replies) replies_.emplace(reply.tag, std::move(reply.reply));
    for (const auto& [shard, number] : effects.acknowledge_shards) {
      shards[shard.value].outbox().Acknowledge(number);
    }
    announced.insert(announced.end(), effects.announcements.begin(), effects.announcements.end());
    dead.insert(dead.end(), effects.dead_payloads.begin(), effects.dead_payloads.end());
    changed.insert(changed.end(), effects.steps_changed.begin(), effects.steps_changed.end());
    Output output;
    primary.Applied(now, decoded, effects, &output);
    Log(&output);
  }

  State twin_;
  Tag last_tag_ = 0;
  uint64_t last_rewind_ = 0;
  std::map<Tag, Reply> replies_;
};

}  // namespace forebay::ledger
