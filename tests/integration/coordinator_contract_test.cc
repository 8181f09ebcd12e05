// What every coordinator promises (node/coordinator.h), of each implementation.
#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/integration/coordinator_backend.h"
#include "tests/integration/coordinator_calls.h"

namespace forebay::integration {
namespace {

using node::Coordinator;
using node::CoordinatorLimits;
using node::Outcome;
using node::PresenceEvent;
using node::Transaction;
using node::TransactionResult;
using node::WatchEvent;
using testing::ElementsAre;

class CoordinatorContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    backend_ = NewBackend(GetParam());
    coordinator_ = backend_->Connect();
    of_ = coordinator_.get();
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Coordinator> coordinator_;
  Coordinator* of_ = nullptr;
};

TEST_P(CoordinatorContract, AKeyIsMadeOnlyOnce) {
  const auto made = PutIf(of_, "shard/0", 0, "epoch 1");
  ASSERT_EQ(made.outcome, Outcome::kDone) << made.why;
  EXPECT_GT(made.revision, 0u);
  const auto refused = PutIf(of_, "shard/0", 0, "epoch 2");
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_THAT(refused.now, ElementsAre(node::KeyValue{"shard/0", "epoch 1", made.revision}));
  EXPECT_GE(refused.revision, made.revision);
  const auto read = Get(of_, "shard/0");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->entries, ElementsAre(node::KeyValue{"shard/0", "epoch 1", made.revision}));
}

TEST_P(CoordinatorContract, AKeyIsChangedOnlyByWhoHasSeenItsNewestRevision) {
  const auto first = PutIf(of_, "k", 0, "1");
  const auto second = PutIf(of_, "k", first.revision, "2");
  ASSERT_EQ(second.outcome, Outcome::kDone) << second.why;
  EXPECT_GT(second.revision, first.revision);
  const auto late = PutIf(of_, "k", first.revision, "3");
  EXPECT_EQ(late.outcome, Outcome::kRefused);
  EXPECT_THAT(late.now, ElementsAre(node::KeyValue{"k", "2", second.revision}));
}

TEST_P(CoordinatorContract, AnAbsentKeyIsToldAsSuch) {
  const auto read = Get(of_, "k");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->entries.empty());
  EXPECT_GT(read->revision, 0u);
  const auto refused = PutIf(of_, "k", read->revision, "1");
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_THAT(refused.now, ElementsAre(node::KeyValue{"k", "", 0}));
}

TEST_P(CoordinatorContract, SeveralKeysChangeTogetherOrNotAtAll) {
  const auto a = Put(of_, "a", "1");
  const Transaction both{.conditions = {{"a", a.revision}, {"b", 0}},
                         .changes = {{"a", "2"}, {"b", "2"}, {"c", std::nullopt}}};
  const auto done = Commit(of_, both);
  ASSERT_EQ(done.outcome, Outcome::kDone) << done.why;
  const auto again = Commit(of_, both);
  EXPECT_EQ(again.outcome, Outcome::kRefused);
  EXPECT_THAT(again.now, ElementsAre(node::KeyValue{"a", "2", done.revision},
                                     node::KeyValue{"b", "2", done.revision}));
  const auto half =
      Commit(of_, {.conditions = {{"a", done.revision}, {"b", 0}}, .changes = {{"a", "3"}}});
  EXPECT_EQ(half.outcome, Outcome::kRefused);
  const auto read = GetPrefix(of_, "");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->revision, done.revision);
  EXPECT_THAT(read->entries, ElementsAre(node::KeyValue{"a", "2", done.revision},
                                         node::KeyValue{"b", "2", done.revision}));
}

TEST_P(CoordinatorContract, ADeletedKeyIsAbsentAndCanBeMadeAgain) {
  const auto made = Put(of_, "k", "1");
  const auto gone =
      Commit(of_, {.conditions = {{"k", made.revision}}, .changes = {{"k", std::nullopt}}});
  ASSERT_EQ(gone.outcome, Outcome::kDone) << gone.why;
  EXPECT_GT(gone.revision, made.revision);
  EXPECT_TRUE(Get(of_, "k")->entries.empty());
  EXPECT_EQ(PutIf(of_, "k", made.revision, "2").outcome, Outcome::kRefused);
  EXPECT_EQ(PutIf(of_, "k", 0, "2").outcome, Outcome::kDone);
}

TEST_P(CoordinatorContract, WhatChangesNothingHasNoRevisionOfItsOwn) {
  const auto made = Put(of_, "k", "1");
  const auto nothing =
      Commit(of_, {.conditions = {{"k", made.revision}}, .changes = {{"absent", std::nullopt}}});
  EXPECT_EQ(nothing.outcome, Outcome::kDone);
  EXPECT_EQ(nothing.revision, made.revision);
  const auto look = Commit(of_, {.conditions = {{"k", made.revision}}, .changes = {}});
  EXPECT_EQ(look.outcome, Outcome::kDone);
  EXPECT_EQ(look.revision, made.revision);
}

TEST_P(CoordinatorContract, APrefixIsReadInOrderWithoutItsNeighbours) {
  for (const char* key : {"n/2", "n/1", "n", "m/9", "o", "n0", "n/\xff", "n/\xff\xff"}) {
    ASSERT_EQ(Put(of_, key, key).outcome, Outcome::kDone);
  }
  const auto keys = [this](const std::string& prefix) {
    std::vector<std::string> found;
    const auto read = GetPrefix(of_, prefix);
    EXPECT_TRUE(read.ok()) << read.status();
    for (const auto& entry : read->entries) found.push_back(entry.key);
    return found;
  };
  EXPECT_THAT(keys("n/"), ElementsAre("n/1", "n/2", "n/\xff", "n/\xff\xff"));
  EXPECT_THAT(keys("n/\xff"), ElementsAre("n/\xff", "n/\xff\xff"));
  EXPECT_THAT(keys("z"), ElementsAre());
  EXPECT_EQ(keys("").size(), 8u);
}

TEST_P(CoordinatorContract, AnyBytesAreKept) {
  std::string value(CoordinatorLimits::kValueBytesMax, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7);
  const std::string key("a\0b\xff", 4);
  ASSERT_EQ(Put(of_, key, value).outcome, Outcome::kDone);
  const auto read = Get(of_, key);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->entries.size(), 1u);
  EXPECT_EQ(read->entries[0].key, key);
  EXPECT_TRUE(read->entries[0].value == value);
}

TEST_P(CoordinatorContract, WhatIsOverALimitIsRefusedWithItsName) {
  const auto refused = [this](Transaction transaction) {
    const auto result = Commit(of_, std::move(transaction));
    EXPECT_EQ(result.outcome, Outcome::kNotDone);
    EXPECT_TRUE(absl::IsInvalidArgument(result.why)) << result.why;
    return std::string(result.why.message());
  };
  const std::string large(CoordinatorLimits::kValueBytesMax + 1, 'x');
  EXPECT_THAT(refused({.conditions = {}, .changes = {{"k", large}}}), testing::HasSubstr("value"));
  EXPECT_THAT(refused({.conditions = {}, .changes = {{"", "x"}}}), testing::HasSubstr("key"));
  EXPECT_THAT(refused({.conditions = {}, .changes = {{"k", "1"}, {"k", "2"}}}),
              testing::HasSubstr("twice"));
  Transaction many;
  for (size_t i = 0; i <= CoordinatorLimits::kTransactionOperationsMax; ++i) {
    many.changes.push_back({absl::StrCat("k", i), "x"});
  }
  EXPECT_THAT(refused(many), testing::HasSubstr("operations"));
  const std::string half(CoordinatorLimits::kTransactionBytesMax / 2, 'x');
  EXPECT_THAT(refused({.conditions = {}, .changes = {{"a", half}, {"b", half}}}),
              testing::HasSubstr("transaction"));
  EXPECT_TRUE(absl::IsInvalidArgument(Get(of_, "").status()));
  EXPECT_TRUE(GetPrefix(of_, "")->entries.empty());
}

TEST_P(CoordinatorContract, TheLargestTransactionIsTaken) {
  Transaction most;
  const size_t count = CoordinatorLimits::kTransactionOperationsMax;
  for (size_t i = 0; i < count; ++i) {
    const std::string key = absl::StrCat("k", i);
    most.conditions.push_back({key, 0});
    most.changes.push_back({key, std::string(10'000, 'x')});
  }
  ASSERT_EQ(Commit(of_, most).outcome, Outcome::kDone);
  const auto again = Commit(of_, most);
  EXPECT_EQ(again.outcome, Outcome::kRefused) << again.why;
  EXPECT_EQ(again.now.size(), count);
}

TEST_P(CoordinatorContract, AWatchBeginsWithTheStateAndGoesOnWithEveryChange) {
  const auto first = Put(of_, "w/a", "1");
  const auto other = Put(of_, "v", "0");
  ToldByWatch told;
  auto watch = of_->WatchPrefix({.prefix = "w/", .after = {}}, told.Callback());
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE(told.WaitForCount(1));
  const auto both = Commit(of_, {.conditions = {}, .changes = {{"w/a", "2"}, {"w/b", "2"}}});
  Put(of_, "v", "1");
  const auto gone = Commit(of_, {.conditions = {}, .changes = {{"w/a", std::nullopt}}});
  const auto last = Put(of_, "w/b", "3");
  ASSERT_TRUE(told.Wait([](const auto& events) { return Words(events).size() >= 5; }));
  EXPECT_THAT(
      Words(told.events()),
      ElementsAre(absl::StrCat("[w/a=1@", first.revision, "]@", other.revision),
                  absl::StrCat("w/a=2@", both.revision), absl::StrCat("w/b=2@", both.revision),
                  absl::StrCat("w/a@", gone.revision), absl::StrCat("w/b=3@", last.revision)));
}

TEST_P(CoordinatorContract, AWatchFromARevisionBeginsWithWhatCameAfter) {
  Put(of_, "w", "1");
  const auto seen = Put(of_, "w", "2");
  const auto missed = Put(of_, "w", "3");
  const auto other = Put(of_, "v", "3");
  ToldByWatch told;
  auto watch = of_->WatchPrefix({.prefix = "w", .after = seen.revision}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  const auto next = Put(of_, "w", "4");
  ASSERT_TRUE(told.WaitForCount(2));
  EXPECT_THAT(Words(told.events()), ElementsAre(absl::StrCat("w=3@", missed.revision),
                                                absl::StrCat("w=4@", next.revision)));
  // From the newest revision there is nothing to tell until something happens.
  ToldByWatch later;
  auto second = of_->WatchPrefix({.prefix = "v", .after = next.revision}, later.Callback());
  const auto change = Put(of_, "v", "5");
  ASSERT_TRUE(later.WaitForCount(1));
  EXPECT_THAT(Words(later.events()), ElementsAre(absl::StrCat("v=5@", change.revision)));
  EXPECT_LT(other.revision, change.revision);
}

TEST_P(CoordinatorContract, WhoMissesChangesThatAreNotKeptIsToldAndGetsTheState) {
  const auto seen = Put(of_, "w", "1");
  Put(of_, "w", "2");
  const uint64_t kept = backend_->ForgetHistory(of_);
  const auto now = Put(of_, "w", "3");
  ASSERT_GT(kept, seen.revision + 1);
  ToldByWatch told;
  auto watch = of_->WatchPrefix({.prefix = "w", .after = seen.revision}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(2));
  const auto next = Put(of_, "w", "4");
  ASSERT_TRUE(told.WaitForCount(3));
  EXPECT_THAT(Words(told.events()),
              ElementsAre("compacted", absl::StrCat("[w=3@", now.revision, "]@", now.revision),
                          absl::StrCat("w=4@", next.revision)));
  EXPECT_GT(told.events()[0].revision, seen.revision);
}

TEST_P(CoordinatorContract, AWatchOfTheFutureIsToldThatTheStateIsAnother) {
  const auto now = Put(of_, "w", "1");
  ToldByWatch told;
  auto watch = of_->WatchPrefix({.prefix = "w", .after = now.revision + 1000}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(2));
  EXPECT_THAT(Words(told.events()),
              ElementsAre("compacted", absl::StrCat("[w=1@", now.revision, "]@", now.revision)));
}

TEST_P(CoordinatorContract, AnEndedWatchTellsNothingMore) {
  ToldByWatch ended, other;
  auto watch = of_->WatchPrefix({.prefix = "w", .after = {}}, ended.Callback());
  auto witness = of_->WatchPrefix({.prefix = "w", .after = {}}, other.Callback());
  ASSERT_TRUE(ended.WaitForCount(1));
  ASSERT_TRUE(other.WaitForCount(1));
  watch->reset();
  Put(of_, "w", "1");
  ASSERT_TRUE(other.WaitForCount(2));
  EXPECT_EQ(ended.events().size(), 1u);
}

TEST_P(CoordinatorContract, AWatchMayEndItselfAndCallFromItsCallback) {
  Put(of_, "w", "1");
  std::unique_ptr<node::Watch> watch;
  Mutex mutex;
  std::atomic<int> calls{0};
  Notification read;
  {
    MutexLock lock(&mutex);
    watch = *of_->WatchPrefix({.prefix = "w", .after = {}}, [&](const WatchEvent& event) {
      ++calls;
      std::unique_ptr<node::Watch> own;
      {
        MutexLock inner(&mutex);
        own = std::move(watch);
      }
      own.reset();
      EXPECT_EQ(event.entries.size(), 1u);
      of_->Get("w", Patience(), [&read](const auto& state) {
        EXPECT_TRUE(state.ok()) << state.status();
        read.Notify();
      });
    });
  }
  ASSERT_TRUE(read.WaitFor(Patience()));
  Put(of_, "w", "2");
  Put(of_, "w", "3");
  EXPECT_EQ(calls, 1);
}

TEST_P(CoordinatorContract, APresenceIsThereAsLongAsItsObject) {
  ToldByPresence told;
  ToldByWatch seen;
  auto watch = of_->WatchPrefix({.prefix = "nodes/", .after = {}}, seen.Callback());
  ASSERT_TRUE(seen.WaitForCount(1));
  auto presence = of_->Announce({.key = "nodes/1", .value = "here"}, told.Callback());
  ASSERT_TRUE(presence.ok()) << presence.status();
  ASSERT_TRUE(told.WaitForCount(1));
  ASSERT_EQ(told.events()[0].kind, PresenceEvent::Kind::kHeld) << told.events()[0].why;
  const auto read = Get(of_, "nodes/1");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->entries,
              ElementsAre(node::KeyValue{"nodes/1", "here", told.events()[0].revision}));
  presence->reset();
  ASSERT_TRUE(seen.WaitForCount(3));
  EXPECT_FALSE(seen.events()[2].changes[0].value.has_value());
  EXPECT_EQ(told.events().size(), 1u);
}

TEST_P(CoordinatorContract, APresenceTakesOnlyItsOwnKeyAway) {
  ToldByPresence first, second;
  ToldByWatch seen;
  auto watch = of_->WatchPrefix({.prefix = "nodes/", .after = {}}, seen.Callback());
  auto old = of_->Announce({.key = "nodes/1", .value = "old"}, first.Callback());
  ASSERT_TRUE(first.WaitForCount(1));
  auto young = of_->Announce({.key = "nodes/1", .value = "young"}, second.Callback());
  ASSERT_TRUE(second.WaitForCount(1));
  old->reset();
  // One that is ended after it, and seen to be gone.
  ToldByPresence witness;
  auto other = of_->Announce({.key = "nodes/2", .value = ""}, witness.Callback());
  ASSERT_TRUE(witness.WaitForCount(1));
  other->reset();
  std::string gone;
  ASSERT_TRUE(seen.Wait([&gone](const std::vector<WatchEvent>& events) {
    for (const WatchEvent& event : events) {
      for (const auto& change : event.changes) {
        if (!change.value.has_value()) gone = change.key;
      }
    }
    return !gone.empty();
  }));
  EXPECT_EQ(gone, "nodes/2");
  EXPECT_EQ(Get(of_, "nodes/1")->entries.at(0).value, "young");
}

TEST_P(CoordinatorContract, ManyThreadsCountWithoutLosingOne) {
  constexpr int kThreads = 4, kEach = 25;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int done = 0; done < kEach;) {
        const auto read = Get(of_, "count");
        ASSERT_TRUE(read.ok()) << read.status();
        int count = 0;
        uint64_t revision = 0;
        if (!read->entries.empty()) {
          ASSERT_TRUE(absl::SimpleAtoi(read->entries[0].value, &count));
          revision = read->entries[0].revision;
        }
        const auto put = PutIf(of_, "count", revision, absl::StrCat(count + 1));
        ASSERT_TRUE(put.outcome == Outcome::kDone || put.outcome == Outcome::kRefused) << put.why;
        if (put.outcome == Outcome::kDone) ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Get(of_, "count")->entries.at(0).value, absl::StrCat(kThreads * kEach));
}

TEST_P(CoordinatorContract, ABurstIsAnsweredOnceEachAndRefusedBeyondTheLimit) {
  constexpr size_t kCalls = 3 * CoordinatorLimits::kCallsMax;
  std::vector<std::atomic<int>> answers(kCalls);
  std::atomic<size_t> answered{0}, refused{0};
  Notification all;
  for (size_t i = 0; i < kCalls; ++i) {
    of_->Get("k", Patience(), [&, i](const absl::StatusOr<node::KeyState>& state) {
      ++answers[i];
      if (!state.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(state.status())) << state.status();
        ++refused;
      }
      if (++answered == kCalls) all.Notify();
    });
  }
  ASSERT_TRUE(all.WaitFor(2 * Patience()));
  EXPECT_LE(refused, kCalls - CoordinatorLimits::kCallsMax);
  for (const auto& count : answers) ASSERT_EQ(count, 1);
  // And they are taken again.
  EXPECT_TRUE(Get(of_, "k").ok());
}

TEST_P(CoordinatorContract, DestructionAnswersEveryCallOnceAndTellsWhatIsUnknown) {
  constexpr size_t kCalls = 200;
  std::vector<TransactionResult> results(kCalls);
  std::vector<std::atomic<int>> answers(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    of_->Commit({.conditions = {}, .changes = {{absl::StrCat("k", i), "x"}}}, Patience(),
                [&, i](TransactionResult result) {
                  results[i] = std::move(result);
                  ++answers[i];
                });
  }
  coordinator_.reset();
  for (const auto& count : answers) ASSERT_EQ(count, 1);
  coordinator_ = backend_->Connect();
  std::set<std::string> there;
  const auto read = GetPrefix(coordinator_.get(), "");
  ASSERT_TRUE(read.ok()) << read.status();
  for (const auto& entry : read->entries) there.insert(entry.key);
  for (size_t i = 0; i < kCalls; ++i) {
    const bool found = there.contains(absl::StrCat("k", i));
    ASSERT_NE(results[i].outcome, Outcome::kRefused);
    if (results[i].outcome == Outcome::kUnknown) continue;
    EXPECT_EQ(found, results[i].outcome == Outcome::kDone) << i << ": " << results[i].why;
  }
}

TEST_P(CoordinatorContract, WatchesAndPresencesHaveALimit) {
  std::vector<std::unique_ptr<node::Watch>> watches;
  std::vector<std::unique_ptr<node::Presence>> presences;
  for (size_t i = 0; i < CoordinatorLimits::kWatchesMax; ++i) {
    watches.push_back(*of_->WatchPrefix({.prefix = "w", .after = {}}, [](const auto&) {}));
  }
  const auto watch = of_->WatchPrefix({.prefix = "w", .after = {}}, [](const auto&) {});
  EXPECT_TRUE(absl::IsResourceExhausted(watch.status())) << watch.status();
  for (size_t i = 0; i < CoordinatorLimits::kPresencesMax; ++i) {
    presences.push_back(
        *of_->Announce({.key = absl::StrCat("n", i), .value = ""}, [](const auto&) {}));
  }
  const auto presence = of_->Announce({.key = "n", .value = ""}, [](const auto&) {});
  EXPECT_TRUE(absl::IsResourceExhausted(presence.status())) << presence.status();
  watches.clear();
  EXPECT_TRUE(of_->WatchPrefix({.prefix = "w", .after = {}}, [](const auto&) {}).ok());
}

TEST_P(CoordinatorContract, HealthNamesWhereItIs) {
  ASSERT_TRUE(Get(of_, "k").ok());
  const auto health = of_->Health();
  EXPECT_TRUE(health.reachable) << health.why;
  EXPECT_THAT(health.where, testing::HasSubstr(backend_->Where()));
}

INSTANTIATE_TEST_SUITE_P(Of, CoordinatorContract, testing::ValuesIn(kBackends),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace forebay::integration
