// TrainerService, but for Fetch.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/typed.h"
#include "server/log.h"
#include "server/policy_messages.h"
#include "server/put_columns.h"
#include "server/report_sequences.h"
#include "server/rewind.h"
#include "server/services.h"
#include "server/step_messages.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

constexpr uint32_t kWaitMsMax = 60'000;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kReasonBytesMax = 1024;

template <class Response>
std::shared_ptr<TypedResponder<Response>> Share(TypedResponder<Response> responder) {
  return std::make_shared<TypedResponder<Response>>(std::move(responder));
}

absl::Status CheckWait(uint32_t wait_ms) {
  if (wait_ms <= kWaitMsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("wait_ms: is ", wait_ms, "; the limit is ", kWaitMsMax));
}

void AttachTrainer(ServiceContext* context, v1::AttachTrainerRequest request,
                   TypedResponder<v1::AttachTrainerResponse> responder) {
  if (request.trainer().size() > kNameBytesMax) {
    return responder.Fail(absl::InvalidArgumentError(absl::StrCat(
        "trainer: has ", request.trainer().size(), " bytes; the limit is ", kNameBytesMax)));
  }
  if (auto status = CheckPolicyName(request.policy(), "policy"); !status.ok()) {
    return responder.Fail(status);
  }
  context->clients->Seen(ClientTable::TrainerKey(request.dp_rank(), request.peer()),
                         node::Engine::NowMs());
  ledger::AttachTrainer command{.trainer = request.trainer(),
                                .process = request.process(),
                                .mesh = FromWire(request.mesh()),
                                .dp_rank = request.dp_rank(),
                                .peer = request.peer()};
  if (request.has_resume_step()) command.resume_step = StepId(request.resume_step());
  context->engine->AskLedger<ledger::AttachReply>(
      std::move(command), [run = context->run, trainer = request.trainer(),
                           answer = Share(std::move(responder))](ledger::AttachReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        Log(LogLevel::kInfo, "trainer attached",
            {{"trainer", trainer},
             {"generation", reply.generation.value},
             {"next_step", reply.next_step.value}});
        v1::AttachTrainerResponse response;
        response.set_generation(reply.generation.value);
        response.set_next_step(reply.next_step.value);
        ToWire(reply.train_version, response.mutable_train_version());
        for (const auto step : reply.open_steps) response.add_open_steps(step.value);
        response.set_run(run);
        answer->Reply(response);
      });
}

// The clients ask again, and then meet the next daemon.
absl::Status Draining(StepId id) {
  return absl::UnavailableError(
      absl::StrCat("step ", id.value, " gets no more groups: the daemon is draining"));
}

// True when the answer went out: the step is sealed (or what else ends the wait), or the wait is
// over.
bool AnswerOpenStep(node::LedgerLoop& loop, Generation generation, StepId id, bool timed_out,
                    bool draining, TypedResponder<v1::OpenStepResponse>* responder) {
  if (auto status = loop.state().CheckGeneration(generation); !status.ok()) {
    responder->Fail(status);
    return true;
  }
  const auto* step = loop.state().step(id);
  if (step == nullptr) {
    responder->Fail(absl::NotFoundError(absl::StrCat("step ", id.value, " is not open")));
    return true;
  }
  if (step->state == ledger::StepState::kOpen && !timed_out && !responder->cancelled())
    return false;
  if (step->state == ledger::StepState::kOpen && draining) {
    responder->Fail(Draining(id));
    return true;
  }
  if (step->state == ledger::StepState::kAborted && !step->failure.empty()) {
    responder->Fail(absl::FailedPreconditionError(
        absl::StrCat("step ", id.value, " was aborted: ", step->failure)));
    return true;
  }
  v1::OpenStepResponse response;
  ToWire(*step, &response);
  const uint64_t now = node::Engine::NowMs();
  response.set_waiting(loop.primary().Waiting(id, now));
  response.set_waited_ms(loop.primary().WaitedMs(id, now));
  responder->Reply(response);
  return true;
}

void OpenStep(ServiceContext* context, v1::OpenStepRequest request,
              TypedResponder<v1::OpenStepResponse> responder) {
  if (auto status = CheckWait(request.wait_ms()); !status.ok()) return responder.Fail(status);
  auto spec = FromWire(request.spec(), *context->catalog->Get());
  if (!spec.ok()) return responder.Fail(spec.status());
  const StepId step(request.step());
  context->engine->AskLedger<ledger::StatusReply>(
      ledger::OpenStep{.generation = Generation(request.generation()),
                       .step = step,
                       .spec = *std::move(spec),
                       .replan = request.replan()},
      [context, step, generation = Generation(request.generation()), wait_ms = request.wait_ms(),
       answer = Share(std::move(responder))](ledger::StatusReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        context->engine->WatchStep(
            step, wait_ms,
            [context, step, generation, answer](node::LedgerLoop& loop, bool timed_out) {
              return AnswerOpenStep(loop, generation, step, timed_out, context->draining,
                                    answer.get());
            });
      });
}

bool AnswerScalars(const ledger::State& state, Generation generation, StepId id, bool timed_out,
                   bool draining, TypedResponder<v1::FetchScalarsResponse>* responder) {
  if (auto status = state.CheckGeneration(generation); !status.ok()) {
    responder->Fail(status);
    return true;
  }
  const auto* step = state.step(id);
  if (step == nullptr || !step->live()) {
    responder->Fail(absl::NotFoundError(absl::StrCat("step ", id.value, " is not open")));
    return true;
  }
  if (step->state == ledger::StepState::kOpen) {
    if (!timed_out) return false;
    if (draining) {
      responder->Fail(Draining(id));
      return true;
    }
    responder->Fail(absl::DeadlineExceededError(
        absl::StrCat("step ", id.value, " is not reserved yet: ", step->totals.groups, " groups")));
    return true;
  }
  v1::FetchScalarsResponse response;
  response.set_revision(step->revision.value);
  for (const auto& rollout : step->rollouts) {
    const auto& group = step->groups[rollout.group];
    response.add_rollout_ids(rollout.rollout.value);
    response.add_group_ids(group.group.value);
    response.add_task_ids(WireTaskId(group.group.shard(), group.task));
    response.add_rewards(rollout.reward);
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < rollout.sequence_count; ++i) {
      tokens += step->sequences[rollout.first_sequence + i].tokens;
    }
    response.add_tokens(tokens);
    response.add_loss_tokens(rollout.loss_tokens);
    response.add_versions(rollout.version);
  }
  responder->Reply(response);
  return true;
}

void FetchScalars(ServiceContext* context, v1::FetchScalarsRequest request,
                  TypedResponder<v1::FetchScalarsResponse> responder) {
  if (auto status = CheckWait(request.wait_ms()); !status.ok()) return responder.Fail(status);
  context->engine->WatchStep(
      StepId(request.step()), request.wait_ms(),
      [context, generation = Generation(request.generation()), step = StepId(request.step()),
       answer = Share(std::move(responder))](node::LedgerLoop& loop, bool timed_out) {
        return AnswerScalars(loop.state(), generation, step, timed_out, context->draining,
                             answer.get());
      });
}

// Asks the ledger and answers with an empty message.
template <class Response>
void AskForStatus(ServiceContext* context, ledger::Command command,
                  TypedResponder<Response> responder) {
  context->engine->AskLedger<ledger::StatusReply>(
      std::move(command), [answer = Share(std::move(responder))](ledger::StatusReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        answer->Reply(Response());
      });
}

void PutAdvantages(ServiceContext* context, v1::PutAdvantagesRequest request,
                   TypedResponder<v1::PutAdvantagesResponse> responder) {
  AskForStatus(context,
               ledger::PutAdvantages{
                   .generation = Generation(request.generation()),
                   .step = StepId(request.step()),
                   .revision = Revision(request.revision()),
                   .advantages = {request.advantages().begin(), request.advantages().end()}},
               std::move(responder));
}

void NoteCommit(ServiceContext* context, StepId id) {
  context->engine->OnLedger([context, id](node::LedgerLoop& loop, uint64_t now_ms) {
    const auto* step = loop.state().step(id);
    if (step == nullptr) return;
    context->metrics->Committed(step->rollouts_by_lag);
    Log(LogLevel::kInfo, "step committed",
        {{"step", id.value},
         {"groups", step->totals.groups},
         {"rollouts", step->totals.rollouts},
         {"tokens", step->totals.tokens},
         {"reward_mean", step->reward_mean},
         {"waited_ms", loop.primary().WaitedMs(id, now_ms)},
         {"next_version", step->next_version.number}});
  });
}

void CommitStep(ServiceContext* context, v1::CommitStepRequest request,
                TypedResponder<v1::CommitStepResponse> responder) {
  context->engine->AskLedger<ledger::CommitReply>(
      ledger::CommitStep{.generation = Generation(request.generation()),
                         .step = StepId(request.step()),
                         .revision = Revision(request.revision())},
      [context, id = StepId(request.step()),
       answer = Share(std::move(responder))](ledger::CommitReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        if (!reply.already_committed) NoteCommit(context, id);
        v1::CommitStepResponse response;
        response.set_already_committed(reply.already_committed);
        ToWire(reply.next_version, response.mutable_next_version());
        answer->Reply(response);
      });
}

void AbortStep(ServiceContext* context, v1::AbortStepRequest request,
               TypedResponder<v1::AbortStepResponse> responder) {
  if (request.reason().size() > kReasonBytesMax) {
    return responder.Fail(absl::InvalidArgumentError(absl::StrCat(
        "reason: has ", request.reason().size(), " bytes; the limit is ", kReasonBytesMax)));
  }
  Log(LogLevel::kWarning, "step is to be aborted",
      {{"step", request.step()}, {"reason", request.reason()}});
  AskForStatus(context,
               ledger::AbortStep{.generation = Generation(request.generation()),
                                 .step = StepId(request.step()),
                                 .reason = request.reason()},
               std::move(responder));
}

void PublishVersion(ServiceContext* context, v1::PublishVersionRequest request,
                    TypedResponder<v1::PublishVersionResponse> responder) {
  ledger::PublishVersion command{.generation = Generation(request.generation())};
  if (auto status = FromWire(request.announcement(), &command.announcement); !status.ok()) {
    return responder.Fail(status);
  }
  AskForStatus(context, std::move(command), std::move(responder));
}

void CheckpointStep(ServiceContext* context, v1::CheckpointStepRequest request,
                    TypedResponder<v1::CheckpointStepResponse> responder) {
  context->engine->AskLedger<ledger::CheckpointReply>(
      ledger::CheckpointStep{.generation = Generation(request.generation()),
                             .step = StepId(request.step())},
      [step = request.step(),
       answer = Share(std::move(responder))](ledger::CheckpointReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        Log(LogLevel::kInfo, "checkpoint", {{"step", step}, {"newest", reply.checkpoint.value}});
        v1::CheckpointStepResponse response;
        response.set_checkpoint(reply.checkpoint.value);
        answer->Reply(response);
      });
}

void RewindByTrainer(ServiceContext* context, v1::RewindRequest request,
                     TypedResponder<v1::RewindResponse> responder) {
  if (request.generation() == 0) {
    return responder.Fail(
        absl::InvalidArgumentError("generation: is 0; attach, or use AdminService.Rewind"));
  }
  Rewind(context, std::move(request), std::move(responder));
}

template <class Request, class Response>
void Add(MethodTable* methods, ServiceContext* context, const char* name,
         void (*handler)(ServiceContext*, Request, TypedResponder<Response>)) {
  methods->AddUnary(
      absl::StrCat("/forebay.v1.TrainerService/", name),
      TypedUnary<Request, Response>([context, handler](const CallContext&, Request request,
                                                       TypedResponder<Response> responder) {
        handler(context, std::move(request), std::move(responder));
      }));
}

}  // namespace

void AddTrainerService(ServiceContext* context, MethodTable* methods) {
  Add(methods, context, "AttachTrainer", &AttachTrainer);
  Add(methods, context, "OpenStep", &OpenStep);
  Add(methods, context, "FetchScalars", &FetchScalars);
  Add(methods, context, "PutAdvantages", &PutAdvantages);
  Add(methods, context, "CommitStep", &CommitStep);
  Add(methods, context, "AbortStep", &AbortStep);
  Add(methods, context, "PublishVersion", &PublishVersion);
  Add(methods, context, "PutColumns", &PutColumns);
  Add(methods, context, "ReportSequences", &ReportSequences);
  Add(methods, context, "CheckpointStep", &CheckpointStep);
  Add(methods, context, "Rewind", &RewindByTrainer);
}

}  // namespace forebay::server
