// Messages and snapshots over mutual TLS, and who is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/peers/world.h"

namespace forebay::peers {
namespace {

// Certificates in a folder that goes with the test.
class Certificates {
 public:
  Certificates() {
    std::string pattern = (std::filesystem::temp_directory_path() / "forebay-XXXXXX").string();
    FOREBAY_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    FOREBAY_CHECK(std::system((FOREBAY_CERTIFICATES " " + folder_).c_str()) == 0);
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
  std::string folder_;
};

TEST(PeerTls, NodesThatShowTheirCertificatesReachEachOtherAndOthersDoNot) {
  const Certificates made;
  Node two(kTwo, {.tls = {.certificate = made.Path("server.pem"),
                          .key = made.Path("server.key"),
                          .client_ca = made.Path("ca.pem")}});
  const PeerTls known{
      .root = made.Text("ca.pem"), .cert = made.Text("client.pem"), .key = made.Text("client.key")};
  const auto transport = MakeTransport({{kTwo, two.address()}}, {.tls = known});
  transport->Send(kTwo, "ledger", "hello");
  ASSERT_EQ(two.port().Await(1).size(), 1u);
  Notification told;
  absl::Status outcome;
  transport->SendSnapshot(
      kTwo, "ledger", "about it",
      [first = true]() mutable { return std::exchange(first, false) ? "bytes" : ""; },
      [&](const absl::Status& status) {
        outcome = status;
        told.Notify();
      });
  ASSERT_TRUE(told.WaitFor(kPatience));
  EXPECT_TRUE(outcome.ok()) << outcome;

  const PeerTls without{.root = known.root};
  PeerTls of_others = known;
  of_others.root = made.Text("other_ca.pem");
  for (const PeerTls& tls : {PeerTls(), without, of_others}) {
    const auto refused = MakeTransport({{kTwo, two.address()}}, {.tls = tls});
    EXPECT_TRUE(Becomes([&] {
      refused->Send(kTwo, "ledger", "secret");
      return StatsOf(refused.get(), kTwo).failures > 0;
    }));
    EXPECT_FALSE(StatsOf(refused.get(), kTwo).connected);
  }
  EXPECT_EQ(two.port().messages().size(), 1u);
}

}  // namespace
}  // namespace forebay::peers
