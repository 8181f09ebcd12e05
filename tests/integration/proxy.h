// Passes calls of the contract on to another daemon, as raw messages.
//
// Outlives the server that its methods are added to; its own threads end with it.
#pragma once

#include <memory>
#include <string>

#include "server/grpc/method_table.h"

namespace forebay::integration {

class Proxy {
 public:
  explicit Proxy(const std::string& backend);
  ~Proxy();

  // All methods of the actor, trainer and admin services.
  void AddTo(server::MethodTable* methods);
  // Ends what is under way at the daemon, and waits for it.
  void Stop();

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace forebay::integration
