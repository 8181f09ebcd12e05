// Addresses, tokens, page tokens, results of evaluations, the log's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "server/addresses.h"
#include "server/eval_results.h"
#include "server/log.h"
#include "server/page.h"
#include "server/tokens.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// A folder of its own for each test, gone afterwards.
class Edges : public ::testing::Test {
 protected:
  Edges() {
    char path[] = "/tmp/forebay-test-XXXXXX";
    folder_ = mkdtemp(path);
  }
  ~Edges() override {
    for (const auto& file : files_) unlink(file.c_str());
    rmdir(folder_.c_str());
  }
  std::string Path(const std::string& name) {
    files_.push_back(folder_ + "/" + name);
    return files_.back();
  }
  std::string TokensFile(const std::string& text, mode_t mode = 0600) {
    const std::string path = Path("tokens");
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string folder_;
  std::vector<std::string> files_;
};

TEST_F(Edges, AnAddressIsAHostAndAPort) {
  const auto address = ParseAddress("listen.http", "127.0.0.1:7401");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 7401);
  EXPECT_TRUE(ParseAddress("listen.http", "[::1]:0").ok());
  for (const char* bad :
       {"", "7401", ":7401", "host:", "host:70000", "host:-1", "host:1x", "::1:80"}) {
    EXPECT_THAT(MessageOf(ParseAddress("listen.http", bad).status()), HasSubstr("listen.http"))
        << bad;
  }
}

TEST_F(Edges, BeyondLoopbackNeedsPermission) {
  EXPECT_TRUE(CheckReach("listen.grpc", "127.0.0.1", false).ok());
  EXPECT_TRUE(CheckReach("listen.grpc", "[::1]", false).ok());
  EXPECT_FALSE(CheckReach("listen.grpc", "0.0.0.0", false).ok());
  EXPECT_TRUE(CheckReach("listen.grpc", "0.0.0.0", true).ok());
}

TEST_F(Edges, AnAutomaticSocketIsNamedAfterThePort) {
  node::Config config;
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  const auto path = UnixPath(config);
  unsetenv("XDG_RUNTIME_DIR");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, folder_ + "/forebay-7400.sock");
  config.listen_unix = std::string(200, 'x');
  EXPECT_THAT(MessageOf(UnixPath(config).status()), HasSubstr("limit"));
}

TEST_F(Edges, ASocketIsTakenOverOnlyFromTheDead) {
  const std::string path = Path("socket");
  EXPECT_TRUE(ClearUnixPath(path).ok());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(ClearUnixPath(path).code(), absl::StatusCode::kAlreadyExists);
  close(fd);
  EXPECT_TRUE(ClearUnixPath(path).ok());
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  std::ofstream(path) << "no socket";
  EXPECT_FALSE(ClearUnixPath(path).ok());
}

TEST_F(Edges, TokensHaveRoles) {
  TokenAuthorizer authorizer;
  ASSERT_TRUE(
      ReadTokens(TokensFile("# people\n\nactor aaaaaaaaaaaaaaaa\noperator oooooooooooooooo\n"),
                 &authorizer)
          .ok());
  authorizer.AddRule("/forebay.v1.ActorService/", Role::kActor);
  const char* method = "/forebay.v1.ActorService/Acquire";
  EXPECT_TRUE(authorizer.Check(method, "aaaaaaaaaaaaaaaa").ok());
  EXPECT_TRUE(authorizer.Check(method, "oooooooooooooooo").ok());
  EXPECT_FALSE(authorizer.Check(method, "xxxxxxxxxxxxxxxx").ok());
  EXPECT_FALSE(authorizer.Check("/forebay.v1.AdminService/SetConfig", "aaaaaaaaaaaaaaaa").ok());
}

TEST_F(Edges, ABadTokensFileIsRefusedWithoutSayingTokens) {
  TokenAuthorizer authorizer;
  EXPECT_FALSE(ReadTokens(folder_ + "/none", &authorizer).ok());
  EXPECT_FALSE(ReadTokens(TokensFile(""), &authorizer).ok());
  EXPECT_THAT(MessageOf(ReadTokens(TokensFile("actor aaaaaaaaaaaaaaaa\n", 0644), &authorizer)),
              HasSubstr("0600"));
  const auto status =
      ReadTokens(TokensFile("actor aaaaaaaaaaaaaaaa\nking secretsecretsecret\n"), &authorizer);
  EXPECT_THAT(MessageOf(status),
              ::testing::AllOf(HasSubstr("line 2"), Not(HasSubstr("secretsecret"))));
  EXPECT_THAT(MessageOf(ReadTokens(TokensFile("actor short\n"), &authorizer)),
              HasSubstr("least is 16"));
}

TEST_F(Edges, PageTokensRoundTripAndOthersAreRefused) {
  const auto place = ParsePageToken(PageToken({1, 12345}), 2);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->shard, 1u);
  EXPECT_EQ(place->place, 12345u);
  EXPECT_TRUE(ParsePageToken("", 1).ok());
  for (const char* bad : {"x", "1", "1.", ".1", "2.0", "0.1x", "-1.0"}) {
    EXPECT_FALSE(ParsePageToken(bad, 2).ok()) << bad;
  }
  EXPECT_EQ(*PageSize(0), 100u);
  EXPECT_FALSE(PageSize(10'001).ok());
}

TEST_F(Edges, EvaluationsAddUpOverShards) {
  shard::EvalView a{.run = EvalRunId(3),
                    .attempts = 1,
                    .done = true,
                    .tasks = 2,
                    .tasks_done = 2,
                    .rollouts = 2,
                    .mean_sum = 2,
                    .mean_square_sum = 2,
                    .pass_sums = {2},
                    .tokens_sum = 20};
  shard::EvalView b = a;
  b.done = false;
  b.mean_sum = b.mean_square_sum = 0;
  b.pass_sums = {0};
  EvalSums sums;
  sums.Add(a);
  sums.Add(b);
  ASSERT_EQ(sums.sums().size(), 1u);
  v1::EvalResult result;
  ToWire(*sums.Find(EvalRunId(3)), 2, &result);
  EXPECT_FALSE(result.done());
  EXPECT_EQ(result.tasks(), 4u);
  EXPECT_DOUBLE_EQ(result.mean_reward(), 0.5);
  // Four tasks of mean 1, 1, 0, 0: deviation sqrt(1/3), of the mean half of it.
  EXPECT_NEAR(result.standard_error(), 0.288675, 1e-6);
  EXPECT_DOUBLE_EQ(result.pass_at(0), 0.5);
  EXPECT_DOUBLE_EQ(result.mean_tokens(), 10);
  EXPECT_EQ(sums.Find(EvalRunId(4)), nullptr);
}

TEST_F(Edges, ARunIsDoneWhenEveryShardKnowsAndEndsIt) {
  shard::EvalView a{.run = EvalRunId(3), .done = true};
  EvalSum sum;
  sum.Add(a);
  v1::EvalResult result;
  ToWire(sum, 2, &result);
  EXPECT_FALSE(result.done());
  sum.Add(a);
  ToWire(sum, 2, &result);
  EXPECT_TRUE(result.done());
}

TEST_F(Edges, TextForJsonIsEscaped) {
  EXPECT_EQ(JsonText("a\"b\\c\nd\x01"), R"("a\"b\\c\nd\u0001")");
}

}  // namespace
}  // namespace forebay::server
