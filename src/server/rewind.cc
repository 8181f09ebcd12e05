#include "server/rewind.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/log.h"
#include "server/policy_messages.h"

namespace forebay::server {
namespace {

void RewindByOperator(ServiceContext* context, v1::RewindRequest request,
                      TypedResponder<v1::RewindResponse> responder) {
  if (request.generation() != 0) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("generation: is ", request.generation(), ", must be 0 for an operator")));
  }
  Rewind(context, std::move(request), std::move(responder));
}

constexpr size_t kNoteBytesMax = 1024;

void Snapshot(ServiceContext* context, v1::SnapshotRequest request,
              TypedResponder<v1::SnapshotResponse> responder) {
  for (const auto& [field, text] :
       {std::pair("who", &request.who()), std::pair("why", &request.why())}) {
    if (text->size() <= kNoteBytesMax) continue;
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat(field, ": has ", text->size(), " bytes; the limit is ", kNoteBytesMax)));
  }
  auto answer = std::make_shared<TypedResponder<v1::SnapshotResponse>>(std::move(responder));
  context->engine->Snapshot([answer, who = request.who(), why = request.why()](
                                absl::StatusOr<std::vector<node::MachineSnapshot>> taken) {
    if (!taken.ok()) return answer->Fail(taken.status());
    Log(LogLevel::kInfo, "snapshots taken", {{"who", who}, {"why", why}});
    v1::SnapshotResponse response;
    for (const auto& [machine, place] : *taken) {
      auto* out = response.add_machines();
      out->set_machine(machine);
      out->set_position(place.position.value);
      out->set_bytes(place.bytes);
      out->set_file(place.file);
    }
    answer->Reply(response);
  });
}

}  // namespace

void Rewind(ServiceContext* context, v1::RewindRequest request,
            TypedResponder<v1::RewindResponse> responder) {
  if (request.mode() < v1::REWIND_MODE_UNSPECIFIED || request.mode() > v1::REWIND_MODE_REPLAY) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("mode: is ", static_cast<int>(request.mode()), "; fresh (1) or replay (2)")));
  }
  const bool replay = request.mode() == v1::REWIND_MODE_REPLAY;
  ledger::Rewind command{.request_id = request.request_id(),
                         .generation = Generation(request.generation()),
                         .step = StepId(request.step()),
                         .replay = replay,
                         .reason = request.reason()};
  auto answer = std::make_shared<TypedResponder<v1::RewindResponse>>(std::move(responder));
  context->engine->AskLedger<ledger::RewindReply>(
      std::move(command), [step = request.step(), replay, reason = request.reason(),
                           by = request.generation(), answer](ledger::RewindReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        Log(LogLevel::kWarning, "rewound",
            {{"step", step},
             {"mode", replay ? "replay" : "fresh"},
             {"by", by == 0 ? "operator" : "trainer"},
             {"reason", reason},
             {"steps_taken_back", reply.taken_back},
             {"steps_served_again", reply.served_again},
             {"branch", reply.train_version.branch}});
        v1::RewindResponse response;
        response.set_next_step(reply.next_step.value);
        ToWire(reply.train_version, response.mutable_train_version());
        response.set_taken_back(reply.taken_back);
        response.set_served_again(reply.served_again);
        answer->Reply(response);
      });
}

void AddRewindMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "Rewind", &RewindByOperator);
  AddAdmin(methods, context, "Snapshot", &Snapshot);
}

}  // namespace forebay::server
