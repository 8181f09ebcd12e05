// A real bufferd in a process of its own, on a free port and a unix socket in a folder of its own;
// and a client of it.
//
// One thread. The daemon ends with the object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "forebay/admin.h"
#include "forebay/client.h"

namespace forebay::integration {

// How much slower than a release build the programs under test are.
double Slowness();

class Daemon {
 public:
  // `flags` as for bufferd; the process is there and serves when this returns.
  explicit Daemon(std::vector<std::string> flags = {});
  ~Daemon();

  const std::string& address() const { return address_; }
  const std::string& unix_address() const { return unix_address_; }
  const std::string& folder() const { return folder_; }
  void Signal(int signal) const;
  // Waits for the end and gives the exit code; -1 if it does not come.
  int Wait(absl::Duration timeout);
  // Ends it at once.
  void Kill();
  // Starts it again, on the same port, without any state.
  void StartAgain();
  std::string Log() const;

 private:
  void Start();

  std::vector<std::string> flags_;
  std::string folder_;
  std::string address_;
  std::string unix_address_;
  pid_t pid_ = -1;
};

// Forwards a TCP port to another, until it is told to cut: then all connections break at once. New
// ones work again after Mend.
class Wire {
 public:
  explicit Wire(const std::string& to);
  ~Wire();
  const std::string& address() const { return address_; }
  void Cut();
  void Mend();
  // From now on what goes to the other port, or comes from it, is lost, while connections stay;
  // until Mend, which is to come after a Cut.
  void LoseRequests();
  void LoseReplies();

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::string address_;
};

std::unique_ptr<client::Client> Connect(const std::string& address);

}  // namespace forebay::integration
