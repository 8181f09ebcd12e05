#include "server/payload_verification.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/log.h"

namespace forebay::server {
namespace {

// Records of the store's table that are looked at under its lock.
constexpr size_t kHeadsAtOnce = 4096;
constexpr PayloadId kEnd(UINT64_MAX);

}  // namespace

absl::Status PayloadVerification::Start(uint64_t bytes_per_second) {
  const storage::SegmentStore* store = context_->storage->segments();
  if (store == nullptr) {
    return absl::FailedPreconditionError(
        "the run is in memory: no payload lies on a disk (storage.directory)");
  }
  const storage::PayloadUse use = context_->payloads->use();
  {
    MutexLock lock(&mutex_);
    bytes_per_second_ = bytes_per_second;
    if (progress_.running) return absl::OkStatus();
    const uint64_t now_ms = node::Engine::NowMs();
    progress_ = {.running = true,
                 .payloads = use.payloads,
                 .payload_bytes = use.payload_bytes,
                 .began_ms = now_ms};
    allowed_bytes_ = 0;
    ticked_ms_ = now_ms;
    after_ = PayloadId();
    looked_for_lost_ = false;
    checker_ = store->NewChecker();
  }
  Log(LogLevel::kInfo, "verification of payloads begins",
      {{"payloads", use.payloads}, {"bytes", use.payload_bytes}, {"per_second", bytes_per_second}});
  Lost lost;
  for (const storage::LostPayload& payload : context_->storage->lost()) {
    lost.emplace(payload.id, payload.why);
  }
  LookForLost(0, std::move(lost));
  return absl::OkStatus();
}

void PayloadVerification::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
}

PayloadVerification::Progress PayloadVerification::progress() const {
  MutexLock lock(&mutex_);
  return progress_;
}

void PayloadVerification::LookForLost(uint32_t shard, Lost lost) {
  if (lost.empty()) {
    MutexLock lock(&mutex_);
    looked_for_lost_ = true;
    return;
  }
  const auto self = shared_from_this();
  if (shard == context_->engine->shards()) {
    context_->engine->OnLedger(
        [self, lost = std::move(lost)](node::LedgerLoop& loop, uint64_t) mutable {
          loop.state().ForEachPayload([&](PayloadId id) { self->NoteLost(&lost, id); },
                                      [](PayloadId) {});
          self->LookForLost(0, {});
        });
    return;
  }
  context_->engine->OnShard(
      ShardId(static_cast<uint8_t>(shard)),
      [self, shard, lost = std::move(lost)](node::ShardLoop& loop, uint64_t) mutable {
        loop.state().ForEachPayload([&](PayloadId id) { self->NoteLost(&lost, id); },
                                    [](PayloadId) {});
        self->LookForLost(shard + 1, std::move(lost));
      });
}

void PayloadVerification::NoteLost(Lost* lost, PayloadId named) {
  const auto found = lost->find(named);
  if (found == lost->end()) return;
  {
    MutexLock lock(&mutex_);
    NoteDamage(absl::StrCat("payload ", absl::Hex(named.value), ": ", found->second));
  }
  lost->erase(found);
}

void PayloadVerification::Tick(uint64_t now_ms) {
  {
    MutexLock lock(&mutex_);
    if (!progress_.running) return;
    const uint64_t passed_ms = now_ms - std::min(now_ms, ticked_ms_);
    ticked_ms_ = now_ms;
    // What a pause has saved is not made up for.
    const auto rate = static_cast<int64_t>(bytes_per_second_);
    const auto gained = static_cast<int64_t>(std::min<uint64_t>(passed_ms, 1'000)) * (rate / 1'000);
    allowed_bytes_ = std::min(allowed_bytes_ + gained, rate);
  }
  Continue();
}

void PayloadVerification::Continue() {
  storage::LiveRecord record;
  while (TakeNext(&record)) {
    std::shared_ptr<storage::SegmentChecker> checker;
    {
      MutexLock lock(&mutex_);
      checker = checker_;
    }
    checker->Check(record, [self = shared_from_this(), record](const absl::Status& status) {
      self->Checked(record, status);
      self->Continue();
    });
  }
}

bool PayloadVerification::TakeNext(storage::LiveRecord* record) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  const storage::SegmentStore* store = context_->storage->segments();
  while (progress_.running && looked_for_lost_ && !checking_ && allowed_bytes_ > 0) {
    if (next_.empty()) {
      if (after_ == kEnd) {
        End();
        return false;
      }
      next_ = store->LiveAfter(&after_, kHeadsAtOnce);
      std::ranges::reverse(next_);
      continue;
    }
    *record = next_.back();
    next_.pop_back();
    if (!store->Holds(record->head.id)) {
      progress_.freed += record->part == storage::Part::kHot ? 1 : 0;
      continue;
    }
    allowed_bytes_ -= static_cast<int64_t>(
        storage::RoundUp(storage::RecordBytes(record->head.bytes), storage::kSegmentPage));
    checking_ = true;
    return true;
  }
  return false;
}

void PayloadVerification::Checked(const storage::LiveRecord& record, const absl::Status& status) {
  MutexLock lock(&mutex_);
  checking_ = false;
  // A payload with a cold part has two records.
  const uint64_t payloads = record.part == storage::Part::kHot ? 1 : 0;
  if (status.ok()) {
    progress_.read_payloads += payloads;
    progress_.read_bytes += record.head.bytes;
  } else if (absl::IsNotFound(status)) {
    progress_.freed += payloads;
  } else {
    NoteDamage(std::string(status.message()));
  }
}

void PayloadVerification::NoteDamage(const std::string& what) {
  ++progress_.damaged;
  if (progress_.damage.size() < kDamageTextsMax) progress_.damage.push_back(what);
  Log(LogLevel::kError, "a payload is damaged", {{"what", what}});
}

void PayloadVerification::End() {
  progress_.running = false;
  progress_.ended_ms = node::Engine::NowMs();
  checker_ = nullptr;
  Log(progress_.damaged == 0 ? LogLevel::kInfo : LogLevel::kError, "verification of payloads ended",
      {{"payloads", progress_.read_payloads},
       {"bytes", progress_.read_bytes},
       {"freed", progress_.freed},
       {"damaged", progress_.damaged}});
}

}  // namespace forebay::server
