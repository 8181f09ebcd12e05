#include "bench/load/daemon.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace forebay::bench {
namespace {

constexpr uint64_t kTasksPerCall = 16'384;
constexpr uint64_t kLeaseMs = 600'000;

std::shared_ptr<grpc::Channel> Connect(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

absl::Status FromGrpc(const std::string& method, const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(method, ": ", status.error_message()));
}

grpc::ByteBuffer Encode(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

Daemon::Daemon(const std::string& target) : stub_(Connect(target)) {}

absl::Status Daemon::Call(const std::string& method, const google::protobuf::MessageLite& request,
                          google::protobuf::MessageLite* response) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  auto call = stub_.PrepareUnaryCall(&context, method, Encode(request), &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpc(method, status);
  grpc::Slice bytes;
  if (!answer.DumpToSingleSlice(&bytes).ok() ||
      !response->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
    return absl::InternalError(
        absl::StrCat(method, ": the answer is no ", response->GetTypeName()));
  }
  return absl::OkStatus();
}

absl::Status Daemon::PutTasks(const std::string& source, uint32_t group_size, uint64_t tasks,
                              uint32_t task_bytes) {
  v1::PutSourceRequest put;
  v1::SourceSettings* settings = put.mutable_settings();
  settings->set_name(source);
  settings->set_group_size(group_size);
  settings->set_order(v1::ORDER_STATIC);
  settings->set_max_lag(1'000'000);
  settings->mutable_lease()->set_min_ms(kLeaseMs);
  settings->mutable_lease()->set_max_ms(kLeaseMs);
  settings->mutable_lease()->set_max_failures(1'000'000);
  v1::PutSourceResponse put_answer;
  if (absl::Status s = Call("/forebay.v1.AdminService/PutSource", put, &put_answer); !s.ok()) {
    return s;
  }
  v1::ListSourcesResponse list;
  if (absl::Status s =
          Call("/forebay.v1.AdminService/ListSources", v1::ListSourcesRequest(), &list);
      !s.ok()) {
    return s;
  }
  uint64_t have = 0;
  for (const v1::SourceState& state : list.sources()) {
    if (state.settings().name() == source) have = state.tasks();
  }
  for (; have < tasks; have = std::min(have + kTasksPerCall, tasks)) {
    const uint64_t end = std::min(have + kTasksPerCall, tasks);
    if (absl::Status s = AddTasks(source, have, end, task_bytes); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Daemon::AddTasks(const std::string& source, uint64_t first, uint64_t end,
                              uint32_t task_bytes) {
  v1::AddTasksRequest request;
  request.set_source(source);
  for (uint64_t i = first; i < end; ++i) {
    v1::Task* task = request.add_tasks();
    task->set_external_id(absl::StrCat("task-", i));
    task->set_payload(std::string(task_bytes, 'x'));
  }
  v1::AddTasksResponse response;
  return Call("/forebay.v1.AdminService/AddTasks", request, &response);
}

absl::StatusOr<Daemon::Session> Daemon::OpenSession() {
  std::random_device random;
  Session session;
  session.id = (uint64_t{random()} << 32 | random()) | 1;
  v1::OpenSessionRequest request;
  request.set_session(session.id);
  request.set_actor("buffer-bench");
  request.set_client("buffer-bench");
  if (absl::Status s = Call("/forebay.v1.ActorService/OpenSession", request, &session.opened);
      !s.ok()) {
    return s;
  }
  return session;
}

absl::Status Daemon::Release(uint64_t session, const std::vector<Lease>& leases) {
  v1::ReleaseRequest request;
  request.set_session(session);
  for (const Lease& lease : leases) {
    request.add_attempt_ids(lease.attempt_id);
    request.add_tokens(lease.token);
  }
  v1::ReleaseResponse response;
  return Call("/forebay.v1.ActorService/Release", request, &response);
}

}  // namespace forebay::bench
