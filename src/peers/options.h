// What a transport between peers is told, and what it counts.
//
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cluster/configuration.h"

namespace forebay::peers {

// PEM texts. Peers are spoken to over TLS if `tls` or one of the texts is set.
struct PeerTls {
  bool tls = false;
  std::string root;  // who signs the peers' certificates; empty: whom the system trusts
  std::string cert;  // this node's chain and key, for peers that ask for them (tls.client_ca)
  std::string key;
};

struct PeerTransportOptions {
  std::string cluster;   // the same on all nodes; not empty
  cluster::NodeId self;  // not 0
  PeerTls tls;
  std::string token;  // of the role "peer"; empty: none is sent
  // Of messages that wait for a peer, with what is on its way into the connection; beyond it
  // messages are dropped. One always fits.
  size_t queue_bytes_max = size_t{32} << 20;
  // A connection that is silent is pinged after `keepalive`, and dropped when nothing has come for
  // `keepalive_timeout` after that.
  absl::Duration keepalive = absl::Seconds(1);
  absl::Duration keepalive_timeout = absl::Seconds(1);
  absl::Duration connect_timeout = absl::Seconds(2);
  // Between attempts to reach a peer; doubled from one to the next.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Milliseconds(500);
  // A stream whose peer takes nothing for so long is given up.
  absl::Duration progress_timeout = absl::Seconds(10);
  // How long a peer that has all of a snapshot may take to say so: its disk has to have it.
  absl::Duration answer_timeout = absl::Seconds(120);
  // False: the transport is given the queue of a server and uses the thread that polls that. gRPC's
  // polling threads take turns at polling for all of a process, and each turn wakes another one:
  // with a thread of the transport's own small messages cost twice as much, the server's too.
  bool own_thread = true;
  // Snapshots that are sent at once; more are refused. Each has a thread and a connection.
  size_t snapshots_max = 16;
  // Told why a peer was lost or refused this node: at once for each kind of reason, and then at
  // most once a minute. On threads of the transport; must not block. May be unset.
  std::function<void(cluster::NodeId peer, const absl::Status& why)> on_trouble;
};

// Since the start, but for what says "now".
struct PeerStats {
  std::string address;
  // To the peer.
  bool connected = false;  // now: it has welcomed this node on the stream that is open
  uint64_t sent_messages = 0;
  uint64_t sent_bytes = 0;
  uint64_t dropped_messages = 0;
  uint64_t dropped_bytes = 0;
  uint64_t queued_bytes = 0;  // now
  uint64_t connects = 0;      // how often the peer has welcomed this node
  uint64_t failures = 0;      // streams that broke or did not come about
  uint64_t snapshots_sent = 0;
  uint64_t snapshots_failed = 0;
  uint64_t snapshot_bytes_sent = 0;
  // From the peer.
  uint64_t received_messages = 0;
  uint64_t received_bytes = 0;
  uint64_t corrupt_frames = 0;
  uint64_t snapshots_received = 0;
  uint64_t snapshots_refused = 0;  // not wanted, broken off, or not taken
  uint64_t snapshot_bytes_received = 0;
  absl::Time last_heard = absl::InfinitePast();  // when a message or a piece of a snapshot came
};
using PeerStatsMap = std::map<cluster::NodeId, PeerStats>;

}  // namespace forebay::peers
