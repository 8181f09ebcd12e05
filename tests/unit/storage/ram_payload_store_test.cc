#include "storage/ram_payload_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "base/crc32c.h"
#include "base/prng.h"

namespace forebay::storage {
namespace {

std::string RandomBytes(Prng& prng, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(prng.Next());
  return bytes;
}

// False if there is no room.
bool Put(RamPayloadStore& store, const std::string& header, const std::string& columns, Prng& prng,
         PayloadId* id) {
  const uint64_t size = header.size() + columns.size();
  if (!store.budget().TryReserve(PayloadBuilder::Footprint(size))) return false;
  PayloadBuilder builder(&store.budget(), size);
  builder.AppendHeader(header);
  uint32_t crc = 0;
  for (size_t at = 0; at < columns.size();) {
    const size_t piece = std::min<size_t>(columns.size() - at, 1 + prng.Below(3'000'000));
    crc = builder.Append(std::string_view(columns).substr(at, piece), crc);
    at += piece;
  }
  EXPECT_EQ(crc, Crc32c(columns));
  bool done = false;
  store.Finish({&builder, 1}, {id, 1}, [&](const absl::Status& status) { done = status.ok(); });
  EXPECT_TRUE(done);
  return true;
}

std::string ReadAll(RamPayloadStore& store, PayloadId id, uint64_t offset, uint64_t size) {
  std::vector<BlockSlice> slices;
  EXPECT_TRUE(store.Read(id, offset, size, &slices).ok());
  std::string bytes;
  for (const BlockSlice& slice : slices) bytes.append(slice.data, slice.size);
  return bytes;
}

TEST(RamPayloadStore, GivesBackWhatWasWritten) {
  RamPayloadStore store({});
  Prng prng(1);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, size_t{65'536},
                            Block::kBytesMax, Block::kBytesMax + 1, 3 * Block::kBytesMax - 7}) {
    const std::string header = RandomBytes(prng, 50), columns = RandomBytes(prng, size);
    PayloadId id;
    ASSERT_TRUE(Put(store, header, columns, prng, &id));
    EXPECT_NE(id.value, 0u);
    EXPECT_EQ(ReadAll(store, id, 0, 50 + size), header + columns);
    std::vector<PayloadView> views;
    ASSERT_TRUE(store.Open({id}, &views).ok());
    EXPECT_EQ(views[0].header(), header);
    std::vector<BlockSlice> slices;
    EXPECT_EQ(views[0].Slices(1, 50 + size, &slices).code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(views[0].Slices(UINT64_MAX, 2, &slices).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(RamPayloadStore, LargePayloadsBeginPagesAndSmallOnesCacheLines) {
  RamPayloadStore store({});
  Prng prng(1);
  PayloadId id;
  ASSERT_TRUE(Put(store, "h", RandomBytes(prng, 5'000'000), prng, &id));
  std::vector<BlockSlice> slices;
  ASSERT_TRUE(store.Read(id, 0, 5'000'001, &slices).ok());
  ASSERT_EQ(slices.size(), 2u);
  for (const BlockSlice& slice : slices) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slice.data) % Block::kPageBytes, 0u);
  }
}

TEST(PayloadBuilder, KnowsTheCrcOfItsBytesHoweverTheyCame) {
  RamPayloadStore store({});
  PayloadBudget& budget = store.budget();
  Prng prng(1);
  const std::string header = "header";
  for (const size_t size : {1u, 100u, 100'000u, 3'000'000u}) {
    const std::string columns = RandomBytes(prng, size);
    const uint32_t expected = Crc32c(header + columns);
    const uint64_t bytes = header.size() + size;
    const size_t half = size / 2;
    const std::string_view first = std::string_view(columns).substr(0, half);
    const std::string_view second = std::string_view(columns).substr(half);
    for (const bool noted : {false, true}) {
      ASSERT_TRUE(budget.TryReserve(PayloadBuilder::Footprint(bytes)));
      PayloadBuilder in_frames(&budget, bytes);
      in_frames.AppendHeader(header);
      for (const std::string_view column : {first, second}) {
        const uint32_t crc = in_frames.Append(column, 0);
        EXPECT_EQ(crc, Crc32c(column));
        if (noted) in_frames.NoteCrc(crc, column.size());
      }
      EXPECT_EQ(in_frames.Crc(), expected);
      if (!PayloadBuilder::IsWhole(header, size)) continue;
      ASSERT_TRUE(budget.TryReserve(PayloadBuilder::Footprint(bytes)));
      PayloadBuilder whole;
      std::copy(columns.begin(), columns.end(), whole.BeginWhole(&budget, header, size));
      for (const std::string_view column : {first, second}) {
        if (noted) whole.NoteCrc(Crc32c(column), column.size());
      }
      EXPECT_EQ(whole.Crc(), expected);
    }
  }
}

// A payload of which `cold` bytes lie in the cold part, in pieces that do not heed where that
// begins.
PayloadBuilder BuildInParts(PayloadBudget& budget, const std::string& bytes, size_t cold) {
  EXPECT_TRUE(budget.TryReserve(PayloadBuilder::Footprint(bytes.size() - cold, cold)));
  PayloadBuilder builder(&budget, bytes.size() - cold, cold);
  builder.AppendHeader(bytes.substr(0, 5));
  uint32_t crc = 0;
  for (size_t at = 5; at < bytes.size(); at += 1'000'000) {
    crc = builder.Append(std::string_view(bytes).substr(at, 1'000'000), crc);
  }
  EXPECT_EQ(crc, Crc32c(std::string_view(bytes).substr(5)));
  return builder;
}

TEST(PayloadBuilder, KnowsTheCrcOfEachPart) {
  RamPayloadStore store({});
  Prng prng(1);
  const std::string bytes = RandomBytes(prng, 9'000'000);
  const std::string_view all = bytes;
  for (const size_t cold : {size_t{1}, size_t{100}, Block::kBytesMax, size_t{8'999'995}}) {
    const size_t hot = bytes.size() - cold;
    const PayloadBuilder builder = BuildInParts(store.budget(), bytes, cold);
    EXPECT_EQ(builder.bytes(), bytes.size());
    EXPECT_EQ(builder.bytes(Part::kCold), cold);
    EXPECT_EQ(builder.Crc(Part::kHot), Crc32c(all.substr(0, hot)));
    EXPECT_EQ(builder.Crc(Part::kCold), Crc32c(all.substr(hot)));
    // Told by who wrote them.
    ASSERT_TRUE(store.budget().TryReserve(PayloadBuilder::Footprint(hot, cold)));
    PayloadBuilder noted(&store.budget(), hot, cold);
    noted.AppendHeader(all.substr(0, 5));
    for (const std::string_view column :
         {all.substr(5, hot - 5), all.substr(hot, cold / 2), all.substr(hot + cold / 2)}) {
      noted.NoteCrc(noted.Append(column, 0), column.size());
    }
    EXPECT_EQ(noted.Crc(Part::kHot), Crc32c(all.substr(0, hot)));
    EXPECT_EQ(noted.Crc(Part::kCold), Crc32c(all.substr(hot)));
  }
  EXPECT_EQ(store.use().budget.used_bytes, 0u);  // what was not finished is given back
}

TEST(RamPayloadStore, GivesBackTheHotPartAloneOrBoth) {
  RamPayloadStore store({});
  Prng prng(1);
  for (const size_t size : {size_t{10}, size_t{200'000}, 3 * Block::kBytesMax - 7}) {
    const std::string bytes = RandomBytes(prng, size);
    for (const size_t cold : {size_t{1}, size / 2, size - 5}) {
      SCOPED_TRACE(cold);
      const size_t hot = size - cold;
      PayloadBuilder builder = BuildInParts(store.budget(), bytes, cold);
      PayloadId id;
      store.Finish({&builder, 1}, {&id, 1}, nullptr);
      EXPECT_EQ(store.use().budget.used_bytes, PayloadBuilder::Footprint(hot, cold));
      EXPECT_EQ(store.use().payload_bytes, size);
      EXPECT_EQ(ReadAll(store, id, 0, size), bytes);
      EXPECT_EQ(ReadAll(store, id, hot - 1, 2), bytes.substr(hot - 1, 2));
      std::vector<PayloadView> views;
      store.Load({id}, Parts::kHot, [&](auto loaded) { views = *std::move(loaded); });
      ASSERT_EQ(views.size(), 1u);
      EXPECT_EQ(views[0].header(), bytes.substr(0, 5));
      EXPECT_EQ(views[0].bytes(), size);
      EXPECT_EQ(views[0].bytes(Part::kCold), cold);
      EXPECT_FALSE(views[0].holds(Part::kCold));
      EXPECT_EQ(views[0].footprint(), PayloadBuilder::Footprint(hot));
      std::vector<BlockSlice> slices;
      EXPECT_TRUE(views[0].Slices(0, hot, &slices).ok());
      slices.clear();
      EXPECT_EQ(views[0].Slices(hot - 1, 2, &slices).code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_TRUE(slices.empty());
      views.clear();
      store.Free({id});
      EXPECT_EQ(store.use().budget.used_bytes, 0u);
    }
  }
}

TEST(RamPayloadStore, OneLoadTakesDifferentParts) {
  RamPayloadStore store({});
  Prng prng(1);
  std::vector<PayloadParts> wanted;
  for (int i = 0; i < 6; ++i) {
    PayloadBuilder builder = BuildInParts(store.budget(), RandomBytes(prng, 100), 50);
    PayloadId id;
    store.Finish({&builder, 1}, {&id, 1}, nullptr);
    wanted.push_back({id, i % 3 == 0 ? Parts::kAll : Parts::kHot});
  }
  absl::StatusOr<std::vector<PayloadView>> views;
  store.LoadParts(wanted, [&](auto loaded) { views = std::move(loaded); });
  ASSERT_TRUE(views.ok());
  ASSERT_EQ(views->size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ((*views)[i].holds(Part::kCold), i % 3 == 0) << i;
  views->clear();
  store.Free({wanted[4].id});
  store.LoadParts(wanted, [&](auto loaded) { views = std::move(loaded); });
  EXPECT_EQ(views.status().code(), absl::StatusCode::kNotFound);
}

TEST(RamPayloadStore, AStaleIdReadsNotFoundForEver) {
  RamPayloadStore store({});
  Prng prng(1);
  PayloadId first;
  ASSERT_TRUE(Put(store, "header", "one", prng, &first));
  store.Free({first});
  store.Free({first});  // once more does no harm
  PayloadId second;
  ASSERT_TRUE(Put(store, "header", "two", prng, &second));
  EXPECT_NE(first, second);
  std::vector<PayloadView> views;
  EXPECT_EQ(store.Open({second, first}, &views).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(views.empty());
  EXPECT_EQ(store.Open({PayloadId(0)}, &views).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Open({PayloadId(UINT64_MAX)}, &views).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store.Open({second}, &views).ok());
}

TEST(RamPayloadStore, FreedBytesCountUntilTheLastSliceIsGone) {
  RamPayloadStore store({});
  Prng prng(1);
  PayloadId id;
  const std::string columns = RandomBytes(prng, 5'000'000);
  ASSERT_TRUE(Put(store, "h", columns, prng, &id));
  const uint64_t used = store.use().budget.used_bytes;
  std::vector<BlockSlice> slices;
  ASSERT_TRUE(store.Read(id, 1, columns.size(), &slices).ok());
  store.Free({id});
  EXPECT_EQ(store.use().payloads, 0u);
  EXPECT_EQ(store.use().budget.used_bytes, used);
  std::string bytes;
  for (const BlockSlice& slice : slices) bytes.append(slice.data, slice.size);
  EXPECT_EQ(bytes, columns);
  slices.pop_back();
  EXPECT_EQ(store.use().budget.used_bytes, Block::Footprint(Block::kBytesMax));
  slices.clear();
  EXPECT_EQ(store.use().budget.used_bytes, 0u);
}

TEST(RamPayloadStore, ABuilderThatIsDroppedGivesItsReservationBack) {
  RamPayloadStore store({});
  const uint64_t bytes = 2 * Block::kBytesMax + 5;
  ASSERT_TRUE(store.budget().TryReserve(PayloadBuilder::Footprint(bytes)));
  {
    PayloadBuilder builder(&store.budget(), bytes);
    builder.AppendHeader("header");
    builder.Append(std::string(Block::kBytesMax, 'x'), 0);
    PayloadBuilder moved = std::move(builder);
    EXPECT_EQ(moved.left(), bytes - Block::kBytesMax - 6);
  }
  EXPECT_EQ(store.use().budget.used_bytes, 0u);
}

TEST(RamPayloadStore, KeepsItsBudgetAndItsBytesOverRandomHistories) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Prng prng(seed);
    constexpr uint64_t kMax = 20'000'000;
    RamPayloadStore store({.bytes_max = kMax, .completion_reserve_bytes = 1'000'000});
    std::map<PayloadId, std::string> model;
    std::vector<PayloadId> dead;
    for (int i = 0; i < 400; ++i) {
      if (prng.Below(3) > 0) {
        const uint64_t size = prng.Below(20) == 0 ? prng.Below(6'000'000) : prng.Below(3'000);
        const std::string header = RandomBytes(prng, 1 + prng.Below(200));
        const std::string columns = RandomBytes(prng, size);
        PayloadId id;
        if (Put(store, header, columns, prng, &id)) {
          EXPECT_TRUE(model.emplace(id, header + columns).second);
        }
      } else if (!model.empty()) {
        const auto at = std::next(model.begin(), static_cast<long>(prng.Below(model.size())));
        EXPECT_EQ(ReadAll(store, at->first, 0, at->second.size()), at->second);
        store.Free({at->first});
        dead.push_back(at->first);
        model.erase(at);
      }
      ASSERT_LE(store.use().budget.used_bytes, kMax - 1'000'000);
    }
    uint64_t expected = 0;
    for (const auto& [id, bytes] : model) {
      EXPECT_EQ(ReadAll(store, id, 0, bytes.size()), bytes);
      expected += PayloadBuilder::Footprint(bytes.size());
    }
    EXPECT_EQ(store.use().payloads, model.size());
    EXPECT_EQ(store.use().budget.used_bytes, expected);
    for (const PayloadId id : dead) {
      std::vector<PayloadView> views;
      EXPECT_EQ(store.Open({id}, &views).code(), absl::StatusCode::kNotFound);
    }
  }
}

TEST(RamPayloadStore, ReadersAndWritersOfManyThreadsAgree) {
  RamPayloadStore store({});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&store, &wrong, t] {
      Prng prng(t);
      for (int i = 0; i < 500; ++i) {
        const std::string bytes(100 + prng.Below(5'000), static_cast<char>('a' + t));
        PayloadId id;
        if (!Put(store, "h", bytes, prng, &id)) ++wrong;
        if (ReadAll(store, id, 1, bytes.size()) != bytes) ++wrong;
        store.Free({id});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.use().budget.used_bytes, 0u);
}

}  // namespace
}  // namespace forebay::storage
