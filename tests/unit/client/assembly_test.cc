#include "client/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "forebay/v1/trainer.pb.h"

namespace forebay::client {
namespace {

// Two sequences of 3 and 2 tokens, padded to 8 rows; a u32 and a u8 column.
std::string Layout() {
  v1::MicroBatchLayout layout;
  layout.set_revision(3);
  for (const int end : {0, 3, 5}) layout.add_cu_seqlens(end);
  layout.set_padded_tokens(8);
  layout.set_max_seqlen(3);
  auto* tokens = layout.add_columns();
  tokens->set_name("tokens");
  tokens->set_dtype(v1::DTYPE_U32);
  tokens->set_bytes(32);
  tokens->set_padding_bytes(12);
  auto* mask = layout.add_columns();
  mask->set_name("loss_mask");
  mask->set_dtype(v1::DTYPE_U8);
  mask->set_bytes(8);
  for (const float reward : {1.0f, 0.5f}) layout.add_rewards(reward);
  layout.add_source_names("math");
  layout.add_sources(0);
  layout.add_sources(9);
  layout.mutable_mini_batch()->set_loss_tokens(5);
  return layout.SerializeAsString();
}

std::string Data() {
  std::string data;
  for (int i = 0; i < 40; ++i) data.push_back(static_cast<char>(i + 1));
  return data;
}

FetchFrameView Frame(std::string_view data, bool first, bool last) {
  FetchFrameView frame;
  frame.has_layout = first;
  if (first) frame.layout = Layout();
  if (!data.empty()) frame.data = {data};
  frame.last = last;
  return frame;
}

TEST(AssemblyTest, FramesCutAnywhereGiveTheColumns) {
  const std::string data = Data();
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const FetchSpec spec;
    Assembly assembly(&spec);
    const std::string_view whole = data;
    ASSERT_TRUE(assembly.Add(Frame(whole.substr(0, cut), true, false)).ok());
    EXPECT_FALSE(assembly.complete());
    ASSERT_TRUE(assembly.Add(Frame(whole.substr(cut), false, true)).ok());
    ASSERT_TRUE(assembly.complete());
    const MicroBatch batch = assembly.Take();
    EXPECT_EQ(batch.Find("tokens")->bytes, whole.substr(0, 32));
    EXPECT_EQ(batch.Find("loss_mask")->bytes, whole.substr(32));
  }
}

TEST(AssemblyTest, TheLayoutIsTakenOver) {
  const std::string data = Data();
  const FetchSpec spec;
  Assembly assembly(&spec);
  ASSERT_TRUE(assembly.Add(Frame(data, true, true)).ok());
  EXPECT_EQ(assembly.bytes(), 40u);
  const MicroBatch batch = assembly.Take();
  EXPECT_EQ(batch.sequences(), 2u);
  EXPECT_THAT(batch.cu_seqlens, ::testing::ElementsAre(0, 3, 5));
  EXPECT_THAT(batch.rewards, ::testing::ElementsAre(1.0f, 0.5f));
  EXPECT_THAT(batch.sources, ::testing::ElementsAre("math", ""));
  EXPECT_THAT(batch.PositionIds(), ::testing::ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_EQ(batch.mini_batch_totals.loss_tokens, 5u);
  EXPECT_EQ(batch.Find("tokens")->padding_bytes, 12u);
  EXPECT_EQ(batch.Find("values"), nullptr);
  // Columns begin on cache lines.
  for (const auto& column : batch.columns) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(column.bytes.data()) % 64, 0u);
  }
}

TEST(AssemblyTest, TheCallersPlacesAreFilled) {
  const std::string data = Data();
  std::map<std::string, std::vector<char>> places;
  FetchSpec spec;
  spec.allocate = [&places](std::string_view name, size_t bytes) {
    places[std::string(name)].resize(bytes);
    return places[std::string(name)].data();
  };
  Assembly assembly(&spec);
  ASSERT_TRUE(assembly.Add(Frame(data, true, true)).ok());
  EXPECT_EQ(std::string(places["tokens"].begin(), places["tokens"].end()), data.substr(0, 32));
  EXPECT_EQ(std::string(places["loss_mask"].begin(), places["loss_mask"].end()), data.substr(32));
  spec.allocate = [](std::string_view, size_t) -> void* { return nullptr; };
  Assembly none(&spec);
  EXPECT_EQ(none.Add(Frame(data, true, true)).code(), absl::StatusCode::kResourceExhausted);
}

TEST(AssemblyTest, AnswersThatDoNotFitTheirLayoutAreRefused) {
  const std::string data = Data();
  const FetchSpec spec;
  Assembly longer(&spec);
  EXPECT_FALSE(longer.Add(Frame(data + "x", true, true)).ok());
  Assembly shorter(&spec);
  EXPECT_FALSE(shorter.Add(Frame(std::string_view(data).substr(1), true, true)).ok());
  Assembly without(&spec);
  EXPECT_FALSE(without.Add(Frame(data, false, true)).ok());
}

absl::Status AddLayout(const v1::MicroBatchLayout& layout) {
  const FetchSpec spec;
  Assembly assembly(&spec);
  FetchFrameView frame;
  frame.has_layout = true;
  frame.layout = layout.SerializeAsString();
  return assembly.Add(frame);
}

// Nothing is allocated or written by sizes that cannot be.
TEST(AssemblyTest, LayoutsThatContradictThemselvesAreRefused) {
  v1::MicroBatchLayout whole;
  ASSERT_TRUE(whole.ParseFromString(Layout()));
  ASSERT_TRUE(AddLayout(whole).ok());
  v1::MicroBatchLayout wraps = whole;
  wraps.mutable_columns(0)->set_bytes(UINT64_MAX);
  EXPECT_EQ(AddLayout(wraps).code(), absl::StatusCode::kInternal);
  wraps.mutable_columns(0)->set_bytes(UINT64_MAX - 7);
  wraps.mutable_columns(1)->set_bytes(8);
  EXPECT_EQ(AddLayout(wraps).code(), absl::StatusCode::kInternal);
  v1::MicroBatchLayout falls = whole;
  falls.set_cu_seqlens(1, 9);
  EXPECT_EQ(AddLayout(falls).code(), absl::StatusCode::kInternal);
  v1::MicroBatchLayout endless = whole;
  endless.set_padded_tokens(uint64_t{1} << 40);
  EXPECT_EQ(AddLayout(endless).code(), absl::StatusCode::kInternal);
}

// The first peer of two: of the first sequence rows 0 and 3, which is padding, of the second one
// row 0, and one row more.
v1::MicroBatchLayout Share() {
  v1::MicroBatchLayout layout;
  for (const int end : {0, 2, 3}) layout.add_cu_seqlens(end);
  for (const int end : {0, 3, 5}) layout.add_whole_cu_seqlens(end);
  layout.set_padded_tokens(4);
  layout.set_whole_padded_tokens(8);
  layout.mutable_context()->set_size(2);
  for (const auto& [sequence, begin] : {std::pair(0, 0), {0, 3}, {1, 0}, {2, 0}}) {
    auto* span = layout.add_spans();
    span->set_sequence(static_cast<uint32_t>(sequence));
    span->set_begin(static_cast<uint32_t>(begin));
    span->set_end(static_cast<uint32_t>(begin + 1));
  }
  return layout;
}

TEST(AssemblyTest, AShareKnowsWhichRowsItHas) {
  const FetchSpec spec;
  Assembly assembly(&spec);
  FetchFrameView frame;
  frame.has_layout = frame.last = true;
  frame.layout = Share().SerializeAsString();
  ASSERT_TRUE(assembly.Add(frame).ok());
  const MicroBatch batch = assembly.Take();
  EXPECT_THAT(batch.PositionIds(), ::testing::ElementsAre(0, 3, 0, 0));
  EXPECT_THAT(batch.TokenIndexes(), ::testing::ElementsAre(0, -1, 3, -1));
  EXPECT_THAT(batch.whole_cu_seqlens, ::testing::ElementsAre(0, 3, 5));
  EXPECT_EQ(batch.whole_padded_tokens, 8u);
}

TEST(AssemblyTest, SpansThatAreNotTheRowsAreRefused) {
  ASSERT_TRUE(AddLayout(Share()).ok());
  v1::MicroBatchLayout layout = Share();
  layout.mutable_spans(0)->set_end(2);
  EXPECT_EQ(AddLayout(layout).code(), absl::StatusCode::kInternal);
  layout = Share();
  layout.mutable_spans(0)->set_begin(1);
  EXPECT_EQ(AddLayout(layout).code(), absl::StatusCode::kInternal);
  layout = Share();
  layout.mutable_spans(3)->set_sequence(3);
  EXPECT_EQ(AddLayout(layout).code(), absl::StatusCode::kInternal);
  layout = Share();
  layout.set_whole_cu_seqlens(1, 9);
  EXPECT_EQ(AddLayout(layout).code(), absl::StatusCode::kInternal);
  layout = Share();
  layout.clear_whole_cu_seqlens();
  EXPECT_EQ(AddLayout(layout).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace forebay::client
