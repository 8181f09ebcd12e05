// Shards that a node begins to lead without.
//
// A plain value.
#pragma once

#include <map>
#include <string>

namespace forebay::node {

using AbsentMachines = std::map<std::string, std::string>;  // why, by the machine's name: "shard-1"

}  // namespace forebay::node
