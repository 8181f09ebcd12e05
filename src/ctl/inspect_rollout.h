// buffer-ctl inspect rollout.
//
// Before parsing; one thread.
#pragma once

#include "ctl/command.h"

namespace forebay::ctl {

void AddInspectRollout(Commands* commands, CLI::App* inspect);

}  // namespace forebay::ctl
