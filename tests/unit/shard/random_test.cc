// Random operations: all invariants hold after each; replicas, snapshots and the byte encoding of
// commands agree.
#include <deque>
#include <memory>
#include <string>

#include "base/prng.h"
#include "codec/snapshot_parts.h"
#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

constexpr SourceId kEvalSource{1};

// Draws commands, good and bad, by what it has seen.
class Driver {
 public:
  explicit Driver(uint64_t seed) : prng_(seed) {}

  Command Next(Harness& h) {
    switch (prng_.Below(20)) {
      case 0:
        return OpenSession{SessionId(1 + prng_.Below(3)), "actor", "engine", "", ""};
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        return NextAssign();
      case 6:
      case 7:
      case 8:
      case 9:
      case 10:
        return NextPut(h);
      case 11:
        return Release{SessionId(1 + prng_.Below(3)), Leases()};
      case 12:
        return Fail{SessionId(1 + prng_.Below(3)), Leases(), "x"};
      case 13:
        return Expire{Leases()};
      case 14:
        return NextTimeout();
      case 15:
        return NextPutGroup(h);
      case 16:
        return NextRewards();
      case 17:
        return NextRare(h);
      default:
        return NextFromLedger(h);
    }
  }

  void Saw(const Effects& effects) {
    for (const TaggedReply& reply : effects.replies) {
      const auto* assign = std::get_if<AssignReply>(&reply.reply);
      if (assign == nullptr) continue;
      for (const Assignment& a : assign->assignments) {
        seen_.push_back(a);
        if (seen_.size() > 300) seen_.pop_front();
      }
    }
  }

 private:
  Command NextAssign() {
    Assign assign;
    assign.session = SessionId(1 + prng_.Below(3));
    assign.request_id = prng_.Below(10) == 0 ? request_id_ : ++request_id_;
    assign.max = static_cast<uint32_t>(prng_.Below(12));
    assign.version = {branch_, published_};
    assign.loads_any_version = prng_.Below(2) == 0;
    if (prng_.Below(8) == 0) assign.new_groups_max = 1;
    return assign;
  }

  LeaseRef Lease() {
    if (seen_.empty()) return {};
    const Assignment& a = seen_[prng_.Below(seen_.size())];
    return {a.attempt, a.token + (prng_.Below(20) == 0 ? 1 : 0)};
  }
  std::vector<LeaseRef> Leases() {
    std::vector<LeaseRef> leases(1 + prng_.Below(3));
    for (LeaseRef& lease : leases) lease = Lease();
    return leases;
  }

  RolloutMeta Meta(Harness& h) {
    RolloutMeta meta = h.Meta(static_cast<double>(prng_.Below(3)) / 2);
    meta.lease = Lease();
    if (prng_.Below(6) == 0) meta.rewards_present = 0;
    if (prng_.Below(8) == 0) meta.partial = true;
    if (prng_.Below(8) == 0) meta.status = static_cast<RolloutStatus>(prng_.Below(4));
    if (prng_.Below(4) == 0) {
      const uint32_t version = static_cast<uint32_t>(prng_.Below(published_ + 2));
      meta.first.versions = {{0, {branch_, version}, 4}, {9, {branch_, published_}, 6}};
    }
    if (prng_.Below(6) == 0) meta.more = {meta.first, {3, 1, 2, 0.5f, {}}};
    if (prng_.Below(20) == 0) meta.first.loss_tokens = 99;
    return meta;
  }
  Command NextPut(Harness& h) {
    PutRollouts put{SessionId(1 + prng_.Below(3)), {}};
    for (uint64_t i = 0; i <= prng_.Below(6); ++i) put.rollouts.push_back(Meta(h));
    return put;
  }
  Command NextPutGroup(Harness& h) {
    PutGroup put{1 + prng_.Below(40), SourceId(prng_.Below(8) == 0 ? 1 : 0), {}, {}};
    put.task = {prng_.Below(50) + 990, 2000, PayloadId(++h.payload), 1};
    for (uint64_t i = 0; i <= prng_.Below(5); ++i) put.rollouts.push_back(Meta(h));
    return put;
  }
  Command NextTimeout() {
    GroupsTimedOut timed_out;
    if (!seen_.empty()) {
      timed_out.groups.push_back(seen_[prng_.Below(seen_.size())].group);
      timed_out.unrewarded.push_back(Lease().attempt);
    }
    return timed_out;
  }
  Command NextRewards() {
    SetRewards set;
    for (int i = 0; i < 3; ++i) {
      set.rewards.push_back({Lease().attempt, static_cast<uint8_t>(prng_.Below(3)), 0.5});
    }
    return set;
  }
  Command NextDrop() {
    DropForBudget drop;
    for (uint64_t i = prng_.Below(3); i > 0; --i) {
      drop.spared.push_back(SourceId(static_cast<uint16_t>(i)));
    }
    return drop;
  }
  // Of all that is held, some.
  Command NextDamage(Harness& h) {
    std::vector<PayloadId> lost;
    const auto perhaps = [&](PayloadId id) {
      if (prng_.Below(6) == 0) lost.push_back(id);
    };
    h.state.ForEachPayload(perhaps, [](PayloadId) {});
    return DropDamaged{h.state.FindPayloads(lost)};
  }
  Command NextOperatorDrop(Harness& h) {
    DropByOperator drop{SourceId(prng_.Below(8) == 0 ? 1 : 0), prng_.Below(3) == 0, {}};
    uint64_t cursor = 0;
    for (const RolloutView& view : h.state.Rollouts(&cursor, 1000)) {
      const bool of_a_step =
          view.state == GroupState::kReserved || view.state == GroupState::kTrained;
      if (!drop.ready && !of_a_step && prng_.Below(10) == 0) {
        drop.rollouts.push_back(view.rollout);
      }
    }
    cursor = 0;
    for (const RolloutView& view : h.state.Kept(&cursor, 1000)) {
      const bool of_source = view.task.source() == drop.source;
      if (!drop.ready && of_source && prng_.Below(10) == 0) drop.rollouts.push_back(view.rollout);
    }
    return drop;
  }
  Command NextRare(Harness& h) {
    switch (prng_.Below(7)) {
      case 0:
        return NextDrop();
      case 5:
        return NextDamage(h);
      case 6:
        return NextOperatorDrop(h);
      case 1:
        return SetQuarantine{
            SourceId(static_cast<uint16_t>(prng_.Below(3))), true, {1000 + prng_.Below(40)}, false};
      case 2:
        return SetQuarantine{SourceId(static_cast<uint16_t>(prng_.Below(2))), false, {}, true};
      case 3:
        return StartEval{EvalRunId(1 + prng_.Below(300)),
                         kEvalSource,
                         {branch_, published_},
                         static_cast<uint32_t>(1 + prng_.Below(3)),
                         0.5};
      default:
        return LedgerAcknowledged{prng_.Below(5) == 0 ? UINT64_MAX : prng_.Below(50)};
    }
  }

  codec::KeepRule Keep() {
    return {static_cast<double>(prng_.Below(3)) / 2, prng_.Below(2) == 0, prng_.Below(5) * 500};
  }

  Command NextFromLedger(Harness& h) { return FromLedger{++h.ledger_number, Message(h)}; }
  codec::ToShard Message(Harness& h) {
    const StepId step(prng_.Below(4));
    switch (prng_.Below(12)) {
      case 10:
        if (prng_.Below(2) == 0) return codec::StepsCovered{step, Keep()};
        return codec::StepsReleased{step, Keep()};
      case 11: {
        if (prng_.Below(3) > 0) return codec::Unreserve{step, {}};
        codec::VersionState versions = h.Versions(published_);
        ++branch_;
        h.branch = branch_;
        versions.branch = branch_;
        published_ = static_cast<uint32_t>(prng_.Below(3));
        return codec::Rewound{
            step, StepId(step.value + prng_.Below(3)), {branch_, published_}, versions};
      }
      case 0: {
        h.settings.late = static_cast<codec::LateRule>(prng_.Below(5));
        h.settings.lag_of = static_cast<codec::LagOf>(prng_.Below(4));
        h.settings.truncated = static_cast<codec::TruncatedRule>(prng_.Below(3));
        h.settings.aborted = static_cast<codec::AbortedRule>(prng_.Below(2));
        h.settings.advantage = static_cast<codec::AdvantageKind>(prng_.Below(5));
        h.settings.attempts_per_task = static_cast<uint32_t>(4 + prng_.Below(3));
        h.settings.max_lag = static_cast<uint32_t>(prng_.Below(3));
        h.settings.reward_timeout_ms = prng_.Below(2) * 1000;
        return codec::SourceChanged{Harness::kSource, h.settings};
      }
      case 1: {
        if (prng_.Below(6) == 0) {
          ++branch_;
          published_ = 0;
        }
        published_ += static_cast<uint32_t>(prng_.Below(2));
        h.branch = branch_;
        return h.Versions(published_, prng_.Below(3) * 12);
      }
      case 2:
        return codec::Unreserve{step, {}};
      case 3:
        return codec::StepReplanned{step, Revision(static_cast<uint32_t>(prng_.Below(9)))};
      case 4:
      case 5:
        return codec::StepCommitted{
            step, Revision(1), {branch_, published_ + 1}, prng_.Below(2) == 0, Keep()};
      default: {
        codec::Reserve reserve;
        reserve.step = step;
        reserve.revision = Revision(1);
        reserve.groups = static_cast<uint32_t>(prng_.Below(4));
        reserve.train_version = {branch_, published_ + static_cast<uint32_t>(prng_.Below(2))};
        if (prng_.Below(4) == 0) reserve.max_lag = 1;
        if (prng_.Below(4) == 0) reserve.sources = {Harness::kSource};
        return reserve;
      }
    }
  }

  Prng prng_;
  std::deque<Assignment> seen_;
  uint64_t request_id_ = 0;
  uint32_t branch_ = 0;
  uint32_t published_ = 0;
};

void StartBoth(Harness& h) {
  h.settings.complete_minimum = 2;
  h.Start(40);
  const codec::SourceSettings train = h.settings;
  h.settings.name = "held-out";
  h.settings.purpose = codec::Purpose::kEval;
  h.PutSource(kEvalSource);
  h.Add(kEvalSource, 500, 5);
  h.settings = train;
}

std::string SnapshotOf(const State& state) {
  std::string bytes;
  codec::Writer writer(&bytes);
  state.Snapshot(writer);
  return bytes;
}

class RandomCommands : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomCommands, KeepAllInvariantsAndReplicasEqual) {
  Harness a;
  StartBoth(a);
  Harness b;
  StartBoth(b);
  Driver driver(GetParam());
  for (int i = 0; i < 1500; ++i) {
    const Command command = driver.Next(a);
    const std::string bytes = codec::Encode(command);
    Command decoded;
    ASSERT_TRUE(codec::Decode(bytes, &decoded));
    ASSERT_EQ(codec::Encode(decoded), bytes);
    a.Apply(command, 1);
    driver.Saw(a.effects);
    b.Apply(decoded, 0);
    ASSERT_EQ(a.state.CheckInvariants(), "") << "command " << i << ", kind " << command.index();
    ASSERT_EQ(a.effects.dead_payloads, b.effects.dead_payloads);
    if (i % 50 == 0) {
      ASSERT_EQ(SnapshotOf(a.state), SnapshotOf(b.state)) << i;
    }
  }
  EXPECT_EQ(a.state.Hash(), b.state.Hash());
  EXPECT_GT(a.Counters().trained + a.Counters().taken_back, 0u);
}

TEST_P(RandomCommands, ARestoredSnapshotBehavesTheSame) {
  Harness a;
  StartBoth(a);
  Driver driver(GetParam());
  for (int i = 0; i < 600; ++i) {
    a.Apply(driver.Next(a), 1);
    driver.Saw(a.effects);
  }
  const std::string bytes = SnapshotOf(a.state);
  State copy(Options{ShardId(3), 0});
  codec::Reader reader(bytes);
  ASSERT_TRUE(copy.Restore(reader));
  ASSERT_TRUE(reader.Done());
  ASSERT_EQ(copy.Hash(), a.state.Hash());
  Effects effects;
  for (int i = 0; i < 600; ++i) {
    const Command command = driver.Next(a);
    a.Apply(command, 1);
    driver.Saw(a.effects);
    effects.Clear();
    copy.Apply(command, 0, &effects);
    ASSERT_EQ(effects.dead_payloads, a.effects.dead_payloads);
    ASSERT_EQ(copy.CheckInvariants(), "");
  }
  EXPECT_EQ(SnapshotOf(copy), SnapshotOf(a.state));
}

// A piece at a time, with a command in between.
TEST_P(RandomCommands, ASnapshotThatIsWrittenMeanwhileIsOfItsMoment) {
  Harness a;
  StartBoth(a);
  Driver driver(GetParam());
  std::unique_ptr<codec::Parts> parts;
  std::string expected, written;
  int finished = 0;
  for (int i = 0; i < 1500; ++i) {
    if (parts == nullptr) {
      expected = SnapshotOf(a.state);
      written.clear();
      parts = std::make_unique<codec::Parts>();
      a.state.Snapshot(parts->writer());
    }
    codec::Piece piece = parts->Next();
    a.Apply(driver.Next(a), 1);
    driver.Saw(a.effects);
    if (piece) {
      piece(&written);
      continue;
    }
    ASSERT_EQ(written, expected) << "command " << i;
    parts = nullptr;
    ++finished;
  }
  EXPECT_GT(finished, 50);
  EXPECT_EQ(a.state.CheckInvariants(), "");
}

// Every command finds all tables held by a snapshot: one that looked at what was there before a
// copy would do something else than its twin.
TEST_P(RandomCommands, DoTheSameWhileASnapshotHoldsTheState) {
  Harness a;
  StartBoth(a);
  Harness b;
  StartBoth(b);
  Driver driver(GetParam());
  std::unique_ptr<codec::Parts> parts;
  for (int i = 0; i < 1500; ++i) {
    const Command command = driver.Next(a);
    parts = nullptr;
    parts = std::make_unique<codec::Parts>();
    a.state.Snapshot(parts->writer());
    a.Apply(command, 1);
    driver.Saw(a.effects);
    b.Apply(command, 1);
    ASSERT_EQ(a.effects.dead_payloads, b.effects.dead_payloads);
    ASSERT_EQ(a.effects.replies.size(), b.effects.replies.size());
    if (i % 10 == 0) {
      ASSERT_EQ(SnapshotOf(a.state), SnapshotOf(b.state)) << i;
    }
  }
  EXPECT_EQ(SnapshotOf(a.state), SnapshotOf(b.state));
}

TEST_P(RandomCommands, EveryAcceptedPayloadDiesOnce) {
  Harness h;
  StartBoth(h);
  Driver driver(GetParam());
  std::vector<uint64_t> dead;
  for (int i = 0; i < 1500; ++i) {
    h.Apply(driver.Next(h), 1);
    driver.Saw(h.effects);
    for (PayloadId id : h.effects.dead_payloads) dead.push_back(id.value);
  }
  uint64_t cursor = 0;
  while (cursor != UINT64_MAX) {
    for (const RolloutView& view : h.state.Rollouts(&cursor, 100)) {
      if (view.payload != PayloadId()) dead.push_back(view.payload.value);
    }
  }
  cursor = 0;
  for (const RolloutView& view : h.state.Kept(&cursor, SIZE_MAX)) {
    dead.push_back(view.payload.value);
  }
  std::sort(dead.begin(), dead.end());
  EXPECT_EQ(std::adjacent_find(dead.begin(), dead.end()), dead.end());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomCommands, testing::Range<uint64_t>(1, 9));

TEST(Snapshot, DamagedBytesAreRefusedOrGiveAValidState) {
  Harness a;
  StartBoth(a);
  Driver driver(3);
  for (int i = 0; i < 400; ++i) {
    a.Apply(driver.Next(a), 1);
    driver.Saw(a.effects);
  }
  const std::string bytes = SnapshotOf(a.state);
  Prng prng(11);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (uint64_t flips = 1 + prng.Below(3); flips > 0; --flips) {
      damaged[prng.Below(damaged.size())] ^= static_cast<char>(1 << prng.Below(8));
    }
    if (prng.Below(10) == 0) damaged.resize(prng.Below(damaged.size()));
    State copy(Options{ShardId(3), 0});
    codec::Reader reader(damaged);
    refused += !copy.Restore(reader);
    ASSERT_EQ(copy.CheckInvariants(), "");
  }
  EXPECT_GT(refused, 1000);
}

TEST(Snapshot, AnotherShardsIsRefused) {
  Harness a;
  StartBoth(a);
  const std::string bytes = SnapshotOf(a.state);
  State other(Options{ShardId(4), 7});
  codec::Reader reader(bytes);
  EXPECT_FALSE(other.Restore(reader));
}

}  // namespace
}  // namespace forebay::shard
