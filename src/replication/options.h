// Times, limits and, for the simulator, rules to switch off.
//
// Plain values.
#pragma once

#include <cstdint>

namespace forebay::replication {

struct Options {
  uint64_t heartbeat_ms = 100;
  uint64_t suspect_ms = 600;  // without a word of the other side
  // After each reign that did not last so long, suspicion takes twice as long, but not more often
  // than that: where all is slow, one failover after another helps nobody.
  uint64_t short_reign_ms = 3'000;
  uint32_t patience_doublings_max = 3;
  // A member in sync that is behind and has not moved on for so long is taken out.
  uint64_t lag_ms = 1'500;
  uint64_t swap_retry_ms = 200;  // after a compare-and-swap whose outcome is not known, or refused
  uint64_t promote_stagger_ms = 50;  // between members, so that they do not all ask at once
  uint64_t hand_over_ms = 1'000;     // then a switchover that did not come is given up
  // Commits wait so long for a replica that nearly has everything, and then not again for a while.
  uint64_t admission_ms = 300;
  uint64_t snapshot_retry_ms = 2'000;
  uint64_t batch_bytes_max = uint64_t{1} << 20;   // of entries in a message; one always fits
  uint64_t window_bytes_max = uint64_t{8} << 20;  // on the way to a peer
  // Of what is not committed; beyond it Propose refuses.
  uint64_t pending_bytes_max = uint64_t{64} << 20;
  // Of what is applied and kept in memory for peers that lag; who lags more gets a snapshot.
  uint64_t retained_bytes_max = uint64_t{64} << 20;
  // The same while a peer is on its way: what is written during a snapshot's transfer must be there
  // when it has come.
  uint64_t catch_up_bytes_max = uint64_t{256} << 20;
};
inline constexpr uint64_t kCommandBytesMax = uint64_t{32} << 20;
inline constexpr uint64_t kEntriesPerMessageMax = 65'536;
inline constexpr uint64_t kEntryOverheadBytes = 24;  // counted for each, beside its command
inline constexpr uint64_t kHashesMax = 256;          // of states, remembered for comparison

// All false in every program but the simulator, which sees that its invariants notice.
struct Mutations {
  bool ignore_epochs = false;            // messages of an earlier reign are followed
  bool commit_before_shrink = false;     // who is suspected is not waited for
  bool commit_on_new_set_alone = false;  // while it is not known whether the change was made
  bool promote_out_of_sync = false;      // a replica outside the set takes over
  bool count_unmatched = false;          // a backup says what it has synced, matched or not
  bool truncate_committed = false;       // a backup cuts what the first message does not hold
  bool resume_reign = false;             // a primary that restarts goes on in its old epoch
  bool join_behind = false;              // a replica joins before it has what is committed
};

}  // namespace forebay::replication
