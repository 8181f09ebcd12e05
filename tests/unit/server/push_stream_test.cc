#include "server/grpc/push_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/crc32c.h"
#include "base/sync.h"
#include "forebay/v1/actor.pb.h"
#include "storage/ram_payload_store.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;
constexpr char kPush[] = "/forebay.v1.ActorService/Push";
constexpr char kPushGroup[] = "/forebay.v1.ActorService/PushGroup";

// Keeps what it is given and accepts it; answers from a thread of its own if asked to.
class FakeEngine : public PushEngine {
 public:
  FakeEngine() {
    auto names = std::make_shared<codec::NameTable>();
    EXPECT_TRUE(names->Add({}));
    names_ = names;
  }
  ~FakeEngine() override {
    for (std::thread& thread : threads_) thread.join();
  }
  std::shared_ptr<const codec::NameTable> Names() override { return names_; }
  void Push(PushBatch batch, PushAnswer answer) override {
    std::vector<shard::PushOutcome> outcomes(batch.rollouts.size());
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < batch.rollouts.size(); ++i) {
      const auto attempt = batch.rollouts[i].lease.attempt.value;
      if (!seen_.insert({attempt, batch.rollouts[i]}).second) {
        outcomes[i] = {.result = shard::PushResult::kDuplicate};
      }
    }
    batches_.push_back(std::move(batch));
    threads_.emplace_back(
        [answer = std::move(answer), outcomes = std::move(outcomes)] { answer(outcomes); });
  }
  void PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) override {
    group_ = std::move(group);
    Push(std::move(batch), std::move(answer));
  }
  std::vector<PushBatch> batches() {
    MutexLock lock(&mutex_);
    return batches_;
  }
  PushGroupRequest group_;

 private:
  std::shared_ptr<const codec::NameTable> names_;
  Mutex mutex_;
  std::map<uint64_t, shard::RolloutMeta> seen_;
  std::vector<PushBatch> batches_;
  std::vector<std::thread> threads_;
};

v1::RolloutHeader Header(uint64_t attempt, uint32_t tokens, const std::string& payload) {
  v1::RolloutHeader header;
  header.set_attempt_id(attempt);
  header.set_token(7);
  auto* sequence = header.add_sequences();
  sequence->set_tokens(tokens);
  sequence->set_loss_tokens(tokens / 2);
  auto* ids = header.add_columns();
  ids->set_name("tokens");
  ids->set_dtype(v1::DTYPE_U32);
  ids->set_bytes(4 * tokens);
  ids->set_crc32c(Crc32c(std::string_view(payload).substr(0, 4 * tokens)));
  auto* mask = header.add_columns();
  mask->set_name("loss_mask");
  mask->set_dtype(v1::DTYPE_U8);
  mask->set_bytes(tokens);
  (*header.mutable_rewards())["reward"] = 0.5;
  return header;
}

std::string Payload(uint32_t tokens, char seed) {
  std::string payload(5 * tokens, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(seed + i * 31);
  return payload;
}

class PushStreamTest : public ::testing::Test {
 protected:
  void Start(storage::RamPayloadStoreOptions options = {}, PushLimits limits = {},
             std::vector<std::string> cold_columns = {}) {
    store_ = std::make_unique<storage::RamPayloadStore>(options);
    const PushOptions push{.engine = &engine_,
                           .store = store_.get(),
                           .limits = limits,
                           .cold_columns = std::move(cold_columns)};
    methods_.AddStream(kPush, MakePushStream(push));
    methods_.AddStream(kPushGroup, MakePushGroupStream(push));
    server_ = std::make_unique<TestServer>(&methods_);
  }
  void Open(const char* method = kPush) {
    context_ = std::make_unique<grpc::ClientContext>();
    stream_ = server_->OpenStream(method, context_.get());
  }
  bool Send(const v1::PushFrame& frame) { return stream_->Write(Body(frame.SerializeAsString())); }
  v1::PushReply Receive() {
    grpc::ByteBuffer body;
    v1::PushReply reply;
    if (!stream_->Read(&body)) {
      ADD_FAILURE() << stream_->Finish().error_message();
      return reply;
    }
    EXPECT_TRUE(reply.ParseFromString(Text(body)));
    return reply;
  }
  std::string Stored(PayloadId id, uint64_t offset, uint64_t size) {
    std::vector<storage::BlockSlice> slices;
    EXPECT_TRUE(store_->Read(id, offset, size, &slices).ok());
    std::string bytes;
    for (const auto& slice : slices) bytes.append(slice.data, slice.size);
    return bytes;
  }

  FakeEngine engine_;
  std::unique_ptr<storage::RamPayloadStore> store_;
  MethodTable methods_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<TestServer::ClientStream> stream_;
};

v1::PushFrame Frame(uint64_t number) {
  v1::PushFrame frame;
  frame.set_session(1);
  frame.set_frame(number);
  return frame;
}

TEST_F(PushStreamTest, StoresSmallRolloutsOfOneFrame) {
  Start();
  Open();
  v1::PushFrame frame = Frame(9);
  std::vector<std::string> payloads;
  for (uint32_t i = 0; i < 50; ++i) {
    payloads.push_back(Payload(10 + i, static_cast<char>(i)));
    *frame.add_rollouts() = Header(100 + i, 10 + i, payloads.back());
    frame.mutable_payload()->append(payloads.back());
  }
  ASSERT_TRUE(Send(frame));
  const v1::PushReply reply = Receive();
  EXPECT_EQ(reply.frame(), 9u);
  EXPECT_EQ(reply.accepted(), 50u);
  EXPECT_EQ(reply.outcomes_size(), 0);
  const auto batches = engine_.batches();
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].session.value, 1u);
  for (uint32_t i = 0; i < 50; ++i) {
    const shard::RolloutMeta& rollout = batches[0].rollouts[i];
    const PushedNames& named = batches[0].named[i];
    EXPECT_EQ(rollout.lease.attempt.value, 100 + i);
    EXPECT_EQ(rollout.first.tokens, 10 + i);
    EXPECT_EQ(named.column_bits, 3u);
    ASSERT_EQ(named.rewards.count, 1u);
    EXPECT_EQ(batches[0].rewards[named.rewards.begin].value, 0.5);
    const std::string header = frame.rollouts(static_cast<int>(i)).SerializeAsString();
    EXPECT_EQ(Stored(rollout.payload, 0, rollout.payload_bytes), header + payloads[i]);
  }
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(PushStreamTest, TakesALargeRolloutOverManyFrames) {
  Start();
  Open();
  const uint32_t tokens = 2'000'000;  // 10 MB: three blocks
  const std::string payload = Payload(tokens, 3);
  constexpr size_t kPiece = 700'001;
  uint64_t number = 0;
  for (size_t at = 0; at < payload.size(); at += kPiece) {
    v1::PushFrame frame = Frame(++number);
    if (at == 0) *frame.add_rollouts() = Header(5, tokens, payload);
    frame.set_payload(payload.substr(at, kPiece));
    ASSERT_TRUE(Send(frame));
    const v1::PushReply reply = Receive();
    EXPECT_EQ(reply.frame(), number);
    EXPECT_EQ(reply.accepted(), at + kPiece >= payload.size() ? 1u : 0u);
  }
  const auto batches = engine_.batches();
  ASSERT_EQ(batches.size(), 1u);
  const shard::RolloutMeta& meta = batches[0].rollouts[0];
  EXPECT_EQ(Stored(meta.payload, meta.payload_bytes - payload.size(), payload.size()), payload);
}

class ColdColumnsTest : public PushStreamTest {
 protected:
  // Pushes a rollout, in frames of `piece` bytes, and returns how many bytes of it are cold.
  uint64_t PushAndLook(uint32_t tokens, size_t piece) {
    const std::string payload = Payload(tokens, 3);
    const size_t before = engine_.batches().size();
    for (size_t at = 0; at < payload.size(); at += piece) {
      v1::PushFrame frame = Frame(++number_);
      if (at == 0) *frame.add_rollouts() = Header(5, tokens, payload);
      frame.set_payload(payload.substr(at, piece));
      EXPECT_TRUE(Send(frame));
      Receive();
    }
    const auto batches = engine_.batches();
    EXPECT_EQ(batches.size(), before + 1);
    const shard::RolloutMeta& meta = batches.back().rollouts[0];
    EXPECT_EQ(Stored(meta.payload, meta.payload_bytes - payload.size(), payload.size()), payload);
    std::vector<storage::PayloadView> views;
    EXPECT_TRUE(store_->Open({meta.payload}, &views).ok());
    EXPECT_EQ(views[0].bytes(), meta.payload_bytes);
    return views[0].bytes(storage::Part::kCold);
  }

  uint64_t number_ = 0;
};

TEST_F(ColdColumnsTest, TheLastColumnsOfARolloutAreColdIfTheyAreNamed) {
  Start({}, {}, {"other", "loss_mask"});
  Open();
  for (const size_t piece : {1'000'000u, 333u, 7u}) EXPECT_EQ(PushAndLook(100, piece), 100u);
  // Three blocks of tokens, and one of the mask.
  EXPECT_EQ(PushAndLook(2'000'001, 700'001), 2'000'001u);
  EXPECT_EQ(store_->use().budget.waiters, 0u);
}

TEST_F(ColdColumnsTest, WhatAHotColumnFollowsIsHot) {
  Start({}, {}, {"tokens"});
  Open();
  EXPECT_EQ(PushAndLook(100, 1'000), 0u);
}

TEST_F(ColdColumnsTest, ARolloutOfColdColumnsAloneHasItsHeaderInTheHotPart) {
  Start({}, {}, {"tokens", "loss_mask"});
  Open();
  EXPECT_EQ(PushAndLook(100, 50), 500u);
}

TEST_F(PushStreamTest, RefusesWhatIsWrongAndTakesTheRest) {
  Start();
  Open();
  v1::PushFrame frame = Frame(1);
  const std::string payload = Payload(20, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    *frame.add_rollouts() = Header(10 + i, 20, payload);
    frame.mutable_payload()->append(payload);
  }
  frame.mutable_rollouts(1)->mutable_columns(0)->set_crc32c(1);
  frame.mutable_rollouts(2)->mutable_columns(1)->set_dtype(v1::DTYPE_F32);
  ASSERT_TRUE(Send(frame));
  const v1::PushReply reply = Receive();
  EXPECT_EQ(reply.accepted(), 2u);
  ASSERT_EQ(reply.outcomes_size(), 2);
  EXPECT_EQ(reply.outcomes(0).index(), 1u);
  EXPECT_EQ(reply.outcomes(0).attempt_id(), 11u);
  EXPECT_EQ(reply.outcomes(0).result(), v1::PUSH_RESULT_INVALID);
  EXPECT_EQ(reply.outcomes(0).field(), "columns[0].crc32c");
  EXPECT_EQ(reply.outcomes(1).field(), "columns[1].dtype");
  EXPECT_EQ(store_->use().payloads, 2u);
}

TEST_F(PushStreamTest, ARepeatedPushIsADuplicateAndCountsAsAccepted) {
  Start();
  Open();
  const std::string payload = Payload(8, 1);
  for (uint64_t number : {1, 2}) {
    v1::PushFrame frame = Frame(number);
    *frame.add_rollouts() = Header(77, 8, payload);
    frame.set_payload(payload);
    ASSERT_TRUE(Send(frame));
    const v1::PushReply reply = Receive();
    EXPECT_EQ(reply.accepted(), 1u);
    EXPECT_EQ(reply.outcomes_size(), number == 1 ? 0 : 1);
  }
}

TEST_F(PushStreamTest, EndsWhenAFrameCannotBeUnderstood) {
  const std::string payload = Payload(8, 1);
  std::vector<v1::PushFrame> wrong(4);
  wrong[0].set_frame(1);  // no session
  wrong[1] = Frame(1);
  wrong[1].set_payload("of nobody");
  wrong[2] = Frame(1);
  *wrong[2].add_rollouts() = Header(1, 8, payload);
  wrong[2].set_payload(payload + "more");
  wrong[3] = Frame(1);
  for (int i = 0; i < 300; ++i) wrong[3].add_rollouts()->add_columns();
  for (int i = 0; i < 300; ++i) wrong[3].mutable_rollouts(0)->add_columns();
  Start();
  for (const v1::PushFrame& frame : wrong) {
    Open();
    ASSERT_TRUE(Send(frame));
    grpc::ByteBuffer body;
    EXPECT_FALSE(stream_->Read(&body));
    const grpc::Status status = stream_->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
  EXPECT_EQ(store_->use().budget.used_bytes, 0u);
}

TEST_F(PushStreamTest, SkipsTheFramesOfARolloutThatIsTooLarge) {
  Start({}, {.rollout_bytes_max = 1'000'000});
  Open();
  const std::string payload = Payload(400'000, 1);
  v1::PushFrame frame = Frame(1);
  *frame.add_rollouts() = Header(1, 400'000, payload);
  frame.set_payload(payload.substr(0, 1'200'000));
  ASSERT_TRUE(Send(frame));
  EXPECT_EQ(Receive().accepted(), 0u);
  frame = Frame(2);
  frame.set_payload(payload.substr(1'200'000));
  ASSERT_TRUE(Send(frame));
  const v1::PushReply reply = Receive();
  ASSERT_EQ(reply.outcomes_size(), 1);
  EXPECT_EQ(reply.outcomes(0).field(), "bytes");
  EXPECT_THAT(reply.outcomes(0).message(), HasSubstr("1000000"));
  EXPECT_EQ(store_->use().budget.used_bytes, 0u);
}

TEST_F(PushStreamTest, WaitsWhenMemoryIsFullAndGoesOnWhenThereIsRoom) {
  Start({.bytes_max = 1'000'000, .completion_reserve_bytes = 0});
  Open();
  const std::string payload = Payload(150'000, 1);  // 750 KB
  v1::PushFrame frame = Frame(1);
  *frame.add_rollouts() = Header(1, 150'000, payload);
  frame.set_payload(payload);
  ASSERT_TRUE(Send(frame));
  EXPECT_EQ(Receive().accepted(), 1u);
  frame.set_frame(2);
  frame.mutable_rollouts(0)->set_attempt_id(2);
  ASSERT_TRUE(Send(frame));
  for (int i = 0; i < 2000 && store_->use().budget.waiters == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll: the frame has arrived
  }
  const auto waiters = store_->budget().Waiters();
  ASSERT_EQ(waiters.size(), 1u);
  EXPECT_EQ(waiters[0].tag, 2u);
  store_->Free({engine_.batches()[0].rollouts[0].payload});
  EXPECT_EQ(Receive().accepted(), 1u);
  EXPECT_LE(store_->use().budget.used_bytes, 1'000'000u);
}

TEST_F(PushStreamTest, AStreamThatDiesWhileItWaitsGivesEverythingBack) {
  Start({.bytes_max = 1'000'000, .completion_reserve_bytes = 0});
  Open();
  const std::string payload = Payload(150'000, 1);
  v1::PushFrame frame = Frame(1);
  *frame.add_rollouts() = Header(1, 150'000, payload);
  frame.set_payload(payload);
  ASSERT_TRUE(Send(frame));
  EXPECT_EQ(Receive().accepted(), 1u);
  frame.mutable_rollouts(0)->set_attempt_id(2);
  ASSERT_TRUE(Send(frame));
  for (int i = 0; i < 2000 && store_->use().budget.waiters == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll: the frame has arrived
  }
  context_->TryCancel();
  stream_->Finish();
  for (int i = 0; i < 2000 && store_->use().budget.waiters != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll: the server has noticed
  }
  EXPECT_EQ(store_->use().budget.waiters, 0u);
  store_->Free({engine_.batches()[0].rollouts[0].payload});
  EXPECT_EQ(store_->use().budget.used_bytes, 0u);
}

TEST_F(PushStreamTest, PushesAGroupWholeOrNotAtAll) {
  Start();
  Open(kPushGroup);
  const std::string payload = Payload(30, 1);
  v1::PushFrame frame = Frame(1);
  frame.mutable_group()->set_source("math");
  frame.mutable_group()->set_external_id("t1");
  frame.mutable_group()->set_request_id(5);
  for (uint64_t i = 0; i < 3; ++i) {
    *frame.add_rollouts() = Header(0, 30, payload);
    frame.mutable_payload()->append(payload);
  }
  v1::PushFrame spoiled = frame;
  spoiled.mutable_rollouts(1)->mutable_sequences(0)->set_loss_tokens(31);
  ASSERT_TRUE(Send(spoiled));
  v1::PushReply reply = Receive();
  EXPECT_EQ(reply.accepted(), 0u);
  ASSERT_EQ(reply.outcomes_size(), 3);
  EXPECT_EQ(reply.outcomes(0).field(), "group");
  EXPECT_EQ(reply.outcomes(1).field(), "sequences[0].loss_tokens");
  EXPECT_TRUE(engine_.batches().empty());
  ASSERT_TRUE(Send(frame));
  reply = Receive();
  EXPECT_EQ(engine_.group_.source, "math");
  EXPECT_EQ(engine_.batches().size(), 1u);
  EXPECT_EQ(engine_.batches()[0].rollouts.size(), 3u);
}

}  // namespace
}  // namespace forebay::server
