#include "tests/simulation/trainer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/dice.h"

namespace forebay::simulation {

using ledger::MicroBatchRef;

namespace {

constexpr uint8_t kFloat32 = 11;  // forebay.v1.DTYPE_F32

}  // namespace

ledger::Rewind RandomRewind(World& world, StepId from, Generation generation) {
  ledger::Rewind rewind;
  rewind.request_id = world.dice.Next() | 1;
  rewind.generation = generation;
  rewind.step = StepId(from.value - std::min(from.value, world.dice.Below(8)));
  rewind.replay = world.dice.OneIn(2);
  rewind.reason = "it diverged";
  // Now and then one that is refused.
  if (world.dice.OneIn(10)) return rewind;
  const ledger::State& ledger = world.node.ledger();
  rewind.step = std::max(rewind.step, ledger.checkpoint().step);
  if (rewind.replay) rewind.step = std::max(rewind.step, ledger.oldest_replay());
  return rewind;
}

Job::Job(World* world, uint64_t number, uint32_t ranks, std::function<void(Job*)> crashed)
    : world_(*world), number_(number), crashed_(std::move(crashed)) {
  mesh_.dp = ranks;
  for (uint32_t i = 0; i < ranks; ++i) processes_.push_back(world_.dice.Next() | 1);
}

void Job::Attach() {
  ++turn_;
  attached_.assign(processes_.size(), Generation());
  for (uint32_t rank = 0; rank < processes_.size(); ++rank) {
    ledger::AttachTrainer attach{
        absl::StrCat("job", number_, ".", rank), processes_[rank], mesh_, rank, 0, {}};
    Ask<ledger::AttachReply>(
        attach, [this, rank](const ledger::AttachReply& reply) { AttachedAt(rank, reply); });
  }
}

void Job::AttachedAt(uint32_t rank, const ledger::AttachReply& reply) {
  if (!reply.status.ok()) {
    // A predecessor's message took the place after it; the launcher starts a process anew.
    if (!zombie_ && absl::IsAborted(reply.status)) processes_[rank] = world_.dice.Next() | 1;
    return Refused(reply.status);
  }
  attached_[rank] = reply.generation;
  step_ = reply.next_step;
  version_ = reply.train_version;
  const Generation newest = *std::max_element(attached_.begin(), attached_.end());
  const bool all = std::count(attached_.begin(), attached_.end(), Generation()) == 0;
  if (!all) return;
  // Some joined a generation that is over already.
  if (std::count(attached_.begin(), attached_.end(), newest) != std::ptrdiff_t(attached_.size()))
    return Attach();
  generation_ = newest;
  ++turn_;
  Attached();
}

// It loads the newest weights from its checkpoint, and announces them if its predecessor did not.
void Job::Attached() {
  if (world_.node.ledger().published().version < version_)
    return PublishThen([this] { Open(step_); });
  Open(step_);
}

void Job::PublishThen(std::function<void()> then) {
  if (!world_.options.pending_first)
    return Announce(ledger::VersionPhase::kPublished, std::move(then));
  Announce(ledger::VersionPhase::kPending, [this, then = std::move(then)] {
    Later(world_.dice.Between(50, 500),
          [this, then] { Announce(ledger::VersionPhase::kPublished, then); });
  });
}

void Job::Announce(ledger::VersionPhase phase, std::function<void()> then) {
  ledger::PublishVersion publish;
  publish.generation = generation_;
  publish.announcement.version = version_;
  publish.announcement.phase = phase;
  publish.announcement.where = absl::StrCat("checkpoint/", version_.number);
  Ask<ledger::StatusReply>(publish,
                           [this, then = std::move(then)](const ledger::StatusReply& reply) {
                             if (!reply.status.ok()) return Refused(reply.status);
                             then();
                           });
}

// The same for every job that comes to this step, but for the mesh.
ledger::StepSpec Job::SpecOf(StepId step) const {
  const HistoryOptions& o = world_.options;
  Dice dice(HashCombine(o.seed, step.value));
  ledger::StepSpec spec;
  spec.groups = o.tokens_per_step > 0 ? 0 : o.groups_per_step;
  spec.tokens = o.tokens_per_step;
  spec.mesh = mesh_;
  spec.token_budget = 4'096;
  spec.mini_batches = o.mini_batches;
  spec.pad_multiple = dice.OneIn(2) ? 64 : 1;
  spec.groups_whole = spec.groups >= o.mini_batches && dice.OneIn(4);
  if (dice.Chance(o.step_max_lag)) {
    spec.max_lag = static_cast<uint32_t>((o.publish_every - 1) * o.mini_batches + dice.Below(3));
  }
  spec.refuse_over_budget = dice.OneIn(5) && !takes_all_;
  spec.custom_advantages = o.custom_advantages && dice.OneIn(2);
  if (dice.Chance(o.step_source)) {
    const codec::SourceSettings& only = o.sources[dice.Below(o.sources.size())];
    const ledger::Source* source = world_.node.ledger().FindSource(only.name);
    if (source != nullptr && only.purpose == codec::Purpose::kTrain) spec.sources = {source->id};
  }
  return spec;
}

bool Job::AllSourcesKnown() const {
  const auto& wanted = world_.options.sources;
  return std::ranges::all_of(wanted, [this](const codec::SourceSettings& source) {
    return world_.node.ledger().FindSource(source.name) != nullptr;
  });
}

void Job::Open(StepId step) {
  if (CrashNow()) return;
  if (!AllSourcesKnown()) return Later(100, [this, step] { Open(step); });
  const ledger::Step* held = world_.node.ledger().step(step);
  // A client that waits for the step is told that it was aborted, and why.
  takes_all_ |= held != nullptr && held->state == ledger::StepState::kAborted;
  ledger::OpenStep open{generation_, step, SpecOf(step), false};
  // What another mesh has opened is packed anew.
  open.replan = held != nullptr && held->spec.mesh != mesh_;
  if (world_.Mishap(world_.options.replan)) {
    world_.stats.Count(Fault::kReplan);
    open.spec.token_budget = 2'048 + 1'024 * world_.dice.Below(4);
    open.replan = !world_.options.mutations.replan_in_place;
  } else if (held != nullptr && held->live() && held->spec.mesh == mesh_) {
    open.spec = held->spec;
  }
  if (zombie_) world_.stats.Count(Fault::kZombieCall);
  world_.network.Call<OpenView>(
      [this, open](Answer<OpenView> answer) {
        world_.node.AskLedger<ledger::StatusReply>(
            open,
            [this, step = open.step, answer = std::move(answer)](const ledger::StatusReply& reply) {
              OpenView view;
              view.status = reply.status;
              const ledger::Step* opened = world_.node.ledger().step(step);
              if (view.status.ok() && opened != nullptr) {
                view.state = opened->state;
                view.revision = opened->revision;
                view.rollouts = opened->rollouts.size();
                for (const auto& mini_batch : opened->mini_batches) {
                  view.micro_batches.push_back(mini_batch.micro_batches_per_rank);
                }
              }
              answer(std::move(view));
            });
      },
      [this, turn = turn_, step](std::optional<OpenView> view) {
        if (!alive_ || turn != turn_) return world_.queue.Idle();
        if (!view) return Attach();
        TakeOpened(step, *view);
      });
}

void Job::TakeOpened(StepId step, const OpenView& view) {
  if (!view.status.ok()) return Refused(view.status);
  if (step != step_) return Open(step_);  // it was opened ahead
  revision_ = view.revision;
  switch (view.state) {
    case ledger::StepState::kReserved:
      return PutAdvantages(view);
    case ledger::StepState::kSealed:
      return FetchAll(view);
    case ledger::StepState::kCommitted:
      return Attach();
    case ledger::StepState::kOpen:
    case ledger::StepState::kAborted:
      break;
  }
  if (world_.Mishap(world_.options.abort / 10)) return Abort();
  const bool ahead = world_.options.open_ahead > 1 && world_.dice.OneIn(3);
  Later(world_.dice.Between(100, 1'000),
        [this, ahead] { Open(ahead ? StepId(step_.value + 1) : step_); });
}

void Job::PutAdvantages(const OpenView& view) {
  ledger::PutAdvantages put{generation_, step_, revision_, {}};
  for (size_t i = 0; i < view.rollouts; ++i)
    put.advantages.push_back(static_cast<float>(world_.dice.Unit() - 0.5));
  Ask<ledger::StatusReply>(put, [this](const ledger::StatusReply& reply) {
    // Given twice, the second ones are others than the first; that is refused, and the step is
    // sealed.
    if (!reply.status.ok() && !absl::IsFailedPrecondition(reply.status))
      return Refused(reply.status);
    Later(1, [this] { Open(step_); });
  });
}

void Job::FetchAll(const OpenView& view) {
  if (CrashNow()) return;
  ranks_left_ = ranks();
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    std::vector<MicroBatchRef> refs;
    for (uint32_t m = 0; m < view.micro_batches.size(); ++m) {
      for (uint32_t i = 0; i < view.micro_batches[m]; ++i) {
        refs.push_back({rank, m, i});
        if (world_.dice.Chance(world_.options.refetch)) refs.push_back({rank, m, i});
      }
    }
    FetchOne(rank, std::move(refs), 0);
  }
}

void Job::FetchOne(uint32_t rank, std::vector<MicroBatchRef> refs, size_t next) {
  if (next >= refs.size()) return RankDone();
  if (zombie_) world_.stats.Count(Fault::kZombieCall);
  using View = absl::StatusOr<uint64_t>;
  const MicroBatchRef ref = refs[next];
  world_.network.Call<View>(
      [this, ref, generation = generation_, step = step_,
       revision = revision_](Answer<View> answer) {
        world_.node.Fetch(generation, step, revision, ref,
                          [answer = std::move(answer)](const Node::FetchAnswer& view) {
                            answer(view.ok() ? View(view->tokens) : View(view.status()));
                          });
      },
      [this, turn = turn_, rank, refs = std::move(refs), next](std::optional<View> view) {
        if (!alive_ || turn != turn_) return world_.queue.Idle();
        if (!view) return Attach();
        if (!view->ok()) return Refused(view->status());
        WriteThen(rank, refs[next], **view,
                  [this, rank, refs, next] { FetchOne(rank, refs, next + 1); });
      });
}

void Job::WriteThen(uint32_t rank, const MicroBatchRef& ref, uint64_t tokens,
                    std::function<void()> then) {
  if (tokens == 0 || !world_.dice.Chance(world_.options.put_columns)) return then();
  ledger::PutColumns put{generation_, step_, revision_, ref, {}};
  const char* name = rank % 2 == 0 ? "old_logprobs" : "values";
  put.columns.push_back({name, kFloat32, {}, PayloadId(), tokens * 4});
  world_.network.Call<ledger::StatusReply>(
      [this, put](Answer<ledger::StatusReply> answer) {
        world_.node.PutColumns(put, std::move(answer));
      },
      [this, turn = turn_, then = std::move(then)](std::optional<ledger::StatusReply> reply) {
        if (!alive_ || turn != turn_) return world_.queue.Idle();
        if (reply && !reply->status.ok()) return Refused(reply->status);
        then();  // without memory for it the column is computed again
      },
      0, 2);
}

void Job::RankDone() {
  if (--ranks_left_ > 0) return;
  if (CrashNow()) return;
  if (world_.Mishap(world_.options.abort)) return Abort();
  Later(world_.dice.Between(10, 200), [this] {
    // An iteration over the plan again, as several epochs of PPO do; or a plan of another shape.
    if (world_.Mishap(world_.options.replan)) return Open(step_);
    Commit();
  });
}

void Job::Commit() {
  Ask<ledger::CommitReply>(ledger::CommitStep{generation_, step_, revision_},
                           [this](const ledger::CommitReply& reply) { TakeCommitted(reply); });
}

void Job::TakeCommitted(const ledger::CommitReply& reply) {
  if (!reply.status.ok()) return Refused(reply.status);
  ++committed_;
  takes_all_ = false;
  version_ = reply.next_version;
  const StepId committed = step_;
  step_ = StepId(step_.value + 1);
  if (CrashNow()) return;
  if (world_.dice.Chance(world_.options.checkpoint))
    return CheckpointThen(committed, [this, committed] { AfterCommit(committed); });
  AfterCommit(committed);
}

void Job::AfterCommit(StepId committed) {
  if (world_.Mishap(world_.options.rewind)) return GoBack(committed);
  const bool publish = committed.value % world_.options.publish_every == 0;
  if (publish) return PublishThen([this] { Open(step_); });
  Open(step_);
}

void Job::CheckpointThen(StepId step, std::function<void()> then) {
  Ask<ledger::CheckpointReply>(
      ledger::CheckpointStep{generation_, step},
      [this, then = std::move(then)](const ledger::CheckpointReply& reply) {
        if (!reply.status.ok()) return Refused(reply.status);
        then();
      });
}

void Job::GoBack(StepId from) {
  const ledger::Rewind rewind = RandomRewind(world_, from, generation_);
  Ask<ledger::RewindReply>(rewind, [this, rewind](const ledger::RewindReply& reply) {
    if (!reply.status.ok()) return Refused(reply.status);
    if (!world_.dice.OneIn(4)) return Attach();
    // It has lost the answer, and asks again.
    Ask<ledger::RewindReply>(rewind, [this, reply](const ledger::RewindReply& again) {
      const bool same = again.status.ok() && again.next_step == reply.next_step &&
                        again.train_version == reply.train_version;
      if (!same) world_.alarm(kBadInput, "a repeated rewind is answered differently");
      Attach();
    });
  });
}

void Job::Abort() {
  world_.stats.Count(Fault::kAbort);
  Ask<ledger::StatusReply>(ledger::AbortStep{generation_, step_, "it diverged"},
                           [this](const ledger::StatusReply& reply) {
                             if (!reply.status.ok()) return Refused(reply.status);
                             Later(100, [this] { Open(step_); });
                           });
}

void Job::Refused(const absl::Status& status) {
  if (zombie_ && (world_.healed || absl::IsAborted(status))) return Stop();
  ++turn_;
  Later(world_.dice.Between(50, 300), [this] { Attach(); });
}

bool Job::CrashNow() {
  if (zombie_) return false;
  if (world_.Mishap(world_.options.job_crash / 3)) {
    world_.stats.Count(Fault::kJobCrash);
    // Seen from outside it is gone; as a zombie it goes on with what it was about to do.
    const bool zombie = world_.dice.Chance(world_.options.zombie);
    zombie_ = true;
    if (!zombie) Stop();
    crashed_(this);
    return !zombie;
  }
  if (world_.Mishap(world_.options.rank_crash / 3)) RankCrashed();
  return false;
}

// One process is started anew; it attaches, and the others hear of it by a refusal.
void Job::RankCrashed() {
  world_.stats.Count(Fault::kRankCrash);
  const uint32_t rank = static_cast<uint32_t>(world_.dice.Below(ranks()));
  processes_[rank] = world_.dice.Next() | 1;
  ledger::AttachTrainer attach{
      absl::StrCat("job", number_, ".", rank), processes_[rank], mesh_, rank, 0, {}};
  world_.queue.After(world_.dice.Between(1, 300), [this, attach] {
    if (alive_ && !zombie_) {
      world_.network.Call<ledger::AttachReply>(
          [this, attach](Answer<ledger::AttachReply> answer) {
            world_.node.AskLedger<ledger::AttachReply>(attach, std::move(answer));
          },
          [](const std::optional<ledger::AttachReply>&) {});
    }
  });
}

}  // namespace forebay::simulation
