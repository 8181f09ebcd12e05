#include "storage/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace forebay::storage {
namespace {

TEST(PagePool, SizesAreWholePagesAndAtMostASixteenthMore) {
  for (size_t bytes = PagePool::kBytesMin; bytes <= PagePool::kBytesMax; bytes += 1'001) {
    const size_t size = PagePool::SizeOf(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % PagePool::kPageBytes, 0u) << bytes;
    ASSERT_LE(size - bytes, bytes / 16) << bytes;
    ASSERT_EQ(PagePool::SizeOf(size), size);
  }
  EXPECT_EQ(PagePool::SizeOf(PagePool::kBytesMin), PagePool::kBytesMin);
  EXPECT_EQ(PagePool::SizeOf(PagePool::kBytesMax), PagePool::kBytesMax);
}

TEST(PagePool, GivesFreedMemoryToTheNextOfItsSize) {
  PagePool pool;
  std::set<char*> taken;
  std::vector<std::pair<char*, size_t>> kept;
  for (size_t bytes = PagePool::kBytesMin; bytes <= PagePool::kBytesMax; bytes += 50'000) {
    EXPECT_EQ(pool.TakeFreed(bytes), nullptr);
    char* const data = pool.Take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % PagePool::kPageBytes, 0u);
    std::memset(data, 1, PagePool::SizeOf(bytes));
    EXPECT_TRUE(taken.insert(data).second);
    pool.Give(data, bytes);
    EXPECT_EQ(pool.free_bytes(), PagePool::SizeOf(bytes));
    EXPECT_EQ(pool.TakeFreed(bytes), data);
    EXPECT_EQ(pool.free_bytes(), 0u);
    kept.emplace_back(data, bytes);
  }
  for (const auto& [data, bytes] : kept) pool.Give(data, bytes);
}

TEST(PagePool, TrimsWhatIsKept) {
  PagePool pool;
  std::vector<std::pair<char*, size_t>> taken;
  for (const size_t bytes : {65'536u, 100'000u, 500'000u, 4'194'304u}) {
    for (int i = 0; i < 3; ++i) taken.emplace_back(pool.Take(bytes), bytes);
  }
  uint64_t all = 0;
  for (const auto& [data, bytes] : taken) {
    pool.Give(data, bytes);
    all += PagePool::SizeOf(bytes);
  }
  EXPECT_EQ(pool.free_bytes(), all);
  pool.Trim(1);
  EXPECT_LT(pool.free_bytes(), all);
  EXPECT_GE(pool.free_bytes(), all - PagePool::kBytesMax);
  pool.Trim(all);
  EXPECT_EQ(pool.free_bytes(), 0u);
  pool.Trim(1);
}

}  // namespace
}  // namespace forebay::storage
