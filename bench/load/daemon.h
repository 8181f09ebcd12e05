// What a load needs set up at the daemon before it runs: a source, tasks, sessions.
//
// Blocking; one thread at a time.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/load/rollout_template.h"
#include "forebay/v1/actor.pb.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::bench {

inline constexpr char kAcquireMethod[] = "/forebay.v1.ActorService/Acquire";
inline constexpr char kPushMethod[] = "/forebay.v1.ActorService/Push";
inline constexpr char kFetchMethod[] = "/forebay.v1.TrainerService/Fetch";

// An error of gRPC's with its code and text.
absl::Status FromGrpc(const std::string& method, const grpc::Status& status);

grpc::ByteBuffer Encode(const google::protobuf::MessageLite& message);

class Daemon {
 public:
  explicit Daemon(const std::string& target);

  // One unary call with a deadline of a minute.
  absl::Status Call(const std::string& method, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite* response);

  // Creates the source, in static order, with tasks of `task_bytes`; adds only those that it lacks.
  // Nothing expires and nothing is stale while a load runs.
  absl::Status PutTasks(const std::string& source, uint32_t group_size, uint64_t tasks,
                        uint32_t task_bytes);

  // A session with a random id.
  struct Session {
    uint64_t id;
    v1::OpenSessionResponse opened;
  };
  absl::StatusOr<Session> OpenSession();

  // Gives leases back.
  absl::Status Release(uint64_t session, const std::vector<Lease>& leases);

 private:
  absl::Status AddTasks(const std::string& source, uint64_t first, uint64_t end,
                        uint32_t task_bytes);

  grpc::GenericStub stub_;
};

}  // namespace forebay::bench
