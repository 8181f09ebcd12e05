// buffer-ctl storage, rollouts, inspect and verify, against a daemon that keeps its run in a
// directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class LookTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    for (const std::string& flag : directory_.Flags()) flags.push_back(flag);
    world_ = std::make_unique<World>(flags);
    world_->AddSource("math", 2, 8);
    actor_ = world_->OpenActor({.actor = "env", .sources = {"math"}, .slots = 16});
  }
  Said Ctl(std::vector<std::string> words) {
    words.insert(words.begin(), {"--address", world_->daemon.address()});
    return RunCtl(words);
  }
  Said CtlLine(const std::string& line) {
    std::vector<std::string> words;
    for (auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) words.emplace_back(word);
    return Ctl(words);
  }
  void Push(const OwnRollout& own) {
    auto assignment = actor_->Next({.timeout = absl::Seconds(20) * Slowness()});
    ASSERT_TRUE(assignment.ok()) << assignment.status();
    auto receipt = assignment->Push(own.rollout);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    ASSERT_TRUE(receipt->in());
  }
  // An ordinary one, one with a NaN, one that repeats itself, one that was truncated.
  void PushFour() {
    Push(OwnRollout(1000, 1000, 0.0));
    OwnRollout nan(1000, 5000, 0.05);
    nan.logprobs[700] = std::nanf("");
    Push(nan);
    OwnRollout repeats(1000, 9000, 0.5);
    for (size_t i = 600; i < 900; ++i) repeats.tokens[i] = 77 + i % 3;
    Push(repeats);
    OwnRollout truncated(1000, 13'000, 1.0);
    truncated.rollout.status = client::RolloutStatus::kTruncated;
    Push(truncated);
  }
  // The id in the only row of a list.
  std::string OnlyId(const std::string& options) {
    const Said said = CtlLine("rollouts " + options);
    EXPECT_EQ(Lines(said.out), 2u) << said.out << said.err;
    return said.out.substr(said.out.find('\n') + 1, 16);
  }
  std::vector<fs::path> FilesIn(const std::string& folder) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(fs::path(directory_.path()) / folder)) {
      if (entry.is_regular_file() && entry.file_size() > 4096) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  static void FlipByte(const fs::path& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto was = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(was ^ 0x10));
  }

  RunDirectory directory_;
  std::unique_ptr<World> world_;
  std::unique_ptr<client::Actor> actor_;
};

TEST_F(LookTest, StorageShowsFilesRoomAndTimes) {
  Start();
  PushFour();
  const Said said = Ctl({"storage"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out,
              AllOf(StartsWith("logs"), HasSubstr(directory_.path() + "/segments"),
                    HasSubstr(" free"), HasSubstr("payloads    4 of "), HasSubstr("shard-0"),
                    HasSubstr("contents"), HasSubstr("sync"), HasSubstr("nothing waits")));
  const Said json = CtlLine("storage -o json");
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"durable\": true"), HasSubstr("\"payloads\": 4"),
                              HasSubstr("\"waits\": []")));
}

TEST_F(LookTest, RolloutsAreFoundByRewardAndByWhatTheirBytesHold) {
  Start();
  PushFour();
  EXPECT_EQ(Lines(Ctl({"rollouts", "--reward", "<0.1"}).out), 3u);
  EXPECT_EQ(Lines(Ctl({"rollouts", "--reward", ">=0.05,<1"}).out), 3u);
  EXPECT_THAT(CtlLine("rollouts --flag nan").out, AllOf(HasSubstr("0.05"), HasSubstr("nan")));
  EXPECT_EQ(OnlyId("--flag nan").size(), 16u);
  EXPECT_THAT(CtlLine("rollouts --flag repeat").out, AllOf(HasSubstr("0.5"), HasSubstr("repeat")));
  EXPECT_EQ(OnlyId("--flag repeat").size(), 16u);
  EXPECT_THAT(CtlLine("rollouts --flag truncated").out, HasSubstr("truncated"));
  EXPECT_EQ(Lines(CtlLine("rollouts --flag nan,repeat,truncated").out), 4u);
  EXPECT_EQ(Lines(CtlLine("rollouts --flag nan,repeat,truncated --limit 1").out), 2u);
  EXPECT_THAT(CtlLine("rollouts --flag aborted").out, HasSubstr("no rollouts"));
  const Said few = CtlLine("rollouts --flag nan --look 1");
  EXPECT_THAT(few.out, HasSubstr("looked at the bytes of 1 rollouts"));
  const Said json = CtlLine("rollouts --flag nan -o json");
  EXPECT_THAT(json.out, HasSubstr("\"flags\": [\"nan\"]"));
}

TEST_F(LookTest, AWrongChoiceIsNamed) {
  Start();
  EXPECT_EQ(CtlLine("rollouts --flag purple").code, 2);
  const Said reward = Ctl({"rollouts", "--reward", "about 1"});
  EXPECT_EQ(reward.code, 2);
  EXPECT_THAT(reward.err, AllOf(HasSubstr("--reward: 'about 1'"), HasSubstr("finite number")));
  EXPECT_THAT(CtlLine("rollouts -s nowhere").err, HasSubstr("'nowhere' is not a source"));
  EXPECT_THAT(CtlLine("inspect rollout xyz").err, HasSubstr("ID: is 'xyz'"));
  EXPECT_EQ(CtlLine("inspect rollout xyz").code, 2);
  EXPECT_THAT(CtlLine("inspect rollout 0000000000000000").err, HasSubstr("trained or dropped"));
  EXPECT_EQ(CtlLine("inspect").code, 2);
  EXPECT_EQ(CtlLine("inspect segment").code, 2);
  EXPECT_THAT(CtlLine("inspect segment /no/such.seg").err, HasSubstr("/no/such.seg"));
  EXPECT_EQ(CtlLine("inspect log /no/such.log").code, 1);
}

TEST_F(LookTest, ARolloutIsShownWithItsColumns) {
  Start();
  OwnRollout own(100, 1000, 0.5);
  const std::string text = "1 + 1 = 2\n\x1b[31mred";
  own.rollout.columns.push_back({.name = "text",
                                 .dtype = client::DType::kU8,
                                 .domain = client::Domain::kBlob,
                                 .bytes = text});
  own.rollout.sequences[0].turns = {
      {.offset = 50, .tokens = 50, .role = "assistant", .engine = "engine-7"}};
  own.rollout.extra_json = "{\"seed\": 3}";
  own.logprobs[60] = INFINITY;
  Push(own);
  const std::string id = OnlyId("");
  const Said said = Ctl({"inspect", "rollout", id});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("rollout " + id), HasSubstr("reward = 0.5"),
                              HasSubstr("engine-7"), HasSubstr("{\"seed\": 3}"), HasSubstr("[100]"),
                              HasSubstr("1099"), Not(HasSubstr("1 + 1"))));
  const Said with_text = Ctl({"inspect", "rollout", id, "--text"});
  EXPECT_THAT(with_text.out, HasSubstr("1 + 1 = 2\n\\x1b[31mred"));
  const Said cut = Ctl({"inspect", "rollout", id, "--text", "--text-bytes", "16"});
  EXPECT_THAT(cut.out, AllOf(HasSubstr("1 + 1 = 2\n"), Not(HasSubstr("red")),
                             HasSubstr("see --text-bytes")));
  const Said json = Ctl({"inspect", "rollout", id, "--text", "-o", "json"});
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"name\": \"logprobs\""), HasSubstr("\"inf\": 1"),
                              HasSubstr("\"text\": \"1 + 1 = 2\\u000a")));
}

TEST_F(LookTest, WithoutATextTheTokensIdsAreShown) {
  Start();
  Push(OwnRollout(10, 1000, 0.5));
  const Said said = Ctl({"inspect", "rollout", OnlyId(""), "--text"});
  EXPECT_THAT(said.out, HasSubstr("token ids:\n1000 1001 1002"));
}

TEST_F(LookTest, ARolloutLargerThanOneAnswerIsReadWhole) {
  Start();
  Push(OwnRollout(1'000'000, 0, 0.5));  // 9 MB
  const Said said = Ctl({"inspect", "rollout", OnlyId("")});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("999999"), HasSubstr("[1000000]"), HasSubstr("-4 ")));
}

TEST_F(LookTest, FilesAreInspectedWhileTheDaemonRunsAndAfterIt) {
  Start();
  PushFour();
  const auto segments = FilesIn("segments");
  ASSERT_FALSE(segments.empty());
  Said said = Ctl({"inspect", "segment", segments[0]});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("crc ok   attempt "), HasSubstr("1 x 1000 tokens"),
                              HasSubstr("not sealed"), HasSubstr(" 0 of them damaged")));
  const auto logs = FilesIn("shard-0");
  ASSERT_EQ(logs.size(), 1u);
  said = Ctl({"inspect", "log", logs[0]});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("AddTasks"), HasSubstr("OpenSession"), HasSubstr("Assign"),
                              HasSubstr("PutRollouts"), HasSubstr("log of shard-0, file 1"),
                              HasSubstr("whole to its end")));
  said = Ctl({"inspect", "log", logs[0], "--text", "--limit", "3"});
  EXPECT_THAT(said.out, AllOf(HasSubstr("("), HasSubstr("more: see --limit")));
  const auto contents = FilesIn("contents");
  ASSERT_EQ(contents.size(), 1u);
  EXPECT_THAT(Ctl({"inspect", "log", contents[0], "--text"}).out,
              AllOf(HasSubstr("Task("), HasSubstr("\"task-7\"")));
  world_->daemon.Kill();
  FlipByte(segments[0], 4096 + 500);
  said = Ctl({"inspect", "segment", segments[0], "--damaged"});
  EXPECT_EQ(said.code, 10) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("DAMAGED"), HasSubstr("1 of them damaged")));
  FlipByte(logs[0], 4096 + 60);
  said = Ctl({"inspect", "log", logs[0], "-o", "json"});
  EXPECT_EQ(said.code, 10) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("\"end\": \"corrupt\""), HasSubstr("\"end_offset\": 4096"),
                              HasSubstr("\"command\": \"PutRollouts\"")));
}

TEST_F(LookTest, ARunningDaemonVerifiesItsPayloads) {
  Start();
  EXPECT_THAT(CtlLine("verify --show").out, HasSubstr("no verification was started"));
  PushFour();
  Said said = Ctl({"verify"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(StartsWith("OK: "), HasSubstr("4 payloads of ")));
  // Memory has the right bytes; the disk's are what counts.
  FlipByte(FilesIn("segments")[0], 4096 + 500);
  said = Ctl({"verify"});
  EXPECT_EQ(said.code, 10) << said.out << said.err;
  EXPECT_THAT(said.out,
              AllOf(StartsWith("DAMAGED: 1 payloads"), HasSubstr("3 payloads of "),
                    HasSubstr("damage: " + FilesIn("segments")[0].string()), HasSubstr("crc")));
  EXPECT_EQ(CtlLine("verify --show -o json").code, 10);
  EXPECT_EQ(CtlLine("verify --segments /tmp").code, 2);
  EXPECT_EQ(CtlLine("verify --rate 0").code, 2);
}

}  // namespace
}  // namespace forebay::integration
