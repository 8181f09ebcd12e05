#include "bench/load/fetch.h"

#include <absl/strings/str_cat.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "bench/load/actor.h"
#include "bench/load/load_client.h"
#include "codec/wire.h"

namespace forebay::bench {
namespace {

constexpr uint32_t kGroupSize = 16;
constexpr char kSource[] = "fetch";
constexpr double kPushSeconds = 60;  // at most

// What a frame says beside its data, read without touching the data.
struct FrameEnd {
  uint64_t data_bytes = 0;
  bool last = false;
  int32_t error_code = 0;
};

bool ReadFrame(grpc::ByteBuffer* message, FrameEnd* frame) {
  grpc::ProtoBufferReader reader(message);
  google::protobuf::io::CodedInputStream in(&reader);
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t value = 0;
    uint32_t size = 0;
    switch (tag & 7) {
      case 0:
        if (!in.ReadVarint64(&value)) return false;
        if (tag == codec::VarintTag(v1::FetchFrame::kLastFieldNumber)) frame->last = value != 0;
        if (tag == codec::VarintTag(v1::FetchFrame::kErrorCodeFieldNumber)) {
          frame->error_code = static_cast<int32_t>(value);
        }
        break;
      case 2:
        if (!in.ReadVarint32(&size) || !in.Skip(static_cast<int>(size))) return false;
        if (tag == codec::BytesTag(v1::FetchFrame::kDataFieldNumber)) frame->data_bytes += size;
        break;
      default:
        return false;
    }
  }
  return in.ConsumedEntireMessage();
}

// Pushes rollouts of `tokens` tokens until so many groups are complete. Two rewards in turn, so
// that none is filtered.
absl::Status PushGroups(Daemon* daemon, const std::string& target, uint32_t tokens, uint32_t groups,
                        const std::vector<ColumnShape>& columns) {
  if (absl::Status s = daemon->PutTasks(kSource, kGroupSize, groups, 64); !s.ok()) return s;
  ActorLoad load;
  load.batch = kGroupSize;
  load.window = kGroupSize;
  const char* payload = SharedPayload(size_t{tokens} * BytesPerToken(columns));
  for (double reward : {0.0, 1.0}) load.rollouts.emplace_back(tokens, columns, payload, reward);
  auto session = daemon->OpenSession();
  if (!session.ok()) return session.status();
  LoadOptions options;
  options.target = target;
  options.operations = uint64_t{kGroupSize} * groups;
  options.seconds = kPushSeconds;
  return RunLoad(options, [&](int) { return std::make_unique<ActorConversation>(&load, *session); })
      .status();
}

absl::StatusOr<v1::AttachTrainerResponse> Attach(Daemon* daemon) {
  std::random_device random;
  v1::AttachTrainerRequest request;
  request.set_trainer("buffer-bench");
  request.set_process((uint64_t{random()} << 32 | random()) | 1);
  request.mutable_mesh()->set_dp(1);
  v1::AttachTrainerResponse response;
  absl::Status status =
      daemon->Call("/forebay.v1.TrainerService/AttachTrainer", request, &response);
  if (!status.ok()) return status;
  return response;
}

}  // namespace

absl::StatusOr<FetchLoad> PrepareStep(Daemon* daemon, const std::string& target, uint32_t tokens,
                                      uint32_t micro_batches,
                                      const std::vector<ColumnShape>& columns) {
  auto attached = Attach(daemon);
  if (!attached.ok()) return attached.status();
  if (attached->open_steps_size() == 0) {
    absl::Status pushed = PushGroups(daemon, target, tokens / kGroupSize, micro_batches, columns);
    if (!pushed.ok()) return pushed;
  }
  v1::OpenStepRequest open;
  open.set_generation(attached->generation());
  open.set_step(attached->next_step());
  open.mutable_spec()->set_groups(micro_batches);
  open.mutable_spec()->mutable_mesh()->set_dp(1);
  open.mutable_spec()->set_token_budget(tokens);
  open.set_wait_ms(30'000);
  v1::OpenStepResponse opened;
  absl::Status status = daemon->Call("/forebay.v1.TrainerService/OpenStep", open, &opened);
  if (!status.ok()) return status;
  if (opened.state() != v1::STEP_STATE_SEALED) {
    return absl::UnavailableError(absl::StrCat("the step is not sealed: ", opened.waiting()));
  }
  FetchLoad load;
  load.micro_batches = micro_batches;
  load.request.set_generation(attached->generation());
  load.request.set_step(attached->next_step());
  load.request.set_revision(opened.revision());
  for (const ColumnShape& column : columns) load.request.add_columns(column.name);
  return load;
}

void TakeStage(uint32_t layers, FetchLoad* load) {
  v1::ColumnSlice* const routes = load->request.add_slices();
  routes->set_column("routed_experts");
  v1::IndexRange* const range = routes->add_dimensions()->add_ranges();
  range->set_begin(layers);
  range->set_end(2 * layers);
  v1::ColumnSlice* const logprobs = load->request.add_slices();
  logprobs->set_column("logprobs");
  logprobs->set_dtype(v1::DTYPE_BF16);
}

bool FetchConversation::Next(size_t /*pipe*/, grpc::ByteBuffer* message) {
  if (in_flight_ >= load_->window) return false;
  v1::FetchRequest request = load_->request;
  request.set_micro_batch(static_cast<uint32_t>((next_id_ - 1) % load_->micro_batches));
  request.set_id(next_id_++);
  *message = Encode(request);
  request_bytes_ = message->Length();
  ++in_flight_;
  return true;
}

absl::Status FetchConversation::Take(size_t /*pipe*/, grpc::ByteBuffer* answer) {
  FrameEnd frame;
  coming_bytes_ += answer->Length();
  largest_frame_ = std::max<uint64_t>(largest_frame_, answer->Length());
  if (!ReadFrame(answer, &frame)) return absl::InternalError("the answer is no FetchFrame");
  if (frame.error_code != 0) {
    return absl::InternalError(absl::StrCat("Fetch was refused, code ", frame.error_code));
  }
  data_bytes_ += frame.data_bytes;
  if (!frame.last) return absl::OkStatus();
  if (data_bytes_ == 0) return absl::InternalError("the micro-batch is empty");
  --in_flight_;
  answer_bytes_ += std::exchange(coming_bytes_, 0);
  ++progress_.operations;
  progress_.payload_bytes += std::exchange(data_bytes_, 0);
  return absl::OkStatus();
}

std::string FetchConversation::Script() const {
  const uint64_t fetched = std::max<uint64_t>(1, progress_.operations);
  return absl::StrCat("stream:", request_bytes_, ">", answer_bytes_ / fetched, "/", largest_frame_);
}

}  // namespace forebay::bench
