// Commands of the machines' logs as text for people: a command's name, and its fields in the order
// in which it lists them.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace forebay::node {

struct CommandText {
  std::string name;    // "PutRollouts"
  std::string fields;  // "(7, [((72057594037927936, 1), 0, ...)])"; ends in "..." where it was cut
};

// A record of the log of the machine "ledger", "shard-N" or "contents"; nothing if it is none.
// `bytes_max`: of `fields`.
std::optional<CommandText> TextOfRecord(std::string_view machine, std::string_view record,
                                        size_t bytes_max);
// The same of the log of that machine's replica: "entry 7, epoch 2: PutRollouts", "taken back", ...
std::optional<CommandText> TextOfReplicaRecord(std::string_view machine, std::string_view record,
                                               size_t bytes_max);

}  // namespace forebay::node
