// What ranks of a mesh fetch of one micro-batch: stages of a pipeline their layers, peers of
// context parallelism their tokens, tensor-parallel peers the same bytes, which are read from the
// disk once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "forebay/v1/admin.pb.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kGroup = 3;
constexpr uint32_t kTokens = 3'000;
constexpr uint32_t kLayers = 8, kTopK = 4;
constexpr uint32_t kRow = kLayers * kTopK;
constexpr uint32_t kCp = 2;

int16_t ExpertOf(uint32_t token, uint32_t layer, uint32_t k) {
  return static_cast<int16_t>(token * 7 + layer * 64 + k * k);
}

class Slices : public ::testing::Test {
 protected:
  Slices() : world_(directory_.Flags()) {
    world_.AddSource("math", kGroup, 20);
    auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = kGroup});
    for (uint32_t pushed = 0; pushed < kGroup; ++pushed) {
      auto assignment = actor->Next({.timeout = absl::Seconds(20) * Slowness()});
      EXPECT_TRUE(assignment.ok()) << assignment.status();
      OwnRollout own(kTokens - pushed, 10'000 * (pushed + 1), pushed % 2);
      std::vector<int16_t> experts;
      for (size_t i = 0; i + 1 < own.tokens.size(); ++i) {  // none of the last token
        for (uint32_t at = 0; at < kRow; ++at) {
          experts.push_back(ExpertOf(own.tokens[i], at / kTopK, at % kTopK));
        }
      }
      auto column = client::MakeColumn<int16_t>("routed_experts", experts,
                                                client::Domain::kTokenButLast, {kLayers, kTopK});
      column.missing = -1;
      own.rollout.columns.push_back(column);
      auto receipt = assignment->Push(own.rollout);
      EXPECT_TRUE(receipt.ok()) << receipt.status();
    }
    OpenStep();
  }

  void OpenStep() {
    auto trainer = client::Trainer::Attach(world_.client.get(),
                                           {.trainer = "rank-0", .mesh = {.tp = 2, .cp = kCp}});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
    auto step = trainer_->OpenStep(
        1, {.groups = 1, .token_budget = kGroup * kTokens, .pad_multiple = 2 * kCp}, {},
        {.timeout = absl::Seconds(30) * Slowness()});
    ASSERT_TRUE(step.ok()) << step.status();
    step_ = *std::move(step);
  }

  absl::StatusOr<client::MicroBatch> Fetch(const client::FetchSpec& spec) {
    return step_->Fetch(0, 0, spec, {.timeout = absl::Seconds(30) * Slowness()});
  }

  uint64_t ReadBackBytes() {
    auto storage =
        world_.Ask<v1::GetStorageResponse>("AdminService/GetStorage", v1::GetStorageRequest());
    EXPECT_TRUE(storage.ok()) << storage.status();
    return storage.ok() ? storage->segments().read_back_bytes() : 0;
  }

  const RunDirectory directory_;
  World world_;
  std::unique_ptr<client::Trainer> trainer_;
  std::unique_ptr<client::Step> step_;
};

client::FetchSpec Stage(uint32_t first, uint32_t end) {
  return {.columns = {"tokens", "logprobs", "routed_experts"},
          .slices = {{.column = "logprobs", .dtype = client::DType::kBf16},
                     {.column = "routed_experts",
                      .dimensions = {{{first, end}}},
                      .dtype = client::DType::kI32}}};
}

TEST_F(Slices, StagesOfAPipelineGetTheirLayers) {
  for (uint32_t first = 0; first < kLayers; first += 2) {
    auto batch = Fetch(Stage(first, first + 2));
    ASSERT_TRUE(batch.ok()) << batch.status();
    const auto tokens = batch->Find("tokens")->values<uint32_t>();
    const client::FetchedColumn& experts = *batch->Find("routed_experts");
    EXPECT_EQ(experts.dtype, client::DType::kI32);
    EXPECT_EQ(experts.inner, (std::vector<uint32_t>{2, kTopK}));
    ASSERT_EQ(experts.bytes.size(), batch->padded_tokens * 2 * kTopK * 4);
    const auto logprobs = batch->Find("logprobs")->values<uint16_t>();
    for (size_t s = 0; s < batch->sequences(); ++s) {
      for (auto row = static_cast<size_t>(batch->cu_seqlens[s]);
           row < static_cast<size_t>(batch->cu_seqlens[s + 1]); ++row) {
        const bool last = row + 1 == static_cast<size_t>(batch->cu_seqlens[s + 1]);
        for (uint32_t at = 0; at < 2 * kTopK; ++at) {
          const int32_t expected =
              last ? -1 : ExpertOf(tokens[row], first + at / kTopK, at % kTopK);
          ASSERT_EQ(experts.values<int32_t>()[row * 2 * kTopK + at], expected);
        }
        // Quarters of small numbers are exact in bf16.
        ASSERT_EQ(std::bit_cast<float>(uint32_t{logprobs[row]} << 16),
                  -0.25f * static_cast<float>(tokens[row] % 17));
      }
    }
  }
}

TEST_F(Slices, PeersOfContextParallelismGetEachTokenOnce) {
  auto whole = Fetch({.columns = {"tokens", "loss_mask"}, .predicting_mask = true});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto positions = whole->PositionIds();
  for (const auto order : {client::ContextOrder::kContiguous, client::ContextOrder::kZigzag,
                           client::ContextOrder::kZigzagSequences}) {
    std::vector<int> seen(whole->cu_seqlens.back());
    for (uint32_t rank = 0; rank < kCp; ++rank) {
      auto share = Fetch({.columns = {"tokens", "labels", "loss_mask"},
                          .predicting_mask = true,
                          .slices = {{.column = "labels", .source = "tokens", .predicting = true}},
                          .context = client::ContextSlice{order, kCp, rank}});
      ASSERT_TRUE(share.ok()) << share.status();
      EXPECT_EQ(share->whole_cu_seqlens, whole->cu_seqlens);
      EXPECT_EQ(share->whole_padded_tokens, whole->padded_tokens);
      const auto tokens = share->Find("tokens")->values<uint32_t>();
      const auto labels = share->Find("labels")->values<uint32_t>();
      const auto mask = share->Find("loss_mask")->values<uint8_t>();
      const auto indexes = share->TokenIndexes();
      const auto own_positions = share->PositionIds();
      ASSERT_EQ(tokens.size(), share->padded_tokens);
      ASSERT_EQ(indexes.size(), share->padded_tokens);
      ASSERT_EQ(own_positions.size(), share->padded_tokens);
      for (size_t row = 0; row < indexes.size(); ++row) {
        if (indexes[row] < 0) {
          ASSERT_EQ(tokens[row], 0u);
          continue;
        }
        const auto at = static_cast<size_t>(indexes[row]);
        ++seen[at];
        ASSERT_EQ(tokens[row], whole->Find("tokens")->values<uint32_t>()[at]);
        ASSERT_EQ(mask[row], whole->Find("loss_mask")->values<uint8_t>()[at]);
        ASSERT_EQ(own_positions[row], positions[at]);
        // Tokens of a sequence count up, so the next one is known without its neighbour.
        const bool last = at + 1 == seen.size() || positions[at + 1] == 0;
        ASSERT_EQ(labels[row], last ? 0 : tokens[row] + 1);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << static_cast<int>(order);
  }
}

TEST_F(Slices, TensorParallelPeersAreServedFromTheDiskOnce) {
  trainer_ = nullptr;
  step_ = nullptr;
  world_.daemon.Signal(SIGTERM);
  world_.daemon.Wait(absl::Seconds(30) * Slowness());
  world_.daemon.StartAgain();
  OpenStep();
  const uint64_t before = ReadBackBytes();
  std::vector<std::thread> peers;
  for (int peer = 0; peer < 4; ++peer) {
    peers.emplace_back([this] {
      auto batch = Fetch(Stage(2, 4));
      EXPECT_TRUE(batch.ok()) << batch.status();
    });
  }
  for (std::thread& peer : peers) peer.join();
  const uint64_t once = ReadBackBytes();
  const uint64_t rows = kGroup * kTokens;
  EXPECT_GT(once, before + rows * kRow * 2 * 9 / 10);
  EXPECT_LT(once, before + rows * (kRow * 2 + 9) * 11 / 10);
  ASSERT_TRUE(Fetch(Stage(0, 2)).ok());  // another stage, of the same rows
  EXPECT_EQ(ReadBackBytes(), once);
}

TEST_F(Slices, WhatIsNotThereIsRefusedByName) {
  const auto refused = [&](const client::FetchSpec& spec) {
    const absl::Status status = Fetch(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(Stage(6, 9)), HasSubstr("dimensions[0].ranges[0]: 6 to 9, must be a range "
                                              "within 0 to 8"));
  client::FetchSpec spec{.columns = {"tokens"}};
  spec.context = client::ContextSlice{client::ContextOrder::kZigzag, 7, 0};
  EXPECT_THAT(refused(spec), HasSubstr("context.size: 7, but "));
  spec.context.reset();
  spec.slices = {{.column = "tokens", .dtype = client::DType::kF32}};
  EXPECT_THAT(refused(spec), HasSubstr("there is no conversion from DTYPE_U32 to DTYPE_F32"));
  EXPECT_TRUE(Fetch({.columns = {"tokens"}}).ok());
}

}  // namespace
}  // namespace forebay::integration
