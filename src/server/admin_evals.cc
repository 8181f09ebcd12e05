// AdminService: evaluation runs.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/eval_results.h"
#include "server/policy_messages.h"
#include "server/ticker.h"

namespace forebay::server {
namespace {

constexpr uint32_t kAttemptsMax = 4096;
constexpr uint32_t kWaitMsMax = 60'000;
// How often waiting calls look at their runs.
constexpr uint64_t kLookMs = 50;

using EvalResponder = std::shared_ptr<TypedResponder<v1::EvalResult>>;

absl::Status Check(const v1::StartEvalRequest& request) {
  if (request.eval_run() == 0) return absl::InvalidArgumentError("eval_run: is 0");
  if (request.attempts() > kAttemptsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempts: is ", request.attempts(), "; the limit is ", kAttemptsMax));
  }
  if (!std::isfinite(request.share()) || request.share() < 0 || request.share() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("share: is ", request.share(), "; above 0, at most 1"));
  }
  return CheckPolicyName(request.version().policy(), "version.policy");
}

// A StartEval under way, from shard to shard; a refusal stops it, and the request can be repeated.
void StartAt(ServiceContext* context, shard::StartEval command, uint32_t shard,
             std::shared_ptr<TypedResponder<v1::StartEvalResponse>> answer) {
  if (shard == context->engine->shards()) {
    v1::StartEvalResponse response;
    response.set_eval_run(command.run.value);
    return answer->Reply(response);
  }
  context->engine->Ask<shard::CountReply>(
      ShardId(static_cast<uint8_t>(shard)), command,
      [context, command, shard, answer](shard::CountReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        StartAt(context, command, shard + 1, answer);
      });
}

void StartEval(ServiceContext* context, v1::StartEvalRequest request,
               TypedResponder<v1::StartEvalResponse> responder) {
  if (auto status = Check(request); !status.ok()) return responder.Fail(status);
  const auto catalog = context->catalog->Get();
  const auto* source = catalog->Find(request.source());
  if (source == nullptr) {
    return responder.Fail(
        absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
  }
  for (uint32_t i = 0; i < context->engine->shards(); ++i) {
    const absl::Status& presence = context->engine->Presence(ShardId(static_cast<uint8_t>(i)));
    if (!presence.ok()) return responder.Fail(presence);
  }
  shard::StartEval command{.run = EvalRunId(request.eval_run()),
                           .source = source->id,
                           .version = FromWire(request.version()),
                           .attempts = request.attempts() == 0 ? 1 : request.attempts(),
                           .share = request.share() == 0 ? 1 : request.share()};
  auto answer = std::make_shared<TypedResponder<v1::StartEvalResponse>>(std::move(responder));
  if (request.has_version()) return StartAt(context, command, 0, std::move(answer));
  context->engine->OnLedger([context, command, answer](node::LedgerLoop& loop, uint64_t) mutable {
    command.version = loop.state().published().version;
    StartAt(context, command, 0, answer);
  });
}

void FillSource(const CatalogSnapshot& catalog, SourceId id, v1::EvalResult* out) {
  if (const auto* source = catalog.Find(id)) out->set_source(source->settings.name);
}

// Calls that wait for runs to end; the ticker looks at them.
class EvalWaits {
 public:
  explicit EvalWaits(ServiceContext* context) : context_(context) {}

  // Answers now if the run is done or `until_ms` is over, else keeps the call.
  void Look(EvalRunId run, uint64_t until_ms, EvalResponder answer) {
    auto sums = std::make_shared<EvalSums>();
    ForEachShard(
        context_->engine,
        [sums, run](node::ShardLoop& loop, uint64_t) {
          if (const auto view = loop.state().Eval(run)) sums->Add(*view);
        },
        [this, sums, run, until_ms, answer] { Decide(*sums, run, until_ms, answer); });
  }

  void Tick() {
    std::vector<Wait> waits;
    {
      MutexLock lock(&mutex_);
      waits.swap(waits_);
    }
    for (auto& wait : waits) Look(wait.run, wait.until_ms, std::move(wait.answer));
  }

 private:
  struct Wait {
    EvalRunId run;
    uint64_t until_ms;
    EvalResponder answer;
  };

  void Decide(const EvalSums& sums, EvalRunId run, uint64_t until_ms, EvalResponder answer) {
    const auto* sum = sums.Find(run);
    if (sum == nullptr) {
      return answer->Fail(
          absl::NotFoundError(absl::StrCat("eval_run: ", run.value, " is not known")));
    }
    v1::EvalResult result;
    ToWire(*sum, context_->engine->shards(), &result);
    if (!result.done() && context_->draining) {
      return answer->Fail(absl::UnavailableError(
          absl::StrCat("eval_run: ", run.value, " is not done, and the daemon is draining")));
    }
    if (!result.done() && node::Engine::NowMs() < until_ms && !answer->cancelled()) {
      MutexLock lock(&mutex_);
      waits_.push_back({run, until_ms, std::move(answer)});
      return;
    }
    FillSource(*context_->catalog->Get(), sum->view.source, &result);
    answer->Reply(result);
  }

  ServiceContext* const context_;
  Mutex mutex_;
  std::vector<Wait> waits_ ABSL_GUARDED_BY(mutex_);
};

void ListEvals(ServiceContext* context, v1::ListEvalsRequest,
               TypedResponder<v1::ListEvalsResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::ListEvalsResponse>>(std::move(responder));
  auto sums = std::make_shared<EvalSums>();
  ForEachShard(
      context->engine,
      [sums](node::ShardLoop& loop, uint64_t) {
        for (const auto& view : loop.state().Evals()) sums->Add(view);
      },
      [context, sums, answer] {
        v1::ListEvalsResponse response;
        const auto catalog = context->catalog->Get();
        for (const auto& sum : sums->sums()) {
          auto* out = response.add_evals();
          ToWire(sum, context->engine->shards(), out);
          FillSource(*catalog, sum.view.source, out);
        }
        answer->Reply(response);
      });
}

}  // namespace

void AddEvalMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "StartEval", &StartEval);
  AddAdmin(methods, context, "ListEvals", &ListEvals);
  auto waits = std::make_shared<EvalWaits>(context);
  context->ticker->Add(kLookMs, [waits](uint64_t) { waits->Tick(); });
  methods->AddUnary(
      "/forebay.v1.AdminService/GetEval",
      TypedUnary<v1::GetEvalRequest, v1::EvalResult>(
          [waits](const CallContext&, v1::GetEvalRequest request,
                  TypedResponder<v1::EvalResult> responder) {
            if (request.wait_ms() > kWaitMsMax) {
              return responder.Fail(absl::InvalidArgumentError(
                  absl::StrCat("wait_ms: is ", request.wait_ms(), "; the limit is ", kWaitMsMax)));
            }
            waits->Look(EvalRunId(request.eval_run()), node::Engine::NowMs() + request.wait_ms(),
                        std::make_shared<TypedResponder<v1::EvalResult>>(std::move(responder)));
          }));
}

}  // namespace forebay::server
