// buffer-ctl against a real daemon: what it prints, what it changes, and its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ctl/app.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CtlTest : public ::testing::Test {
 protected:
  Said Ctl(const std::string& line) {
    std::vector<std::string> words = {"--address", world_.daemon.address()};
    for (auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) words.emplace_back(word);
    return RunCtl(words);
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(world_.daemon.folder(), "/", name);
    std::ofstream(path) << text;
    return path;
  }

  World world_;
};

TEST_F(CtlTest, StatusOfASoundDaemonIsOkAndExitsZero) {
  const Said said = Ctl("status");
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, ::testing::StartsWith("OK"));
  const Said json = Ctl("status -o json");
  EXPECT_THAT(json.out, HasSubstr("\"verdict\": \"ok\""));
}

TEST_F(CtlTest, ACommandThatIsNoneIsNamed) {
  for (const char* line : {"knots", "config show", "-o json knots extra"}) {
    const Said said = Ctl(line);
    EXPECT_EQ(said.code, 2) << line;
    EXPECT_THAT(said.err, HasSubstr("is no command; there are: ")) << line;
  }
  EXPECT_THAT(Ctl("knots").err, AllOf(HasSubstr("'knots'"), HasSubstr("status, sources")));
  EXPECT_THAT(Ctl("config show").err, AllOf(HasSubstr("'show'"), HasSubstr("get, set")));
  EXPECT_THAT(Ctl("tasks load /no/such/file --source math").err,
              HasSubstr("No such file or directory"));
}

TEST_F(CtlTest, ADaemonAloneIsNoClusterAndSaysSo) {
  for (const char* line : {"nodes", "shards", "events", "switchover", "failover --to 2", "drain 1",
                           "failover pause --why test", "replica add 2", "rebalance", "doctor"}) {
    const Said said = Ctl(line);
    EXPECT_EQ(said.code, 1) << line;
    EXPECT_THAT(said.err, HasSubstr("is no node of a cluster")) << line;
  }
  EXPECT_THAT(Ctl("status").out, HasSubstr("can lose 0 nodes\n"));
}

TEST_F(CtlTest, AnOutputThatCannotBeWrittenIsAnError) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  const std::string address = world_.daemon.address();
  EXPECT_EQ(ctl::Run({"--address", address, "status"}, full, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("the output cannot be written"));
}

TEST_F(CtlTest, ATimeoutIsWithinADay) {
  for (const char* wrong : {"0", "-3", "abc", "1e300"}) {
    const Said said = Ctl(absl::StrCat("status --timeout ", wrong));
    EXPECT_EQ(said.code, 2) << wrong;
    EXPECT_THAT(said.err, HasSubstr("86400")) << wrong;
    EXPECT_LT(said.err.size(), 200u) << wrong;
  }
}

TEST_F(CtlTest, StatusExits10WhenSomebodyShouldLook) {
  ASSERT_TRUE(world_.admin.PutSource({.name = "math", .group_size = 2, .max_failures = 1}).ok());
  ASSERT_TRUE(world_.admin.AddTasks("math", {{.external_id = "a"}}).ok());
  ASSERT_TRUE(world_.admin.SetConfig({{"status.trainer_wait_ms", "100"}}, "test").ok());
  auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "starved"});
  ASSERT_TRUE(trainer.ok());
  // Longer than the trainer may wait.
  auto step = (*trainer)->OpenStep(1, {.groups = 5, .token_budget = 64}, {},
                                   {.timeout = absl::Milliseconds(400)});
  EXPECT_FALSE(step.ok());
  const Said said = Ctl("status");
  EXPECT_EQ(said.code, 10) << said.out << said.err;
  EXPECT_THAT(said.out, ::testing::StartsWith("DEGRADED: "));
}

TEST_F(CtlTest, AnUnreachableDaemonExits20AndSaysWhatToDo) {
  world_.daemon.Kill();
  const Said said = Ctl("status --timeout 5");
  EXPECT_EQ(said.code, 20);
  EXPECT_THAT(said.err, AllOf(HasSubstr("cannot reach"), HasSubstr("--address")));
  EXPECT_EQ(Ctl("sources --timeout 5").code, 20);
}

TEST_F(CtlTest, AFrozenDaemonExits20AtTheTimeout) {
  world_.daemon.Signal(SIGSTOP);
  const Said said = Ctl("status --timeout 0.3");
  world_.daemon.Signal(SIGCONT);
  EXPECT_EQ(said.code, 20);
  EXPECT_THAT(said.err, HasSubstr("--timeout"));
}

TEST_F(CtlTest, WrongCommandLinesExit2) {
  EXPECT_EQ(Ctl("").code, 2);
  EXPECT_EQ(Ctl("no-such-command").code, 2);
  EXPECT_EQ(Ctl("status --no-such-option").code, 2);
  EXPECT_EQ(Ctl("status -o yaml").code, 2);
  EXPECT_EQ(Ctl("config set").code, 2);
  EXPECT_EQ(Ctl("--help").code, 0);
  EXPECT_THAT(Ctl("tasks load --help").out, HasSubstr("--id-field"));
}

TEST_F(CtlTest, AnEmptyAddressIsAWrongCommandLine) {
  const Said said = RunCtl({"-a", "", "status"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.err, AllOf(HasSubstr("--address"), HasSubstr("is empty")));
}

TEST_F(CtlTest, RolloutsAreDroppedByHandAndTheLogSaysByWhom) {
  constexpr uint32_t kRollouts = 6;
  world_.AddSource("math", 3, 2);
  auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = kRollouts});
  auto acquired = actor->Acquire(kRollouts, {.timeout = absl::Seconds(10) * Slowness()});
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  ASSERT_EQ(acquired->assignments.size(), size_t{kRollouts});
  for (uint32_t i = 0; i < kRollouts; ++i) {
    OwnRollout own(20, 1000 * i, i % 2);
    ASSERT_TRUE(acquired->assignments[i].Push(own.rollout).ok());
  }
  for (const char* wrong : {"drop math", "drop math --ready --rollout 1", "drop --ready"}) {
    EXPECT_EQ(Ctl(wrong).code, 2) << wrong;
  }
  EXPECT_THAT(Ctl("drop nowhere --ready").err, HasSubstr("'nowhere' is not a source"));
  EXPECT_THAT(Ctl("drop math --rollout 12ab").err, HasSubstr("holds no rollout 0x12ab"));
  EXPECT_THAT(Ctl("drop math --rollout 12xy").err, HasSubstr("16 hex digits"));
  EXPECT_EQ(world_.admin.ListSources()->at(0).dropped.count("operator"), 0u);

  const std::string list = Ctl("rollouts").out;
  std::vector<std::string> lines = absl::StrSplit(list, '\n');
  ASSERT_GT(lines.size(), size_t{kRollouts});
  const std::string first = lines[1].substr(0, lines[1].find(' '));
  EXPECT_EQ(Ctl(absl::StrCat("drop math --rollout ", first)).out, "1 rollout dropped\n");
  const Said said = Ctl("drop math --ready --why wrong-reward");
  EXPECT_EQ(said.out, "5 rollouts dropped\n") << said.err;
  EXPECT_EQ(Ctl("drop math --ready").out, "0 rollouts dropped\n");
  EXPECT_EQ(world_.admin.ListSources()->at(0).dropped.at("operator"), uint64_t{kRollouts});
  EXPECT_THAT(world_.daemon.Log(), AllOf(HasSubstr("dropped by an operator"),
                                         HasSubstr("wrong-reward"), HasSubstr("@")));
}

TEST_F(CtlTest, TasksAreLoadedOnceHoweverOftenTheFileIs) {
  std::string lines;
  for (int i = 0; i < 25'000; ++i) {
    absl::StrAppend(&lines, "{\"id\": ", i, ", \"prompt\": \"", i, " + 1\"}\n");
  }
  const std::string file = Write("tasks.jsonl", lines);
  const Said missing = Ctl("tasks load " + file + " -s math");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("math"), HasSubstr("--create")));
  const Said first =
      Ctl("tasks load " + file + " -s math --create --group-size 4 --set late=train");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("25000 tasks added"));
  const Said second = Ctl("tasks load " + file + " -s math -o json");
  EXPECT_THAT(second.out, AllOf(HasSubstr("\"added\": 0"), HasSubstr("\"known\": 25000")));
  const Said source = Ctl("sources show math");
  EXPECT_THAT(source.out, AllOf(HasSubstr("\"group_size\": 4"), HasSubstr("\"late\": \"train\""),
                                HasSubstr("\"tasks\": 25000")));
  const Said tasks = Ctl("tasks -s math -n 3");
  EXPECT_EQ(std::count(tasks.out.begin(), tasks.out.end(), '\n'), 4) << tasks.out;
}

TEST_F(CtlTest, ABadLineIsNamed) {
  const std::string file = Write("bad.jsonl", "{\"id\": \"a\"}\n\nnot json\n");
  const Said said = Ctl("tasks load " + file + " -s math --create");
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.err, HasSubstr("line 3"));
  const std::string unnamed = Write("unnamed.jsonl", "{\"prompt\": \"a\"}\n");
  EXPECT_THAT(Ctl("tasks load " + unnamed + " -s math --create").err, HasSubstr("--id-field"));
  EXPECT_EQ(Ctl("tasks load " + unnamed + " -s math --number").code, 0);
  EXPECT_EQ(Ctl("tasks load /no/such/file -s math").code, 1);
}

TEST_F(CtlTest, SettingsChangeOneByOneAndTheOthersStay) {
  EXPECT_EQ(Ctl("sources create math group_size=8 rewards.format=0.25").code, 0);
  EXPECT_EQ(Ctl("sources set math lease.max_ms=50000 required_columns=tokens").code, 0);
  EXPECT_THAT(Ctl("pause math").out, HasSubstr("source math is paused"));
  const Said shown = Ctl("sources show math");
  EXPECT_THAT(shown.out, AllOf(HasSubstr("\"group_size\": 8"), HasSubstr("\"max_ms\": 50000"),
                               HasSubstr("\"format\": 0.25"), HasSubstr("\"paused\": true"),
                               HasSubstr("\"required_columns\": [\"tokens\"]")));
  EXPECT_THAT(Ctl("sources").out, HasSubstr("paused"));
  EXPECT_EQ(Ctl("resume math").code, 0);
  EXPECT_THAT(Ctl("sources").out, Not(HasSubstr("paused")));
  const Said wrong = Ctl("sources set math late=never");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("late: is 'never'"), HasSubstr("baseline_only")));
  EXPECT_THAT(Ctl("sources set math no_such=1").err, HasSubstr("group_size"));
  EXPECT_EQ(Ctl("sources set other group_size=1").code, 1);
}

TEST_F(CtlTest, WhatFollowsTheGroupSizeFollowsItUnlessItWasNamed) {
  const auto settings = [this](const std::string& words) {
    EXPECT_EQ(Ctl("sources " + words).code, 0) << words;
    return Ctl("sources show math").out;
  };
  const auto are = [](int attempts, int at_least, int minimum) {
    return AllOf(HasSubstr(absl::StrCat("\"attempts_per_task\": ", attempts, ",")),
                 HasSubstr(absl::StrCat("\"at_least\": ", at_least, ",")),
                 HasSubstr(absl::StrCat("\"minimum\": ", minimum)));
  };
  EXPECT_THAT(settings("create math group_size=8"), are(8, 8, 2));
  EXPECT_THAT(settings("set math group_size=2"), are(2, 2, 2));
  EXPECT_THAT(settings("set math group_size=16 completeness.deadline_ms=1000"), are(16, 16, 2));
  EXPECT_THAT(settings("set math attempts_per_task=20 completeness.at_least=12"), are(20, 12, 2));
  EXPECT_THAT(settings("set math group_size=18"), are(20, 12, 2));
  EXPECT_THAT(settings("set math group_size=12 attempts_per_task=12 completeness.minimum=3"),
              are(12, 12, 3));
  EXPECT_THAT(settings("set math group_size=4"), are(4, 4, 3));
  const Said refused = Ctl("sources set math group_size=2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("completeness.minimum: 3"));
  EXPECT_THAT(Ctl("sources show math").out, are(4, 4, 3));
}

TEST_F(CtlTest, ConfigShowsTheDifferenceAndADryRunChangesNothing) {
  const Said dry = Ctl("config set memory.payload_bytes_max=1GiB --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("would change memory.payload_bytes_max"), HasSubstr("+ 1073741824")));
  EXPECT_THAT(Ctl("config get --changed memory").out, Not(HasSubstr("1073741824")));
  const Said set = Ctl("config set memory.payload_bytes_max=1GiB --why small-machine");
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_THAT(set.out, HasSubstr("changed memory.payload_bytes_max"));
  EXPECT_THAT(Ctl("config get memory.payload_bytes_max").out, HasSubstr("1073741824"));
  EXPECT_THAT(Ctl("config set memory.payload_bytes_max=1GiB").out, HasSubstr("nothing changes"));
  EXPECT_EQ(Ctl("config set shards=3").code, 1);
  EXPECT_EQ(Ctl("config set no.such=3").code, 1);
  EXPECT_EQ(Ctl("config get no.such").code, 1);
}

TEST_F(CtlTest, QuarantinedTasksAreListedAndRequeued) {
  world_.AddSource("math", 2, 5);
  EXPECT_THAT(Ctl("quarantine math task-1 task-3").out, HasSubstr("2 tasks quarantined"));
  EXPECT_THAT(Ctl("quarantine math task-1 other").out,
              AllOf(HasSubstr("0 tasks"), HasSubstr("2 of those named")));
  EXPECT_THAT(Ctl("tasks -s math --filter quarantined").out,
              AllOf(HasSubstr("task-1"), HasSubstr("task-3"), Not(HasSubstr("task-2"))));
  EXPECT_THAT(Ctl("requeue math task-1").out, HasSubstr("1 task requeued"));
  EXPECT_THAT(Ctl("requeue math --all").out, HasSubstr("1 task requeued"));
  EXPECT_EQ(Ctl("requeue math").code, 2);
  EXPECT_THAT(Ctl("tasks -s math --filter quarantined").out, HasSubstr("no such tasks"));
}

TEST_F(CtlTest, WhatRunsIsListed) {
  world_.AddSource("math", 2, 2);
  auto actor = world_.OpenActor({.actor = "env-7", .engine = "engine-7"});
  auto held = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(held.ok()) << held.status();
  auto done = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(done.ok()) << done.status();
  OwnRollout own(16, 1, 0.5);
  ASSERT_TRUE(done->Push(own.rollout).ok());
  ASSERT_TRUE(actor->ReportAdoption({}, absl::Milliseconds(1)).ok());
  EXPECT_THAT(Ctl("actors").out, AllOf(HasSubstr("env-7"), HasSubstr("forebay-cpp")));
  EXPECT_THAT(Ctl("engines").out, HasSubstr("engine-7"));
  EXPECT_THAT(Ctl("leases").out, HasSubstr(held->info().external_id));
  EXPECT_THAT(Ctl("rollouts").out, AllOf(HasSubstr("math"), HasSubstr("0.5")));
  EXPECT_THAT(Ctl("rollouts --reward >=0.6").out, HasSubstr("no rollouts"));
  EXPECT_THAT(Ctl("rollouts --state ready").out, HasSubstr("no rollouts"));
  auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "rank-9"});
  ASSERT_TRUE(trainer.ok());
  EXPECT_FALSE(
      (*trainer)
          ->OpenStep(1, {.groups = 5, .token_budget = 64}, {}, {.timeout = absl::Milliseconds(50)})
          .ok());
  EXPECT_THAT(Ctl("trainers").out, HasSubstr("rank-9"));
  EXPECT_THAT(Ctl("steps").out, AllOf(HasSubstr("open"), HasSubstr("of 5")));
}

TEST_F(CtlTest, AnEvaluationIsStartedOnceAndShown) {
  EXPECT_EQ(Ctl("sources create held-out purpose=eval").code, 0);
  ASSERT_TRUE(world_.admin.AddTasks("held-out", {{.external_id = "a"}}).ok());
  EXPECT_EQ(Ctl("eval start held-out --id 11 --attempts 2").code, 0);
  EXPECT_EQ(Ctl("eval start held-out --id 11 --attempts 2").code, 0);
  EXPECT_THAT(Ctl("eval show 11").out, AllOf(HasSubstr("held-out"), HasSubstr("running")));
  const Said list = Ctl("eval list");
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 2) << list.out;
  EXPECT_EQ(Ctl("eval show 12").code, 1);
  EXPECT_EQ(Ctl("eval start nowhere").code, 1);
}

TEST(CtlTokenTest, ATokenFileOpensADaemonThatWantsTokens) {
  std::string pattern = ::testing::TempDir() + "/tokens-XXXXXX";
  const int fd = mkstemp(pattern.data());
  ASSERT_GE(fd, 0);
  const std::string tokens = "operator operator-token-0123456789\nactor actor-token-0123456789\n";
  ASSERT_EQ(write(fd, tokens.data(), tokens.size()), static_cast<ssize_t>(tokens.size()));
  close(fd);
  Daemon daemon({"--auth.tokens_file=" + pattern});
  const auto run = [&](const std::string& token, std::string* err) {
    const std::string file = daemon.folder() + "/token";
    std::ofstream(file) << token << "\n";
    std::ostringstream out, errors;
    const int code =
        ctl::Run({"--address", daemon.address(), "--token-file", file, "status"}, out, errors);
    *err = errors.str();
    return code;
  };
  std::string err;
  EXPECT_EQ(run("operator-token-0123456789", &err), 0) << err;
  EXPECT_EQ(run("actor-token-0123456789", &err), 1);
  EXPECT_THAT(err, HasSubstr("role"));
  EXPECT_EQ(run("wrong-token", &err), 1);
  EXPECT_THAT(err, HasSubstr("--token-file"));
  unlink(pattern.c_str());
}

}  // namespace
}  // namespace forebay::integration
