#include "node/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace forebay::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Config, DefaultsAreValidAndRoundTripThroughTheirText) {
  const Config defaults;
  EXPECT_TRUE(Validate(defaults).ok());
  Config other;
  for (const auto& entry : ConfigEntries()) {
    EXPECT_TRUE(Set(entry.name, Get(defaults, entry), &other).ok()) << entry.name;
    EXPECT_EQ(Get(other, entry), Get(defaults, entry));
  }
}

TEST(Config, EveryEntryIsNamedOnceAndExplained) {
  std::vector<std::string> names;
  for (const auto& entry : ConfigEntries()) {
    names.push_back(entry.name);
    EXPECT_THAT(ConfigHelp(), HasSubstr(std::string("--") + entry.name + "="));
    EXPECT_THAT(std::string(entry.help), ::testing::EndsWith("."));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Config, EveryEntryIsInTheDocumentationAndNoOther) {
  std::ifstream file(FOREBAY_CONFIGURATION_MD);
  std::vector<std::string> documented, known;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) == 0) documented.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  for (const auto& entry : ConfigEntries()) known.push_back(entry.name);
  EXPECT_EQ(documented, known);
}

TEST(Config, TakesUnitsOfBytesAndTimes) {
  Config config;
  EXPECT_TRUE(Set("memory.payload_bytes_max", "8GiB", &config).ok());
  EXPECT_EQ(config.memory_payload_bytes_max, uint64_t{8} << 30);
  EXPECT_TRUE(Set("memory.payload_bytes_max", "16 MiB", &config).ok());
  EXPECT_EQ(config.memory_payload_bytes_max, uint64_t{16} << 20);
  EXPECT_TRUE(Set("renew.interval_ms", "2min", &config).ok());
  EXPECT_EQ(config.renew_interval_ms, 120'000u);
}

TEST(Config, TakesSharesAsNumbersAndInPercent) {
  Config config;
  for (const auto& [text, share] :
       {std::pair("0", 0.0), std::pair("1", 1.0), std::pair("0.25", 0.25), std::pair("2%", 0.02),
        std::pair("100%", 1.0), std::pair("1e-3", 0.001)}) {
    EXPECT_TRUE(Set("retain.sample", text, &config).ok()) << text;
    EXPECT_DOUBLE_EQ(config.retain_sample, share) << text;
  }
  for (const char* wrong : {"", "%", "much", "1.5", "101%", "-1%", "nan", "inf", "1 %", "0.1x"}) {
    const absl::Status status = Set("retain.sample", wrong, &config);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("retain.sample: is '") + wrong))
        << wrong;
    EXPECT_EQ(config.retain_sample, 0.001) << wrong;
  }
}

TEST(Config, WithoutADirectoryNothingIsKept) {
  Config config;
  EXPECT_EQ(config.keep().bytes_max, 0u);
  config.storage_directory = "/somewhere";
  EXPECT_EQ(config.keep(), (codec::KeepRule{0.01, true, uint64_t{1} << 30}));
}

TEST(Config, ColdColumnsAreNamesWithCommasBetweenThem) {
  Config config;
  EXPECT_THAT(config.cold_columns(), ElementsAre("routed_experts"));
  ASSERT_TRUE(Set("storage.cold_columns", "routed_experts, multimodal.images", &config).ok());
  EXPECT_THAT(config.cold_columns(), ElementsAre("routed_experts", "multimodal.images"));
  EXPECT_TRUE(Validate(config).ok());
  ASSERT_TRUE(Set("storage.cold_columns", "", &config).ok());
  EXPECT_TRUE(config.cold_columns().empty());
  EXPECT_TRUE(Validate(config).ok());
  for (const std::string& wrong : {std::string("a,,b"), std::string(","), std::string(200, 'x')}) {
    ASSERT_TRUE(Set("storage.cold_columns", wrong, &config).ok());
    EXPECT_THAT(MessageOf(Validate(config)), HasSubstr("storage.cold_columns: is '" + wrong));
  }
}

TEST(Config, RefusalsNameEntryValueAndLimit) {
  Config config;
  const absl::Status low = Set("shards", "0", &config);
  EXPECT_THAT(MessageOf(low),
              ::testing::AllOf(HasSubstr("shards"), HasSubstr("'0'"), HasSubstr("least is 1")));
  const absl::Status high = Set("shards", "65", &config);
  EXPECT_THAT(MessageOf(high),
              ::testing::AllOf(HasSubstr("shards"), HasSubstr("'65'"), HasSubstr("limit is 64")));
  EXPECT_THAT(MessageOf(Set("memory.payload_bytes_max", "4 gigs", &config)), HasSubstr("4 gigs"));
  EXPECT_THAT(MessageOf(Set("memory.payload_bytes_max", "99999999999999999999", &config)),
              HasSubstr("must be bytes"));
  EXPECT_THAT(MessageOf(Set("memory.payload_bytes_max", "17179869184TiB", &config)),
              HasSubstr("must be bytes"));
  EXPECT_THAT(MessageOf(Set("log.level", "loud", &config)),
              HasSubstr("debug, info, warning, error"));
  EXPECT_THAT(MessageOf(Set("listen.allow_remote", "yes", &config)), HasSubstr("true or false"));
  EXPECT_EQ(config.shards, 1u);
}

TEST(Config, AnUnknownNameIsRefusedWithTheNearestKnownOne) {
  Config config;
  const absl::Status status = Set("memory.payload_byte_max", "1", &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("'memory.payload_bytes_max'"));
}

TEST(Config, AFileMayNestNamesOrWriteThemWithDots) {
  Config config;
  EXPECT_TRUE(
      ReadConfigText("shards: 4\nmemory:\n  payload_bytes_max: 1GiB\nlog.level: debug\n", &config)
          .ok());
  EXPECT_EQ(config.shards, 4u);
  EXPECT_EQ(config.memory_payload_bytes_max, uint64_t{1} << 30);
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_TRUE(ReadConfigText("", &config).ok());
}

TEST(Config, AFileThatIsNoMapOrHoldsListsIsRefused) {
  Config config;
  EXPECT_FALSE(ReadConfigText("just text", &config).ok());
  EXPECT_THAT(MessageOf(ReadConfigText("shards: [1, 2]", &config)), HasSubstr("shards"));
  EXPECT_FALSE(ReadConfigText("a: {b: [", &config).ok());
  for (const char* twice :
       {"shards: 1\nshards: 2\n", "run.seed: 1\nrun: {seed: 2}\n",
        "memory: {task_bytes_max: 1MiB}\nmemory: {payload_bytes_max: 1GiB}\n"}) {
    EXPECT_THAT(MessageOf(ReadConfigText(twice, &config)), HasSubstr(": is given twice")) << twice;
  }
  EXPECT_THAT(MessageOf(ReadConfigText("memory: {payload: 3}", &config)),
              HasSubstr("memory.payload"));
}

TEST(Config, FlagsTakeBothForms) {
  const auto line = ParseCommandLine({"--shards=2", "--log.level", "debug", "--version"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.shards, 2u);
  EXPECT_EQ(line->config.log_level, "debug");
  EXPECT_TRUE(line->version);
  EXPECT_FALSE(ParseCommandLine({"--shards"}).ok());
  EXPECT_FALSE(ParseCommandLine({"shards=2"}).ok());
  EXPECT_FALSE(ParseCommandLine({"--config", "/nonexistent/file"}).ok());
}

TEST(Config, RelationsBetweenEntriesAreChecked) {
  Config config;
  config.memory_completion_reserve_bytes = config.memory_payload_bytes_max;
  EXPECT_THAT(MessageOf(Validate(config)), HasSubstr("memory.completion_reserve_bytes"));
  config = {};
  config.tls_cert = "cert.pem";
  EXPECT_THAT(MessageOf(Validate(config)), HasSubstr("tls.key"));
  config = {};
  config.tls_client_ca = "ca.pem";
  EXPECT_THAT(MessageOf(Validate(config)), HasSubstr("tls.client_ca"));
  config = {};
  config.listen_grpc.clear();
  config.listen_unix.clear();
  EXPECT_THAT(MessageOf(Validate(config)), HasSubstr("listen.grpc"));
}

TEST(Config, TheReserveIsASixteenthUnlessItIsSet) {
  Config config;
  config.memory_payload_bytes_max = 1 << 20;
  EXPECT_EQ(config.completion_reserve_bytes(), uint64_t{1} << 16);
  config.memory_completion_reserve_bytes = 100;
  EXPECT_EQ(config.completion_reserve_bytes(), 100u);
}

TEST(Config, AChangeSaysWhatChangesAndIsAllOrNothing) {
  Config config;
  auto changes = Change({{"log.level", "debug"}, {"renew.interval_ms", "5000"}}, &config);
  ASSERT_TRUE(changes.ok());
  ASSERT_EQ(changes->size(), 1u);
  EXPECT_EQ((*changes)[0].name, "log.level");
  EXPECT_EQ((*changes)[0].before, "info");
  EXPECT_EQ((*changes)[0].after, "debug");
  EXPECT_FALSE(Change({{"log.level", "info"}, {"shards", "2"}}, &config).ok());
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_FALSE(Change({{"log.level", "info"}, {"renew.interval_ms", "1"}}, &config).ok());
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_FALSE(Change({{"memory.completion_reserve_bytes", "5GiB"}}, &config).ok());
}

}  // namespace
}  // namespace forebay::node
