// Rollouts that are wrong, over the real wire, past the client's own checks: each is refused by
// field, value and limit, and the state stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "client/messages.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

struct BadCase {
  const char* name;
  std::function<void(v1::RolloutHeader*)> spoil;
  const char* field;   // that the refusal names
  const char* detail;  // and what it says: the value or the limit
};

std::ostream& operator<<(std::ostream& out, const BadCase& bad) { return out << bad.name; }

constexpr uint64_t kSession = 4242;

class BadRolloutTest : public ::testing::TestWithParam<BadCase> {
 protected:
  // One daemon for all cases: none of them may leave a trace.
  static void SetUpTestSuite() {
    world_ = new World({"--limits.rollout_bytes_max=65536"});
    world_->AddSource("math", 4, 4);
    v1::OpenSessionRequest session;
    session.set_session(kSession);
    ASSERT_TRUE(world_->Call<v1::OpenSessionResponse>("ActorService/OpenSession", session).ok());
    v1::AcquireRequest acquire;
    acquire.set_session(kSession);
    acquire.set_request_id(1);
    acquire.set_max(1);
    auto acquired = world_->Call<v1::AcquireResponse>("ActorService/Acquire", acquire);
    ASSERT_TRUE(acquired.ok()) << acquired.status();
    ASSERT_EQ(acquired->assignments_size(), 1);
    lease_ = acquired->assignments(0);
  }
  static void TearDownTestSuite() { delete std::exchange(world_, nullptr); }

  // The frame of a good rollout of the lease.
  static v1::PushFrame GoodFrame(const OwnRollout& own) {
    v1::PushFrame frame;
    frame.set_session(kSession);
    frame.set_frame(1);
    auto* header = frame.add_rollouts();
    client::ToWire(own.rollout, header);
    header->set_attempt_id(lease_.attempt_id());
    header->set_token(lease_.token());
    for (const auto& column : own.rollout.columns) frame.mutable_payload()->append(column.bytes);
    return frame;
  }

  static World* world_;
  static v1::Assignment lease_;
};

World* BadRolloutTest::world_ = nullptr;
v1::Assignment BadRolloutTest::lease_;

TEST_P(BadRolloutTest, IsRefusedByNameAndLeavesNoTrace) {
  const OwnRollout own(16, 300, 1);
  v1::PushFrame frame = GoodFrame(own);
  GetParam().spoil(frame.mutable_rollouts(0));
  // The payload has the size that the header promises, so that the stream itself stays sound.
  uint64_t bytes = 0;
  for (const auto& column : frame.rollouts(0).columns()) bytes += column.bytes();
  frame.mutable_payload()->resize(bytes, '\1');
  const std::string before = world_->Picture();
  auto reply = world_->PushRaw("Push", frame);
  if (reply.ok()) {
    EXPECT_EQ(reply->accepted(), 0u);
    ASSERT_EQ(reply->outcomes_size(), 1) << reply->DebugString();
    const auto& outcome = reply->outcomes(0);
    EXPECT_THAT(outcome.field(), HasSubstr(GetParam().field)) << outcome.DebugString();
    EXPECT_THAT(outcome.message(), HasSubstr(GetParam().detail)) << outcome.DebugString();
    EXPECT_NE(outcome.result(), v1::PUSH_RESULT_ACCEPTED);
  } else {
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument) << reply.status();
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr(GetParam().field));
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr(GetParam().detail));
  }
  EXPECT_TRUE(world_->Unchanged(before));
}

v1::Column* ColumnOf(v1::RolloutHeader* header, int i) { return header->mutable_columns(i); }

const BadCase kCases[] = {
    {"Dtype", [](auto* h) { ColumnOf(h, 0)->set_dtype(v1::DTYPE_F32); }, "columns[0].dtype",
     "u32 per token"},
    {"UnknownDtype", [](auto* h) { ColumnOf(h, 2)->set_dtype(static_cast<v1::DType>(99)); },
     "columns[2].dtype", "99"},
    {"Shape", [](auto* h) { ColumnOf(h, 2)->add_inner(3); }, "columns[2].inner", "1 dimensions"},
    {"Count",
     [](auto* h) {
       ColumnOf(h, 0)->set_bytes(60);
       ColumnOf(h, 0)->clear_crc32c();
     },
     "columns[0].bytes", "60"},
    {"Checksum", [](auto* h) { ColumnOf(h, 1)->set_crc32c(12345); }, "columns[1].crc32c",
     "is 3039, the bytes have"},
    {"MissingRequiredColumn",
     [](auto* h) {
       h->mutable_columns()->DeleteSubrange(1, 1);
       // The bytes behind it move up.
       ColumnOf(h, 1)->clear_crc32c();
     },
     "columns", "loss_mask"},
    {"SameColumnTwice", [](auto* h) { ColumnOf(h, 2)->set_name("tokens"); }, "columns[2]",
     "tokens"},
    {"PromptLongerThanTheSequence", [](auto* h) { h->mutable_sequences(0)->set_prompt_tokens(17); },
     "sequences[0]", "17"},
    {"MoreLossTokensThanTokens", [](auto* h) { h->mutable_sequences(0)->set_loss_tokens(17); },
     "sequences[0]", "17"},
    {"NoSequence", [](auto* h) { h->clear_sequences(); }, "sequences", "at least 1"},
    {"EmptySequence", [](auto* h) { h->mutable_sequences(0)->set_tokens(0); },
     "sequences[0].tokens", "0"},
    {"VersionRunsDoNotAddUp",
     [](auto* h) {
       auto* run = h->mutable_sequences(0)->add_versions();
       run->set_loss_tokens(3);
     },
     "versions", "3"},
    {"VersionRunPastTheEnd",
     [](auto* h) {
       h->mutable_sequences(0)->add_versions();
       auto* run = h->mutable_sequences(0)->add_versions();
       run->set_offset(400);
       run->set_loss_tokens(8);
     },
     "versions", "400"},
    {"VersionOfTheFuture",
     [](auto* h) {
       auto* run = h->mutable_sequences(0)->add_versions();
       run->set_number(4000);
       run->set_loss_tokens(8);
     },
     "version", "4000"},
    {"UnknownBranch",
     [](auto* h) {
       auto* run = h->mutable_sequences(0)->add_versions();
       run->set_branch(7);
       run->set_loss_tokens(8);
     },
     "versions", "7"},
    {"RewardNotANumber", [](auto* h) { (*h->mutable_rewards())["reward"] = std::nan(""); },
     "rewards", "nan"},
    {"RewardInfinite",
     [](auto* h) { (*h->mutable_rewards())["reward"] = std::numeric_limits<double>::infinity(); },
     "rewards", "inf"},
    {"TooLarge",
     [](auto* h) {
       h->mutable_sequences(0)->set_tokens(40'000);
       ColumnOf(h, 0)->set_bytes(160'000);
       ColumnOf(h, 1)->set_bytes(40'000);
       ColumnOf(h, 2)->set_bytes(160'000);
     },
     "bytes", "65536"},
};

INSTANTIATE_TEST_SUITE_P(Cases, BadRolloutTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(BadRolloutControlTest, TheSameRolloutUnspoiledIsTaken) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor();
  auto assignment = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  const OwnRollout own(16, 300, 1);
  const std::string before = world.Picture();
  auto receipt = assignment->Push(own.rollout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kAccepted);
  // The picture shows it: so a refusal that did change something would be seen.
  EXPECT_NE(world.Picture(), before);
}

TEST_F(BadRolloutTest, AWrongTokenChangesNothing) {
  const OwnRollout own(16, 300, 1);
  v1::PushFrame frame = GoodFrame(own);
  frame.mutable_rollouts(0)->set_token(999);
  const std::string before = world_->Picture();
  auto reply = world_->PushRaw("Push", frame);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->accepted(), 0u);
  ASSERT_EQ(reply->outcomes_size(), 1);
  EXPECT_NE(reply->outcomes(0).result(), v1::PUSH_RESULT_ACCEPTED);
  EXPECT_TRUE(world_->Unchanged(before));
}

TEST(BadRolloutClientTest, TheClientRefusesBeforeItSends) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor();
  auto assignment = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  OwnRollout own(16, 300, 1);
  own.rollout.columns[0].bytes.remove_suffix(4);
  auto receipt = assignment->Push(own.rollout);
  ASSERT_EQ(receipt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(receipt.status().message()), HasSubstr("columns[0].bytes"));
  EXPECT_EQ(client::Check(own.rollout), receipt.status());
}

TEST(BadRolloutClientTest, ARefusedRolloutDoesNotHurtTheOnesBesideIt) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor();
  auto acquired = actor->Acquire(2, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(acquired.ok() && acquired->assignments.size() == 2);
  OwnRollout good(16, 1, 1), bad(16, 2, 1);
  bad.rollout.columns.erase(bad.rollout.columns.begin() +
                            1);  // loss_mask, which the source requires
  auto refused = acquired->assignments[0].Push(bad.rollout);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("loss_mask"));
  auto taken = acquired->assignments[1].Push(good.rollout);
  ASSERT_TRUE(taken.ok()) << taken.status();
  // The lease is still held: the rollout is mended and pushed again.
  OwnRollout mended(16, 2, 1);
  auto second = acquired->assignments[0].Push(mended.rollout);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->result, client::PushResult::kAccepted);
}

}  // namespace
}  // namespace forebay::integration
