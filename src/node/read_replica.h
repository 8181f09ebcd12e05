// What the files of a replica hold.
//
// Blocks; for one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/replica_record.h"
#include "node/replicated_state.h"
#include "storage/log_recovery.h"

namespace forebay::node {

// Brings the state to the newest snapshot, and gives what follows it; errors as those of
// RecoverLog, and FailedPrecondition of what another version of this program wrote.
absl::StatusOr<storage::RecoveredLog> ReadReplica(storage::Blocking disk,
                                                  const std::string& directory,
                                                  const std::string& machine,
                                                  ReplicatedState* state,
                                                  ReplicaRecovery* recovery);
// Whether it is a replica's directory, rather than that of a daemon that is alone.
bool IsReplica(storage::Blocking disk, const std::string& directory);

// The same for looking: as if all that follows were committed, which only the others could tell.
absl::StatusOr<storage::RecoveredLog> ReadWholeReplica(storage::Blocking disk,
                                                       const std::string& directory,
                                                       const std::string& machine,
                                                       ReplicatedState* state);

}  // namespace forebay::node
