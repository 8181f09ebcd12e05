// The bytes of a rollout and of a micro-batch: tests/golden/rollout-1 and micro-batch-1, of which
// docs/formats speaks, are what is taken, stored and sent now.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "codec/rollout_header.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/fetch_plan.h"
#include "server/grpc/incoming_rollout.h"
#include "storage/ram_payload_store.h"

namespace forebay::server {
namespace {

constexpr size_t kHeaderBytes = 133;  // of tests/golden/rollout-1

template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Two sequences, of 4 and 3 tokens, of which the first one and two are the prompt.
const std::string kTokens = Bytes<uint32_t>({101, 102, 103, 104, 201, 202, 203});
const std::string kMask = Bytes<uint8_t>({0, 1, 1, 1, 0, 0, 1});
const std::string kEntropy = Bytes<float>({0.5f, 0.25f, 1.0f, 2.0f});

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(FOREBAY_GOLDEN "/", name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Leaves what does not agree in the folder for temporary files.
void ExpectGolden(const std::string& name, const std::string& bytes) {
  if (Golden(name) == bytes) return;
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  ADD_FAILURE() << "tests/golden/" << name << " differs from what is written now, " << path;
}

void AddSequence(v1::RolloutHeader* header, uint32_t tokens, uint32_t prompt, uint32_t version) {
  auto* sequence = header->add_sequences();
  sequence->set_tokens(tokens);
  sequence->set_prompt_tokens(prompt);
  sequence->set_loss_tokens(tokens - prompt);
  auto* run = sequence->add_versions();
  run->set_number(version);
  run->set_loss_tokens(tokens - prompt);
}

void AddColumn(v1::RolloutHeader* header, const char* name, v1::DType dtype, v1::Domain domain,
               const std::string& bytes) {
  auto* column = header->add_columns();
  column->set_name(name);
  column->set_dtype(dtype);
  column->set_domain(domain);
  column->set_bytes(bytes.size());
  column->set_crc32c(Crc32c(bytes));
}

std::string Header() {
  v1::RolloutHeader header;
  header.set_attempt_id(0x0100000005);
  header.set_token(2);
  header.set_status(v1::ROLLOUT_STATUS_FINISHED);
  AddSequence(&header, 4, 1, 7);
  AddSequence(&header, 3, 2, 8);
  AddColumn(&header, "tokens", v1::DTYPE_U32, v1::DOMAIN_TOKEN, kTokens);
  AddColumn(&header, "loss_mask", v1::DTYPE_U8, v1::DOMAIN_TOKEN, kMask);
  AddColumn(&header, "entropy", v1::DTYPE_F32, v1::DOMAIN_RESPONSE_TOKEN, kEntropy);
  (*header.mutable_rewards())["reward"] = 0.5;
  header.set_duration_ms(1500);
  return header.SerializeAsString();
}

std::string ReadAll(storage::PayloadStore* store, PayloadId id) {
  std::vector<storage::PayloadView> views;
  EXPECT_TRUE(store->Open({id}, &views).ok());
  std::vector<storage::BlockSlice> slices;
  EXPECT_TRUE(views[0].Slices(0, views[0].bytes(), &slices).ok());
  std::string bytes;
  for (const storage::BlockSlice& slice : slices) bytes.append(slice.data, slice.size);
  return bytes;
}

// As a push does it; what is wrong with it fails the test.
PayloadId Push(const std::string& header, const std::string& columns,
               storage::PayloadStore* store) {
  IncomingRollouts incoming;
  incoming.Begin(std::make_shared<const codec::NameTable>(), 1);
  const codec::FieldError error =
      incoming.Add(header, {.rollout_bytes_max = 1 << 20}, store->budget());
  EXPECT_TRUE(error.ok()) << error.field << " " << error.message;
  EXPECT_TRUE(store->budget().TryReserve(incoming.TakeUnreserved()));
  const std::string_view piece = columns;
  incoming.Fill({&piece, 1}, &store->budget());
  PushBatch batch;
  std::vector<uint32_t> indexes;
  std::vector<RefusedRollout> refused;
  const auto payloads = incoming.Take(0, &batch, &indexes, &refused);
  for (const RefusedRollout& wrong : refused) {
    ADD_FAILURE() << wrong.error.field << " " << wrong.error.message;
  }
  PayloadId id;
  store->Finish(payloads, {&id, 1}, nullptr);
  return id;
}

std::unique_ptr<storage::PayloadStore> NewStore() {
  return std::make_unique<storage::RamPayloadStore>(
      storage::RamPayloadStoreOptions{.bytes_max = 1 << 20, .completion_reserve_bytes = 0});
}

TEST(RolloutFormat, IsStoredAsItCame) {
  const std::string header = Header();
  EXPECT_EQ(header.size(), kHeaderBytes);
  const auto store = NewStore();
  const PayloadId id = Push(header, kTokens + kMask + kEntropy, store.get());
  ExpectGolden("rollout-1", ReadAll(store.get(), id));
}

TEST(RolloutFormat, IsReadByTheDaemonsDecoder) {
  const std::string golden = Golden("rollout-1");
  ASSERT_GT(golden.size(), kHeaderBytes);
  codec::RolloutHeader header;
  codec::FieldError error;
  ASSERT_TRUE(
      codec::DecodeRolloutHeader(std::string_view(golden).substr(0, kHeaderBytes), &header, &error))
      << error.field << " " << error.message;
  EXPECT_TRUE(codec::CheckRolloutHeader(header, kHeaderBytes).ok());
  EXPECT_EQ(header.attempt_id, 0x0100000005u);
  EXPECT_EQ(header.token, 2u);
  EXPECT_EQ(header.duration_ms, 1500u);
  ASSERT_EQ(header.sequences.size(), 2u);
  EXPECT_EQ(header.sequences[0].tokens, 4u);
  EXPECT_EQ(header.sequences[1].prompt_tokens, 2u);
  EXPECT_EQ(header.versions(header.sequences[1])[0].number, 8u);
  ASSERT_EQ(header.rewards.size(), 1u);
  EXPECT_EQ(header.rewards[0].value, 0.5);
  ASSERT_EQ(header.columns.size(), 3u);
  std::string_view rest = std::string_view(golden).substr(kHeaderBytes);
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>{"tokens", kTokens},
                                    {"loss_mask", kMask},
                                    {"entropy", kEntropy}}) {
    const codec::HeaderColumn& column = header.columns[header.FindColumn(name)];
    EXPECT_EQ(rest.substr(0, column.bytes), bytes) << name;
    EXPECT_EQ(column.crc32c, Crc32c(bytes)) << name;
    rest.remove_prefix(column.bytes);
  }
  EXPECT_TRUE(rest.empty());
}

// Both sequences of the golden rollout, the second one first.
FetchView View(PayloadId id, uint64_t bytes) {
  FetchView view;
  for (const uint32_t sequence : {1u, 0u}) {
    view.slots.push_back({.payload = id,
                          .payload_bytes = bytes,
                          .rollout = RolloutId(0x0100000009),
                          .group = GroupId(0x0100000003),
                          .task = TaskId(0x0100000001),
                          .sequence = sequence,
                          .sequence_count = 2,
                          .tokens = sequence == 0 ? 4u : 3u,
                          .prompt_tokens = sequence == 0 ? 1u : 2u,
                          .loss_tokens = sequence == 0 ? 3u : 1u,
                          .rollout_loss_tokens = 4,
                          .reward = 0.5f,
                          .advantage = sequence == 0 ? 1.5f : -1.5f,
                          .version = 7,
                          .lag = 1});
  }
  view.padded_tokens = 8;
  view.mini_batch = {
      .loss_tokens = 40, .tokens = 70, .sequences = 20, .rollouts = 10, .groups = 5, .dp = 2};
  view.sources = {{SourceId(0), "math"}};
  return view;
}

// All of it.
v1::FetchRequest Request() {
  v1::FetchRequest request;
  request.set_id(9);
  request.set_revision(1);
  for (const char* name : {"tokens", "loss_mask", "entropy"}) request.add_columns(name);
  return request;
}

// What one of two peers takes of it.
v1::FetchRequest ShareRequest() {
  v1::FetchRequest request = Request();
  v1::ColumnSlice* const tokens = request.add_slices();
  tokens->set_column("tokens");
  tokens->set_dtype(v1::DTYPE_I64);
  request.set_mask_alignment(v1::MASK_ALIGNMENT_PREDICTING);
  request.mutable_context()->set_order(v1::CONTEXT_ORDER_ZIGZAG_SEQUENCES);
  request.mutable_context()->set_size(2);
  request.mutable_context()->set_rank(1);
  return request;
}

std::string MicroBatch(const v1::FetchRequest& request) {
  const auto store = NewStore();
  const std::string golden = Golden("rollout-1");
  const PayloadId id =
      Push(golden.substr(0, kHeaderBytes), golden.substr(kHeaderBytes), store.get());
  const FetchView view = View(id, golden.size());
  std::vector<storage::PayloadView> held;
  EXPECT_TRUE(store->Open(PayloadsOf(request, view), &held).ok());
  const auto plan = FetchPlanner().Plan(request, view, held);
  EXPECT_TRUE(plan.ok()) << plan.status();
  v1::FetchFrame frame;
  frame.set_id(request.id());
  EXPECT_TRUE(frame.mutable_layout()->ParseFromString(plan->layout));
  for (const FetchPiece& piece : plan->pieces) {
    std::string bytes(piece.size, '\0');
    piece.Read(0, piece.size, bytes.data());
    frame.mutable_data()->append(bytes);
  }
  frame.set_last(true);
  return frame.SerializeAsString();
}

TEST(MicroBatchFormat, IsPlannedFromTheStoredRollout) {
  ExpectGolden("micro-batch-1", MicroBatch(Request()));
  ExpectGolden("micro-batch-2", MicroBatch(ShareRequest()));
}

TEST(MicroBatchFormat, HoldsTheColumnsOfItsSequencesPaddedByZero) {
  v1::FetchFrame frame;
  ASSERT_TRUE(frame.ParseFromString(Golden("micro-batch-1")));
  const v1::MicroBatchLayout& layout = frame.layout();
  EXPECT_EQ(std::vector<int32_t>(layout.cu_seqlens().begin(), layout.cu_seqlens().end()),
            (std::vector<int32_t>{0, 3, 7}));
  EXPECT_EQ(layout.padded_tokens(), 8u);
  EXPECT_EQ(layout.max_seqlen(), 4u);
  ASSERT_EQ(layout.columns_size(), 3);
  EXPECT_EQ(layout.columns(0).padding_bytes(), 4u);
  EXPECT_EQ(layout.columns(2).sequence_bytes(0), 4u);
  EXPECT_EQ(layout.columns(2).sequence_bytes(1), 12u);
  const std::string tokens = Bytes<uint32_t>({201, 202, 203, 101, 102, 103, 104, 0});
  const std::string mask = Bytes<uint8_t>({0, 0, 1, 0, 1, 1, 1, 0});
  const std::string entropy = Bytes<float>({2.0f, 0.5f, 0.25f, 1.0f});
  EXPECT_EQ(frame.data(), tokens + mask + entropy);
}

TEST(MicroBatchFormat, OfAShareHoldsTheRowsThatItsSpansName) {
  v1::FetchFrame frame;
  ASSERT_TRUE(frame.ParseFromString(Golden("micro-batch-2")));
  const v1::MicroBatchLayout& layout = frame.layout();
  EXPECT_EQ(std::vector<int32_t>(layout.cu_seqlens().begin(), layout.cu_seqlens().end()),
            (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(layout.padded_tokens(), 4u);
  EXPECT_EQ(layout.whole_padded_tokens(), 8u);
  EXPECT_EQ(layout.whole_cu_seqlens(2), 7);
  ASSERT_EQ(layout.spans_size(), 2);
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(layout.spans(s).sequence(), static_cast<uint32_t>(s));
    EXPECT_EQ(layout.spans(s).begin(), 1u);
    EXPECT_EQ(layout.spans(s).end(), 3u);
  }
  const std::string tokens = Bytes<int64_t>({202, 203, 102, 103});
  const std::string mask = Bytes<uint8_t>({1, 0, 1, 1});
  const std::string entropy = Bytes<float>({2.0f, 0.5f, 0.25f});
  EXPECT_EQ(frame.data(), tokens + mask + entropy);
}

}  // namespace
}  // namespace forebay::server
