// Runs a script against one node's machines, driven by the daemon's loops in virtual time, and
// writes down what happens.
//
// A script has a command on each line that begins in the first column, and below it, indented, what
// came of it:
//
//   acquire alice 2
//     a1: group g1 task 1 attempt 0, token 1, version 0
//
// Names of attempts (a1), groups (g1), rollouts (r1) and payloads (p1) are given in the order of
// appearance. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "node/ledger_loop.h"
#include "node/shard_loop.h"

namespace forebay::transcripts {

// `name key=value key` of a command.
class Arguments {
 public:
  explicit Arguments(const std::string& line);
  const std::string& command() const { return words_[0]; }
  // The i-th word behind the command that is no key=value; "" if there is none.
  std::string Word(size_t i) const;
  bool Has(const std::string& flag) const;
  std::string Text(const std::string& key, const std::string& otherwise = "") const;
  uint64_t Number(const std::string& key, uint64_t otherwise = 0) const;
  double Real(const std::string& key, double otherwise = 0) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::string> values_;
};

class Script {
 public:
  Script();
  ~Script();
  // The script with its output anew: comments and empty lines are kept.
  std::string Run(const std::string& script);

 private:
  struct Ports;
  struct Names {
    std::map<uint64_t, size_t> numbers;
    std::string Of(char kind, uint64_t id);
    uint64_t Find(const std::string& name) const;
  };
  struct Trainer {
    Generation generation;
    ledger::Mesh mesh;
    uint64_t process = 0;
  };
  struct Lease {
    shard::LeaseRef ref;
    SourceId source;
  };

  void Do(const Arguments& a);
  bool DoActor(const Arguments& a);
  bool DoTrainer(const Arguments& a);
  void Source(const Arguments& a);
  void Tasks(const Arguments& a);
  void Acquire(const Arguments& a);
  void Push(const Arguments& a);
  void Renew(const Arguments& a);
  void GiveBack(const Arguments& a);
  void Reward(const Arguments& a);
  void Attach(const Arguments& a);
  void Open(const Arguments& a);
  void Fetch(const Arguments& a);
  void Commit(const Arguments& a);
  void Publish(const Arguments& a);
  void GoBack(const Arguments& a);
  void StartEval(const Arguments& a);
  void ShowEval(const Arguments& a);
  void ShowCounters(const Arguments& a);
  void ShowStep(const ledger::Step& step);
  void ShowAssigned(const shard::AssignReply& reply);
  void Wait(uint64_t ms);
  // Carries messages between the machines until there are none.
  void Settle();
  void Ask(shard::Command command);
  void Ask(ledger::Command command);
  template <class... Parts>
  void Say(const Parts&... parts) {
    lines_.push_back(absl::StrCat("  ", parts...));
  }

  uint64_t now_ms_ = 0;
  std::unique_ptr<Ports> ports_;
  std::vector<std::string> lines_;
  Names attempts_, groups_, rollouts_, payloads_;
  std::map<std::string, SessionId> sessions_;
  std::map<std::string, uint64_t> requests_;
  std::map<std::string, Trainer> trainers_;
  std::map<std::string, SourceId> sources_;
  std::map<uint64_t, Lease> leases_;  // by attempt, the newest
  uint64_t last_payload_ = 0;
};

}  // namespace forebay::transcripts
