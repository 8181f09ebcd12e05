// Bearer tokens and the roles that methods ask for.
//
// Immutable once built, so safe from any thread. Tokens are compared in constant time and never
// printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace forebay::server {

enum class Role : uint8_t { kActor = 1, kTrainer = 2, kOperator = 4, kPeer = 8 };

class TokenAuthorizer {
 public:
  // An operator's token opens every method.
  void AddToken(std::string token, Role role);
  // Methods whose name begins with `prefix` ("/forebay.v1.ActorService/") need `role`; the longest
  // prefix decides. Methods without a rule need the operator's; with AddKnown any role's token is
  // good, with AddOpen nobody needs one.
  void AddRule(std::string prefix, Role role);
  void AddKnown(std::string prefix);
  void AddOpen(std::string prefix);

  // Unauthenticated without a known token, PermissionDenied for a role that does not suffice.
  absl::Status Check(std::string_view method, std::string_view bearer_token) const;

 private:
  struct Token {
    std::string token;
    Role role;
  };
  enum class Needs : uint8_t { kNothing, kToken, kRole };
  struct Rule {
    std::string prefix;
    Needs needs;
    Role role = Role::kOperator;
  };
  void Add(Rule rule);

  std::vector<Token> tokens_;
  std::vector<Rule> rules_;  // longest prefix first
};

}  // namespace forebay::server
