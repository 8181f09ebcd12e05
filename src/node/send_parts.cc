#include "node/send_parts.h"

#include <utility>

#include "base/sync.h"

namespace forebay::node {

void SendParts(PeerTransport* peers, cluster::NodeId to, std::string_view machine, std::string head,
               std::shared_ptr<codec::Parts> parts, const storage::LogPost& post,
               absl::AnyInvocable<void()> over) {
  auto next = [parts, post]() -> std::string {
    std::string bytes;
    while (bytes.empty()) {
      codec::Piece piece;
      Notification made;
      post([&] {
        piece = parts->Next();
        made.Notify();
      });
      made.Wait();
      if (!piece) break;
      piece(&bytes);
    }
    return bytes;
  };
  // What the parts hold of the state is let go within its loop.
  auto done = [parts, post, over = std::move(over)](const absl::Status&) mutable {
    post([parts = std::exchange(parts, nullptr), over = std::move(over)]() mutable { over(); });
  };
  peers->SendSnapshot(to, machine, std::move(head), std::move(next), std::move(done));
}

}  // namespace forebay::node
