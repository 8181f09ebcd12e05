// Files of a few bytes that a start reads: who a directory belongs to, how far a log is durable,
// the local coordinator's keys, whose a replica's log is, the records in it and a snapshot's head.
// Of any bytes, and valid ones that were changed, their checksums
// made right again.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/crc32c.h"
#include "node/coordinator_file.h"
#include "node/data_directory.h"
#include "node/replica_record.h"
#include "storage/log_mark.h"

namespace {

using namespace forebay;

constexpr char kMachine[] = "shard-0";

void ReadIdentity(std::string_view bytes) {
  const auto identity = node::DecodeIdentity(bytes);
  if (!identity.ok()) return;
  const auto again = node::DecodeIdentity(node::EncodeIdentity(*identity));
  FOREBAY_CHECK(again.ok() && again->run == identity->run && again->run_seed == identity->run_seed);
  FOREBAY_CHECK(again->shards == identity->shards && again->incarnation == identity->incarnation);
}

void ReadMark(std::string_view bytes) {
  const auto mark = storage::DecodeLogMark(bytes, kMachine);
  if (!mark.ok()) return;
  const auto again = storage::DecodeLogMark(storage::EncodeLogMark(kMachine, *mark), kMachine);
  FOREBAY_CHECK(again.ok() && *again == *mark);
}

void ReadKeys(std::string_view bytes) {
  const auto keys = node::DecodeKeys(bytes);
  if (!keys.ok()) return;
  const auto again = node::DecodeKeys(node::EncodeKeys(*keys));
  FOREBAY_CHECK(again.ok() && again->revision == keys->revision &&
                again->entries.size() == keys->entries.size());
}

void ReadReplica(std::string_view bytes) {
  node::ReplicaIdentity identity;
  if (node::DecodeReplicaIdentity(bytes, &identity).ok()) {
    node::ReplicaIdentity again;
    FOREBAY_CHECK(node::DecodeReplicaIdentity(node::EncodeReplicaIdentity(identity), &again).ok());
    FOREBAY_CHECK(again.node == identity.node && again.incarnation == identity.incarnation &&
                  again.kept_since == identity.kept_since);
  }
  replication::LogPlace base;
  std::string_view left = bytes;
  if (node::DecodeSnapshotHead(&left, &base).ok()) {
    FOREBAY_CHECK(node::EncodeSnapshotHead(base) + std::string(left) == bytes);
  }
}

// Records of up to 32 bytes, the length of each before it, after a snapshot if the first byte says
// so. What they come to is without a gap, whatever they say.
void ReadRecords(std::string_view bytes) {
  node::ReplicaRecovery recovery;
  uint64_t position = 1;
  if (!bytes.empty() && (bytes[0] & 1) != 0) {
    recovery.Begin({cluster::Epoch(1), LogPosition(static_cast<uint8_t>(bytes[0]))});
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bytes[0]) % 33, bytes.size() - 1);
    if (!recovery.Add(LogPosition(position++), bytes.substr(1, size)).ok()) return;
    bytes.remove_prefix(1 + size);
  }
  const replication::Recovered& recovered = recovery.recovered();
  const LogPosition last(recovered.base.position.value + recovered.entries.size());
  FOREBAY_CHECK(recovery.places().last_entry() == last);
  FOREBAY_CHECK(recovery.places().RecordOf(last, LogPosition(position)) == LogPosition(position));
}

// The file with the input's bytes laid over it by exclusive or, and the checksum of what begins at
// `body` put at `crc_at`.
std::string Changed(std::string file, std::string_view input, size_t crc_at, size_t body) {
  for (size_t i = 0; i < std::min(file.size(), input.size()); ++i) file[i] ^= input[i];
  const uint32_t crc = Crc32c(std::string_view(file).substr(body));
  std::memcpy(file.data() + crc_at, &crc, sizeof(crc));
  return file;
}

node::LocalKeys SomeKeys() {
  node::LocalKeys keys;
  keys.revision = 3;
  keys.entries["machines/ledger"] = {.value = "epoch 3", .revision = 2, .presence = 0};
  keys.entries["nodes/1"] = {.value = "127.0.0.1:7400", .revision = 3, .presence = 1};
  return keys;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  ReadIdentity(input);
  ReadMark(input);
  ReadKeys(input);
  ReadReplica(input);
  ReadRecords(input);
  // Magic (8 bytes), format, the body's checksum and length; then the body.
  ReadKeys(Changed(node::EncodeKeys(SomeKeys()), input, 12, 24));
  // The mark's checksum ends with the machine's name, before the padding.
  constexpr size_t kMarkBody = 16, kMarkBytes = kMarkBody + 8 + 4 + sizeof(kMachine) - 1;
  const std::string mark = storage::EncodeLogMark(kMachine, LogPosition(7)).substr(0, kMarkBytes);
  ReadMark(Changed(mark, input, 12, kMarkBody));
  return 0;
}
