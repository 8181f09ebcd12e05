#include "node/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace forebay::node {
namespace {

struct Unit {
  const char* name;
  uint64_t factor;
};
constexpr Unit kByteUnits[] = {{"", 1},
                               {"KiB", uint64_t{1} << 10},
                               {"MiB", uint64_t{1} << 20},
                               {"GiB", uint64_t{1} << 30},
                               {"TiB", uint64_t{1} << 40}};
constexpr Unit kTimeUnits[] = {{"", 1}, {"ms", 1}, {"s", 1'000}, {"min", 60'000}, {"h", 3'600'000}};
constexpr Unit kNoUnits[] = {{"", 1}};

absl::Status Refuse(const ConfigEntry& entry, std::string_view value, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(entry.name, ": is '", std::string(value), "', ", why));
}

template <size_t N>
bool ParseNumber(std::string_view text, const Unit (&units)[N], uint64_t* out) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    return !__builtin_mul_overflow(number, known.factor, out);
  }
  return false;
}

absl::Status SetNumber(const ConfigEntry& entry, std::string_view value, uint64_t* out) {
  uint64_t number = 0;
  bool good = false;
  const char* form = "must be a whole number";
  if (entry.kind == ConfigKind::kBytes) {
    good = ParseNumber(value, kByteUnits, &number);
    form = "must be bytes, as 1048576, 64MiB or 4GiB";
  } else if (entry.kind == ConfigKind::kMilliseconds) {
    good = ParseNumber(value, kTimeUnits, &number);
    form = "must be a time, as 500, 500ms, 5s or 2min";
  } else {
    good = ParseNumber(value, kNoUnits, &number);
  }
  if (!good) return Refuse(entry, value, form);
  if (number < entry.min) return Refuse(entry, value, absl::StrCat("the least is ", entry.min));
  if (number > entry.max) return Refuse(entry, value, absl::StrCat("the limit is ", entry.max));
  *out = number;
  return absl::OkStatus();
}

// Of a whole, 0 to 1.
absl::Status SetShare(const ConfigEntry& entry, std::string_view value, double* out) {
  std::string_view text = value;
  double whole = 1;
  if (!text.empty() && text.back() == '%') {
    text.remove_suffix(1);
    whole = 100;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return Refuse(entry, value, "must be a share, as 0.01 or 1%");
  }
  if (number < 0) return Refuse(entry, value, "the least is 0");
  if (number > whole) return Refuse(entry, value, "the limit is 1");
  *out = number / whole;
  return absl::OkStatus();
}

absl::Status SetEntry(const ConfigEntry& entry, std::string_view value, Config* config) {
  if (const auto* text = std::get_if<std::string Config::*>(&entry.field)) {
    if (!entry.choices.empty() && std::ranges::find(entry.choices, value) == entry.choices.end()) {
      std::string all;
      for (const char* choice : entry.choices)
        absl::StrAppend(&all, all.empty() ? "" : ", ", choice);
      return Refuse(entry, value, absl::StrCat("must be one of: ", all));
    }
    config->** text = std::string(value);
    return absl::OkStatus();
  }
  if (const auto* flag = std::get_if<bool Config::*>(&entry.field)) {
    if (value != "true" && value != "false") return Refuse(entry, value, "must be true or false");
    config->** flag = value == "true";
    return absl::OkStatus();
  }
  if (const auto* share = std::get_if<double Config::*>(&entry.field)) {
    return SetShare(entry, value, &(config->**share));
  }
  return SetNumber(entry, value, &(config->*std::get<uint64_t Config::*>(entry.field)));
}

absl::Status CheckColdColumns(const Config& config) {
  constexpr size_t kColumnsMax = 64, kNameBytesMax = 128;
  const auto refuse = [&config](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("storage.cold_columns: is '", config.storage_cold_columns, "', ", why...));
  };
  const std::vector<std::string> names = config.cold_columns();
  if (names.size() > kColumnsMax) {
    return refuse("names ", names.size(), " columns; the limit is ", kColumnsMax);
  }
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kNameBytesMax) {
      return refuse("must be names of columns with commas between them, each of 1 to ",
                    kNameBytesMax, " bytes");
    }
  }
  return absl::OkStatus();
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::StatusOr<const ConfigEntry*> Find(std::string_view name) {
  const ConfigEntry* nearest = nullptr;
  size_t least = SIZE_MAX;
  for (const ConfigEntry& entry : ConfigEntries()) {
    if (name == entry.name) return &entry;
    const size_t distance = EditDistance(name, entry.name);
    if (distance < least) {
      least = distance;
      nearest = &entry;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("'", std::string(name),
                   "' is not an entry of the configuration; the nearest is '", nearest->name, "'"));
}

absl::Status SetFromYaml(const std::string& prefix, const YAML::Node& node,
                         std::set<std::string>* seen, Config* config) {
  for (const auto& item : node) {
    const auto key = item.first.as<std::string>();
    const std::string name = prefix.empty() ? key : absl::StrCat(prefix, ".", key);
    if (!seen->insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": is given twice"));
    }
    if (item.second.IsMap()) {
      FOREBAY_RETURN_IF_ERROR(SetFromYaml(name, item.second, seen, config));
    } else if (item.second.IsScalar() || item.second.IsNull()) {
      FOREBAY_RETURN_IF_ERROR(
          Set(name, item.second.IsNull() ? "" : item.second.as<std::string>(), config));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, ": is a list, must be one value"));
    }
  }
  return absl::OkStatus();
}

// "--name=value" or "--name" and the next argument. `index` moves to the last one used.
absl::Status TakeFlag(const std::vector<std::string>& arguments, size_t* index, std::string* name,
                      std::string* value) {
  const std::string& argument = arguments[*index];
  if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", argument, "' is no flag; flags are --name=value"));
  }
  const size_t equals = argument.find('=');
  *name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  if (equals != std::string::npos) {
    *value = argument.substr(equals + 1);
    return absl::OkStatus();
  }
  if (*index + 1 == arguments.size()) {
    return absl::InvalidArgumentError(absl::StrCat("--", *name, ": has no value"));
  }
  *value = arguments[++*index];
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> Config::cold_columns() const {
  std::vector<std::string> names;
  if (storage_cold_columns.empty()) return names;
  for (const absl::string_view name : absl::StrSplit(storage_cold_columns, ',')) {
    names.emplace_back(absl::StripAsciiWhitespace(name));
  }
  return names;
}

std::string Get(const Config& config, const ConfigEntry& entry) {
  if (const auto* text = std::get_if<std::string Config::*>(&entry.field)) return config.**text;
  if (const auto* flag = std::get_if<bool Config::*>(&entry.field)) {
    return config.**flag ? "true" : "false";
  }
  if (const auto* share = std::get_if<double Config::*>(&entry.field)) {
    return absl::StrCat(config.**share);
  }
  return absl::StrCat(config.*std::get<uint64_t Config::*>(entry.field));
}

absl::Status Set(std::string_view name, std::string_view value, Config* config) {
  auto entry = Find(name);
  if (!entry.ok()) return entry.status();
  return SetEntry(**entry, value, config);
}

std::vector<std::string> Config::etcd_endpoints() const {
  return absl::StrSplit(cluster_etcd, ',', absl::SkipEmpty());
}

namespace {

absl::Status CheckCluster(const Config& config) {
  if (!config.clustered()) {
    if (config.cluster_node == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("cluster.node: is '", config.cluster_node,
                                                   "', must be 0 unless cluster.etcd is set"));
  }
  const auto must = [](const char* entry, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(entry, ": ", what, ", for cluster.etcd is set"));
  };
  if (config.cluster_node == 0) return must("cluster.node", "is '0', must be 1 or more");
  if (config.cluster_name.empty() || config.cluster_name.find('/') != std::string::npos) {
    return must("cluster.name", "must be a name without '/'");
  }
  if (config.storage_directory.empty()) return must("storage.directory", "is '', must be set");
  if (config.storage_segment_directory.empty()) {
    return must("storage.segment_directory", "is '', must be a directory that all nodes share");
  }
  if (config.listen_grpc.empty()) return must("listen.grpc", "is '', must be set");
  if (config.cluster_min_in_sync > config.cluster_replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.min_in_sync: is '", config.cluster_min_in_sync,
                     "', must be at most cluster.replicas, which is ", config.cluster_replicas));
  }
  if (config.cluster_suspect_ms < 2 * config.cluster_heartbeat_ms) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.suspect_ms: is '", config.cluster_suspect_ms,
        "', must be at least twice cluster.heartbeat_ms, which is ", config.cluster_heartbeat_ms));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Config& config) {
  FOREBAY_RETURN_IF_ERROR(CheckCluster(config));
  const uint64_t reserve = config.completion_reserve_bytes();
  if (reserve >= config.memory_payload_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory.completion_reserve_bytes: is '", reserve,
        "', must be below memory.payload_bytes_max, which is ", config.memory_payload_bytes_max));
  }
  if (config.storage_directory.empty() && !config.storage_segment_directory.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("storage.segment_directory: is '", config.storage_segment_directory,
                     "', must be '' unless storage.directory is set"));
  }
  FOREBAY_RETURN_IF_ERROR(CheckColdColumns(config));
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.tls_cert.empty() ? "tls.cert" : "tls.key",
                     ": is '', must be set, for the other half of the pair is"));
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tls.client_ca: is '", config.tls_client_ca,
                                                   "', must be '' unless tls.cert is set"));
  }
  if (config.listen_grpc.empty() && config.listen_unix.empty()) {
    return absl::InvalidArgumentError("listen.grpc: is '', must be set unless listen.unix is");
  }
  return absl::OkStatus();
}

absl::Status ReadConfigText(const std::string& yaml, Config* config) {
  // The library reports by exceptions; they end here.
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) return absl::InvalidArgumentError("must hold entries, as 'shards: 1'");
    std::set<std::string> seen;
    return SetFromYaml("", root, &seen, config);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::Status ReadConfigFile(const std::string& path, Config* config) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat("--config: cannot read '", path, "': ", std::strerror(errno)));
  }
  const absl::Status status = ReadConfigText(text.str(), config);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<std::vector<ConfigChange>> Change(const std::map<std::string, std::string>& values,
                                                 Config* config) {
  Config changed = *config;
  for (const auto& [name, value] : values) {
    auto entry = Find(name);
    if (!entry.ok()) return entry.status();
    if (!(*entry)->changeable) {
      return absl::FailedPreconditionError(absl::StrCat(
          name, ": cannot be '", value, "' while the daemon runs; set it and start anew"));
    }
    FOREBAY_RETURN_IF_ERROR(SetEntry(**entry, value, &changed));
  }
  FOREBAY_RETURN_IF_ERROR(Validate(changed));
  std::vector<ConfigChange> changes;
  for (const ConfigEntry& entry : ConfigEntries()) {
    const std::string before = Get(*config, entry), after = Get(changed, entry);
    if (before != after) changes.push_back({entry.name, before, after});
  }
  *config = changed;
  return changes;
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  std::vector<std::pair<std::string, std::string>> flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      line.help = true;
      continue;
    }
    if (arguments[i] == "--version") {
      line.version = true;
      continue;
    }
    std::string name, value;
    FOREBAY_RETURN_IF_ERROR(TakeFlag(arguments, &i, &name, &value));
    if (name == "config") {
      FOREBAY_RETURN_IF_ERROR(ReadConfigFile(value, &line.config));
    } else {
      flags.emplace_back(std::move(name), std::move(value));
    }
  }
  for (const auto& [name, value] : flags) {
    const absl::Status status = Set(name, value, &line.config);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("--", status.message()));
  }
  FOREBAY_RETURN_IF_ERROR(Validate(line.config));
  return line;
}

}  // namespace forebay::node
