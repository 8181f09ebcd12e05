#include "codec/push_frame.h"

#include <gtest/gtest.h>

#include "tests/unit/codec/header_agreement.h"
#include "tests/unit/codec/random_header.h"

namespace forebay::codec {
namespace {

std::vector<std::string_view> Cut(std::string_view bytes, Prng& prng, uint64_t piece_max) {
  std::vector<std::string_view> slices;
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes.size(), prng.Below(piece_max + 1));
    slices.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return slices;
}

v1::PushFrame RandomFrame(Prng& prng) {
  v1::PushFrame frame;
  frame.set_session(RandomNumber(prng));
  frame.set_frame(RandomNumber(prng));
  for (uint64_t i = prng.Below(4); i > 0; --i) *frame.add_rollouts() = RandomHeader(prng);
  frame.set_payload(std::string(prng.Below(300), 'p'));
  if (prng.Below(3) == 0) {
    frame.mutable_group()->set_source(RandomText(prng));
    frame.mutable_group()->set_request_id(RandomNumber(prng));
  }
  return frame;
}

TEST(PushFrameView, UnderstandsFramesHoweverTheyAreCut) {
  Prng prng(1);
  PushFrameView view;
  for (int i = 0; i < 5'000; ++i) {
    const v1::PushFrame frame = RandomFrame(prng);
    const std::string bytes = frame.SerializeAsString();
    for (const uint64_t piece : {uint64_t{1}, uint64_t{7}, uint64_t{60}, uint64_t{100'000}}) {
      const auto slices = Cut(bytes, prng, piece);
      ASSERT_TRUE(view.Split(slices)) << view.error().field << view.error().message;
      ASSERT_EQ(FrameDisagreement(view, frame), "");
    }
  }
}

// protobuf merges messages, but only such that are whole.
TEST(PushFrameView, RefusesAGroupThatComesTwice) {
  v1::PushFrame frame;
  frame.mutable_group()->set_source("math");
  const std::string bytes = frame.SerializeAsString() + frame.SerializeAsString();
  PushFrameView view;
  const std::string_view whole = bytes;
  EXPECT_FALSE(view.Split({&whole, 1}));
  EXPECT_EQ(view.error().field, "group");
  EXPECT_EQ(view.error().message, "comes twice");
}

TEST(PushFrameView, DoesNotCopyPayload) {
  v1::PushFrame frame;
  frame.set_payload(std::string(1000, 'p'));
  const std::string bytes = frame.SerializeAsString();
  Prng prng(1);
  const auto slices = Cut(bytes, prng, 100);
  PushFrameView view;
  ASSERT_TRUE(view.Split(slices));
  for (std::string_view piece : view.payload()) {
    EXPECT_GE(piece.data(), bytes.data());
    EXPECT_LE(piece.data() + piece.size(), bytes.data() + bytes.size());
  }
}

TEST(PushFrameView, AcceptsOnlyWhatProtobufAccepts) {
  Prng prng(3);
  PushFrameView view;
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string bytes = RandomFrame(prng).SerializeAsString();
    Damage(&bytes, prng);
    const auto slices = Cut(bytes, prng, 80);
    if (!view.Split(slices)) continue;
    v1::PushFrame frame;
    const bool theirs = frame.ParseFromString(bytes);
    const std::string difference = FrameDisagreement(view, frame);
    // What protobuf refuses within a header, the header's decoder refuses.
    ASSERT_EQ(theirs, difference.empty()) << difference;
    accepted += theirs ? 1 : 0;
  }
  EXPECT_GT(accepted, 3'000);
}

TEST(PushFrameView, LimitsHeaders) {
  v1::PushFrame many;
  for (size_t i = 0; i <= kFrameRolloutsMax; ++i) many.add_rollouts();
  std::string bytes = many.SerializeAsString();
  PushFrameView view;
  std::string_view slice = bytes;
  EXPECT_FALSE(view.Split({&slice, 1}));
  EXPECT_EQ(view.error().field, "rollouts");
  v1::PushFrame large;
  large.add_rollouts()->set_extra_json(std::string(kHeaderBytesMax, 'x'));
  bytes = large.SerializeAsString();
  slice = bytes;
  EXPECT_FALSE(view.Split({&slice, 1}));
  EXPECT_EQ(view.error().field, "rollouts[0]");
}

}  // namespace
}  // namespace forebay::codec
