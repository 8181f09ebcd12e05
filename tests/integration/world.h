// What most tests need: a daemon, a client, rollouts with known bytes, and a picture of the state
// to compare with.
//
// One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection.h"
#include "forebay/actor.h"
#include "forebay/admin.h"
#include "forebay/client.h"
#include "forebay/trainer.h"
#include "forebay/v1/actor.pb.h"
#include "tests/integration/daemon.h"

namespace forebay::integration {

// A rollout of one sequence with its bytes: tokens seed, seed + 1, ...; the last half is the
// response.
struct OwnRollout {
  OwnRollout(uint32_t tokens, uint32_t seed, double reward);
  OwnRollout(const OwnRollout&) = delete;

  std::vector<uint32_t> tokens;
  std::vector<uint8_t> mask;
  std::vector<float> logprobs;
  client::Rollout rollout;
};

// The bytes of all micro-batches of the step, one after another.
std::string Fetch(const client::Step& step);

class World {
 public:
  explicit World(std::vector<std::string> flags = {});

  Daemon daemon;
  std::unique_ptr<client::Client> client;
  client::Admin admin;

  // A source whose groups are complete with `group_size` rollouts and are kept whatever their
  // rewards; `tasks` tasks.
  void AddSource(const std::string& name, uint32_t group_size, int tasks);
  std::unique_ptr<client::Actor> OpenActor(client::ActorOptions options = {.actor = "test"});
  // All state that a refused request must not change, as text.
  std::string Picture();
  // Waits until the state is as it was: what a refusal frees may be freed a moment later.
  ::testing::AssertionResult Unchanged(const std::string& before);

  // A call of the contract with messages, as a foreign client would make it.
  template <class Response, class Request>
  absl::StatusOr<Response> Call(const std::string& method, const Request& request) {
    return client::CallTyped<Response>(client->connection(), "/forebay.v1." + method, request,
                                       {.timeout = absl::Seconds(20), .retry = false});
  }
  // A question: asked again while the daemon, or the way to it, is not back from a restart.
  template <class Response, class Request>
  absl::StatusOr<Response> Ask(const std::string& method, const Request& request) {
    return client::CallTyped<Response>(client->connection(), "/forebay.v1." + method, request,
                                       {.timeout = absl::Seconds(20) * Slowness()});
  }
  // One frame on a stream of its own. The stream's status if there is no reply.
  absl::StatusOr<v1::PushReply> PushRaw(const std::string& method, const v1::PushFrame& frame);
};

}  // namespace forebay::integration
