#include "bench/load/load_client.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bench/load/cpu.h"

namespace forebay::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Lane;

// What a completion-queue tag points to.
struct Event {
  Lane* lane;
  size_t pipe;
  absl::Status (Lane::*handle)(size_t pipe, bool ok);
};

// One conversation: its open streams and calls. Lives until the queue has returned all its
// operations.
class Lane {
 public:
  Lane(std::unique_ptr<Conversation> conversation, grpc::GenericStub* stub,
       grpc::CompletionQueue* queue)
      : conversation_(std::move(conversation)), stub_(stub), queue_(queue) {
    for (const Pipe& pipe : conversation_->Pipes()) {
      const size_t i = pipes_.size();
      auto state = std::make_unique<PipeState>();
      state->spec = pipe;
      state->started = {this, i, &Lane::OnStarted};
      state->written = {this, i, &Lane::OnWritten};
      state->read = {this, i, &Lane::OnRead};
      state->finished = {this, i, &Lane::OnUnaryFinished};
      pipes_.push_back(std::move(state));
    }
  }

  void Start() {
    for (size_t i = 0; i < pipes_.size(); ++i) {
      PipeState& pipe = *pipes_[i];
      if (!pipe.spec.stream) continue;
      pipe.context = std::make_unique<grpc::ClientContext>();
      pipe.stream = stub_->PrepareCall(pipe.context.get(), pipe.spec.method, queue_);
      pipe.writing = true;
      pipe.stream->StartCall(&pipe.started);
    }
    SpeakAll();
  }

  void Cancel() {
    cancelled_ = true;
    for (auto& pipe : pipes_) {
      if (pipe->context != nullptr) pipe->context->TryCancel();
    }
  }

  void Stop() { conversation_->Stop(); }
  bool Stopped() const { return conversation_->Stopped(); }
  const Progress& progress() const { return conversation_->progress(); }
  std::string Script() const { return conversation_->Script(); }

 private:
  struct PipeState {
    Pipe spec;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
    grpc::ByteBuffer out, in;
    grpc::Status status;
    bool writing = false;  // a stream's write, or a unary call, is in flight
    Event started, written, read, finished;
  };

  absl::Status OnStarted(size_t i, bool ok) {
    if (!ok) return Lost(i, "did not start");
    pipes_[i]->writing = false;
    pipes_[i]->stream->Read(&pipes_[i]->in, &pipes_[i]->read);
    Speak(i);
    return absl::OkStatus();
  }

  absl::Status OnWritten(size_t i, bool ok) {
    if (!ok) return Lost(i, "broke while writing");
    pipes_[i]->writing = false;
    Speak(i);
    return absl::OkStatus();
  }

  absl::Status OnRead(size_t i, bool ok) {
    if (!ok) return Lost(i, "ended");
    PipeState& pipe = *pipes_[i];
    if (absl::Status status = conversation_->Take(i, &pipe.in); !status.ok()) return status;
    pipe.in.Clear();
    pipe.stream->Read(&pipe.in, &pipe.read);
    SpeakAll();
    return absl::OkStatus();
  }

  absl::Status OnUnaryFinished(size_t i, bool /*ok*/) {
    PipeState& pipe = *pipes_[i];
    pipe.writing = false;
    if (!pipe.status.ok()) return Lost(i, pipe.status.error_message());
    if (absl::Status status = conversation_->Take(i, &pipe.in); !status.ok()) return status;
    pipe.in.Clear();
    SpeakAll();
    return absl::OkStatus();
  }

  void SpeakAll() {
    for (size_t i = 0; i < pipes_.size(); ++i) Speak(i);
  }

  void Speak(size_t i) {
    PipeState& pipe = *pipes_[i];
    if (pipe.writing || cancelled_ || !conversation_->Next(i, &pipe.out)) return;
    pipe.writing = true;
    if (pipe.spec.stream) {
      pipe.stream->Write(pipe.out, &pipe.written);
      return;
    }
    pipe.context = std::make_unique<grpc::ClientContext>();
    pipe.call = stub_->PrepareUnaryCall(pipe.context.get(), pipe.spec.method, pipe.out, queue_);
    pipe.call->StartCall();
    pipe.call->Finish(&pipe.in, &pipe.status, &pipe.finished);
  }

  absl::Status Lost(size_t i, const std::string& why) const {
    return absl::UnavailableError(absl::StrCat(pipes_[i]->spec.method, ": ", why));
  }

  std::unique_ptr<Conversation> conversation_;
  grpc::GenericStub* stub_;
  grpc::CompletionQueue* queue_;
  std::vector<std::unique_ptr<PipeState>> pipes_;
  bool cancelled_ = false;
};

Progress Sum(const std::vector<std::unique_ptr<Lane>>& lanes) {
  Progress sum;
  for (const auto& lane : lanes) {
    sum.operations += lane->progress().operations;
    sum.payload_bytes += lane->progress().payload_bytes;
  }
  return sum;
}

struct Sample {
  Clock::time_point time;
  Progress progress;
  double client_cpu = 0, server_cpu = 0;
  std::vector<double> beside_cpu;
};

Sample Take(const LoadOptions& options, const std::vector<std::unique_ptr<Lane>>& lanes) {
  Sample sample{Clock::now(),
                Sum(lanes),
                OwnCpuSeconds(),
                options.server_pid == 0 ? 0 : ProcessCpuSeconds(options.server_pid),
                {}};
  for (const pid_t pid : options.beside_pids) sample.beside_cpu.push_back(ProcessCpuSeconds(pid));
  return sample;
}

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Handles events until `until` or until `done` says so; an error or a stall ends it early.
absl::Status Poll(grpc::CompletionQueue* queue, Clock::time_point until, double stall_seconds,
                  const std::function<bool()>& done) {
  for (auto now = Clock::now(); now < until && !done(); now = Clock::now()) {
    const bool may_stall = now + Duration(stall_seconds) < until;
    const auto wait = may_stall ? Duration(stall_seconds) : until - now;
    void* tag = nullptr;
    bool ok = false;
    switch (queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + wait)) {
      case grpc::CompletionQueue::GOT_EVENT: {
        auto* event = static_cast<Event*>(tag);
        if (absl::Status s = (event->lane->*event->handle)(event->pipe, ok); !s.ok()) return s;
        break;
      }
      case grpc::CompletionQueue::TIMEOUT:
        if (may_stall) return absl::DeadlineExceededError("nothing moved");
        break;
      case grpc::CompletionQueue::SHUTDOWN:
        return absl::InternalError("the queue was shut down");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadResult> Measure(const LoadOptions& options, grpc::CompletionQueue* queue,
                                   const std::vector<std::unique_ptr<Lane>>& lanes) {
  const auto done = [&] {
    return options.operations > 0 && Sum(lanes).operations >= options.operations;
  };
  const auto warm = Clock::now() + Duration(options.warm_up_seconds);
  if (absl::Status s = Poll(queue, warm, options.stall_seconds, done); !s.ok()) return s;
  const Sample before = Take(options, lanes);
  const auto end = before.time + Duration(options.seconds);
  if (absl::Status s = Poll(queue, end, options.stall_seconds, done); !s.ok()) return s;
  const Sample after = Take(options, lanes);
  if (options.operations > after.progress.operations) {
    return absl::DeadlineExceededError(absl::StrCat(after.progress.operations, " operations of ",
                                                    options.operations, " done in the time"));
  }
  LoadResult result;
  result.operations = after.progress.operations - before.progress.operations;
  result.payload_bytes = after.progress.payload_bytes - before.progress.payload_bytes;
  result.seconds = std::chrono::duration<double>(after.time - before.time).count();
  result.client_cpu_seconds = after.client_cpu - before.client_cpu;
  result.server_cpu_seconds = after.server_cpu - before.server_cpu;
  for (size_t i = 0; i < after.beside_cpu.size(); ++i) {
    result.beside_cpu_seconds.push_back(after.beside_cpu[i] - before.beside_cpu[i]);
  }
  result.client_peak_rss_bytes = PeakRssBytes(getpid());
  result.server_peak_rss_bytes = options.server_pid == 0 ? 0 : PeakRssBytes(options.server_pid);
  if (!lanes.empty()) result.script = lanes[0]->Script();
  return result;
}

// Lets the conversations end what they began, so that a server is left as it was found.
absl::Status Stop(const LoadOptions& options, grpc::CompletionQueue* queue,
                  const std::vector<std::unique_ptr<Lane>>& lanes) {
  for (const auto& lane : lanes) lane->Stop();
  const auto stopped = [&] {
    return std::all_of(lanes.begin(), lanes.end(), [](const auto& l) { return l->Stopped(); });
  };
  return Poll(queue, Clock::now() + Duration(options.stall_seconds), options.stall_seconds,
              stopped);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const LoadOptions& options) {
  grpc::ChannelArguments arguments;
  // Otherwise channels to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  if (options.minimal_stack) arguments.SetInt(GRPC_ARG_MINIMAL_STACK, 1);
  for (const auto& [name, value] : options.arguments) arguments.SetInt(name, value);
  auto channel =
      grpc::CreateCustomChannel(options.target, grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(
                            std::chrono::duration<double>(options.connect_seconds));
  if (!channel->WaitForConnected(deadline)) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", options.target));
  }
  return channel;
}

}  // namespace

absl::StatusOr<LoadResult> RunLoad(
    const LoadOptions& options,
    const std::function<std::unique_ptr<Conversation>(int lane)>& make_conversation) {
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < options.channels; ++i) {
    auto channel = Connect(options);
    if (!channel.ok()) return channel.status();
    stubs.push_back(std::make_unique<grpc::GenericStub>(*channel));
  }
  SharedPayload(0);  // made now, not within the measured time
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int i = 0; i < options.channels * options.lanes; ++i) {
    lanes.push_back(
        std::make_unique<Lane>(make_conversation(i), stubs[i % stubs.size()].get(), &queue));
  }
  for (auto& lane : lanes) lane->Start();
  auto result = Measure(options, &queue, lanes);
  if (result.ok()) {
    if (absl::Status s = Stop(options, &queue, lanes); !s.ok()) result = s;
  }
  for (auto& lane : lanes) lane->Cancel();
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return result;
}

std::string ToJson(const std::string& name, const LoadOptions& options, const LoadResult& result) {
  const double operations = std::max<double>(1, result.operations);
  const double gigabytes = std::max(1e-9, result.payload_bytes * 1e-9);
  const std::string beside =
      absl::StrJoin(result.beside_cpu_seconds, ", ", [&](std::string* out, double seconds) {
        absl::StrAppendFormat(out, "%.4f", seconds / operations * 1e6);
      });
  return absl::StrFormat(
      "{\"name\": \"%s\", \"script\": \"%s\", \"channels\": %d, \"lanes\": %d, "
      "\"operations\": %d, \"seconds\": %.4f, \"ops_per_s\": %.1f, \"gb_per_s\": %.4f, "
      "\"client_cpu_us_per_op\": %.4f, \"server_cpu_us_per_op\": %.4f, "
      "\"beside_cpu_us_per_op\": [%s], "
      "\"client_cpu_s_per_gb\": %.4f, \"server_cpu_s_per_gb\": %.4f, "
      "\"client_peak_rss_bytes\": %d, \"server_peak_rss_bytes\": %d}",
      name, result.script, options.channels, options.lanes, result.operations, result.seconds,
      result.operations / result.seconds, result.payload_bytes * 1e-9 / result.seconds,
      result.client_cpu_seconds / operations * 1e6, result.server_cpu_seconds / operations * 1e6,
      beside, result.client_cpu_seconds / gigabytes, result.server_cpu_seconds / gigabytes,
      result.client_peak_rss_bytes, result.server_peak_rss_bytes);
}

}  // namespace forebay::bench
