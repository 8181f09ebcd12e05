// What must hold of a command that brings no payloads, before it is logged.
//
// Pure functions of the state. The status names the field, the value and the limit.
#pragma once

#include "shard/machine.h"
#include "shard/messages.h"

namespace forebay::shard {

absl::Status CheckAssign(const Machine& machine, const Assign& request, uint32_t assignments_max);

// The answer of a command that is to be refused; nullopt: log it.
std::optional<Reply> RefusalOf(const Machine& machine, const Command& command);

}  // namespace forebay::shard
