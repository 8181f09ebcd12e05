#include "storage/payload_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "storage/block.h"

namespace forebay::storage {
namespace {

TEST(PayloadBudget, KeepsTheReserveFromOrdinaryAdmission) {
  const auto budget = PayloadBudget::New(1000, 200);
  EXPECT_TRUE(budget->CanEverFit(800));
  EXPECT_FALSE(budget->CanEverFit(801));
  EXPECT_TRUE(budget->TryReserve(800));
  EXPECT_FALSE(budget->TryReserve(1));
  budget->Unreserve(800);
  EXPECT_TRUE(budget->TryReserve(1));
  budget->Unreserve(1);
}

TEST(PayloadBudget, ServesWaitersInOrderAndLetsNobodyPass) {
  const auto budget = PayloadBudget::New(100, 0);
  ASSERT_TRUE(budget->TryReserve(100));
  std::vector<int> admitted;
  budget->Await(60, 1, [&] { admitted.push_back(1); });
  budget->Await(40, 2, [&] { admitted.push_back(2); });
  budget->Unreserve(50);
  EXPECT_TRUE(admitted.empty());  // 40 would fit, but 60 came first
  EXPECT_FALSE(budget->TryReserve(10));
  budget->Unreserve(50);
  EXPECT_EQ(admitted, (std::vector<int>{1, 2}));
  EXPECT_EQ(budget->use().used_bytes, 100u);
  budget->Unreserve(100);
}

TEST(PayloadBudget, AWaiterThatFitsIsAdmittedAtOnce) {
  const auto budget = PayloadBudget::New(100, 0);
  bool admitted = false;
  budget->Await(100, 1, [&] { admitted = true; });
  EXPECT_TRUE(admitted);
  budget->Unreserve(100);
}

TEST(PayloadBudget, CancelFreesThePlaceOrTellsThatItIsTooLate) {
  const auto budget = PayloadBudget::New(100, 0);
  ASSERT_TRUE(budget->TryReserve(50));
  bool second = false;
  const WaiterId large = budget->Await(80, 1, [] {});
  const WaiterId small = budget->Await(30, 2, [&] { second = true; });
  EXPECT_TRUE(budget->Cancel(large));
  EXPECT_TRUE(second);
  EXPECT_FALSE(budget->Cancel(small));
  budget->Unreserve(80);
  EXPECT_EQ(budget->use().used_bytes, 0u);
}

TEST(PayloadBudget, AdmitsOutOfTurnFromTheReserve) {
  const auto budget = PayloadBudget::New(100, 30);
  ASSERT_TRUE(budget->TryReserve(70));
  bool first = false, second = false;
  const WaiterId other = budget->Await(20, 1, [&] { first = true; });
  const WaiterId oldest = budget->Await(25, 2, [&] { second = true; });
  EXPECT_EQ(budget->Waiters().size(), 2u);
  EXPECT_TRUE(budget->AdmitFromReserve(oldest));
  EXPECT_TRUE(second);
  EXPECT_FALSE(first);
  EXPECT_FALSE(budget->AdmitFromReserve(other));   // 95 + 20 > 100
  EXPECT_FALSE(budget->AdmitFromReserve(oldest));  // not there any more
  budget->Unreserve(95);
  EXPECT_TRUE(first);
  budget->Unreserve(20);
}

TEST(PayloadBudget, OutlivesItsOwnerAsLongAsABlockLives) {
  auto budget = PayloadBudget::New(1 << 20, 0);
  ASSERT_TRUE(budget->TryReserve(Block::Footprint(100)));
  BlockRef block = BlockRef::Adopt(Block::New(100, budget.get()));
  budget.reset();
  block = {};  // the sanitizers see to it that this is no use after free
}

TEST(PayloadBudget, StaysWithinItsLimitUnderThreads) {
  constexpr uint64_t kMax = 10'000;
  const auto budget = PayloadBudget::New(kMax, 1'000);
  std::atomic<uint64_t> held{0};
  std::atomic<bool> over{false};
  const auto took = [&](uint64_t bytes) {
    if (held.fetch_add(bytes) + bytes > kMax) over = true;
  };
  const auto give = [&](uint64_t bytes) {
    held.fetch_sub(bytes);
    budget->Unreserve(bytes);
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Prng prng(static_cast<uint64_t>(t));
      for (int i = 0; i < 5'000; ++i) {
        const uint64_t bytes = 1 + prng.Below(4'000);
        if (budget->TryReserve(bytes)) {
          took(bytes);
          give(bytes);
          continue;
        }
        const auto admitted = std::make_shared<std::atomic<bool>>(false);
        const WaiterId id = budget->Await(bytes, 0, [admitted] { *admitted = true; });
        if (prng.Below(4) == 0 && budget->Cancel(id)) continue;
        while (!*admitted && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        if (!*admitted) {
          ADD_FAILURE() << "nobody lets it in";
          return;
        }
        took(bytes);
        give(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(over);
  EXPECT_EQ(budget->use().used_bytes, 0u);
  EXPECT_EQ(budget->use().waiters, 0u);
}

TEST(PayloadBudget, AsksTheEvictorForWhatIsShortBeforeAnybodyWaits) {
  const auto budget = PayloadBudget::New(100, 20);
  uint64_t cached = 60;
  std::vector<std::pair<uint64_t, bool>> asked;
  ASSERT_TRUE(budget->TryReserve(60));
  budget->SetEvictor([&](uint64_t bytes, bool reading) {
    asked.emplace_back(bytes, reading);
    const uint64_t freed = std::min(bytes, cached);
    cached -= freed;
    budget->Unreserve(freed);
    return freed;
  });
  EXPECT_TRUE(budget->TryReserve(20));
  EXPECT_TRUE(asked.empty());
  EXPECT_TRUE(budget->TryReserve(10));
  bool admitted = false;
  budget->Await(30, 1, [&] { admitted = true; });
  EXPECT_TRUE(admitted);
  EXPECT_EQ(cached, 20u);
  // It fits the reserve.
  bool read = false;
  budget->AwaitRead(20, [&] { read = true; });
  EXPECT_TRUE(read);
  EXPECT_EQ(cached, 20u);
  EXPECT_EQ(asked, (std::vector<std::pair<uint64_t, bool>>{{10, false}, {30, false}}));
  // What can never fit evicts nothing.
  EXPECT_FALSE(budget->TryReserve(81));
  EXPECT_EQ(cached, 20u);
  budget->SetEvictor(nullptr);
}

TEST(PayloadBudget, ReadsGoBeforeWhatWaitedLonger) {
  const auto budget = PayloadBudget::New(100, 10);
  ASSERT_TRUE(budget->TryReserve(90));
  std::vector<int> admitted;
  budget->Await(10, 1, [&] { admitted.push_back(1); });
  budget->AwaitRead(30, [&] { admitted.push_back(2); });
  const WaiterId third = budget->AwaitRead(100, [&] { admitted.push_back(3); });
  EXPECT_EQ(budget->use().read_waiters, 2u);
  EXPECT_EQ(budget->use().read_waiting_bytes, 130u);
  EXPECT_EQ(budget->use().waiters, 1u);
  budget->Unreserve(20);
  EXPECT_EQ(admitted, std::vector<int>{2});
  budget->Unreserve(60);
  EXPECT_EQ(admitted, std::vector<int>{2});  // behind a read that does not fit yet
  EXPECT_TRUE(budget->Cancel(third));
  EXPECT_EQ(admitted, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace forebay::storage
