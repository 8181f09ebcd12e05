// One snapshot on its way to a peer: a thread that asks for piece after piece and writes each when
// the peer has room for it, on a connection of its own.
//
// Thread-safe. Destroying it waits for its thread, so it is cancelled first, or has ended.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "peers/message_link.h"
#include "peers/options.h"

namespace forebay::peers {

// As in node::PeerTransport::SendSnapshot.
struct OutgoingSnapshot {
  cluster::NodeId to;
  std::string address;
  std::string machine;
  std::string head;
  std::function<std::string()> next;
  absl::AnyInvocable<void(absl::Status)> done;
};

class SnapshotSend {
 public:
  // `options` outlives it. What was sent is counted in `link`.
  SnapshotSend(const PeerTransportOptions* options, std::shared_ptr<MessageLink> link,
               OutgoingSnapshot snapshot);
  ~SnapshotSend();

  // Done comes soon, with Cancelled.
  void Cancel();
  // Gives up on a peer that takes nothing.
  void Tick(Deadline now);
  // Done was called, and the thread does nothing more.
  bool ended() const { return ended_; }

 private:
  using ClientStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  void Run();
  absl::Status Transfer();
  bool WritePieces(ClientStream* stream);
  bool WriteChunks(std::string_view piece, ClientStream* stream);
  // Calls `f`, which waits for the peer, and for so long at most.
  template <class F>
  auto Waiting(absl::Duration limit, F f);
  absl::Status GivenUp();

  const PeerTransportOptions* const options_;
  const std::shared_ptr<MessageLink> link_;
  OutgoingSnapshot snapshot_;
  grpc::ClientContext context_;
  uint64_t bytes_ = 0;  // of chunks that were written
  uint32_t crc32c_ = 0;

  Mutex mutex_;
  absl::Status given_up_ ABSL_GUARDED_BY(mutex_);  // why, if it is
  Deadline give_up_at_ ABSL_GUARDED_BY(mutex_) = Deadline::max();
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace forebay::peers
