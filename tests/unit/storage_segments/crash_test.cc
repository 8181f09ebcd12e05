// Power fails at every moment of a run: what was acknowledged by then and not freed is there, and
// is what was written.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

struct Known {
  PutRef put;
  uint64_t acknowledged = UINT64_MAX;  // number of events on the volume by then
  uint64_t freed = UINT64_MAX;
};

SegmentStoreOptions RandomOptions(Prng& prng) {
  SegmentStoreOptions options;
  options.incarnation = 1;
  options.bytes_max = 400'000;
  options.completion_reserve_bytes = 0;
  options.segment_bytes = 40'000 + prng.Below(100'000);
  options.write_bytes_max = (2 + prng.Below(6)) * 4096;
  options.read_bytes_max = (1 + prng.Below(4)) * 4096;
  options.lanes = static_cast<uint32_t>(1 + prng.Below(4));
  options.gc_grace_ms = prng.Below(200);
  options.write_deadline_ms = 60;
  options.retry_least_ms = 5;
  options.retry_most_ms = 50;
  options.direct = prng.Below(2) == 0;
  options.seed = prng.Next();
  return options;
}

io::Fault RandomFault(Prng& prng) {
  constexpr io::MemoryOperation kOperations[] = {
      io::MemoryOperation::kWrite, io::MemoryOperation::kSync, io::MemoryOperation::kOpen,
      io::MemoryOperation::kSyncDirectory, io::MemoryOperation::kUnlink};
  constexpr io::Fault::What kWhats[] = {io::Fault::What::kFail, io::Fault::What::kFailButHappened,
                                        io::Fault::What::kDelay};
  constexpr int kErrors[] = {5 /* EIO */, 28 /* ENOSPC */, 116 /* ESTALE */, 122 /* EDQUOT */};
  return {.what = kWhats[prng.Below(3)],
          .operation = kOperations[prng.Below(5)],
          .path = "",
          .skip = prng.Below(3),
          .times = 1 + prng.Below(3),
          .error = kErrors[prng.Below(4)],
          .delay_ms = prng.Below(300)};
}

class CrashRun {
 public:
  CrashRun(uint64_t seed, bool faults)
      : prng_(seed),
        faults_(faults),
        host_(RandomOptions(prng_), nullptr,
              {.seed = seed, .delay_least_ms = 0, .delay_most_ms = 9}) {}

  // Writes, frees, gives up and reads back.
  void Go() {
    host_.Recover();
    host_.volume->Record();
    for (int i = 0; i < 100; ++i) {
      if (faults_ && prng_.Below(8) == 0) host_.disk->Inject(RandomFault(prng_));
      switch (prng_.Below(6)) {
        case 0:
          Free();
          break;
        case 1:
          ReadBack();
          break;
        default:
          Put();
      }
      Step(prng_.Below(3) == 0 ? prng_.Below(40) : 0);
    }
    host_.disk->Heal();
    for (int i = 0; i < 100; ++i) Step(10);
    for (const auto& known : known_) EXPECT_TRUE(known->put->ok());
  }

  // Checks what is there after the first `events` events.
  void CheckAfter(uint64_t events, uint64_t seed) {
    std::map<PayloadId, std::string> expected;
    std::vector<PayloadId> live;
    for (const auto& known : known_) {
      if (known->acknowledged > events || known->freed <= events) continue;
      EXPECT_TRUE(expected.emplace(known->put->id, known->put->bytes).second);
      live.push_back(known->put->id);
    }
    SegmentStoreOptions options = host_.options;
    options.incarnation = 2;
    Host after(options, host_.volume->AfterPowerLoss(events, seed), {.seed = seed});
    const StoreRecovery recovery = after.Recover(live);
    for (const LostPayload& lost : recovery.lost) ADD_FAILURE() << lost.why;
    for (const auto& [id, bytes] : expected) ASSERT_EQ(after.Read(id), bytes);
    const PutRef more = after.Write("more");
    EXPECT_EQ(after.Read(more->id), "more");
  }

  uint64_t events() const { return host_.volume->events(); }

 private:
  void Put() {
    auto known = std::make_shared<Known>();
    const std::string bytes =
        RandomText(prng_, 1 + prng_.Below(prng_.Below(4) > 0 ? 3'000 : 40'000));
    const size_t cold = prng_.Below(2) == 0 ? prng_.Below(bytes.size()) : 0;
    known->put = StartPut(
        *host_.store, bytes, 1, [this, known] { known->acknowledged = events(); }, cold);
    if (known->put != nullptr) known_.push_back(known);
  }
  void Free() {
    if (known_.empty()) return;
    Known& known = *known_[prng_.Below(known_.size())];
    if (known.acknowledged == UINT64_MAX || known.freed != UINT64_MAX) return;
    known.freed = events();
    host_.store->Free({known.put->id});
  }
  void ReadBack() {
    host_.store->budget().SetLimits(0, 0);
    host_.store->budget().SetLimits(host_.options.bytes_max, 0);
    std::vector<PayloadId> ids;
    for (const auto& known : known_) {
      if (known->acknowledged != UINT64_MAX && known->freed == UINT64_MAX) {
        ids.push_back(known->put->id);
      }
    }
    StartLoad(*host_.store, ids, prng_.Below(2) == 0 ? Parts::kHot : Parts::kAll);
  }
  void Step(uint64_t ms) {
    const uint64_t until = host_.time.now_ms() + ms;
    while (host_.time.now_ms() < until) {
      host_.time.Advance(1);
      if (host_.time.now_ms() % 10 == 0) host_.store->Tick();
    }
  }
  Prng prng_;
  const bool faults_;
  Host host_;
  std::vector<std::shared_ptr<Known>> known_;
};

void CheckEveryMoment(uint64_t first_seed, bool faults) {
  for (uint64_t seed = first_seed; seed < first_seed + 6; ++seed) {
    SCOPED_TRACE(seed);
    CrashRun run(seed, faults);
    run.Go();
    ASSERT_GT(run.events(), 50u);
    for (uint64_t events = 0; events <= run.events(); ++events) {
      SCOPED_TRACE(events);
      run.CheckAfter(events, seed * 1000 + events);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SegmentStoreCrash, WhatWasAcknowledgedIsThereAfterAPowerLossAtAnyMoment) {
  CheckEveryMoment(1, false);
}

TEST(SegmentStoreCrash, AlsoWhenWritesFailOrComeLateBefore) { CheckEveryMoment(101, true); }

}  // namespace
}  // namespace forebay::storage
