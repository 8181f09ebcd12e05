// What each command family builds on: where commands are added, and what an action gets to work
// with.
//
// One thread. A family adds its commands to the parser, with options that write into state it
// shares with the action; the action of the command that was named runs once parsing is over.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ctl/app.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "forebay/client.h"

namespace forebay::ctl {

// A call of the contract: "AdminService/GetStatus". One try: an operator wants to hear at once.
template <class Response, class Request>
absl::StatusOr<Response> AskService(client::Client* client, std::string_view method,
                                    const Request& request, absl::Duration timeout) {
  auto bytes = client->Call(absl::StrCat("/forebay.v1.", std::string(method)),
                            request.SerializeAsString(), {.timeout = timeout, .retry = false});
  if (!bytes.ok()) return bytes.status();
  Response response;
  if (!response.ParseFromString(*bytes)) {
    return absl::InternalError("the daemon's answer cannot be read: is it of another version?");
  }
  return response;
}

struct Context {
  client::Client* client = nullptr;
  // One node of a cluster, whether it leads or not, with the same credentials.
  std::function<absl::StatusOr<std::unique_ptr<client::Client>>(const std::string& address)>
      connect;
  std::string addresses;  // that were given, with commas between them
  // Of --etcd: commands of a cluster ask the coordinator itself.
  std::string etcd, cluster;
  absl::Duration timeout;
  bool json = false;
  std::ostream* out = nullptr;
  std::ostream* progress = nullptr;  // of what takes long, beside the output
  int exit_code = kExitOk;

  template <class Response, class Request>
  absl::StatusOr<Response> Ask(std::string_view method, const Request& request,
                               absl::Duration longer = absl::ZeroDuration()) const {
    return AskService<Response>(client, absl::StrCat("AdminService/", std::string(method)), request,
                                timeout + longer);
  }

  // JSON of the whole answer, or the table for people; `nothing` is said when it has no rows.
  void Show(const google::protobuf::Message& response, const Table& table,
            const char* nothing) const {
    if (json) {
      *out << ToJson(response) << "\n";
    } else if (table.rows() == 0) {
      *out << nothing << "\n";
    } else {
      *out << table.Text();
    }
  }
};

using Action = std::function<absl::Status(Context&)>;

class Commands {
 public:
  explicit Commands(CLI::App* root) : root_(root) {}
  CLI::App* root() const { return root_; }

  // `action` runs if `command` is the innermost one that was named; the parser calls back from the
  // inside out.
  void On(CLI::App* command, Action action) {
    command->callback([this, action = std::move(action)] {
      if (!chosen_) chosen_ = action;
    });
  }
  const Action& chosen() const { return chosen_; }

 private:
  CLI::App* const root_;
  Action chosen_;
};

void AddStatus(Commands* commands);
void AddSources(Commands* commands);
void AddTasks(Commands* commands);
void AddTaskLoad(Commands* commands, CLI::App* tasks);
void AddRollouts(Commands* commands);
void AddDrops(Commands* commands);
void AddProcesses(Commands* commands);
void AddSteps(Commands* commands);
void AddRewind(Commands* commands);
void AddConfig(Commands* commands);
void AddEvals(Commands* commands);
void AddKl(Commands* commands);
void AddVerify(Commands* commands);
void AddStorage(Commands* commands);
void AddInspect(Commands* commands);
void AddExport(Commands* commands);
void AddCluster(Commands* commands);
void AddFailover(Commands* commands);
void AddDoctor(Commands* commands);

// Who asks for a change, for the daemon's log: user@host.
std::string Who();
// Never 0.
uint64_t RandomId();
// A whole number of 64 bits. The parser alone would take -1 for the largest one.
CLI::Option* AddNumber(CLI::App* command, const std::string& name, uint64_t* value,
                       const std::string& help);

// Asks for pages until `limit` entries are there. `list` is the response's repeated field, by its
// mutable accessor.
template <class Response, class Request, class List>
absl::StatusOr<Response> AskPages(const Context& context, std::string_view method, Request request,
                                  uint32_t limit, List list) {
  constexpr uint32_t kPageMax = 10'000;
  Response all;
  do {
    request.set_page_size(std::min(limit - static_cast<uint32_t>(list(all)->size()), kPageMax));
    auto page = context.Ask<Response>(method, request);
    if (!page.ok()) return page.status();
    list(all)->MergeFrom(*list(*page));
    all.set_page_token(page->page_token());
    request.set_page_token(page->page_token());
  } while (!all.page_token().empty() && static_cast<uint32_t>(list(all)->size()) < limit);
  return all;
}

}  // namespace forebay::ctl
