#include "storage/content_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"

namespace forebay::storage {
namespace {

TEST(ContentStore, GivesBackItemsOfAllSizes) {
  ContentStore store(uint64_t{1} << 30);
  Prng prng(1);
  std::vector<std::string> items = {"",
                                    "a",
                                    std::string(127, 'b'),
                                    std::string(128, 'c'),
                                    std::string(ContentStore::kArenaBytes, 'd'),
                                    std::string(ContentStore::kArenaBytes - 3, 'e'),
                                    "f"};
  for (int i = 0; i < 5'000; ++i) items.emplace_back(prng.Below(2'000), static_cast<char>(i));
  std::vector<std::string_view> views(items.begin(), items.end());
  std::vector<PayloadId> ids(items.size());
  ASSERT_TRUE(store.Add(views, absl::MakeSpan(ids)).ok());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_NE(ids[i].value, 0u);
    const auto item = store.Read(ids[i]);
    ASSERT_TRUE(item.ok());
    EXPECT_EQ(*item, items[i]);
  }
  EXPECT_EQ(store.use().items, items.size());
}

TEST(ContentStore, KnowsItsLargestItem) {
  ContentStore store(uint64_t{1} << 30);
  EXPECT_EQ(store.largest(), 0);
  const std::string big(100'000, 'x');
  const std::string_view items[] = {big, "small"};
  PayloadId ids[2];
  ASSERT_TRUE(store.Add(items, ids).ok());
  EXPECT_GE(store.largest(), big.size());
  EXPECT_LT(store.largest(), big.size() + 8);
}

TEST(ContentStore, CostsLessThanEightBytesAnItem) {
  ContentStore store(uint64_t{1} << 30);
  const std::string item(200, 'x');
  const std::vector<std::string_view> views(100'000, item);
  std::vector<PayloadId> ids(views.size());
  ASSERT_TRUE(store.Add(views, absl::MakeSpan(ids)).ok());
  EXPECT_LE(store.use().arena_bytes, views.size() * (item.size() + 8) + ContentStore::kArenaBytes);
}

TEST(ContentStore, AddsAllOrNone) {
  ContentStore store(2 * ContentStore::kArenaBytes);
  const std::string item(ContentStore::kArenaBytes / 2 + 1, 'x');
  std::vector<PayloadId> ids(3);
  EXPECT_EQ(store.Add(std::vector<std::string_view>(3, item), absl::MakeSpan(ids)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.use().items, 0u);
  ids.resize(2);
  EXPECT_TRUE(store.Add(std::vector<std::string_view>(2, item), absl::MakeSpan(ids)).ok());
}

TEST(ContentStore, RefusesIdsThatAreNotItsOwn) {
  ContentStore store(uint64_t{1} << 30);
  PayloadId id;
  const std::string_view item = "item";
  ASSERT_TRUE(store.Add({&item, 1}, {&id, 1}).ok());
  for (const uint64_t wrong :
       {uint64_t{0}, uint64_t{5}, id.value + 100, UINT64_MAX, id.value + (uint64_t{1} << 20)}) {
    EXPECT_EQ(store.Read(PayloadId(wrong)).status().code(), absl::StatusCode::kNotFound) << wrong;
  }
}

TEST(ContentStore, CountsTheDead) {
  ContentStore store(uint64_t{1} << 30);
  const std::vector<std::string_view> items = {"one", "three"};
  std::vector<PayloadId> ids(2);
  ASSERT_TRUE(store.Add(items, absl::MakeSpan(ids)).ok());
  store.Kill({ids[1]});
  EXPECT_EQ(store.use().dead_bytes, 6u);
  EXPECT_EQ(store.use().bytes, 10u);
}

TEST(ContentStore, IsReadWhileItGrows) {
  ContentStore store(uint64_t{1} << 30);
  std::vector<PayloadId> ids(20'000);
  std::atomic<size_t> added{0};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    Prng prng(1);
    while (added.load() < ids.size()) {
      const size_t until = added.load(std::memory_order_acquire);
      if (until == 0) continue;
      const size_t i = prng.Below(until);
      const auto item = store.Read(ids[i]);
      if (!item.ok() || *item != std::string(300, static_cast<char>(i))) ++wrong;
    }
  });
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string item(300, static_cast<char>(i));
    const std::string_view view = item;
    ASSERT_TRUE(store.Add({&view, 1}, {&ids[i], 1}).ok());
    added.store(i + 1, std::memory_order_release);
  }
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace forebay::storage
