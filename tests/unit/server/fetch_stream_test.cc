#include "server/grpc/fetch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>

#include "base/sync.h"
#include "base/tsan.h"
#include "forebay/v1/trainer.pb.h"
#include "storage/ram_payload_store.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr char kFetch[] = "/forebay.v1.TrainerService/Fetch";

class FakeEngine : public FetchEngine {
 public:
  void View(const FetchKey& key, FetchAnswer answer) override {
    TsanAcquire(this);
    if (view_ended) return answer(absl::AbortedError("step 1 is committed"));
    if (key.revision.value != 1) {
      answer(absl::AbortedError("revision 2 is over"));
      return;
    }
    view_ended = ends_after_view;
    answer(view);
  }
  void Lost(const FetchKey&, const FetchView& lost_of, const absl::Status& why,
            FetchRefusal answer) override {
    EXPECT_EQ(lost_of.slots.size(), view.slots.size());
    lost = storage::LostOf(why);
    TsanRelease(this);
    answer(absl::DataLossError(absl::StrCat(why.message(), ": its bytes are lost")));
  }
  std::vector<PayloadId> lost;
  bool ends_after_view = false, view_ended = false;
  FetchView view;
};

struct Fetched {
  v1::MicroBatchLayout layout;
  std::string data;
  int frames = 0;
  int32_t error = 0;
  std::string message;
};

class FetchStreamTest : public ::testing::Test {
 protected:
  FetchStreamTest() {
    methods_.AddStream(kFetch, MakeFetchStream({.engine = &engine_, .store = &store_}));
    server_ = std::make_unique<TestServer>(&methods_);
    stream_ = server_->OpenStream(kFetch, &context_);
  }

  // Stores a rollout of the sequences' lengths, all its bytes random, and adds its sequences as
  // slots.
  void AddRollout(const std::vector<uint32_t>& lengths, bool routed, uint32_t mask_below = 0) {
    v1::RolloutHeader header;
    uint32_t total = 0;
    for (const uint32_t tokens : lengths) {
      auto* sequence = header.add_sequences();
      sequence->set_tokens(tokens);
      sequence->set_loss_tokens(tokens);
      auto* old_run = sequence->add_versions();
      old_run->set_number(3);
      old_run->set_loss_tokens(tokens / 2);
      auto* new_run = sequence->add_versions();
      new_run->set_offset(tokens / 2);
      new_run->set_number(4);
      new_run->set_loss_tokens(tokens - tokens / 2);
      total += tokens;
    }
    AddColumn(&header, "tokens", v1::DTYPE_U32, v1::DOMAIN_TOKEN, total * 4);
    AddColumn(&header, "loss_mask", v1::DTYPE_U8, v1::DOMAIN_TOKEN, total);
    if (routed) {
      const uint64_t rows = total - lengths.size();
      auto* column = AddColumn(&header, "routed_experts", v1::DTYPE_I16, v1::DOMAIN_TOKEN_BUT_LAST,
                               rows * 2 * 3 * 2);
      column->add_inner(3);
      column->add_inner(2);
      column->set_missing(-1);
    }
    (*header.mutable_rewards())["reward"] = 0.25;
    const std::string head = header.SerializeAsString();
    uint64_t bytes = 0;
    for (const auto& column : header.columns()) bytes += column.bytes();
    std::string payload(bytes, '\0');
    for (char& byte : payload) byte = static_cast<char>(seed_ = seed_ * 5 + 3);
    for (uint32_t i = 0; i < total; ++i) payload[4 * total + i] = 1;  // the mask
    const PayloadId id = Store(head, payload, routed ? LastBytes(header) : 0);
    for (uint32_t s = 0; s < lengths.size(); ++s) {
      engine_.view.slots.push_back({.payload = id,
                                    .rollout = RolloutId(id.value),
                                    .sequence = s,
                                    .tokens = lengths[s],
                                    .loss_tokens = lengths[s],
                                    .version = 3,
                                    .mask_below = mask_below});
      payloads_.push_back(payload);
    }
  }
  static v1::Column* AddColumn(v1::RolloutHeader* header, const char* name, v1::DType dtype,
                               v1::Domain domain, uint64_t bytes) {
    auto* column = header->add_columns();
    column->set_name(name);
    column->set_dtype(dtype);
    column->set_domain(domain);
    column->set_bytes(bytes);
    return column;
  }
  static uint64_t LastBytes(const v1::RolloutHeader& header) {
    return header.columns(header.columns_size() - 1).bytes();
  }
  PayloadId Store(const std::string& header, const std::string& payload, uint64_t cold = 0) {
    const uint64_t size = header.size() + payload.size() - cold;
    EXPECT_TRUE(store_.budget().TryReserve(storage::PayloadBuilder::Footprint(size, cold)));
    storage::PayloadBuilder builder(&store_.budget(), size, cold);
    if (!header.empty()) builder.AppendHeader(header);
    builder.Append(payload, 0);
    PayloadId id;
    store_.Finish({&builder, 1}, {&id, 1}, nullptr);
    return id;
  }
  bool Send(const v1::FetchRequest& request) {
    TsanRelease(&engine_);
    return stream_->Write(Body(request.SerializeAsString()));
  }
  Fetched Fetch(v1::FetchRequest request) {
    EXPECT_TRUE(Send(request));
    Fetched fetched;
    v1::FetchFrame frame;
    do {
      grpc::ByteBuffer body;
      if (!stream_->Read(&body)) {
        ADD_FAILURE() << stream_->Finish().error_message();
        return fetched;
      }
      EXPECT_TRUE(frame.ParseFromString(Text(body)));
      EXPECT_EQ(frame.id(), request.id());
      EXPECT_EQ(frame.has_layout(), fetched.frames == 0 && frame.error_code() == 0);
      if (frame.has_layout()) fetched.layout = frame.layout();
      fetched.data += frame.data();
      ++fetched.frames;
      fetched.error = frame.error_code();
      fetched.message = frame.error_message();
    } while (!frame.last());
    return fetched;
  }
  static v1::FetchRequest Request(std::initializer_list<const char*> columns) {
    v1::FetchRequest request;
    request.set_id(11);
    request.set_revision(1);
    for (const char* column : columns) request.add_columns(column);
    return request;
  }

  // Which parts each load wanted.
  class SeenStore final : public storage::RamPayloadStore {
   public:
    using RamPayloadStore::RamPayloadStore;
    void LoadParts(std::vector<storage::PayloadParts> wanted, LoadDone done) override {
      std::vector<storage::Parts> parts;
      for (const auto& payload : wanted) parts.push_back(payload.parts);
      {
        MutexLock lock(&mutex_);
        loads_.push_back(std::move(parts));
      }
      RamPayloadStore::LoadParts(std::move(wanted), std::move(done));
    }
    std::vector<std::vector<storage::Parts>> TakeLoads() {
      MutexLock lock(&mutex_);
      return std::exchange(loads_, {});
    }

   private:
    Mutex mutex_;
    std::vector<std::vector<storage::Parts>> loads_ ABSL_GUARDED_BY(mutex_);
  };

  SeenStore store_{storage::RamPayloadStoreOptions()};
  FakeEngine engine_;
  MethodTable methods_;
  std::unique_ptr<TestServer> server_;
  grpc::ClientContext context_;
  std::unique_ptr<TestServer::ClientStream> stream_;
  std::vector<std::string> payloads_;  // by slot
  uint32_t seed_ = 1;
};

TEST_F(FetchStreamTest, ConcatenatesColumnsInSlotOrderAndPads) {
  AddRollout({10, 20}, false);
  AddRollout({300}, false);
  engine_.view.padded_tokens = 336;
  const Fetched fetched = Fetch(Request({"loss_mask", "tokens"}));
  ASSERT_EQ(fetched.error, 0) << fetched.message;
  EXPECT_THAT(fetched.layout.cu_seqlens(), ElementsAre(0, 10, 30, 330));
  EXPECT_EQ(fetched.layout.padded_tokens(), 336u);
  ASSERT_EQ(fetched.layout.columns_size(), 2);
  EXPECT_EQ(fetched.layout.columns(0).bytes(), 336u);
  EXPECT_EQ(fetched.layout.columns(0).padding_bytes(), 6u);
  EXPECT_EQ(fetched.layout.columns(1).dtype(), v1::DTYPE_U32);
  const std::string expected = std::string(330, '\1') + std::string(6, '\0') +
                               payloads_[0].substr(0, 120) + payloads_[2].substr(0, 1200) +
                               std::string(24, '\0');
  EXPECT_EQ(fetched.data, expected);
}

TEST_F(FetchStreamTest, FillsTheLastRouteWithTheMissingValue) {
  AddRollout({5}, true);
  AddRollout({7}, true);
  engine_.view.padded_tokens = 12;
  const Fetched fetched = Fetch(Request({"routed_experts"}));
  ASSERT_EQ(fetched.error, 0) << fetched.message;
  const std::string missing(12, '\xff');
  EXPECT_EQ(fetched.data,
            payloads_[0].substr(25, 4 * 12) + missing + payloads_[1].substr(35, 6 * 12) + missing);
  EXPECT_EQ(fetched.layout.columns(0).domain(), v1::DOMAIN_TOKEN);
}

TEST_F(FetchStreamTest, LoadsColdPartsOfRolloutsInWhichAWantedColumnIsCold) {
  using enum storage::Parts;
  AddRollout({5}, true);
  AddRollout({7}, false);
  AddRollout({9}, true);
  engine_.view.padded_tokens = 21;
  ASSERT_EQ(Fetch(Request({"tokens", "loss_mask"})).error, 0);
  EXPECT_THAT(store_.TakeLoads(), ElementsAre(ElementsAre(kHot, kHot, kHot)));
  v1::FetchRequest request = Request({"tokens", "routed_experts"});
  request.set_fill_missing(true);
  const Fetched fetched = Fetch(request);
  ASSERT_EQ(fetched.error, 0) << fetched.message;
  EXPECT_THAT(store_.TakeLoads(),
              ElementsAre(ElementsAre(kHot, kHot, kHot), ElementsAre(kAll, kHot, kAll)));
  const std::string missing(12, '\xff');
  std::string expected = payloads_[0].substr(0, 20) + payloads_[1].substr(0, 28) +
                         payloads_[2].substr(0, 36) + payloads_[0].substr(25) + missing;
  for (int row = 0; row < 7; ++row) expected += missing;
  expected += payloads_[2].substr(45) + missing;
  EXPECT_EQ(fetched.data, expected);
  // One that a trainer wrote since takes the place of the stored one.
  const std::string written(21 * 2, 'w');
  engine_.view.written.push_back({.name = "routed_experts",
                                  .dtype = v1::DTYPE_U16,
                                  .payload = Store("", written),
                                  .bytes = written.size()});
  ASSERT_EQ(Fetch(Request({"routed_experts"})).error, 0);
  EXPECT_THAT(store_.TakeLoads(), ElementsAre(ElementsAre(kHot, kHot, kHot, kHot)));
}

TEST_F(FetchStreamTest, MasksTokensOfOldVersionsAndShiftsTheMask) {
  AddRollout({10}, false, 4);
  engine_.view.padded_tokens = 10;
  v1::FetchRequest request = Request({"loss_mask"});
  EXPECT_EQ(Fetch(request).data, std::string(5, '\0') + std::string(5, '\1'));
  request.set_mask_alignment(v1::MASK_ALIGNMENT_PREDICTING);
  EXPECT_EQ(Fetch(request).data,
            std::string(4, '\0') + std::string(5, '\1') + std::string(1, '\0'));
}

TEST_F(FetchStreamTest, RefusesOrFillsMissingColumns) {
  AddRollout({4}, true);
  AddRollout({4}, false);
  engine_.view.padded_tokens = 8;
  v1::FetchRequest request = Request({"routed_experts"});
  Fetched fetched = Fetch(request);
  EXPECT_EQ(fetched.error, static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(fetched.message, HasSubstr("routed_experts"));
  request.set_fill_missing(true);
  fetched = Fetch(request);
  ASSERT_EQ(fetched.error, 0) << fetched.message;
  EXPECT_EQ(fetched.data, payloads_[0].substr(20, 3 * 12) + std::string(5 * 12, '\xff'));
}

TEST_F(FetchStreamTest, SendsWrittenColumnsAndRewards) {
  AddRollout({4}, false);
  engine_.view.padded_tokens = 6;
  const std::string written(16, 'w');
  engine_.view.written.push_back({.name = "old_logprobs",
                                  .dtype = v1::DTYPE_F32,
                                  .inner = {},
                                  .payload = Store("", written),
                                  .bytes = 16});
  v1::FetchRequest request = Request({"old_logprobs"});
  request.add_reward_keys("reward");
  const Fetched fetched = Fetch(request);
  ASSERT_EQ(fetched.error, 0) << fetched.message;
  const double reward = 0.25;
  std::string tail(8, '\0');
  std::memcpy(tail.data(), &reward, 8);
  EXPECT_EQ(fetched.data, written + std::string(8, '\0') + tail);
  EXPECT_EQ(fetched.layout.columns(1).name(), "reward/reward");
}

TEST_F(FetchStreamTest, CutsALargeAnswerIntoFramesAndRepeatsItExactly) {
  for (int i = 0; i < 40; ++i) AddRollout({50'000}, false);
  engine_.view.padded_tokens = 2'000'000;
  v1::FetchRequest request = Request({"tokens", "loss_mask"});
  request.set_frame_bytes(300'000);
  const Fetched first = Fetch(request);
  EXPECT_EQ(first.frames, 34);
  EXPECT_EQ(first.data.size(), 10'000'000u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(first.data.substr(200'000 * i, 200'000), payloads_[i].substr(0, 200'000));
  }
  const Fetched again = Fetch(request);
  EXPECT_EQ(again.data, first.data);
  EXPECT_EQ(again.layout.SerializeAsString(), first.layout.SerializeAsString());
}

TEST_F(FetchStreamTest, AnswersAFillerWithNoBytes) {
  const Fetched fetched = Fetch(Request({"tokens"}));
  EXPECT_EQ(fetched.error, 0) << fetched.message;
  EXPECT_EQ(fetched.data, "");
  EXPECT_EQ(fetched.layout.cu_seqlens_size(), 1);
}

TEST_F(FetchStreamTest, ErrorsDoNotEndTheStream) {
  AddRollout({4}, false);
  engine_.view.padded_tokens = 4;
  v1::FetchRequest request = Request({"tokens"});
  request.set_revision(2);
  EXPECT_EQ(Fetch(request).error, static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(Fetch(Request({})).error, static_cast<int>(absl::StatusCode::kInvalidArgument));
  const PayloadId id = engine_.view.slots[0].payload;
  EXPECT_EQ(Fetch(Request({"tokens"})).error, 0);
  store_.Free({&id, 1});
  const Fetched lost = Fetch(Request({"tokens"}));
  EXPECT_EQ(lost.error, static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(lost.message, HasSubstr("its bytes are lost"));
  TsanAcquire(&engine_);
  EXPECT_THAT(engine_.lost, ElementsAre(id));
  engine_.ends_after_view = true;  // and takes its payloads with it
  EXPECT_EQ(Fetch(Request({"tokens"})).error, static_cast<int>(absl::StatusCode::kAborted));
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(FetchStreamTest, BytesBeingSentOutliveTheirPayload) {
  AddRollout({500'000}, false);
  engine_.view.padded_tokens = 500'000;
  const PayloadId id = engine_.view.slots[0].payload;
  ASSERT_TRUE(Send(Request({"tokens"})));
  grpc::ByteBuffer body;
  v1::FetchFrame frame;
  ASSERT_TRUE(stream_->Read(&body));
  ASSERT_TRUE(frame.ParseFromString(Text(body)));
  std::string data = frame.data();
  store_.Free({&id, 1});
  while (!frame.last()) {
    ASSERT_TRUE(stream_->Read(&body));
    ASSERT_TRUE(frame.ParseFromString(Text(body)));
    data += frame.data();
  }
  EXPECT_EQ(data, payloads_[0].substr(0, 2'000'000));
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
  server_->server().Shutdown(std::chrono::milliseconds(100));
  for (int i = 0; i < 2000 && store_.use().budget.used_bytes != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll: the transport lets go
  }
  EXPECT_EQ(store_.use().budget.used_bytes, 0u);
}

}  // namespace
}  // namespace forebay::server
