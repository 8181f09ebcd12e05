// Follows the leader of a cluster: which channel calls take, and a thread that watches what another
// node says of the leader, for a frozen one gives no error.
//
// Thread-safe. The thread begins with the first call; it ends when the daemon says that it is
// alone, and then nothing is left of all this but a look at the channel.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/channel.h"
#include "client/route.h"
#include "forebay/call.h"
#include "forebay/client.h"

namespace forebay::client {

class Cluster {
 public:
  Cluster(const ConnectOptions& options, const std::vector<std::string>& seeds);
  // No call runs any more.
  ~Cluster();

  // What a call of any service takes now.
  std::shared_ptr<Channel> Current();
  // For calls that every node serves: the leader first, then each in turn.
  std::shared_ptr<Channel> Any(int attempt);

  // Whether there is more than one node to ask.
  bool several() const;
  // Whether there is another place for a call that is not to be repeated where it failed: one that
  // leads, or while none is known, one that was not asked yet.
  bool Elsewhere(const absl::Status& failure, int attempt) const;
  // A call on the channel was refused with UNAVAILABLE, or did not get through. The status comes
  // back with a note for Pause: what was known when it failed.
  absl::Status Failed(const Channel& channel, absl::Status status, const std::string& leader,
                      uint64_t epoch);
  void Answered(const Channel& channel);
  // Before a failed call is repeated: waits for `duration`, but no longer than until there is a
  // better place for it. False if it was cancelled before.
  bool Pause(const absl::Status& failure, absl::Duration duration, Cancellation* cancellation);
  // What a call ends with: without the notes, and with whom it has asked if there are several.
  absl::Status Ended(absl::Status status) const;

 private:
  void Loop();
  // The watch of one node: ok if another is to be watched, or none any more; else why it failed.
  absl::Status Follow(Channel* channel, grpc::ClientContext* context);
  // False: the watch is to end.
  absl::StatusOr<bool> TakeNews(const std::string& from, const v1::ClusterNews& news);
  // Notes how a watch ended, and waits for the turn of the next; false at the end of all.
  bool AwaitNext(const std::string& address, absl::Status ended);

  // Under the lock:
  std::shared_ptr<Channel> ChannelTo(const std::string& address);
  std::shared_ptr<Channel> ChannelToWatch();
  void Begin();
  // After the route has changed: wakes who waits, and gives what is to be left, outside the lock.
  std::vector<std::shared_ptr<Channel>> Moved(uint64_t revision_before);

  const ConnectOptions options_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Route route_;
  std::map<std::string, std::shared_ptr<Channel>> channels_;
  std::shared_ptr<Channel> watched_;  // that of the watch, if no calls take it
  bool begun_ = false;
  bool closing_ = false;
  grpc::ClientContext* watch_ = nullptr;
  absl::Time failing_since_ = absl::InfiniteFuture();  // of the leader, to calls
  absl::Time forgiven_ = absl::InfinitePast();
  int failures_ = 0;  // watches in a row, on any node

  std::thread thread_;
};

}  // namespace forebay::client
