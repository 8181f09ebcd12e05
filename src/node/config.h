// The configuration of a daemon: one struct, one table that says what each entry is called, what it
// may be, whether it can be changed while the daemon runs.
//
// File, flags and the run-time set all go through the table; every refusal names entry, value and
// limit. Values and pure functions, but for ReadConfigFile.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/keep_rule.h"

namespace forebay::node {

struct Config {
  std::string listen_grpc = "127.0.0.1:7400";
  std::string listen_unix = "auto";
  std::string listen_http = "127.0.0.1:7401";
  bool listen_allow_remote = false;
  std::string listen_announce_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string auth_tokens_file;
  uint64_t shards = 1;
  uint64_t run_seed = 0;
  uint64_t memory_payload_bytes_max = uint64_t{4} << 30;
  uint64_t memory_completion_reserve_bytes = 0;
  uint64_t memory_task_bytes_max = uint64_t{16} << 30;
  uint64_t memory_relief_after_ms = 1'000;
  std::string storage_directory;
  std::string storage_segment_directory;
  std::string storage_io = "auto";
  uint64_t storage_snapshot_log_bytes = uint64_t{256} << 20;
  std::string storage_cold_columns = "routed_experts";
  uint64_t storage_segment_bytes = uint64_t{256} << 20;
  uint64_t storage_log_pending_bytes_max = uint64_t{64} << 20;
  uint64_t storage_write_deadline_ms = 10'000;
  uint64_t storage_gc_grace_ms = 60'000;
  uint64_t storage_reserve_bytes = uint64_t{1} << 30;
  uint64_t storage_retention_bytes_max = uint64_t{16} << 30;
  double retain_sample = 0.01;
  bool retain_flagged = true;
  uint64_t retain_bytes_max = uint64_t{1} << 30;
  uint64_t limits_rollout_bytes_max = uint64_t{1} << 30;
  uint64_t limits_frame_bytes_max = uint64_t{4} << 20;
  uint64_t limits_stream_bytes_max = uint64_t{32} << 20;
  uint64_t limits_stream_frames_max = 64;
  uint64_t limits_push_stall_ms = 30'000;
  uint64_t limits_fetch_queue_bytes_max = uint64_t{8} << 20;
  uint64_t limits_calls_max = 65'536;
  uint64_t server_io_threads = 1;
  uint64_t steps_open_max = 2;
  uint64_t steps_shard_absent_after_ms = 10'000;
  uint64_t renew_interval_ms = 5'000;
  uint64_t clients_silent_ms = 90'000;
  uint64_t status_trainer_wait_ms = 30'000;
  uint64_t status_engine_behind = 2;
  double drift_hold_k3 = 0;
  std::string cluster_etcd;
  std::string cluster_name = "forebay";
  uint64_t cluster_node = 0;
  std::string cluster_advertise;
  std::string cluster_advertise_http;
  uint64_t cluster_replicas = 3;
  uint64_t cluster_min_in_sync = 2;
  uint64_t cluster_heartbeat_ms = 100;
  uint64_t cluster_suspect_ms = 600;
  uint64_t cluster_replace_after_ms = 300'000;
  std::string cluster_token_file;
  std::string log_level = "info";
  std::string log_format = "text";
  uint64_t shutdown_drain_ms = 5'000;

  // In memory alone nothing stays after its commit.
  uint64_t retention_bytes_max() const {
    return storage_directory.empty() ? 0 : storage_retention_bytes_max;
  }
  codec::KeepRule keep() const {
    return {retain_sample, retain_flagged, storage_directory.empty() ? 0 : retain_bytes_max};
  }
  // Whether the daemon is one node of several.
  bool clustered() const { return !cluster_etcd.empty(); }
  // Addresses, as cluster_etcd lists them.
  std::vector<std::string> etcd_endpoints() const;
  // Names, as storage_cold_columns lists them.
  std::vector<std::string> cold_columns() const;
  // What is kept back for groups that are about to complete; a sixteenth of the whole unless it is
  // set.
  uint64_t completion_reserve_bytes() const {
    return memory_completion_reserve_bytes != 0 ? memory_completion_reserve_bytes
                                                : memory_payload_bytes_max / 16;
  }
};

enum class ConfigKind : uint8_t { kText, kChoice, kSwitch, kShare, kCount, kBytes, kMilliseconds };

struct ConfigEntry {
  using Field =
      std::variant<std::string Config::*, bool Config::*, double Config::*, uint64_t Config::*>;
  const char* name;  // "memory.payload_bytes_max"
  ConfigKind kind;
  Field field;
  bool changeable;  // while the daemon runs
  const char* help;
  uint64_t min = 0;  // of numbers
  uint64_t max = UINT64_MAX;
  std::vector<const char*> choices = {};
};

struct ConfigChange {
  std::string name, before, after;
};

// In the order in which help and lists show them.
const std::vector<ConfigEntry>& ConfigEntries();

// The value as text that Set takes.
std::string Get(const Config& config, const ConfigEntry& entry);
// Bytes take the units KiB, MiB, GiB, TiB; times take ms, s, min, h; shares may end with %.
// NotFound for an unknown name, with the nearest known one.
absl::Status Set(std::string_view name, std::string_view value, Config* config);
// What no single entry can say: relations between them. Call when all are set.
absl::Status Validate(const Config& config);
// Entries by name, nested or with dots: "memory: {payload_bytes_max: 8GiB}".
absl::Status ReadConfigText(const std::string& yaml, Config* config);
absl::Status ReadConfigFile(const std::string& path, Config* config);

// Sets all values or none; refuses what cannot be changed while the daemon runs, and says what
// changes.
absl::StatusOr<std::vector<ConfigChange>> Change(const std::map<std::string, std::string>& values,
                                                 Config* config);

struct CommandLine {
  Config config;
  bool help = false;
  bool version = false;
};

// "--name=value", "--name value", "--config FILE" (read first, so flags win), "--help",
// "--version".
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);
// The table for people.
std::string ConfigHelp();

}  // namespace forebay::node
