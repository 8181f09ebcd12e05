#include "server/grpc/auth.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::server {
namespace {

// Takes as long for a wrong token as for the right one of the same length.
bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

const char* Name(Role role) {
  switch (role) {
    case Role::kActor:
      return "actor";
    case Role::kTrainer:
      return "trainer";
    case Role::kOperator:
      return "operator";
    case Role::kPeer:
      return "peer";
  }
  return "unknown";
}

}  // namespace

void TokenAuthorizer::AddToken(std::string token, Role role) {
  tokens_.push_back({std::move(token), role});
}

void TokenAuthorizer::Add(Rule rule) {
  const auto longer = [](const Rule& a, const Rule& b) {
    return a.prefix.size() > b.prefix.size();
  };
  rules_.insert(std::upper_bound(rules_.begin(), rules_.end(), rule, longer), std::move(rule));
}

void TokenAuthorizer::AddRule(std::string prefix, Role role) {
  Add({std::move(prefix), Needs::kRole, role});
}

void TokenAuthorizer::AddKnown(std::string prefix) { Add({std::move(prefix), Needs::kToken}); }

void TokenAuthorizer::AddOpen(std::string prefix) { Add({std::move(prefix), Needs::kNothing}); }

absl::Status TokenAuthorizer::Check(std::string_view method, std::string_view bearer_token) const {
  Role needed = Role::kOperator;
  bool any_role = false;
  for (const Rule& rule : rules_) {
    if (method.substr(0, rule.prefix.size()) != rule.prefix) continue;
    if (rule.needs == Needs::kNothing) return absl::OkStatus();
    any_role = rule.needs == Needs::kToken;
    needed = rule.role;
    break;
  }
  const Token* known = nullptr;
  for (const Token& token : tokens_) {
    if (SameText(token.token, bearer_token)) known = &token;
  }
  if (known == nullptr) {
    return absl::UnauthenticatedError(bearer_token.empty() ? "a bearer token is needed"
                                                           : "the bearer token is not known");
  }
  if (any_role || known->role == needed || known->role == Role::kOperator) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the token's role is ", Name(known->role), ", the method needs ", Name(needed)));
}

}  // namespace forebay::server
