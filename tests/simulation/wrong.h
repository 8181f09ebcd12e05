// Bad input of every kind: each must be refused, and the state must stay as it was.
//
// Not thread-safe. All are called at the node, when the request arrives there.
#pragma once

#include "tests/simulation/world.h"

namespace forebay::simulation {

// Pushes `meta` with something wrong about it.
void PushWrong(World& world, SessionId session, shard::RolloutMeta meta,
               Answer<shard::PutRolloutsReply> answer);
shard::LateReward WrongReward(World& world, shard::LateReward reward);
// Asks the ledger for something that it must not do.
void AskWrongLedger(World& world);
void AddWrongTasks(World& world);

}  // namespace forebay::simulation
