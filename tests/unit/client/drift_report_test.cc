// What a trainer's log-probabilities of a micro-batch say of its sequences.
#include "client/drift_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace forebay::client {
namespace {

using ::testing::HasSubstr;

// Two sequences, of 4 tokens (the first is not in the loss) and of 2.
class DriftOfMicroBatch : public ::testing::Test {
 protected:
  DriftOfMicroBatch() {
    batch.cu_seqlens = {0, 4, 6};
    batch.versions = {5, 3};
    batch.padded_tokens = 8;
    batch.columns = {{.name = "loss_mask", .dtype = DType::kU8, .bytes = mask},
                     {.name = "logprobs", .dtype = DType::kF32, .bytes = Bytes(engine)}};
  }
  static std::string_view Bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  DriftReport Make(const TokenLogprobs& logprobs, uint32_t version = 5) const {
    auto report = MakeDriftReport(batch, logprobs, version);
    EXPECT_TRUE(report.ok()) << report.status();
    return *std::move(report);
  }

  const std::string mask{"\0\1\1\1\1\1\0\0", 8};
  const std::vector<float> engine = {0, -1, -1, -1, -2, -2, 0, 0};
  const std::vector<float> trainer = {9, -1, -0.5, -2, -2, -1, 9, 9};
  MicroBatch batch;
};

TEST_F(DriftOfMicroBatch, IsBySequenceLagAndEngine) {
  batch.sampled_counts = {2, 0};
  batch.sampled = {{0, 4, 0}, {3, 5, 1}};
  batch.engine_names = {"a", "b"};
  const DriftReport report = Make({.trainer = trainer});
  EXPECT_EQ(report.engine_names, (std::vector<std::string>{"a", "b", ""}));
  EXPECT_TRUE(report.reference.empty());
  ASSERT_EQ(report.engine.size(), 3u);
  // Token 3 is of version 5 by b, tokens 1 and 2 of version 4 by a.
  const DriftPart& by_b = report.engine[0];
  EXPECT_EQ(std::tuple(by_b.sequence, by_b.lag, by_b.engine, by_b.tokens), std::tuple(0, 0, 1, 1));
  EXPECT_DOUBLE_EQ(by_b.k1, 1);
  EXPECT_DOUBLE_EQ(by_b.k2, 0.5);
  EXPECT_NEAR(by_b.k3, std::exp(-1), 1e-12);
  EXPECT_EQ(by_b.max_abs, 1);
  const DriftPart& by_a = report.engine[1];
  EXPECT_EQ(std::tuple(by_a.sequence, by_a.lag, by_a.engine, by_a.tokens), std::tuple(0, 1, 0, 2));
  EXPECT_DOUBLE_EQ(by_a.k1, -0.5);
  const DriftPart& whole = report.engine[2];
  EXPECT_EQ(std::tuple(whole.sequence, whole.lag, whole.engine, whole.tokens),
            std::tuple(1, 2, 2, 2));
}

TEST_F(DriftOfMicroBatch, OfTheReferenceIsApart) {
  const std::vector<float> reference = {0, -2, -1.5, -3, -3, -2, 0, 0};
  const DriftReport report = Make({.trainer = trainer, .reference = reference});
  ASSERT_EQ(report.reference.size(), 2u);
  EXPECT_EQ(report.reference[0].tokens, 3u);
  EXPECT_DOUBLE_EQ(report.reference[0].k1, 3);
  EXPECT_EQ(report.reference[1].tokens, 2u);
  v1::ReportSequencesRequest request;
  ToWire(report, &request);
  EXPECT_EQ(request.engine().lags_size(), 2);
  EXPECT_EQ(request.reference().sequences_size(), 2);
  EXPECT_EQ(request.reference().lags_size(), 0);
}

TEST_F(DriftOfMicroBatch, OfPredictingPositionsIsOfTheNextToken) {
  const std::string predicting{"\1\1\1\0\1\1\0\0", 8};
  batch.columns[0].bytes = predicting;
  // Row t is of token t + 1; the last row of a sequence is of none.
  const std::vector<float> shifted = {-1, -0.5, -2, 9, -1, 9, 9, 9};
  const DriftReport report = Make({.trainer = shifted, .predicting = true});
  ASSERT_EQ(report.engine.size(), 2u);
  EXPECT_EQ(report.engine[0].tokens, 3u);
  EXPECT_DOUBLE_EQ(report.engine[0].k1, 0.5);
  EXPECT_EQ(report.engine[1].tokens, 1u);
  EXPECT_DOUBLE_EQ(report.engine[1].k1, -1);
}

TEST_F(DriftOfMicroBatch, CountsWhatIsNotFinite) {
  std::vector<float> broken = trainer;
  broken[1] = std::numeric_limits<float>::quiet_NaN();
  broken[2] = 100;
  const DriftReport report = Make({.trainer = broken});
  EXPECT_EQ(report.engine[0].tokens, 2u);
  EXPECT_EQ(report.engine[0].non_finite, 1u);
  EXPECT_EQ(report.engine[0].clamped, 1u);
}

TEST_F(DriftOfMicroBatch, ReadsHalfTheWidthToo) {
  std::string half;
  for (const float value : engine) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    half.append(bytes + 2, 2);
  }
  const DriftReport wide = Make({.trainer = trainer});
  batch.columns[1] = {.name = "logprobs", .dtype = DType::kBf16, .bytes = half};
  const DriftReport narrow = Make({.trainer = trainer});
  ASSERT_EQ(narrow.engine.size(), wide.engine.size());
  for (size_t i = 0; i < wide.engine.size(); ++i) {
    EXPECT_EQ(narrow.engine[i].k3, wide.engine[i].k3);
  }
}

TEST_F(DriftOfMicroBatch, NamesWhatIsMissing) {
  const auto refusal = [this](const TokenLogprobs& logprobs) {
    return std::string(MakeDriftReport(batch, logprobs, 5).status().message());
  };
  const absl::Span<const float> few(trainer.data(), 5);
  EXPECT_THAT(refusal({.trainer = few}), HasSubstr("trainer: has 5 rows, the micro-batch 6"));
  EXPECT_THAT(refusal({.trainer = trainer, .reference = few}), HasSubstr("reference: has 5 rows"));
  batch.columns[1].dtype = DType::kF16;
  EXPECT_THAT(refusal({.trainer = trainer}), HasSubstr("logprobs is neither f32 nor bf16"));
  batch.columns.pop_back();
  EXPECT_THAT(refusal({.trainer = trainer}), HasSubstr("fetched without logprobs"));
}

}  // namespace
}  // namespace forebay::client
