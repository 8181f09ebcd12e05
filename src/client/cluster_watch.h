// The stream of ClusterService.Watch on a channel, with a limit to the silence between messages.
//
// One thread; the context may be cancelled from any, and outlives the object.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "forebay/v1/cluster.pb.h"

namespace forebay::client {

class ClusterWatch {
 public:
  ClusterWatch(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context);
  // Cancels what still runs, and waits for its end.
  ~ClusterWatch();

  // Ok with a message; else why there is none, and then there will be none any more:
  // DEADLINE_EXCEEDED after the silence, or what the stream ended with.
  absl::Status Next(absl::Duration silence, v1::ClusterNews* news);

 private:
  struct Stream;
  absl::Status End();

  const std::unique_ptr<Stream> stream_;
};

}  // namespace forebay::client
