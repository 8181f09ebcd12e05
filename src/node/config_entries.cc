// The table of the configuration, and how it is shown.
#include "absl/strings/str_cat.h"
#include "node/config.h"

namespace forebay::node {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kTiB = uint64_t{1} << 40;
constexpr uint64_t kHourMs = 3'600'000;
constexpr bool kFixed = false;
constexpr bool kChangeable = true;

using K = ConfigKind;
using C = Config;

std::vector<ConfigEntry> ListenEntries() {
  return {{"listen.grpc", K::kText, &C::listen_grpc, kFixed,
           "Address of the gRPC services; port 0 takes a free one; empty: none."},
          {"listen.unix", K::kText, &C::listen_unix, kFixed,
           "Path of a unix socket for the same services; 'auto': forebay-PORT.sock in "
           "XDG_RUNTIME_DIR, or "
           "PORT.sock in /tmp/forebay-UID; empty: none."},
          {"listen.http", K::kText, &C::listen_http, kFixed,
           "Address of /metrics, /healthz and /readyz; port 0 takes a free one; empty: none."},
          {"listen.allow_remote", K::kSwitch, &C::listen_allow_remote, kFixed,
           "Listen beyond loopback without TLS."},
          {"listen.announce_file", K::kText, &C::listen_announce_file, kFixed,
           "File that gets the addresses as JSON once the daemon serves; empty: none."},
          {"tls.cert", K::kText, &C::tls_cert, kFixed, "PEM chain of the server; empty: no TLS."},
          {"tls.key", K::kText, &C::tls_key, kFixed, "PEM key of tls.cert."},
          {"tls.client_ca", K::kText, &C::tls_client_ca, kFixed,
           "PEM certificate that must have signed the clients' own; empty: clients show none."},
          {"auth.tokens_file", K::kText, &C::auth_tokens_file, kFixed,
           "File of bearer tokens, a line 'ROLE TOKEN' each, ROLE one of actor, trainer, operator, "
           "peer; empty: everybody may do everything."}};
}

std::vector<ConfigEntry> MemoryEntries() {
  return {
      {"shards", K::kCount, &C::shards, kFixed, "Shards that own the tasks between them.", 1, 64},
      {"run.seed", K::kCount, &C::run_seed, kFixed,
       "Seed of the run's random draws and of the assignments' seeds."},
      {"memory.payload_bytes_max", K::kBytes, &C::memory_payload_bytes_max, kChangeable,
       "Memory for the bytes of rollouts; beyond it pushes wait.", kMiB, 64 * kTiB},
      {"memory.completion_reserve_bytes", K::kBytes, &C::memory_completion_reserve_bytes,
       kChangeable,
       "Part of it that only pushes of nearly complete groups may use; 0: a sixteenth.", 0,
       64 * kTiB},
      {"memory.task_bytes_max", K::kBytes, &C::memory_task_bytes_max, kFixed,
       "Memory for the payloads of tasks; beyond it AddTasks is refused.", kMiB, 64 * kTiB},
      {"memory.relief_after_ms", K::kMilliseconds, &C::memory_relief_after_ms, kChangeable,
       "How long a step may lack groups while pushes wait for memory before the reserve is used, "
       "and "
       "then groups are dropped, first those of sources that the step does not take.",
       10, kHourMs}};
}

std::vector<ConfigEntry> StorageEntries() {
  return {
      {"storage.directory", K::kText, &C::storage_directory, kFixed,
       "Directory on a local disk from which the run goes on after any end of the daemon; empty: "
       "the run lives in memory and ends with the daemon."},
      {"storage.segment_directory", K::kText, &C::storage_segment_directory, kFixed,
       "Directory for the bytes of rollouts, which may be on NFS; empty: in storage.directory."},
      {"storage.io",
       K::kChoice,
       &C::storage_io,
       kFixed,
       "How files are written and read: io_uring where the kernel allows it, or threads.",
       0,
       UINT64_MAX,
       {"auto", "threads"}},
      {"storage.snapshot_log_bytes", K::kBytes, &C::storage_snapshot_log_bytes, kFixed,
       "A machine's state is snapshotted when its log has grown by this.", 64 * 1024, kTiB},
      {"storage.cold_columns", K::kText, &C::storage_cold_columns, kFixed,
       "Columns that lie and are cached apart from the rest of their rollouts, since few fetches "
       "ask for them: names with commas between them. They count where no other column follows "
       "them in a rollout."},
      {"storage.segment_bytes", K::kBytes, &C::storage_segment_bytes, kFixed,
       "Size from which a file of rollouts is closed.", kMiB, kGiB},
      {"storage.log_pending_bytes_max", K::kBytes, &C::storage_log_pending_bytes_max, kFixed,
       "Bytes of a log that wait to be synced; beyond it pushes wait, and other calls that change "
       "something are refused.",
       64 * 1024, kTiB},
      {"storage.write_deadline_ms", K::kMilliseconds, &C::storage_write_deadline_ms, kFixed,
       "A write that takes longer is done again in another file, if others go on.", 100, kHourMs},
      {"storage.gc_grace_ms", K::kMilliseconds, &C::storage_gc_grace_ms, kFixed,
       "How long a file of rollouts stays after the last one in it is used up.", 0, kHourMs},
      {"storage.reserve_bytes", K::kBytes, &C::storage_reserve_bytes, kFixed,
       "Room that rollouts leave on their file system, for the logs and for others; at most a "
       "tenth "
       "of it. Below it the store counts as full.",
       0, 1024 * kTiB},
      {"storage.retention_bytes_max", K::kBytes, &C::storage_retention_bytes_max, kChangeable,
       "Bytes of committed steps that stay on disk for a rewind with replay until a checkpoint "
       "covers them; beyond it the oldest step's go, and such a rewind takes fresh rollouts. 0: "
       "they go with the commit, as they always do without storage.directory.",
       0, 1024 * kTiB},
      {"retain.sample", K::kShare, &C::retain_sample, kChangeable,
       "Share of the rollouts of committed steps that stay on disk for people to look at, when all "
       "else of their steps went; with storage.directory alone."},
      {"retain.flagged", K::kSwitch, &C::retain_flagged, kChangeable,
       "Keep so, besides, those that are truncated or aborted."},
      {"retain.bytes_max", K::kBytes, &C::retain_bytes_max, kChangeable,
       "Bytes of rollouts that are kept so; beyond it the oldest go. 0: none are kept. A file of "
       "rollouts stays as long as one in it does, so that they may hold many times as much of the "
       "disk: see checkpoints.md.",
       0, 1024 * kTiB}};
}

std::vector<ConfigEntry> LimitEntries() {
  return {
      {"limits.rollout_bytes_max", K::kBytes, &C::limits_rollout_bytes_max, kFixed,
       "Largest rollout, header and payload.", 1024, 16 * kGiB},
      {"limits.frame_bytes_max", K::kBytes, &C::limits_frame_bytes_max, kFixed,
       "Payload that clients put into one message; larger rollouts go in several.", 64 * 1024,
       kGiB / 2},
      {"limits.stream_bytes_max", K::kBytes, &C::limits_stream_bytes_max, kFixed,
       "Bytes of a push stream that are read and not answered.", 64 * 1024, kTiB},
      {"limits.stream_frames_max", K::kCount, &C::limits_stream_frames_max, kFixed,
       "Frames of a push stream that are read and not answered.", 1, 65'536},
      {"limits.push_stall_ms", K::kMilliseconds, &C::limits_push_stall_ms, kChangeable,
       "How long a push may stop half-way through a rollout while others wait for memory, or "
       "once its lease is over; then its stream ends.",
       10, kHourMs},
      {"limits.fetch_queue_bytes_max", K::kBytes, &C::limits_fetch_queue_bytes_max, kFixed,
       "Bytes of a fetch stream that wait to be sent.", 64 * 1024, kTiB},
      {"limits.calls_max", K::kCount, &C::limits_calls_max, kFixed,
       "Calls at once; more are refused.", 16, 10'000'000},
      {"server.io_threads", K::kCount, &C::server_io_threads, kFixed,
       "Threads that serve gRPC. One is the fastest until it is busy all the time.", 1, 64},
      {"steps.open_max", K::kCount, &C::steps_open_max, kFixed, "Steps open at once.", 1, 64},
      {"steps.shard_absent_after_ms", K::kMilliseconds, &C::steps_shard_absent_after_ms, kFixed,
       "A shard that does not answer for so long is absent: steps are planned without it, until "
       "it is back.",
       100, kHourMs}};
}

std::vector<ConfigEntry> ClusterEntries() {
  return {
      {"cluster.etcd", K::kText, &C::cluster_etcd, kFixed,
       "Addresses of etcd, HOST:PORT with commas between them: the daemon is one node of a "
       "cluster, "
       "and needs storage.directory and a storage.segment_directory that all nodes share. Empty: "
       "it "
       "is alone."},
      {"cluster.name", K::kText, &C::cluster_name, kFixed,
       "Name of the cluster: what its keys in etcd begin with, after /forebay/."},
      {"cluster.node", K::kCount, &C::cluster_node, kFixed,
       "Number of this node, from 1; another one for each.", 0, UINT32_MAX},
      {"cluster.advertise", K::kText, &C::cluster_advertise, kFixed,
       "Address at which clients and other nodes reach this one; empty: listen.grpc."},
      {"cluster.advertise_http", K::kText, &C::cluster_advertise_http, kFixed,
       "Address of its metrics for people and tools; empty: listen.http."},
      {"cluster.replicas", K::kCount, &C::cluster_replicas, kFixed,
       "Nodes that hold a replica of each machine.", 1, 16},
      {"cluster.min_in_sync", K::kCount, &C::cluster_min_in_sync, kFixed,
       "Replicas that must have what is acknowledged.", 1, 16},
      {"cluster.heartbeat_ms", K::kMilliseconds, &C::cluster_heartbeat_ms, kFixed,
       "Between two heartbeats of a primary.", 10, kHourMs},
      {"cluster.suspect_ms", K::kMilliseconds, &C::cluster_suspect_ms, kFixed,
       "A node that is not heard for so long is taken as lost.", 50, kHourMs},
      {"cluster.replace_after_ms", K::kMilliseconds, &C::cluster_replace_after_ms, kFixed,
       "A node that is away for so long gets a successor, if there is one.", 1'000, 24 * kHourMs},
      {"cluster.token_file", K::kText, &C::cluster_token_file, kFixed,
       "File with the token that this node shows to others, whose auth.tokens_file names it with "
       "the role peer; empty: none."}};
}

std::vector<ConfigEntry> BehaviourEntries() {
  return {
      {"renew.interval_ms", K::kMilliseconds, &C::renew_interval_ms, kChangeable,
       "How often actors are asked to renew their leases.", 10, kHourMs},
      {"clients.silent_ms", K::kMilliseconds, &C::clients_silent_ms, kChangeable,
       "A client not heard for so long is taken as gone, in the verdict and the metrics. "
       "Acquire may wait a minute, unheard.",
       100, 24 * kHourMs},
      {"status.trainer_wait_ms", K::kMilliseconds, &C::status_trainer_wait_ms, kChangeable,
       "A step that waits longer for groups makes the verdict degraded.", 100, 24 * kHourMs},
      {"status.engine_behind", K::kCount, &C::status_engine_behind, kChangeable,
       "An engine so many published versions behind makes the verdict degraded.", 1, 1'000'000},
      {"drift.hold_k3", K::kShare, &C::drift_hold_k3, kChangeable,
       "No more steps are sealed once the mean k3 between trainer and engines, over the tokens "
       "of a committed step, is above this, at most 1; until buffer-ctl kl --lift, or a rewind. "
       "0: never."},
      {"log.level",
       K::kChoice,
       &C::log_level,
       kChangeable,
       "Least level that is logged.",
       0,
       0,
       {"debug", "info", "warning", "error"}},
      {"log.format",
       K::kChoice,
       &C::log_format,
       kFixed,
       "Lines for people or for programs.",
       0,
       0,
       {"text", "json"}},
      {"shutdown.drain_ms", K::kMilliseconds, &C::shutdown_drain_ms, kChangeable,
       "How long calls may still run after SIGTERM.", 0, kHourMs}};
}

}  // namespace

const std::vector<ConfigEntry>& ConfigEntries() {
  static const auto* entries = [] {
    auto* all = new std::vector<ConfigEntry>();
    for (auto& part : {ListenEntries(), MemoryEntries(), StorageEntries(), LimitEntries(),
                       ClusterEntries(), BehaviourEntries()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return *entries;
}

std::string ConfigHelp() {
  const Config defaults;
  std::string out;
  for (const ConfigEntry& entry : ConfigEntries()) {
    absl::StrAppend(&out, "  --", entry.name, "=", Get(defaults, entry));
    if (entry.changeable) absl::StrAppend(&out, "  (changeable at run time)");
    absl::StrAppend(&out, "\n      ", entry.help, "\n");
  }
  return out;
}

}  // namespace forebay::node
