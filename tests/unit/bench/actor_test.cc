#include "bench/load/actor.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "bench/load/fetch.h"
#include "bench/load/script.h"

namespace forebay::bench {
namespace {

template <class Message>
Message Parse(grpc::ByteBuffer* buffer) {
  grpc::Slice bytes;
  EXPECT_TRUE(buffer->DumpToSingleSlice(&bytes).ok());
  Message message;
  EXPECT_TRUE(message.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
  return message;
}

grpc::ByteBuffer Assignments(uint64_t first, int count) {
  v1::AcquireResponse response;
  for (int i = 0; i < count; ++i) {
    v1::Assignment* assignment = response.add_assignments();
    assignment->set_attempt_id(first + i);
    assignment->set_token(static_cast<uint32_t>(100 + i));
    assignment->set_external_id("task");
    assignment->set_payload("payload");
  }
  return Encode(response);
}

grpc::ByteBuffer Reply(uint64_t frame, uint32_t accepted) {
  v1::PushReply reply;
  reply.set_frame(frame);
  reply.set_accepted(accepted);
  return Encode(reply);
}

class ActorTest : public testing::Test {
 protected:
  void UseRollouts(uint32_t tokens) {
    const auto columns = PlainColumns();
    const char* payload = SharedPayload(size_t{tokens} * BytesPerToken(columns));
    load_.rollouts.emplace_back(tokens, columns, payload, 1);
    session_.id = 77;
    actor_ = std::make_unique<ActorConversation>(&load_, session_);
  }

  ActorLoad load_;
  Daemon::Session session_;
  std::unique_ptr<ActorConversation> actor_;
  grpc::ByteBuffer message_;
};

TEST_F(ActorTest, PushesAllItsAssignmentsInOneFrameAndAsksAgainAfterTheReply) {
  load_.batch = 3;
  UseRollouts(16);
  ASSERT_TRUE(actor_->Next(0, &message_));
  const auto acquire = Parse<v1::AcquireRequest>(&message_);
  EXPECT_EQ(acquire.session(), 77u);
  EXPECT_EQ(acquire.request_id(), 1u);
  EXPECT_EQ(acquire.max(), 3u);
  EXPECT_FALSE(actor_->Next(1, &message_)) << "nothing to push yet";

  grpc::ByteBuffer answer = Assignments(1000, 3);
  ASSERT_TRUE(actor_->Take(0, &answer).ok());
  EXPECT_FALSE(actor_->Next(0, &message_)) << "lockstep: push first";
  ASSERT_TRUE(actor_->Next(1, &message_));
  const auto frame = Parse<v1::PushFrame>(&message_);
  EXPECT_EQ(frame.session(), 77u);
  ASSERT_EQ(frame.rollouts_size(), 3);
  EXPECT_EQ(frame.rollouts(2).attempt_id(), 1002u);
  EXPECT_EQ(frame.rollouts(2).token(), 102u);
  EXPECT_EQ(frame.payload().size(), 3u * 16 * 9);
  EXPECT_FALSE(actor_->Next(0, &message_)) << "lockstep: wait for the reply";

  answer = Reply(1, 3);
  ASSERT_TRUE(actor_->Take(1, &answer).ok());
  EXPECT_EQ(actor_->progress().operations, 3u);
  ASSERT_TRUE(actor_->Next(0, &message_));
  EXPECT_EQ(Parse<v1::AcquireRequest>(&message_).request_id(), 2u);
}

TEST_F(ActorTest, StatesSizesAndChecksumsThatFitThePayload) {
  load_.batch = 1;
  UseRollouts(16);
  ASSERT_TRUE(actor_->Next(0, &message_));
  grpc::ByteBuffer answer = Assignments(1, 1);
  ASSERT_TRUE(actor_->Take(0, &answer).ok());
  ASSERT_TRUE(actor_->Next(1, &message_));
  const auto frame = Parse<v1::PushFrame>(&message_);
  size_t at = 0;
  for (const v1::Column& column : frame.rollouts(0).columns()) {
    EXPECT_EQ(column.crc32c(), Crc32c(std::string_view(frame.payload()).substr(at, column.bytes())))
        << column.name();
    at += column.bytes();
  }
  EXPECT_EQ(at, frame.payload().size());
}

TEST_F(ActorTest, CutsALargeRolloutIntoFramesAndKeepsItsWindow) {
  load_.window = 2;
  load_.batch = 8;
  load_.frame_bytes = 1000;
  UseRollouts(300);  // 2700 bytes: 3 frames
  ASSERT_TRUE(actor_->Next(0, &message_));
  grpc::ByteBuffer answer = Assignments(1, 8);
  ASSERT_TRUE(actor_->Take(0, &answer).ok());
  std::vector<int> headers;
  std::string first;
  while (actor_->Next(1, &message_)) {
    const auto frame = Parse<v1::PushFrame>(&message_);
    headers.push_back(frame.rollouts_size());
    if (headers.size() <= 3) first += frame.payload();
  }
  EXPECT_EQ(headers, (std::vector<int>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(first, load_.rollouts[0].payload());
  for (uint32_t accepted : {0, 0, 1}) {
    answer = Reply(1, accepted);
    ASSERT_TRUE(actor_->Take(1, &answer).ok());
  }
  EXPECT_EQ(actor_->progress().payload_bytes, 2700u);
  EXPECT_TRUE(actor_->Next(1, &message_)) << "the window has room again";
  EXPECT_TRUE(ParseScript(actor_->Script()).ok()) << actor_->Script();
}

TEST_F(ActorTest, StopsWhenWhatItBeganIsAnsweredAndLeavesTheRest) {
  std::vector<LeftOver> left;
  load_.left_over = &left;
  load_.window = 1;
  load_.batch = 3;
  load_.frame_bytes = 100;
  UseRollouts(16);  // 144 bytes: 2 frames
  ASSERT_TRUE(actor_->Next(0, &message_));
  grpc::ByteBuffer answer = Assignments(1000, 3);
  ASSERT_TRUE(actor_->Take(0, &answer).ok());
  ASSERT_TRUE(actor_->Next(1, &message_));
  actor_->Stop();
  EXPECT_FALSE(actor_->Stopped());
  EXPECT_TRUE(actor_->Next(1, &message_)) << "the rollout's second frame";
  for (uint32_t accepted : {0, 1}) {
    answer = Reply(1, accepted);
    ASSERT_TRUE(actor_->Take(1, &answer).ok());
  }
  EXPECT_TRUE(actor_->Stopped());
  EXPECT_FALSE(actor_->Next(0, &message_));
  EXPECT_FALSE(actor_->Next(1, &message_));
  actor_.reset();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].session, 77u);
  EXPECT_EQ(left[0].leases.size(), 2u);
}

TEST_F(ActorTest, EndsTheRunWhenARolloutIsRefusedOrNoWorkIsHandedOut) {
  load_.batch = 1;
  UseRollouts(16);
  ASSERT_TRUE(actor_->Next(0, &message_));
  grpc::ByteBuffer answer = Assignments(1, 0);
  EXPECT_EQ(actor_->Take(0, &answer).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(actor_->Next(0, &message_));
  answer = Assignments(1, 1);
  ASSERT_TRUE(actor_->Take(0, &answer).ok());
  ASSERT_TRUE(actor_->Next(1, &message_));
  answer = Reply(1, 0);
  EXPECT_EQ(actor_->Take(1, &answer).code(), absl::StatusCode::kInternal);
}

TEST(FetchConversation, CountsAMicroBatchWhenItsLastFrameIsIn) {
  FetchLoad load;
  load.window = 1;
  FetchConversation fetch(&load);
  grpc::ByteBuffer message;
  ASSERT_TRUE(fetch.Next(0, &message));
  EXPECT_FALSE(fetch.Next(0, &message));
  v1::FetchFrame frame;
  frame.set_id(1);
  frame.mutable_layout()->add_cu_seqlens(5);
  frame.set_data(std::string(3000, 'x'));
  grpc::ByteBuffer answer = Encode(frame);
  ASSERT_TRUE(fetch.Take(0, &answer).ok());
  EXPECT_EQ(fetch.progress().operations, 0u);
  frame.set_last(true);
  answer = Encode(frame);
  ASSERT_TRUE(fetch.Take(0, &answer).ok());
  EXPECT_EQ(fetch.progress().operations, 1u);
  EXPECT_EQ(fetch.progress().payload_bytes, 6000u);
  EXPECT_TRUE(ParseScript(fetch.Script()).ok()) << fetch.Script();

  ASSERT_TRUE(fetch.Next(0, &message));
  v1::FetchFrame refused;
  refused.set_id(2);
  refused.set_last(true);
  refused.set_error_code(9);
  answer = Encode(refused);
  EXPECT_EQ(fetch.Take(0, &answer).code(), absl::StatusCode::kInternal);
}

TEST(FetchConversation, AsksForTheMicroBatchesInTurn) {
  FetchLoad load;
  load.window = 5;
  load.micro_batches = 3;
  FetchConversation fetch(&load);
  for (const uint32_t expected : {0, 1, 2, 0, 1}) {
    grpc::ByteBuffer message;
    ASSERT_TRUE(fetch.Next(0, &message));
    grpc::Slice bytes;
    ASSERT_TRUE(message.DumpToSingleSlice(&bytes).ok());
    v1::FetchRequest request;
    ASSERT_TRUE(request.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
    EXPECT_EQ(request.micro_batch(), expected);
  }
}

}  // namespace
}  // namespace forebay::bench
