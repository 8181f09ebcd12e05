// The same run over TCP with TLS, with mutual TLS, and over a unix socket; and who is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/check.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Made once, gone with the process.
class Certificates {
 public:
  static const Certificates& Get() {
    static const Certificates certificates;
    return certificates;
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Text(const std::string& name) const {
    std::ifstream file(Path(name));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  Certificates() {
    std::string pattern = (std::filesystem::temp_directory_path() / "forebay-XXXXXX").string();
    FOREBAY_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    FOREBAY_CHECK(std::system((FOREBAY_CERTIFICATES " " + folder_).c_str()) == 0);
  }
  std::string folder_;
};

std::vector<std::string> TlsFlags(bool mutual) {
  const auto& made = Certificates::Get();
  std::vector<std::string> flags = {"--tls.cert=" + made.Path("server.pem"),
                                    "--tls.key=" + made.Path("server.key")};
  if (mutual) flags.push_back("--tls.client_ca=" + made.Path("ca.pem"));
  return flags;
}

absl::Status StatusOver(const client::ConnectOptions& options) {
  auto client = client::Client::Connect(options);
  if (!client.ok()) return client.status();
  return client::Admin(client->get())
      .Status({.timeout = absl::Seconds(20), .retry = false})
      .status();
}

// Pushes small and large rollouts and fetches them.
void PushAndFetch(const client::ConnectOptions& options) {
  auto client = client::Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  client::Admin admin(client->get());
  ASSERT_TRUE(admin.PutSource({.name = "math", .group_size = 2, .keep_equal_rewards = true}).ok());
  ASSERT_TRUE(admin.AddTasks("math", {{.external_id = "a"}, {.external_id = "b"}}).ok());
  auto actor = client::Actor::Open(client->get(), {.actor = "test", .slots = 4});
  ASSERT_TRUE(actor.ok()) << actor.status();
  std::map<uint32_t, std::unique_ptr<OwnRollout>> pushed;  // by first token
  for (uint32_t i = 0; i < 4; ++i) {
    auto assignment = (*actor)->Next({.timeout = absl::Seconds(20)});
    ASSERT_TRUE(assignment.ok()) << assignment.status();
    // The last goes in several frames.
    auto own = std::make_unique<OwnRollout>(i < 3 ? 16 + i : 1'000'000, 1000 * i, 1);
    auto receipt = assignment->Push(own->rollout, {.timeout = absl::Seconds(60)});
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
    pushed[1000 * i] = std::move(own);
  }
  auto trainer = client::Trainer::Attach(client->get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  auto step = (*trainer)->OpenStep(1, {.groups = 2, .token_budget = 16}, {},
                                   {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(step.ok()) << step.status();
  auto reader = (*step)->Read({.columns = {"tokens", "logprobs"}});
  client::MicroBatch batch;
  auto more = reader->Next(&batch);
  for (; more.ok() && *more; more = reader->Next(&batch)) {
    const auto tokens = batch.Find("tokens")->values<uint32_t>();
    const auto found = pushed.find(tokens[0]);
    ASSERT_NE(found, pushed.end());
    EXPECT_TRUE(std::ranges::equal(tokens, found->second->tokens));
    EXPECT_TRUE(
        std::ranges::equal(batch.Find("logprobs")->values<float>(), found->second->logprobs));
    pushed.erase(found);
  }
  EXPECT_TRUE(more.ok()) << more.status();
  EXPECT_TRUE(pushed.empty());
  EXPECT_TRUE((*step)->Commit().ok());
}

TEST(TransportTest, ARunOverTls) {
  const Daemon daemon(TlsFlags(false));
  PushAndFetch({.address = daemon.address(), .tls_root_pem = Certificates::Get().Text("ca.pem")});
}

TEST(TransportTest, ARunOverMutualTls) {
  const Daemon daemon(TlsFlags(true));
  const auto& made = Certificates::Get();
  PushAndFetch({.address = daemon.address(),
                .tls_root_pem = made.Text("ca.pem"),
                .tls_key_pem = made.Text("client.key"),
                .tls_cert_pem = made.Text("client.pem")});
}

// The socket needs no TLS: only those who may open the file reach it.
TEST(TransportTest, ARunOverAUnixSocketBesideTls) {
  const Daemon daemon(TlsFlags(true));
  PushAndFetch({.address = daemon.unix_address()});
}

TEST(TransportTest, AWrongCaIsRefusedAndSaidSo) {
  const Daemon daemon(TlsFlags(false));
  const absl::Status status = StatusOver(
      {.address = daemon.address(), .tls_root_pem = Certificates::Get().Text("other_ca.pem")});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(daemon.address()), HasSubstr("TLS"), HasSubstr("certificate")));
}

TEST(TransportTest, AClientWithoutTlsIsRefusedAndSaidSo) {
  const Daemon daemon(TlsFlags(false));
  const absl::Status status = StatusOver({.address = daemon.address()});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(daemon.address()), HasSubstr("TLS")));
}

TEST(TransportTest, TlsToADaemonWithoutItIsRefusedAndSaidSo) {
  const Daemon daemon;
  const absl::Status status =
      StatusOver({.address = daemon.address(), .tls_root_pem = Certificates::Get().Text("ca.pem")});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(daemon.address()), HasSubstr("TLS")));
}

TEST(TransportTest, MutualTlsRefusesAClientWithoutACertificate) {
  const Daemon daemon(TlsFlags(true));
  const absl::Status status =
      StatusOver({.address = daemon.address(), .tls_root_pem = Certificates::Get().Text("ca.pem")});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(TransportTest, ARootThatIsNoCertificateIsRefusedAtOnce) {
  const Daemon daemon(TlsFlags(false));
  const absl::Status status =
      StatusOver({.address = daemon.address(), .tls_root_pem = "not a certificate"});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("tls_root_pem"));
}

}  // namespace
}  // namespace forebay::integration
