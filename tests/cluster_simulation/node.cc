#include "tests/cluster_simulation/node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/archive.h"

namespace forebay::cluster_simulation {
namespace {

constexpr uint64_t kReadMs = 1'000;  // a watch that says nothing is not believed for longer
constexpr uint64_t kSnapshotMs = 30, kSlowSnapshotMs = 6'000;

}  // namespace

Node::Node(World* world, NodeId id)
    : world_(*world),
      id_(id),
      clock_offset_ms_(world_.dice.Below(1'000'000)),
      clock_percent_(100 - world_.options.clock_error_percent +
                     world_.dice.Below(2 * world_.options.clock_error_percent + 1)) {
  for (uint32_t m = 0; m < world_.options.machines; ++m) {
    Hosted hosted;
    hosted.machine = m;
    hosted.disk =
        std::make_unique<Disk>(world_.options, &world_.queue, &world_.dice, &world_.stats);
    hosted_.push_back(std::move(hosted));
  }
}

const replication::Replica* Node::replica(uint32_t machine) const {
  return hosted_[machine].replica.get();
}

uint64_t Node::Now() const {
  return clock_offset_ms_ + world_.queue.now_ms() * clock_percent_ / 100;
}

void Node::Run(std::function<void()> work) {
  if (!up_) return world_.queue.Idle();
  const uint64_t now = world_.queue.now_ms();
  if (now >= frozen_until_ms_) return work();
  world_.queue.After(frozen_until_ms_ - now, [this, life = life_, work = std::move(work)] {
    if (life == life_) Run(work);
  });
}

void Node::Start() {
  up_ = true;
  ++life_;
  frozen_until_ms_ = 0;
  for (Hosted& hosted : hosted_) Open(hosted);
  Tick();
}

void Node::Open(Hosted& hosted) {
  Disk& disk = *hosted.disk;
  disk.Open([this, &hosted](replication::LogGeneration generation, LogPosition position) {
    Run([this, &hosted, generation, position] {
      hosted.replica->OnSynced(generation, position, Now());
      Pump(hosted);
    });
  });
  hosted.state = std::make_unique<Machine>(world_.options.accept_duplicates,
                                           world_.options.diverge && id_ == NodeId(2) ? 1 : 0);
  if (disk.snapshot_base().position != LogPosition()) hosted.state->Restore(disk.snapshot());
  hosted.applied = hosted.saved = disk.snapshot_base().position;
  hosted.waiting.clear();
  const replication::Identity self{id_, disk.incarnation(), disk.kept_since()};
  hosted.replica = std::make_unique<replication::Replica>(
      world_.options.replication, world_.options.mutations, self, disk.Recover(), Now());
  if (world_.tracing)
    world_.note(absl::StrCat("node ", id_.value, " starts machine ", hosted.machine, " under ",
                             self.incarnation.value, " kept since ", self.kept_since.value,
                             " with the log up to ", hosted.replica->log().last().position.value,
                             " of epoch ", hosted.replica->log().last().epoch.value));
}

void Node::Crash(bool rot) {
  if (!up_) return;
  up_ = false;
  ++life_;
  for (Hosted& hosted : hosted_) {
    hosted.replica.reset();
    hosted.waiting.clear();
    hosted.disk->Crash(rot);
  }
}

void Node::LoseDisks() {
  for (Hosted& hosted : hosted_) hosted.disk->Lose();
}

void Node::Freeze(uint64_t for_ms) { frozen_until_ms_ = world_.queue.now_ms() + for_ms; }

void Node::BeSlow(uint64_t sync_ms) {
  for (Hosted& hosted : hosted_) hosted.disk->BeSlow(sync_ms);
}

void Node::Heal() {
  BeSlow(0);
  if (!up_) Start();
}

void Node::Tick() {
  for (Hosted& hosted : hosted_) {
    hosted.replica->OnTick(Now());
    Pump(hosted);
    if (world_.queue.now_ms() % kReadMs < world_.options.tick_ms)
      world_.coordinator.Read(id_, hosted.machine);
  }
  world_.queue.After(world_.options.tick_ms, [this, life = life_] {
    if (life == life_) Run([this] { Tick(); });
  });
}

void Node::OnNews(uint32_t machine, cluster::ConfigurationRevision revision,
                  const cluster::Configuration& configuration) {
  Run([this, machine, revision, configuration] {
    Hosted& hosted = hosted_[machine];
    hosted.replica->OnConfiguration(revision, configuration, Now());
    Pump(hosted);
  });
}

void Node::OnBytes(uint32_t machine, const std::string& bytes) {
  Run([this, machine, bytes] {
    Hosted& hosted = hosted_[machine];
    const auto message = replication::DecodeMessage(bytes);
    if (!message.ok())
      return world_.checker.Fail("messages decode", std::string(message.status().message()));
    hosted.replica->OnMessage(*message, Now());
    Pump(hosted);
  });
}

void Node::OnRequest(uint32_t machine, const Operation& operation, Answer answer) {
  Run([this, machine, operation, answer = std::move(answer)] {
    Hosted& hosted = hosted_[machine];
    const auto at = hosted.replica->Propose(codec::Encode(operation), Now());
    if (!at.ok()) return answer({std::nullopt, hosted.replica->leader()});
    hosted.waiting[operation] = answer;
    Pump(hosted);
  });
}

void Node::HandOver(uint32_t machine, NodeId to) {
  Run([this, machine, to] {
    Hosted& hosted = hosted_[machine];
    if (hosted.replica->HandOver(to, Now()).ok()) world_.stats.Count(Fault::kSwitchover);
    Pump(hosted);
  });
}

void Node::OnSnapshot(uint32_t machine, replication::LogPlace base, const std::string& state) {
  Run([this, machine, base, state] {
    Hosted& hosted = hosted_[machine];
    if (!hosted.replica->WantsSnapshot(base)) return;
    hosted.disk->Save(base, state, /*own=*/false, [this, &hosted, base, state] {
      Run([this, &hosted, base, state] {
        if (!hosted.replica->WantsSnapshot(base)) return;
        hosted.state->Restore(state);
        hosted.applied = hosted.saved = base.position;
        hosted.replica->OnSnapshotInstalled(base, Now());
        Pump(hosted);
      });
    });
  });
}

void Node::SendSnapshot(Hosted& hosted, NodeId to) {
  if (hosted.applied == LogPosition()) return hosted.replica->OnSnapshotEnded(to);
  world_.stats.Count(Fault::kSnapshotSent);
  const replication::LogPlace base{hosted.replica->log().EpochAt(hosted.applied), hosted.applied};
  const auto deliver = [this, life = life_, &hosted, machine = hosted.machine, to, base,
                        state = hosted.state->Snapshot()] {
    if (life != life_) return;
    Run([&hosted, to] { hosted.replica->OnSnapshotEnded(to); });
    world_.network.Deliver(id_, to, [this, machine, to, base, state] {
      world_.nodes[to.value - 1]->OnSnapshot(machine, base, state);
    });
  };
  const uint64_t most_ms = world_.dice.OneIn(10) ? kSlowSnapshotMs : kSnapshotMs;
  world_.queue.After(world_.dice.Between(1, most_ms), deliver);
}

void Node::SaveSnapshot(Hosted& hosted) {
  hosted.saved = hosted.applied;
  hosted.disk->Save({hosted.replica->log().EpochAt(hosted.applied), hosted.applied},
                    hosted.state->Snapshot(), /*own=*/true, [] {});
}

void Node::Pump(Hosted& hosted) {
  do {
    Do(hosted, hosted.replica->Take());
  } while (Apply(hosted));
}

void Node::Do(Hosted& hosted, replication::Output output) {
  const uint32_t machine = hosted.machine;
  if (output.failure) world_.checker.OnStopped(machine, id_, *output.failure);
  for (replication::LogWrite& write : output.log) hosted.disk->Write(std::move(write));
  for (const replication::RoleChange& change : output.roles) {
    if (world_.tracing)
      world_.note(absl::StrCat("node ", id_.value, " of machine ", machine, " is ",
                               change.role == replication::Role::kPrimary ? "primary" : "backup",
                               " in epoch ", change.epoch.value));
    if (change.role == replication::Role::kBackup) hosted.waiting.clear();
    if (change.role == replication::Role::kPrimary)
      world_.checker.OnReign(machine, id_, change, hosted.replica->log());
  }
  for (const auto& [to, message] : output.messages) {
    if (to.value == 0 || to.value > world_.nodes.size()) continue;
    world_.network.Deliver(id_, to, [this, machine, to = to, bytes = EncodeMessage(message)] {
      world_.nodes[to.value - 1]->OnBytes(machine, bytes);
    });
  }
  for (const NodeId to : output.snapshots) SendSnapshot(hosted, to);
  for (const replication::Swap& swap : output.swaps) {
    if (world_.tracing)
      world_.note(absl::StrCat("node ", id_.value, " of machine ", machine, " asks for ",
                               cluster::Text(swap.next)));
    world_.coordinator.Ask(id_, machine, swap,
                           [this, life = life_, &hosted](const replication::SwapAnswer& answer) {
                             if (life != life_) return;
                             Run([this, &hosted, answer] {
                               hosted.replica->OnSwapAnswer(answer, Now());
                               Pump(hosted);
                             });
                           });
  }
}

bool Node::Apply(Hosted& hosted) {
  replication::Replica& replica = *hosted.replica;
  if (replica.failed() || hosted.applied >= replica.committed()) return false;
  const LogPosition position(hosted.applied.value + 1);
  const replication::Entry entry = replica.log().At(position);
  world_.checker.OnCommitted(hosted.machine, id_, position, entry);
  hosted.applied = position;
  Operation operation;
  std::optional<uint64_t> count;
  if (!entry.command.empty()) {
    FOREBAY_CHECK(codec::Decode(entry.command, &operation));
    count = hosted.state->Apply(operation);
  }
  std::optional<uint64_t> hash;
  if (position.value % world_.options.hash_every == 0) {
    hash = hosted.state->Hash();
    world_.checker.OnState(hosted.machine, id_, position, *hash);
  }
  replica.OnApplied(position, hash);
  const auto waiting = hosted.waiting.find(operation);
  if (count && waiting != hosted.waiting.end()) {
    const Answer answer = std::move(waiting->second);
    hosted.waiting.erase(waiting);
    answer({count, id_});
  }
  if (replica.serving())
    world_.checker.OnServing(hosted.machine, id_, replica.epoch(), *hosted.state);
  if (position.value - hosted.saved.value >= world_.options.snapshot_every) SaveSnapshot(hosted);
  return true;
}

}  // namespace forebay::cluster_simulation
