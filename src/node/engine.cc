#include "node/engine.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/prng.h"
#include "base/sync.h"
#include "base/units.h"
#include "node/process_clock.h"
#include "shard/limits.h"

namespace forebay::node {
namespace {

constexpr uint32_t kTickMs = 10;
// Of a rollout, before any was measured: text and per-token data of a long answer.
constexpr uint64_t kExpectedRolloutBytes = 512 * 1024;
// How long an Acquire that found nothing anywhere waits at one shard before it looks at the next.
constexpr uint32_t kRoundWaitMs = 200;
// How often it is seen whether the logs' files are still there.
constexpr uint32_t kLookAtLogsMs = 1'000;

// Far apart for any two runs. The next ones count from there; generations are read by people.
uint32_t FirstToken(uint64_t run) {
  return run == 0 ? 1 : 1 + static_cast<uint32_t>(Mix64(run) % (uint32_t{1} << 30));
}
uint64_t FirstGeneration(uint64_t run) { return run == 0 ? 1 : 1 + Mix64(run) % 1'000'000 * 1'000; }

std::unique_ptr<shard::State> NewState(ShardId shard, const Engine::Options& options) {
  return std::make_unique<shard::State>(
      shard::Options{.shard = shard, .run_seed = options.run_seed});
}

// Without a journal a log that keeps nothing.
template <class Command, class State>
absl::StatusOr<std::unique_ptr<Log<Command>>> OpenLog(Journal* journal, const State& state,
                                                      LogPosition applied,
                                                      std::shared_ptr<Serial> serial,
                                                      std::function<void()> committed) {
  if (journal == nullptr) return std::make_unique<NullLog<Command>>();
  auto post = [serial = std::move(serial)](auto work) { serial->Post(std::move(work)); };
  return journal->OpenLog(state, applied,
                          {.post = std::move(post), .committed = std::move(committed)});
}

}  // namespace

uint64_t Engine::NowMs() { return ProcessClock::NowMs(); }

Engine::Ledger::Ledger(Engine* e, const Options& options)
    : engine(e),
      state({.run_seed = options.run_seed,
             .shards = options.shards,
             .open_steps_max = options.open_steps_max}) {}

absl::Status Engine::Ledger::Begin(Journal* journal, LogPosition applied) {
  auto opened =
      OpenLog<ledger::Command>(journal, state, applied, shared_serial, [this] { OnCommitted(); });
  if (!opened.ok()) return opened.status();
  log = *std::move(opened);
  loop.emplace(&state, log.get(), this, applied);
  loop->primary().SetRetentionBytesMax(engine->dead_->RetentionBytesMax());
  loop->primary().SetFirstGeneration(FirstGeneration(engine->options_.run));
  loop->primary().SetAbsentAfterMs(engine->options_.absent_after_ms);
  loop->primary().SetKeep(engine->dead_->Keep(0), 0);
  return absl::OkStatus();
}

void Engine::Ledger::OnCommitted() {
  if (!engine->closing_) loop->OnCommitted(NowMs());
}

void Engine::Ledger::OnReply(ledger::Tag tag, ledger::Reply&& reply) {
  calls.Answer(tag, std::move(reply));
}

void Engine::Ledger::OnDead(const std::vector<PayloadId>& payloads) {
  engine->dead_->FreePayloads(payloads);
}

void Engine::Ledger::SendToShard(ShardId shard, const codec::NumberedMessage& message) {
  auto& s = *engine->shards_[shard.value];
  if (!s.presence.ok()) return;  // it waits in the channel
  s.serial.Post([&s, message] { s.loop->FromLedger(NowMs(), message); });
}

void Engine::Ledger::AcknowledgeShard(ShardId shard, uint64_t number) {
  auto& s = *engine->shards_[shard.value];
  if (!s.presence.ok()) return;
  s.serial.Post([&s, number] { s.loop->LedgerAcknowledged(NowMs(), number); });
}

void Engine::Ledger::OnStepChanged(StepId step) {
  const ledger::Step* changed = state.step(step);
  engine->dead_->Want(step, changed != nullptr ? changed->ToFetch() : std::vector<PayloadId>());
  // The watchers look at the loop from outside of it, after the command that changed the step.
  serial.Post([this, step] {
    for (size_t i = 0; i < step_waits.size();) {
      if (step_waits[i].step == step && step_waits[i].watcher(*loop, false)) {
        step_waits.erase(step_waits.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  });
}

void Engine::Ledger::OnAnnouncement(const ledger::Announcement& announcement) {
  for (auto& [id, watcher] : policy_watchers) watcher(announcement);
}

void Engine::Ledger::EndWaits(uint64_t now_ms) {
  for (size_t i = 0; i < step_waits.size();) {
    if (waits_ended || now_ms >= step_waits[i].until_ms) {
      step_waits[i].watcher(*loop, true);
      step_waits.erase(step_waits.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

Engine::Shard::Shard(Engine* e, ShardId shard, const Options& options)
    : engine(e), id(shard), state(NewState(shard, options)) {}

absl::Status Engine::Shard::Begin(Journal* journal, LogPosition applied) {
  // One that is absent only looks as if it were there, and empty.
  if (!presence.ok()) journal = nullptr;
  auto opened =
      OpenLog<shard::Command>(journal, *state, applied, shared_serial, [this] { OnCommitted(); });
  if (!opened.ok()) return opened.status();
  log = *std::move(opened);
  loop.emplace(state.get(), log.get(), this, NowMs(), applied);
  loop->primary().SetFirstToken(FirstToken(engine->options_.run));
  return absl::OkStatus();
}

void Engine::Shard::OnCommitted() {
  if (engine->closing_) return;
  loop->OnCommitted(NowMs());
  while (!held.empty() && !log->queue().full()) {
    auto push = std::move(held.front());
    held.pop_front();
    engine->pushes_held_ -= 1;
    push();
  }
}

absl::Status Engine::Shard::LogFull() const {
  return Engine::LogFull(absl::StrCat("shard-", id.value), log->queue());
}

void Engine::Shard::OnReply(shard::Tag tag, shard::Reply&& reply) {
  calls.Answer(tag, std::move(reply));
}

void Engine::Shard::OnDead(const std::vector<PayloadId>& payloads,
                           const std::vector<PayloadId>& contents) {
  if (!payloads.empty()) engine->dead_->FreePayloads(payloads);
  if (!contents.empty()) engine->dead_->FreeContents(contents);
}

void Engine::Shard::OnCold(const std::vector<PayloadId>& payloads) {
  engine->dead_->Cool(payloads);
}

void Engine::Shard::SendToLedger(const codec::NumberedMessage& message) {
  auto& ledger = engine->ledger_;
  ledger.serial.Post([&ledger, id = id, message] { ledger.loop->FromShard(NowMs(), id, message); });
}

void Engine::Shard::AcknowledgeLedger(uint64_t number) {
  auto& ledger = engine->ledger_;
  ledger.serial.Post(
      [&ledger, id = id, number] { ledger.loop->ShardAcknowledged(NowMs(), id, number); });
}

void Engine::Shard::OnSummary(const codec::ReadySummary& summary) {
  auto& ledger = engine->ledger_;
  ledger.serial.Post([&ledger, summary] { ledger.loop->OnSummary(NowMs(), summary); });
}

Engine::Engine(Options options, DeadBytes* dead)
    : options_(options), dead_(dead), ledger_(this, options) {
  for (uint32_t i = 0; i < options.shards; ++i) {
    shards_.push_back(std::make_unique<Shard>(this, ShardId(static_cast<uint8_t>(i)), options));
  }
}

absl::Status Engine::LogFull(const std::string& machine, const LogQueue& queue) {
  return absl::UnavailableError(absl::StrCat(
      queue.replicated ? "the disks of the nodes in sync do not keep up, or too few are "
                         "in sync: "
                       : "the disk does not keep up: ",
      BytesText(queue.bytes), " of the log of ", machine, " wait to be synced, at most ",
      BytesText(queue.bytes_max), " (storage.log_pending_bytes_max)"));
}

Engine::~Engine() {
  {
    MutexLock lock(&timer_mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  if (timer_.joinable()) timer_.join();
  closing_ = true;
  // What is posted already may post to other loops; nothing begins any more.
  for (size_t round = 0; round < 3; ++round) {
    for (auto& shard : shards_) shard->serial.Flush();
    ledger_.serial.Flush();
  }
  // Logs go within their loops, where their disk's answers run.
  for (auto& shard : shards_) shard->serial.Post([s = shard.get()] { s->log.reset(); });
  ledger_.serial.Post([this] { ledger_.log.reset(); });
  for (auto& shard : shards_) shard->serial.Flush();
  ledger_.serial.Flush();
}

ShardId Engine::ShardOf(uint64_t external_hash) const {
  return ShardId(static_cast<uint8_t>(external_hash % shards_.size()));
}

void Engine::Shard::Acquire(shard::Assign request, uint32_t wait_ms, std::shared_ptr<Ticket> ticket,
                            Done<shard::AssignReply> done) {
  if (ticket->cancelled) return done(shard::AssignReply{});
  if (log->queue().full()) return done(shard::AssignReply{.status = LogFull()});
  const auto tag = calls.Add([done = std::move(done)](shard::Reply&& reply) mutable {
    done(std::get<shard::AssignReply>(std::move(reply)));
  });
  ticket->shard = id.value;
  ticket->tag = tag;
  loop->Acquire(NowMs(), tag, std::move(request), wait_ms);
}

// The rounds of one request begin at the same shard, so its record alone tells a new one.
bool Engine::Shard::NoteCall(const shard::Assign& request, const std::shared_ptr<Ticket>& ticket) {
  if (newest_calls.size() > 2 * shard::kSessionsMax) {
    absl::erase_if(newest_calls, [this](const auto& of) { return !state->Session(of.first); });
  }
  std::shared_ptr<Ticket>& newest = newest_calls[request.session];
  const bool known = newest != nullptr;
  if (known && request.request_id < newest->request_id) return true;
  // What it has not asked yet it will not ask after this.
  if (known && request.request_id == newest->request_id) engine->CancelAcquire(newest);
  const bool is_new = known && request.request_id > newest->request_id;
  newest = ticket;
  return !is_new;
}

struct Engine::Round {
  shard::Assign request;
  uint64_t until_ms = 0;
  uint32_t visited = 0;
  // Of a repeated request: whether a shard, by its number, has answered it before; else empty.
  std::vector<uint8_t> answered;
  shard::AssignReply answer;
  std::shared_ptr<Ticket> ticket;
  Done<shard::AssignReply> done;
};

// The order of the shards follows from the request id, so that a repeated request meets the same
// answers in the same order.
void Engine::Acquire(shard::Assign request, uint32_t wait_ms, Done<shard::AssignReply> done,
                     std::shared_ptr<Ticket> ticket) {
  ticket->request_id = request.request_id;
  Shard& first = *shards_[request.request_id % shards_.size()];
  if (shards_.size() == 1) {
    return first.serial.Post([&first, request = std::move(request), wait_ms,
                              ticket = std::move(ticket), done = std::move(done)]() mutable {
      first.Acquire(std::move(request), wait_ms, std::move(ticket), std::move(done));
    });
  }
  auto round = std::make_unique<Round>();
  round->request = std::move(request);
  round->until_ms = NowMs() + wait_ms;
  round->ticket = std::move(ticket);
  round->done = std::move(done);
  first.serial.Post([this, &first, round = std::move(round)]() mutable {
    if (first.NoteCall(round->request, round->ticket)) return AskWhoAnswered(std::move(round));
    Visit(first, 0, std::move(round));
  });
}

// The wait is in the shard that the ticket names; if it is on its way to another, that one sees the
// mark.
void Engine::CancelAcquire(std::shared_ptr<Ticket> ticket) {
  ticket->cancelled = true;
  auto& s = *shards_[ticket->shard];
  s.serial.Post([&s, ticket = std::move(ticket)] {
    const uint64_t tag = ticket->tag;
    if (tag != 0 && s.loop->primary().CancelWait(tag)) s.calls.Answer(tag, shard::AssignReply{});
  });
}

// A request that nobody has answered goes round as a new one does.
void Engine::AskWhoAnswered(std::unique_ptr<Round> round) {
  struct Look {
    explicit Look(size_t shards) : newest(shards), left(shards) {}
    std::vector<uint64_t> newest;  // request of the session that the shard has answered
    std::atomic<size_t> left;
    std::unique_ptr<Round> round;
  };
  auto look = std::make_shared<Look>(shards_.size());
  look->round = std::move(round);
  const SessionId session = look->round->request.session;
  for (auto& shard : shards_) {
    shard->serial.Post([this, look, session, s = shard.get()] {
      look->newest[s->id.value] = s->loop->primary().NewestRequest(session);
      if (look->left.fetch_sub(1) != 1) return;
      std::unique_ptr<Round> asking = std::move(look->round);
      const uint64_t request = asking->request.request_id;
      const uint64_t newest = *std::ranges::max_element(look->newest);
      if (newest > request) {
        asking->answer.reason = "superseded";
        return asking->done(std::move(asking->answer));
      }
      if (newest == request) {
        for (uint64_t last : look->newest) asking->answered.push_back(last == request ? 1 : 0);
      }
      NextInRound(std::move(asking));
    });
  }
}

void Engine::NextInRound(std::unique_ptr<Round> round) {
  const uint64_t now = NowMs();
  const auto count = static_cast<uint32_t>(shards_.size());
  const bool repeated = !round->answered.empty();
  const auto next = [&] { return (round->request.request_id + round->visited) % count; };
  while (repeated && round->visited < count && !round->answered[next()]) ++round->visited;
  const bool went_round = round->visited >= count;
  const bool found = !round->answer.assignments.empty();
  const bool enough = !repeated && round->answer.assignments.size() >= round->request.max;
  const bool ends = went_round && (repeated || found || now >= round->until_ms);
  if (enough || ends || round->ticket->cancelled) {
    if (round->ticket->cancelled && !found) round->answer.reason = "superseded";
    return round->done(std::move(round->answer));
  }
  const uint64_t left = round->until_ms > now ? round->until_ms - now : 0;
  const auto wait = went_round ? static_cast<uint32_t>(std::min<uint64_t>(left, kRoundWaitMs)) : 0;
  Shard& shard = *shards_[next()];
  shard.serial.Post([this, &shard, wait, round = std::move(round)]() mutable {
    Visit(shard, wait, std::move(round));
  });
}

// Within the shard's loop.
void Engine::Visit(Shard& shard, uint32_t wait_ms, std::unique_ptr<Round> round) {
  ++round->visited;
  if (!shard.presence.ok()) return NextInRound(std::move(round));
  shard::Assign request = round->request;
  const auto found = static_cast<uint32_t>(round->answer.assignments.size());
  request.max = request.max > found ? request.max - found : 1;
  auto ticket = round->ticket;
  shard.Acquire(std::move(request), wait_ms, std::move(ticket),
                [this, round = std::move(round)](shard::AssignReply&& reply) mutable {
                  if (!reply.status.ok() && round->answer.assignments.empty()) {
                    return round->done(std::move(reply));
                  }
                  auto& all = round->answer.assignments;
                  all.insert(all.end(), reply.assignments.begin(), reply.assignments.end());
                  round->answer.reason = reply.reason;
                  // The shard answers without a wait: no further round would find anything else;
                  // or the session asks something newer.
                  const std::string_view reason = reply.reason;
                  const bool over =
                      reason == "draining" || (reason == "superseded" && round->answered.empty());
                  if (over) return round->done(std::move(round->answer));
                  NextInRound(std::move(round));
                });
}

struct Engine::Snapshots {
  std::vector<MachineSnapshot> taken;
  SnapshotsDone done;
  size_t next = 0;  // 0: the ledger
};

void Engine::Snapshot(SnapshotsDone done) {
  auto snapshots = std::make_unique<Snapshots>();
  snapshots->done = std::move(done);
  NextSnapshot(std::move(snapshots));
}

void Engine::NextSnapshot(std::unique_ptr<Snapshots> snapshots) {
  const size_t index = snapshots->next++;
  if (index > shards_.size()) return snapshots->done(std::move(snapshots->taken));
  if (index > 0 && !shards_[index - 1]->presence.ok()) return NextSnapshot(std::move(snapshots));
  const std::string machine = index == 0 ? "ledger" : absl::StrCat("shard-", index - 1);
  auto next = [this, machine,
               snapshots = std::move(snapshots)](absl::StatusOr<SnapshotPlace> place) mutable {
    if (!place.ok()) return snapshots->done(place.status());
    snapshots->taken.push_back({machine, *std::move(place)});
    NextSnapshot(std::move(snapshots));
  };
  if (index == 0) {
    ledger_.serial.Post(
        [this, next = std::move(next)]() mutable { ledger_.loop->Snapshot(std::move(next)); });
  } else {
    shards_[index - 1]->serial.Post(
        [s = shards_[index - 1].get(), next = std::move(next)]() mutable {
          s->loop->Snapshot(std::move(next));
        });
  }
}

void Engine::WatchStep(StepId step, uint32_t wait_ms, StepWatcher watcher) {
  ledger_.serial.Post([this, step, wait_ms, watcher = std::move(watcher)]() mutable {
    const bool at_once = wait_ms == 0 || ledger_.waits_ended;
    if (watcher(*ledger_.loop, at_once) || at_once) return;
    ledger_.step_waits.push_back({step, NowMs() + wait_ms, std::move(watcher)});
  });
}

void Engine::EndStepWaits() {
  ledger_.serial.Post([this] {
    ledger_.waits_ended = true;
    ledger_.EndWaits(NowMs());
  });
}

uint64_t Engine::WatchPolicy(PolicyWatcher watcher) {
  static std::atomic<uint64_t> next{1};
  const uint64_t id = next.fetch_add(1);
  ledger_.serial.Post([this, id, watcher = std::move(watcher)]() mutable {
    watcher(ledger_.state.published());
    if (ledger_.state.pending()) watcher(*ledger_.state.pending());
    ledger_.policy_watchers.emplace_back(id, std::move(watcher));
  });
  return id;
}

void Engine::UnwatchPolicy(uint64_t id) {
  ledger_.serial.Post([this, id] {
    std::erase_if(ledger_.policy_watchers, [id](const auto& w) { return w.first == id; });
  });
}

void Engine::TimerThread() {
  while (true) {
    {
      MutexLock lock(&timer_mutex_);
      const Deadline due = DeadlineIn(absl::Milliseconds(kTickMs));
      while (!stopping_ && stop_.WaitUntil(&timer_mutex_, due)) {
      }
      if (stopping_) return;
    }
    TickAll();
  }
}

void Engine::LookAtLogs(std::function<void()> done) {
  auto left = std::make_shared<std::atomic<size_t>>(shards_.size() + 1);
  auto one = [left, done = std::move(done)] {
    if (left->fetch_sub(1) == 1 && done) done();
  };
  ledger_.serial.Post([this, one] { ledger_.log->Look(one); });
  for (auto& shard : shards_) {
    shard->serial.Post([s = shard.get(), one] { s->log->Look(one); });
  }
}

void Engine::TickAll() {
  ProcessClock::Tick();
  if (const uint64_t now = NowMs(); now >= look_due_ms_) {
    look_due_ms_ = now + kLookAtLogsMs;
    LookAtLogs(nullptr);
  }
  ledger_.serial.Post([this] {
    const uint64_t now = NowMs();
    const uint64_t free_bytes = dead_->FreePayloadBytes();
    ledger::Primary& ledger = ledger_.loop->primary();
    ledger.SetPayloadBytesMax(dead_->PayloadBytesMax());
    ledger.SetRetentionBytesMax(dead_->RetentionBytesMax());
    ledger.SetStoreFull(now, dead_->StoreFull());
    uint64_t kept_bytes = 0;
    for (const auto& shard : shards_) {
      kept_bytes += shard->kept_bytes;
      ledger.SetAnswering(now, shard->id, shard->presence.ok());
    }
    ledger.SetKeep(dead_->Keep(kept_bytes), kept_bytes);
    TickShards(free_bytes, ledger.HeldBack(free_bytes));
    ledger_.loop->Tick(now);
    ledger_.EndWaits(now);
  });
}

void Engine::TickShards(uint64_t free_bytes, const std::vector<SourceId>& held_back) {
  for (auto& shard : shards_) {
    if (!shard->presence.ok()) continue;
    shard->serial.Post([s = shard.get(), free_bytes = free_bytes / shards_.size(), held_back] {
      s->loop->primary().SetMemory(free_bytes, kExpectedRolloutBytes);
      s->loop->primary().HoldBack(held_back);
      s->kept_bytes = s->state->kept_bytes();
      s->loop->Tick(NowMs());
    });
  }
}

}  // namespace forebay::node
