#include "replication/messages.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "tests/unit/replication/harness.h"

namespace forebay::replication {
namespace {

Message With(decltype(Message::body) body) {
  return {kTwo, Incarnation(3), Epoch(5), std::move(body)};
}

std::vector<Message> OfEachKind() {
  return {With(Append{At(2, 7),
                      {Of(2, "a"), Of(5, "")},
                      LogPosition(6),
                      LogPosition(9),
                      StateHash{LogPosition(4), 99}}),
          With(Append{{}, {}, {}, LogPosition(1), {}}),
          With(Appended{true, LogPosition(3), LogPosition(4)}),
          With(Appended{false, LogPosition(3), LogPosition(0)}),
          With(Hello{Incarnation(2), At(4, 8)}),
          With(TakeOver{}),
          With(Goodbye{})};
}

TEST(ReplicationMessages, ComeBackAsTheyWere) {
  for (const Message& message : OfEachKind()) {
    const auto decoded = DecodeMessage(EncodeMessage(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, message);
  }
}

TEST(ReplicationMessages, RefuseWhatIsShortLongOrOfAnotherFormat) {
  for (const Message& message : OfEachKind()) {
    std::string bytes = EncodeMessage(message);
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(DecodeMessage(bytes.substr(0, size)).ok()) << size;
    EXPECT_FALSE(DecodeMessage(bytes + "x").ok());
    bytes[0] = 2;
    EXPECT_FALSE(DecodeMessage(bytes).ok());
  }
}

TEST(ReplicationMessages, RefuseWhatNoReplicaSays) {
  const LogPosition one(1);
  Message nobody = With(TakeOver{});
  nobody.from = NodeId();
  Message no_log = With(TakeOver{});
  no_log.incarnation = Incarnation();
  Message no_reign = With(TakeOver{});
  no_reign.epoch = Epoch();
  for (const Message& message :
       {nobody, no_log, no_reign,
        With(Append{At(2, 7), {Of(1, "a")}, {}, one, {}}),  // an earlier epoch after a later one
        With(Append{At(2, 7), {Of(6, "a")}, {}, one, {}}),  // later than the message
        With(Append{At(6, 7), {}, {}, one, {}}),            //
        With(Append{At(0, 7), {}, {}, one, {}}),            // a place in no epoch
        With(Append{At(2, 0), {}, {}, one, {}}),            //
        With(Append{At(2, UINT64_MAX), {}, {}, one, {}}),   //
        With(Append{{}, {}, {}, {}, {}}),                   // a reign without a beginning
        With(Appended{true, LogPosition(5), LogPosition(4)}),
        With(Hello{Incarnation(1), At(6, 1)})}) {
    EXPECT_FALSE(DecodeMessage(EncodeMessage(message)).ok());
  }
}

// What decodes is what its sender meant: it encodes to the same bytes.
TEST(ReplicationMessages, ChangedBytesAreRefusedOrAnotherMessage) {
  Prng prng(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<Message> all = OfEachKind();
    std::string bytes = EncodeMessage(all[prng.Below(all.size())]);
    for (uint64_t n = 1 + prng.Below(3); n > 0; --n)
      bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Next());
    const auto decoded = DecodeMessage(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(EncodeMessage(*decoded), bytes);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace forebay::replication
