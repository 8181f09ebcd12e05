// What a coordinator does when members of a real etcd are killed, frozen or cut off.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcd/coordinator.h"
#include "gmock/gmock.h"
#include "tests/integration/coordinator_calls.h"
#include "tests/integration/daemon.h"
#include "tests/integration/etcd_process.h"

namespace forebay::integration {
namespace {

using node::Coordinator;
using node::Outcome;
using node::PresenceEvent;
using node::TransactionResult;
using node::WatchEvent;
using testing::ElementsAre;
using testing::HasSubstr;

// Longer than a frozen member is waited for and another one is elected.
absl::Duration CallTimeout() { return absl::Seconds(8) * Slowness(); }

std::unique_ptr<Coordinator> Open(etcd::Options options) {
  options.silence_max = absl::Seconds(1) * Slowness();
  options.attempt_timeout = absl::Seconds(1) * Slowness();
  auto opened = etcd::Coordinator::Open(options);
  FOREBAY_CHECK(opened.ok());
  return *std::move(opened);
}

// Writes the numbers from..to under one key, each once, over whatever happens.
class Counter {
 public:
  explicit Counter(Coordinator* of) : of_(of) {}

  void Count(int from, int to) {
    for (int number = from; number <= to; ++number) ASSERT_NO_FATAL_FAILURE(Write(number));
  }

 private:
  void Write(int number) {
    const std::string value = absl::StrCat(number);
    for (int tries = 0; tries < 50; ++tries) {
      const auto put = PutIf(of_, "count", revision_, value, CallTimeout());
      if (put.outcome == Outcome::kDone) return void(revision_ = put.revision);
      // What is unknown shows in what is there; if it is not there yet, the next try settles it:
      // only one of the two can find the old revision.
      const auto read = Get(of_, "count", CallTimeout());
      ASSERT_TRUE(read.ok()) << read.status();
      if (!read->entries.empty() && read->entries[0].value == value) {
        return void(revision_ = read->entries[0].revision);
      }
      ASSERT_EQ(read->entries.empty() ? 0 : read->entries[0].revision, revision_) << put.why;
    }
    FAIL() << number << " is never done";
  }

  Coordinator* const of_;
  uint64_t revision_ = 0;
};

// The values that a watch told, without what came again; false if one is out of order.
bool InOrder(const std::vector<WatchEvent>& events, std::vector<int>* values) {
  uint64_t newest = 0;
  values->clear();
  for (const WatchEvent& event : events) {
    for (const auto& change : event.changes) {
      if (change.revision <= newest) continue;
      newest = change.revision;
      int value = 0;
      if (!change.value.has_value() || !absl::SimpleAtoi(*change.value, &value)) return false;
      values->push_back(value);
    }
  }
  return true;
}

struct Strike {
  bool freeze;
  bool leader;  // or the member that is used, which does not lead
};

class StruckMember : public testing::TestWithParam<Strike> {};

TEST_P(StruckMember, CallsGoOnThroughOthersAndTheWatchMissesNothing) {
  constexpr int kBefore = 5, kAll = 25;
  EtcdCluster cluster(3);
  const size_t leader = cluster.Leader(0), used = cluster.Follower(0);
  const size_t victim = GetParam().leader ? leader : used;
  auto coordinator = Open({.endpoints = cluster.endpoints(), .first = used});
  ToldByWatch told;
  auto watch = coordinator->WatchPrefix({.prefix = "count", .after = {}}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  Counter counter(coordinator.get());
  ASSERT_NO_FATAL_FAILURE(counter.Count(1, kBefore));
  if (GetParam().freeze) {
    cluster.Freeze(victim);
  } else {
    cluster.Kill(victim);
  }
  ASSERT_NO_FATAL_FAILURE(counter.Count(kBefore + 1, kAll));
  std::vector<int> values, wanted;
  for (int i = 1; i <= kAll; ++i) wanted.push_back(i);
  ASSERT_TRUE(told.Wait([&](const std::vector<WatchEvent>& events) {
    return InOrder(events, &values) && !values.empty() && values.back() == kAll;
  })) << testing::PrintToString(values);
  EXPECT_EQ(values, wanted);
  EXPECT_TRUE(coordinator->Health().reachable) << coordinator->Health().why;
}

INSTANTIATE_TEST_SUITE_P(Of, StruckMember,
                         testing::Values(Strike{false, false}, Strike{false, true},
                                         Strike{true, false}, Strike{true, true}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.freeze ? "Frozen" : "Killed",
                                               info.param.leader ? "Leader" : "Used");
                         });

TEST(EtcdFaultTest, AMemberThatComesBackIsUsedAgainWhenTheOthersAreGone) {
  EtcdCluster cluster(1);
  auto coordinator = Open({.endpoints = cluster.endpoints()});
  ToldByWatch told;
  auto watch = coordinator->WatchPrefix({.prefix = "k", .after = {}}, told.Callback());
  const auto first = Put(coordinator.get(), "k", "1");
  ASSERT_EQ(first.outcome, Outcome::kDone) << first.why;
  ASSERT_TRUE(told.Wait([](const auto& events) { return !Words(events).empty(); }));
  cluster.Kill(0);
  // Away: told within the deadline, and why.
  const auto lost = Get(coordinator.get(), "k", absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lost.status())) << lost.status();
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr(cluster.endpoint(0)));
  const auto health = coordinator->Health();
  EXPECT_FALSE(health.reachable);
  EXPECT_FALSE(health.why.ok());
  // Nothing is sent to whom is not there, so it is sure that nothing was done.
  const auto put = PutIf(coordinator.get(), "k", first.revision, "2", absl::Milliseconds(300));
  EXPECT_EQ(put.outcome, Outcome::kNotDone) << put.why;
  cluster.Start(0);
  const auto again = PutIf(coordinator.get(), "k", first.revision, "3");
  ASSERT_EQ(again.outcome, Outcome::kDone) << again.why;
  ASSERT_TRUE(told.Wait([&](const auto& events) {
    return Words(events).back() == absl::StrCat("k=3@", again.revision);
  }));
  EXPECT_TRUE(coordinator->Health().reachable);
}

TEST(EtcdFaultTest, ACompactionUnderAWatchThatIsAwayIsToldWithTheState) {
  EtcdCluster cluster(1);
  Wire wire(cluster.endpoint(0));
  auto watching = Open({.endpoints = {wire.address()}});
  auto writing = Open({.endpoints = cluster.endpoints()});
  ToldByWatch told;
  const auto first = Put(writing.get(), "w/a", "1");
  auto watch = watching->WatchPrefix({.prefix = "w/", .after = {}}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  const auto seen = Put(writing.get(), "w/a", "2");
  ASSERT_TRUE(told.WaitForCount(2));
  wire.Cut();
  Put(writing.get(), "w/a", "3");
  Commit(writing.get(), {.conditions = {}, .changes = {{"w/a", std::nullopt}}});
  const auto last = Put(writing.get(), "w/b", "4");
  cluster.Compact(last.revision);
  wire.Mend();
  ASSERT_TRUE(told.WaitForCount(4));
  const auto next = Put(writing.get(), "w/b", "5");
  ASSERT_TRUE(told.WaitForCount(5));
  EXPECT_THAT(Words(told.events()),
              ElementsAre(absl::StrCat("[w/a=1@", first.revision, "]@", first.revision),
                          absl::StrCat("w/a=2@", seen.revision), "compacted",
                          absl::StrCat("[w/b=4@", last.revision, "]@", last.revision),
                          absl::StrCat("w/b=5@", next.revision)));
}

// Many revisions of large values at once, which etcd splits over its answers.
TEST(EtcdFaultTest, AWatchCatchesUpOverMuchAndMissesNothing) {
  constexpr int kRevisions = 24;
  EtcdCluster cluster(1);
  Wire wire(cluster.endpoint(0));
  auto watching = Open({.endpoints = {wire.address()}});
  auto writing = Open({.endpoints = cluster.endpoints()});
  ToldByWatch told;
  auto watch = watching->WatchPrefix({.prefix = "w/", .after = {}}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  wire.Cut();
  std::vector<std::string> wanted;
  for (int i = 0; i < kRevisions; ++i) {
    node::Transaction transaction;
    for (int k = 0; k < 3; ++k) {
      transaction.changes.push_back({absl::StrCat("w/", k), std::string(400'000, 'x')});
    }
    const auto put = Commit(writing.get(), transaction);
    ASSERT_EQ(put.outcome, Outcome::kDone) << put.why;
    for (int k = 0; k < 3; ++k) wanted.push_back(absl::StrCat("w/", k, "@", put.revision));
  }
  wire.Mend();
  std::vector<std::string> seen;
  const auto all = [&](const std::vector<WatchEvent>& events) {
    seen.clear();
    std::set<std::string> once;
    for (const WatchEvent& event : events) {
      for (const auto& change : event.changes) {
        std::string word = absl::StrCat(change.key, "@", change.revision);
        if (change.value->size() == 400'000 && once.insert(word).second) seen.push_back(word);
      }
    }
    return seen.size() >= wanted.size();
  };
  ASSERT_TRUE(told.Wait(all)) << seen.size();
  EXPECT_EQ(seen, wanted);
}

class LostAnswer : public testing::Test {
 protected:
  LostAnswer() : cluster_(1), wire_(cluster_.endpoint(0)) {
    etcd::Options options{.endpoints = {wire_.address()}};
    options.fresh_for = absl::Hours(1);  // what is lost is the transaction itself, no question
    options.transaction_timeout = absl::Hours(1);
    coordinator_ = Open(options);
    first_ = Put(coordinator_.get(), "k", "1");
    FOREBAY_CHECK(first_.outcome == Outcome::kDone);
  }

  EtcdCluster cluster_;
  Wire wire_;
  std::unique_ptr<Coordinator> coordinator_;
  TransactionResult first_;
};

TEST_F(LostAnswer, ATransactionWhoseReplyIsLostIsUnknownAndReadingShowsThatItWasDone) {
  wire_.LoseReplies();
  TransactionResult result;
  std::thread committing([&] { result = PutIf(coordinator_.get(), "k", first_.revision, "2"); });
  const absl::Time until = absl::Now() + Patience();
  while (cluster_.ValueAt(0, "k") != "2" && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(5));  // poll: etcd has done it
  }
  wire_.Cut();
  committing.join();
  EXPECT_EQ(result.outcome, Outcome::kUnknown);
  EXPECT_FALSE(result.why.ok());
  wire_.Mend();
  const auto read = Get(coordinator_.get(), "k");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entries.at(0).value, "2");
  // It was not sent a second time.
  EXPECT_EQ(read->revision, first_.revision + 1);
}

TEST_F(LostAnswer, ATransactionThatIsLostItselfIsUnknownTooAndTheNextOneSettlesIt) {
  wire_.LoseRequests();
  const auto result = PutIf(coordinator_.get(), "k", first_.revision, "2", absl::Milliseconds(300));
  EXPECT_EQ(result.outcome, Outcome::kUnknown);
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.why)) << result.why;
  wire_.Cut();
  wire_.Mend();
  const auto read = Get(coordinator_.get(), "k");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entries.at(0).value, "1");
  const auto settled = PutIf(coordinator_.get(), "k", first_.revision, "3");
  EXPECT_EQ(settled.outcome, Outcome::kDone) << settled.why;
}

TEST_F(LostAnswer, DestructionTellsThatATransactionIsUnknown) {
  wire_.LoseReplies();
  Notification told;
  TransactionResult result;
  coordinator_->Commit({.conditions = {}, .changes = {{"k", "2"}}}, Patience(),
                       [&](TransactionResult answer) {
                         result = std::move(answer);
                         told.Notify();
                       });
  const absl::Time until = absl::Now() + Patience();
  while (cluster_.ValueAt(0, "k") != "2" && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(5));  // poll: etcd has done it
  }
  coordinator_.reset();
  ASSERT_TRUE(told.WaitFor(absl::ZeroDuration()));
  EXPECT_EQ(result.outcome, Outcome::kUnknown) << result.why;
}

TEST(EtcdFaultTest, APresenceThatCannotBeKeptAliveIsToldAndComesBack) {
  EtcdCluster cluster(1);
  Wire wire(cluster.endpoint(0));
  auto keeping = Open({.endpoints = {wire.address()}});
  auto watching = Open({.endpoints = cluster.endpoints()});
  ToldByPresence told;
  ToldByWatch seen;
  auto presence = keeping->Announce(
      {.key = "nodes/1", .value = "here", .time_to_live = absl::Seconds(1)}, told.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  ASSERT_EQ(told.events()[0].kind, PresenceEvent::Kind::kHeld) << told.events()[0].why;
  auto watch = watching->WatchPrefix({.prefix = "nodes/", .after = {}}, seen.Callback());
  ASSERT_TRUE(seen.WaitForCount(1));
  ASSERT_EQ(seen.events()[0].entries.size(), 1u);
  wire.Cut();
  // Each by its own clock.
  ASSERT_TRUE(told.WaitForCount(2));
  EXPECT_EQ(told.events()[1].kind, PresenceEvent::Kind::kLost);
  EXPECT_FALSE(told.events()[1].why.ok());
  ASSERT_TRUE(seen.WaitForCount(2));
  EXPECT_FALSE(seen.events()[1].changes.at(0).value.has_value());
  wire.Mend();
  ASSERT_TRUE(told.Wait([](const std::vector<PresenceEvent>& events) {
    return events.size() >= 3 && events.back().kind == PresenceEvent::Kind::kHeld;
  }));
  ASSERT_TRUE(seen.WaitForCount(3));
  EXPECT_EQ(seen.events()[2].changes.at(0).value, "here");
}

// A process of its own that keeps a presence; see presence_main.cc.
class PresentProcess {
 public:
  PresentProcess(const std::string& endpoint, const std::string& key) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string program = self.parent_path() / "coordinator_presence";
    int in[2], out[2];
    FOREBAY_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    pid_ = fork();
    FOREBAY_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      execl(program.c_str(), program.c_str(), endpoint.c_str(), key.c_str(), "1", nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    reader_ = std::thread([this, from = out[0]] {
      std::string line;
      for (char c = 0; read(from, &c, 1) == 1;) {
        if (c != '\n') {
          line.push_back(c);
          continue;
        }
        lines_.Callback()(std::exchange(line, ""));
      }
      close(from);
    });
  }
  ~PresentProcess() {
    kill(pid_, SIGCONT);
    close(input_);
    waitpid(pid_, nullptr, 0);
    reader_.join();
  }
  void Freeze() const {
    FOREBAY_CHECK(kill(pid_, SIGSTOP) == 0);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void Thaw() const { FOREBAY_CHECK(kill(pid_, SIGCONT) == 0); }
  Told<std::string>& lines() { return lines_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  Told<std::string> lines_;
  std::thread reader_;
};

TEST(EtcdFaultTest, ALeaseThatEndedWhileItsProcessWasFrozenIsToldWhenItGoesOn) {
  EtcdCluster cluster(1);
  auto watching = Open({.endpoints = cluster.endpoints()});
  ToldByWatch seen;
  auto watch = watching->WatchPrefix({.prefix = "nodes/", .after = {}}, seen.Callback());
  ASSERT_TRUE(seen.WaitForCount(1));
  {
    PresentProcess process(cluster.endpoint(0), "nodes/1");
    ASSERT_TRUE(process.lines().WaitForCount(1));
    ASSERT_TRUE(seen.WaitForCount(2));
    process.Freeze();
    ASSERT_TRUE(seen.WaitForCount(3));
    EXPECT_FALSE(seen.events()[2].changes.at(0).value.has_value());
    process.Thaw();
    ASSERT_TRUE(process.lines().WaitForCount(3));
    EXPECT_THAT(process.lines().events(), ElementsAre("held", "lost", "held"));
    ASSERT_TRUE(seen.WaitForCount(4));
    EXPECT_EQ(seen.events()[3].changes.at(0).value, "here");
  }
  // Its clean end takes it away at once.
  ASSERT_TRUE(seen.WaitForCount(5));
  EXPECT_FALSE(seen.events()[4].changes.at(0).value.has_value());
}

TEST(EtcdFaultTest, MembersOfTwoClustersAreNotTakenForOne) {
  EtcdCluster one(1), other(1);
  auto coordinator = Open({.endpoints = {one.endpoint(0), other.endpoint(0)}});
  ASSERT_EQ(Put(coordinator.get(), "k", "1").outcome, Outcome::kDone);
  one.Kill(0);
  absl::Status status;
  const absl::Time until = absl::Now() + Patience();
  // The first answers may still be of the connection that breaks.
  while (!absl::IsFailedPrecondition(status) && absl::Now() < until) {
    const auto read = Get(coordinator.get(), "k", absl::Seconds(5));
    ASSERT_FALSE(read.ok());
    status = read.status();
  }
  EXPECT_THAT(std::string(status.message()), HasSubstr("two clusters"));
  EXPECT_FALSE(coordinator->Health().reachable);
}

TEST(EtcdFaultTest, AUserIsAskedForAndATokenThatIsForgottenIsGotAgain) {
  EtcdCluster cluster(1);
  cluster.DemandUser("forebay", "secret");
  auto nobody = Open({.endpoints = cluster.endpoints()});
  EXPECT_FALSE(Get(nobody.get(), "k").ok());
  EXPECT_EQ(Put(nobody.get(), "k", "0").outcome, Outcome::kNotDone);
  auto wrong = Open({.endpoints = cluster.endpoints(), .user = "forebay", .password = "wrong"});
  EXPECT_FALSE(Get(wrong.get(), "k").ok());

  auto known = Open({.endpoints = cluster.endpoints(), .user = "forebay", .password = "secret"});
  const auto first = Put(known.get(), "k", "1");
  ASSERT_EQ(first.outcome, Outcome::kDone) << first.why;
  ToldByWatch told;
  ToldByPresence present;
  auto watch = known->WatchPrefix({.prefix = "k", .after = {}}, told.Callback());
  auto presence = known->Announce({.key = "nodes/1", .value = ""}, present.Callback());
  ASSERT_TRUE(told.WaitForCount(1));
  ASSERT_TRUE(present.WaitForCount(1));
  EXPECT_EQ(present.events()[0].kind, PresenceEvent::Kind::kHeld) << present.events()[0].why;
  // Its tokens are in its memory.
  cluster.Start(0);
  const auto read = Get(known.get(), "k");
  ASSERT_TRUE(read.ok()) << read.status();
  const auto second = PutIf(known.get(), "k", first.revision, "2");
  ASSERT_EQ(second.outcome, Outcome::kDone) << second.why;
  ASSERT_TRUE(told.Wait([&](const auto& events) {
    return Words(events).back() == absl::StrCat("k=2@", second.revision);
  }));
}

}  // namespace
}  // namespace forebay::integration
