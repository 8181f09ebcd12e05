// The sessions of actors: who they are, and what each was answered last.
//
// Replicated state; not thread-safe. A slot stands for a session as long as it is open; references
// live until the next Open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "codec/archive.h"
#include "codec/copy_on_write_array.h"
#include "rollout/slot_table.h"
#include "shard/messages.h"

namespace forebay::shard {

struct SessionRecord {
  SessionId id;
  std::string actor, engine, site, client;
  // The last request for assignments, and the leases that it got.
  uint64_t last_request = 0;
  std::vector<LeaseRef> answer;
  PolicyVersion version;
  uint64_t leases = 0;
  uint64_t pushed = 0;
  uint64_t failed = 0;
  template <class A>
  void Fields(A& a) {
    a(id, actor, engine, site, client, last_request, answer, version, leases, pushed, failed);
  }
};

class Sessions {
 public:
  // rollout::kNone: not open.
  uint32_t Find(SessionId id) const;
  // Opens a session, or changes who an open one is. A full table closes one without leases; kNone
  // if that is not found.
  uint32_t Open(const OpenSession& open);

  SessionRecord& operator[](uint32_t slot) { return records_[slot]; }
  const SessionRecord& operator[](uint32_t slot) const { return records_[slot]; }
  // Slots lie below it; all are in use.
  uint32_t size() const { return static_cast<uint32_t>(records_.size()); }
  uint64_t memory_bytes() const;

  void Snapshot(codec::Writer& writer) const;
  bool Restore(codec::Reader& reader);

 private:
  uint32_t FreeSlot();

  codec::CopyOnWriteArray<SessionRecord, 16> records_;
  uint32_t next_closed_ = 0;  // where the search for a session to close goes on
  absl::flat_hash_map<SessionId, uint32_t> by_id_;  // never iterated
};

}  // namespace forebay::shard
