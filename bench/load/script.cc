#include "bench/load/script.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace forebay::bench {
namespace {

// Below this a copy is cheaper than a second slice.
constexpr uint32_t kCopyBytes = 1024;

// "A" or "A<separator>B"; B is 1 or more.
bool ParseSizes(absl::string_view text, char separator, uint32_t* first, uint32_t* second) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(separator, 1));
  if (!absl::SimpleAtoi(parts.first, first)) return false;
  if (text.find(separator) == absl::string_view::npos) return true;
  return absl::SimpleAtoi(parts.second, second) && *second > 0;
}

absl::StatusOr<ScriptStep> ParseStep(absl::string_view text) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("step \"", text, "\": ", why));
  };
  const std::pair<absl::string_view, absl::string_view> method =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  ScriptStep step;
  if (method.first == "unary") {
    step.method = kUnaryMethod;
    step.stream = false;
  } else if (method.first == "stream") {
    step.method = kStreamMethod;
  } else if (method.first == "store") {
    step.method = kStoreMethod;
  } else {
    return bad("the method is unary, stream or store");
  }
  const std::pair<absl::string_view, absl::string_view> sizes =
      absl::StrSplit(method.second, absl::MaxSplits('>', 1));
  if (!ParseSizes(sizes.first, 'x', &step.request_bytes, &step.requests) ||
      !ParseSizes(sizes.second, '/', &step.answer_bytes, &step.answer_frame_bytes)) {
    return bad("sizes are BYTES[xCOUNT]>ANSWER[/FRAME]");
  }
  if (step.answer_bytes == 0) return bad("a step without an answer never ends");
  if (!step.stream && (step.requests > 1 || step.answer_frame_bytes > 0)) {
    return bad("a unary call is one message each way");
  }
  step.request_bytes = std::max<uint32_t>(step.request_bytes, sizeof(LimitHeader));
  return step;
}

}  // namespace

absl::StatusOr<std::vector<ScriptStep>> ParseScript(std::string_view text) {
  std::vector<ScriptStep> steps;
  const absl::string_view view(text.data(), text.size());
  for (absl::string_view part : absl::StrSplit(view, ' ', absl::SkipEmpty())) {
    auto step = ParseStep(part);
    if (!step.ok()) return step.status();
    steps.push_back(*std::move(step));
  }
  if (steps.empty()) return absl::InvalidArgumentError("the script is empty");
  return steps;
}

std::string FormatScript(const std::vector<ScriptStep>& steps) {
  std::string text;
  for (const ScriptStep& step : steps) {
    const char* method = step.method == kUnaryMethod    ? "unary"
                         : step.method == kStreamMethod ? "stream"
                                                        : "store";
    absl::StrAppend(&text, text.empty() ? "" : " ", method, ":", step.request_bytes);
    if (step.requests > 1) absl::StrAppend(&text, "x", step.requests);
    absl::StrAppend(&text, ">", step.answer_bytes);
    if (step.answer_frame_bytes > 0) absl::StrAppend(&text, "/", step.answer_frame_bytes);
  }
  return text;
}

ScriptConversation::ScriptConversation(ScriptOptions options)
    : options_(std::move(options)), pipes_(options_.steps.size()) {
  for (const ScriptStep& step : options_.steps) {
    payload_bytes_per_round_ +=
        uint64_t{step.requests} * std::max(step.request_bytes, step.answer_bytes);
  }
  for (uint32_t i = 0; i < options_.window; ++i) Begin(0);
}

std::vector<Pipe> ScriptConversation::Pipes() const {
  std::vector<Pipe> pipes;
  for (const ScriptStep& step : options_.steps) pipes.push_back({step.method, step.stream});
  return pipes;
}

void ScriptConversation::Begin(size_t step) {
  pipes_[step].to_send += options_.steps[step].requests;
  ++pipes_[step].steps_open;
}

bool ScriptConversation::Next(size_t pipe, grpc::ByteBuffer* message) {
  if (pipes_[pipe].to_send == 0) return false;
  --pipes_[pipe].to_send;
  const ScriptStep& step = options_.steps[pipe];
  const LimitHeader header{step.answer_bytes, step.answer_frame_bytes};
  const uint32_t rest = step.request_bytes - sizeof(header);
  if (step.request_bytes <= kCopyBytes) {
    char bytes[kCopyBytes];
    std::memcpy(bytes, &header, sizeof(header));
    std::memcpy(bytes + sizeof(header), SharedPayload(rest), rest);
    grpc::Slice slice(bytes, step.request_bytes);
    *message = grpc::ByteBuffer(&slice, 1);
    return true;
  }
  grpc::Slice slices[] = {grpc::Slice(&header, sizeof(header)),
                          grpc::Slice(SharedPayload(rest), rest, grpc::Slice::STATIC_SLICE)};
  *message = grpc::ByteBuffer(slices, 2);
  return true;
}

std::string ScriptConversation::Script() const { return FormatScript(options_.steps); }

absl::Status ScriptConversation::Take(size_t pipe_index, grpc::ByteBuffer* answer) {
  PipeState& pipe = pipes_[pipe_index];
  pipe.received_bytes += answer->Length();
  const ScriptStep& step = options_.steps[pipe_index];
  const uint64_t expected = uint64_t{step.requests} * step.answer_bytes;
  if (pipe.received_bytes < expected) return absl::OkStatus();
  if (pipe.received_bytes > expected || pipe.steps_open == 0) {
    return absl::InternalError(absl::StrCat("answer of ", pipe.received_bytes, " bytes on pipe ",
                                            pipe_index, ", asked for ", expected));
  }
  pipe.received_bytes = 0;
  --pipe.steps_open;
  if (pipe_index + 1 < pipes_.size()) {
    Begin(pipe_index + 1);
    return absl::OkStatus();
  }
  progress_.operations += options_.operations_per_round;
  progress_.payload_bytes += payload_bytes_per_round_;
  Begin(0);
  return absl::OkStatus();
}

}  // namespace forebay::bench
