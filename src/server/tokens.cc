#include "server/tokens.h"

#include <sys/stat.h>

#include <cerrno>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "server/grpc/files.h"

namespace forebay::server {
namespace {

constexpr size_t kTokenBytesMin = 16;

bool RoleOf(const std::string& name, Role* role) {
  if (name == "actor")
    *role = Role::kActor;
  else if (name == "trainer")
    *role = Role::kTrainer;
  else if (name == "operator")
    *role = Role::kOperator;
  else if (name == "peer")
    *role = Role::kPeer;
  else
    return false;
  return true;
}

}  // namespace

absl::Status ReadTokens(const std::string& path, TokenAuthorizer* authorizer) {
  struct stat info {};
  auto text = ReadFile("auth.tokens_file", path);
  if (!text.ok()) return text.status();
  if (stat(path.c_str(), &info) != 0) return FileError("auth.tokens_file", "read", path, errno);
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("auth.tokens_file: '", path, "' can be read by others; make its mode 0600"));
  }
  std::istringstream file(*text);
  std::string line;
  int tokens = 0;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, token, rest;
    Role role{};
    const auto refuse = [&](const std::string& why) {
      return absl::InvalidArgumentError(
          absl::StrCat("auth.tokens_file: '", path, "' line ", number, ": ", why));
    };
    if (!(words >> name >> token) || words >> rest) return refuse("must be 'ROLE TOKEN'");
    if (!RoleOf(name, &role)) return refuse("the role must be actor, trainer, operator or peer");
    if (token.size() < kTokenBytesMin) {
      return refuse(
          absl::StrCat("the token has ", token.size(), " bytes; the least is ", kTokenBytesMin));
    }
    authorizer->AddToken(token, role);
    ++tokens;
  }
  if (tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("auth.tokens_file: '", path, "' holds no token, so nobody could call"));
  }
  return absl::OkStatus();
}

}  // namespace forebay::server
