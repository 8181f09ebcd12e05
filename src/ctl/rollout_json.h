// What is known of a rollout, without its columns' bytes, as one line of JSON.
//
// Pure functions.
#pragma once

#include <string>

#include "ctl/rollout_reader.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {

// The fields of an object, without its braces: ids, state, rewards, sequences with versions and
// turns. `flags`: those that were found, with those that the daemon knows.
std::string RolloutFields(const v1::RolloutState& rollout, const v1::RolloutHeader& header);

// {"dtype": ..., "domain": ..., "shape": [...], "missing": ...}, its closing brace left out.
std::string ColumnFields(const v1::RolloutHeader& header, const v1::Column& column);

}  // namespace forebay::ctl
