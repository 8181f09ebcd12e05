// What the ledger keeps beside the steps: sources, places, reports, rewinds.
//
// Plain values, replicated state; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "codec/peer_channel.h"
#include "codec/source_settings.h"
#include "ledger/messages.h"

namespace forebay::ledger {

// A shard, and the ledger's end of the channel to it.
struct ShardChannel {
  codec::PeerOutbox outbox;
  codec::PeerInbox inbox;
  bool absent = false;  // steps are planned without it
  template <class A>
  void Fields(A& a) {
    a(outbox, inbox, absent);
  }
};

struct Source {
  SourceId id;
  codec::SourceSettings settings;
  template <class A>
  void Fields(A& a) {
    a(id, settings);
  }
};

// A place in the mesh, and the process that holds it in the current generation.
struct TrainerPlace {
  uint32_t dp_rank = 0;
  uint32_t peer = 0;
  uint64_t process = 0;
  std::string trainer;
  template <class A>
  void Fields(A& a) {
    a(dp_rank, peer, process, trainer);
  }
};

// The newest that the trainer has announced.
struct Checkpoint {
  StepId step;            // covers it and all before it; 0: the run's beginning
  PolicyVersion version;  // that the step made
  template <class A>
  void Fields(A& a) {
    a(step, version);
  }
};

// A rewind, for those who ask for it again.
struct PastRewind {
  uint64_t request_id = 0;
  StepId step;
  bool replay = false;
  RewindReply reply;
  template <class A>
  void Fields(A& a) {
    a(request_id, step, replay, reply);
  }
};

// An engine's latest report.
struct Adoption {
  PolicyVersion version;
  uint64_t pending_to_loaded_ms = 0;
  uint64_t pause_ms = 0;
  uint64_t reports = 0;
  uint64_t last = 0;  // number of the latest report among all engines'
  template <class A>
  void Fields(A& a) {
    a(version, pending_to_loaded_ms, pause_ms, reports, last);
  }
};

}  // namespace forebay::ledger
