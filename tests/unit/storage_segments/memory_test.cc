// Memory as a cache: who is given up, who is read back, who waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kPayload = 10'000;
const uint64_t kFootprint = PayloadBuilder::Footprint(kPayload);

SegmentStoreOptions TenPayloads() {
  SegmentStoreOptions options;
  options.bytes_max = 10 * kFootprint;
  options.completion_reserve_bytes = 0;
  options.want_bytes_max = 4 * kFootprint;
  options.ahead_bytes_max = kFootprint;
  options.segment_bytes = 400'000;
  options.write_bytes_max = 64 << 10;
  options.read_bytes_max = 64 << 10;
  options.lanes = 1;
  return options;
}

class Memory : public testing::Test {
 protected:
  explicit Memory(SegmentStoreOptions options = TenPayloads()) : host(std::move(options)) {
    host.Recover();
  }

  std::vector<PutRef> WriteMany(size_t count) {
    std::vector<PutRef> puts;
    for (size_t i = 0; i < count; ++i) puts.push_back(host.Write(RandomText(prng, kPayload)));
    return puts;
  }
  static std::vector<PayloadId> Ids(const std::vector<PutRef>& puts) {
    std::vector<PayloadId> ids;
    for (const PutRef& put : puts) ids.push_back(put->id);
    return ids;
  }
  bool InMemory(PayloadId id) {
    std::vector<PayloadView> views;
    return host.store->Open({id}, &views).ok();
  }
  uint64_t used() const { return host.store->use().budget.used_bytes; }

  Prng prng{1};
  Host host;
};

TEST_F(Memory, GivesUpTheYoungestFirst) {
  const auto puts = WriteMany(13);
  std::vector<bool> in_memory;
  for (const PutRef& put : puts) in_memory.push_back(InMemory(put->id));
  std::vector<bool> expected(13, true);
  for (const size_t i : {9, 10, 11}) expected[i] = false;
  EXPECT_EQ(in_memory, expected);
  EXPECT_EQ(used(), 10 * kFootprint);
  EXPECT_EQ(host.store->store_use().evictions, 3u);
  for (const PutRef& put : puts) EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Memory, KeepsWhatIsHeldAndMakesOthersWaitForIt) {
  const auto puts = WriteMany(10);
  LoadedRef held = host.Load(Ids(puts));
  ASSERT_TRUE(held->ok());
  EXPECT_FALSE(host.store->budget().TryReserve(kFootprint));
  bool admitted = false;
  host.store->budget().Await(kFootprint, 0, [&] { admitted = true; });
  host.Advance(100);
  EXPECT_FALSE(admitted);
  for (const PutRef& put : puts) EXPECT_TRUE(InMemory(put->id));
  held->views.pop_back();
  host.Advance(20);
  EXPECT_TRUE(admitted);
  EXPECT_FALSE(InMemory(puts[9]->id));
  host.store->budget().Unreserve(kFootprint);
}

TEST_F(Memory, KeepsWhatIsWantedUpToItsLimitAndReadsAhead) {
  const auto puts = WriteMany(20);
  std::vector<PayloadId> wanted;
  for (size_t i = 9; i < 15; ++i) wanted.push_back(puts[i]->id);
  ASSERT_FALSE(InMemory(wanted[0]));
  host.store->Want(StepId(1), wanted);
  host.Settle();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(InMemory(wanted[i])) << i;
  EXPECT_FALSE(InMemory(wanted[4]));  // the limit is four
  EXPECT_EQ(host.store->store_use().wanted_bytes, 4 * kFootprint);
  EXPECT_EQ(host.store->store_use().read_ahead, 4u);
  EXPECT_EQ(host.store->store_use().read_ahead_hits, 0u);
  WriteMany(20);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(InMemory(wanted[i])) << i;
  // What is freed makes room for the next.
  host.store->Free({wanted[0], wanted[1]});
  host.Settle();
  EXPECT_TRUE(InMemory(wanted[4]));
  EXPECT_TRUE(InMemory(wanted[5]));
  host.store->Free(wanted);
  EXPECT_EQ(host.store->store_use().wanted_bytes, 0u);
}

TEST_F(Memory, ReadsAheadOfTheLoadsToTheEndOfTheStep) {
  const auto puts = WriteMany(40);
  std::vector<PayloadId> ids = Ids(puts);
  std::reverse(ids.begin(), ids.end());
  host.store->Want(StepId(1), ids);
  host.Settle();
  for (size_t i = 0; i < ids.size(); ++i) {
    const LoadedRef loaded = StartLoad(*host.store, {ids[i]});
    ASSERT_TRUE(loaded->ok()) << i;  // at once: it was there
    EXPECT_EQ(BytesOf(loaded->views[0]), puts[puts.size() - 1 - i]->bytes);
    loaded->views.clear();
    host.Settle();
    EXPECT_LE(host.store->store_use().wanted_bytes, host.options.want_bytes_max);
    EXPECT_LE(used(), host.options.bytes_max);
  }
  const StoreUse use = host.store->store_use();
  EXPECT_EQ(use.read_ahead_hits, use.read_ahead);
  EXPECT_EQ(use.reads_back, use.read_ahead);  // each once
  EXPECT_GE(use.read_ahead, 30u);
  EXPECT_EQ(use.wanted_bytes, 0u);
}

TEST_F(Memory, ReadsAheadAnewForWhoBeginsTheStepAnew) {
  const auto puts = WriteMany(30);
  const std::vector<PayloadId> ids = Ids(puts);
  host.store->Want(StepId(1), ids);
  for (int pass = 0; pass < 3; ++pass) {
    SCOPED_TRACE(pass);
    for (size_t i = 0; i < ids.size(); ++i) {
      host.Settle();
      const LoadedRef loaded = StartLoad(*host.store, {ids[i]});
      if (i > 0) {
        ASSERT_TRUE(loaded->ok()) << i;  // at once
      }
      host.Settle();
      ASSERT_TRUE(loaded->ok());
    }
  }
}

TEST_F(Memory, KeepsWhatWasLoadedForPeersThatLoadTheSame) {
  const auto puts = WriteMany(40);
  const std::vector<PayloadId> ids = Ids(puts);
  host.store->Want(StepId(1), ids);
  // As many as the window has stay behind it.
  for (size_t i = 0; i < ids.size(); ++i) {
    host.Settle();
    EXPECT_TRUE(StartLoad(*host.store, {ids[i]})->ok()) << i;
    if (i < 4) continue;
    EXPECT_TRUE(StartLoad(*host.store, {ids[i - 3]})->ok()) << i;
  }
}

TEST_F(Memory, ALowerStepComesFirstAndOneThatEndedNotAtAll) {
  const auto puts = WriteMany(30);
  const std::vector<PayloadId> ids = Ids(puts);
  host.store->Want(StepId(2), {ids[20], ids[21]});
  host.store->Want(StepId(1), {ids[10], ids[11], ids[12], ids[13]});
  host.Settle();
  // The window was empty when each of them came.
  for (const size_t i : {20, 21, 10, 11}) EXPECT_TRUE(InMemory(ids[i])) << i;
  EXPECT_FALSE(InMemory(ids[12]));
  host.store->Want(StepId(2), {});
  host.Settle();
  for (const size_t i : {10, 11, 12, 13}) EXPECT_TRUE(InMemory(ids[i])) << i;
  EXPECT_EQ(host.store->store_use().wanted_bytes, 4 * kFootprint);
  host.store->Want(StepId(3), {ids[22]});
  host.store->Want(StepId(2), {ids[23]});
  host.store->Free({ids[10]});
  host.Settle();
  EXPECT_TRUE(InMemory(ids[23]));
  EXPECT_FALSE(InMemory(ids[22]));
  // Planned anew: what it wants no more leaves the window.
  host.store->Want(StepId(1), {ids[13], ids[24]});
  host.Settle();
  EXPECT_TRUE(InMemory(ids[24]));
  EXPECT_TRUE(InMemory(ids[22]));
  for (uint64_t step = 1; step <= 3; ++step) host.store->Want(StepId(step), {});
  EXPECT_EQ(host.store->store_use().wanted_bytes, 0u);
}

TEST_F(Memory, WantedPayloadsGiveWayToALoad) {
  const auto puts = WriteMany(20);
  host.store->Want(StepId(1), {puts[0]->id, puts[1]->id, puts[2]->id, puts[3]->id});
  std::vector<PayloadId> ids = Ids(puts);
  ids.erase(ids.begin(), ids.begin() + 10);
  const LoadedRef loaded = host.Load(ids);
  EXPECT_TRUE(loaded->ok());
  EXPECT_EQ(used(), 10 * kFootprint);
}

TEST_F(Memory, ReadsNeighboursTogether) {
  const auto puts = WriteMany(12);
  host.store->budget().SetLimits(0, 0);
  host.store->budget().SetLimits(host.options.bytes_max, 0);
  const uint64_t reads = host.disk->use().reads;
  const LoadedRef loaded = host.Load({puts[3]->id, puts[1]->id, puts[2]->id, puts[2]->id});
  ASSERT_TRUE(loaded->ok());
  EXPECT_EQ(host.disk->use().reads - reads, 1u);
  const size_t order[] = {3, 1, 2, 2};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(BytesOf(loaded->views[i]), puts[order[i]]->bytes);
  EXPECT_EQ(used(), 3 * kFootprint);
}

TEST_F(Memory, TwoLoadsOfOnePayloadReadItOnce) {
  const auto puts = WriteMany(12);
  ASSERT_FALSE(InMemory(puts[10]->id));
  const uint64_t reads = host.disk->use().reads;
  const LoadedRef first = StartLoad(*host.store, {puts[10]->id});
  const LoadedRef second = StartLoad(*host.store, {puts[10]->id});
  host.Settle();
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(second->ok());
  EXPECT_EQ(host.disk->use().reads - reads, 1u);
}

TEST_F(Memory, APayloadThatIsFreedWhileItIsReadIsNotFound) {
  const auto puts = WriteMany(12);
  const LoadedRef loaded = StartLoad(*host.store, {puts[10]->id});
  host.store->Free({puts[10]->id});
  host.Settle();
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(used(), 9 * kFootprint);
}

TEST_F(Memory, RefusesALoadThatCanNeverFit) {
  const auto puts = WriteMany(11);
  const LoadedRef loaded = host.Load(Ids(puts));
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(Memory, LoadsThatDoNotFitTogetherComeOneAfterTheOther) {
  const auto puts = WriteMany(30);
  const std::vector<PayloadId> ids = Ids(puts);
  std::vector<LoadedRef> loads;
  // Each has some that are in memory at first and may be given up for another's.
  for (size_t i = 0; i < 10; ++i) {
    std::vector<PayloadId> some;
    for (size_t j = 0; j < 7; ++j) some.push_back(ids[(i + 3 * j) % ids.size()]);
    loads.push_back(StartLoad(*host.store, some));
  }
  size_t ended = 0;
  for (int turn = 0; turn < 200 && ended < loads.size(); ++turn) {
    host.Advance(10);
    EXPECT_LE(used(), host.options.bytes_max);
    for (LoadedRef& load : loads) {
      if (load == nullptr || !load->answer.has_value()) continue;
      EXPECT_TRUE(load->ok());
      load = nullptr;
      ++ended;
    }
  }
  EXPECT_EQ(ended, loads.size());
}

class Reserve : public Memory {
 protected:
  static SegmentStoreOptions WithReserve() {
    SegmentStoreOptions options = TenPayloads();
    options.completion_reserve_bytes = 2 * kFootprint;
    return options;
  }
  Reserve() : Memory(WithReserve()) {}
};

TEST_F(Reserve, LoadsComeBeforePushesAndMayUseTheReserve) {
  const auto puts = WriteMany(12);
  LoadedRef held = host.Load({puts[0]->id, puts[1]->id, puts[2]->id, puts[3]->id, puts[4]->id,
                              puts[5]->id, puts[6]->id, puts[11]->id});
  ASSERT_TRUE(held->ok());
  bool pushed = false;
  host.store->budget().Await(kFootprint, 0, [&] { pushed = true; });
  // Two fit the reserve; the third waits, and goes before the push.
  LoadedRef loads[3];
  for (size_t i = 0; i < 3; ++i) loads[i] = StartLoad(*host.store, {puts[8 + i]->id});
  host.Settle();
  EXPECT_TRUE(loads[0]->ok());
  EXPECT_TRUE(loads[1]->ok());
  EXPECT_FALSE(loads[2]->answer.has_value());
  EXPECT_FALSE(pushed);
  held->views.pop_back();
  host.Settle();
  EXPECT_TRUE(loads[2]->ok());
  EXPECT_FALSE(pushed);
  EXPECT_EQ(host.store->use().budget.read_waiters, 0u);
  held->views.resize(4);
  host.Settle();
  EXPECT_TRUE(pushed);
  host.store->budget().Unreserve(kFootprint);
}

// Random puts, loads, wishes and frees, against a model.
class History {
 public:
  explicit History(uint64_t seed) : prng_(seed), host_(RandomOptions(prng_)) { host_.Recover(); }

  void Go() {
    for (int i = 0; i < 600; ++i) {
      Put();
      LearnIds();
      Use(Some());
      host_.Advance(prng_.Below(20));
      ASSERT_LE(host_.store->use().budget.used_bytes, host_.options.bytes_max);
      std::erase_if(loads_, [&](const auto& load) { return Check(load.first, *load.second); });
    }
    host_.Advance(5'000);
    LearnIds();
    EXPECT_TRUE(puts_.empty());
    for (const auto& [ids, load] : loads_) EXPECT_TRUE(load->answer.has_value());
    loads_.clear();
  }

  void CheckAllAndFree() {
    EXPECT_EQ(host_.store->use().payloads, model_.size());
    std::vector<PayloadId> all;
    for (const auto& [id, bytes] : model_) {
      EXPECT_EQ(host_.Read(id), bytes);
      all.push_back(id);
    }
    host_.store->Free(all);
    host_.Settle();
    EXPECT_EQ(host_.store->use().budget.used_bytes, 0u);
    EXPECT_EQ(host_.store->store_use().wanted_bytes, 0u);
    EXPECT_EQ(host_.store->store_use().resident_bytes, 0u);
    EXPECT_EQ(host_.store->store_use().live_bytes, 0u);
  }

 private:
  static SegmentStoreOptions RandomOptions(Prng& prng) {
    SegmentStoreOptions options = TenPayloads();
    options.bytes_max = 300'000;
    options.completion_reserve_bytes = prng.Below(50'000);
    options.want_bytes_max = 60'000;
    options.lanes = static_cast<uint32_t>(1 + prng.Below(4));
    options.segment_bytes = 100'000;
    options.gc_grace_ms = 100;
    options.reads_max = static_cast<uint32_t>(1 + prng.Below(4));
    options.read_bytes_max = (1 + prng.Below(8)) * 4096;
    options.direct = prng.Below(2) == 0;
    return options;
  }

  void Put() {
    if (prng_.Below(2) == 0) return;
    // Some fill pages of their own, and are read without a copy.
    const size_t size = 1 + prng_.Below(prng_.Below(4) > 0 ? 4'000 : 90'000);
    if (PutRef put = StartPut(*host_.store, RandomText(prng_, size))) puts_.push_back(put);
  }
  void LearnIds() {
    for (const PutRef& put : puts_) {
      if (put->ok()) model_.emplace(put->id, put->bytes);
    }
    std::erase_if(puts_, [](const PutRef& put) { return put->ok(); });
  }
  std::vector<PayloadId> Some() {
    std::vector<PayloadId> some;
    for (const auto& [id, bytes] : model_) {
      if (prng_.Below(model_.size()) < 3) some.push_back(id);
    }
    return some;
  }
  void Use(const std::vector<PayloadId>& some) {
    const uint64_t what = prng_.Below(3);
    if (what == 0) loads_.emplace_back(some, StartLoad(*host_.store, some));
    if (what == 1) host_.store->Want(StepId(1 + prng_.Below(3)), some);
    if (what == 2 && prng_.Below(2) == 0) {
      host_.store->Free(some);
      for (const PayloadId id : some) model_.erase(id);
    }
  }
  // Whether it is answered; then it is what it should be.
  bool Check(const std::vector<PayloadId>& ids, const Loaded& load) {
    if (!load.answer.has_value()) return false;
    const bool freed =
        std::any_of(ids.begin(), ids.end(), [&](PayloadId id) { return !model_.contains(id); });
    const bool large = load.answer->code() == absl::StatusCode::kResourceExhausted;
    EXPECT_TRUE(load.ok() || freed || large) << *load.answer;
    for (size_t k = 0; load.ok() && k < ids.size(); ++k) {
      const auto known = model_.find(ids[k]);
      if (known == model_.end()) continue;
      EXPECT_EQ(BytesOf(load.views[k]), known->second);
    }
    return true;
  }

  Prng prng_;
  Host host_;
  std::map<PayloadId, std::string> model_;
  std::vector<PutRef> puts_;
  std::vector<std::pair<std::vector<PayloadId>, LoadedRef>> loads_;
};

TEST(MemoryHistory, StaysWithinTheBudgetAndGivesBackWhatWasWritten) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed);
    history.Go();
    history.CheckAllAndFree();
  }
}

}  // namespace
}  // namespace forebay::storage
