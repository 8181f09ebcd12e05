// AdminService: the verification of stored payloads.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/payload_verification.h"

namespace forebay::server {
namespace {

constexpr uint64_t kLookMs = 50;
constexpr uint32_t kWaitMsMax = 60'000;

using VerifyResponder = TypedResponder<v1::VerifyPayloadsResponse>;

absl::StatusOr<uint64_t> RateOf(const v1::VerifyPayloadsRequest& request) {
  const uint64_t rate = request.bytes_per_second();
  if (rate == 0) return PayloadVerification::kRateDefault;
  if (rate >= PayloadVerification::kRateMin && rate <= PayloadVerification::kRateMax) return rate;
  return absl::InvalidArgumentError(absl::StrCat("bytes_per_second: is ", rate, "; ",
                                                 PayloadVerification::kRateMin, " to ",
                                                 PayloadVerification::kRateMax));
}

v1::VerifyPayloadsResponse ToWire(const PayloadVerification::Progress& progress) {
  const uint64_t now_ms = node::Engine::NowMs();
  v1::VerifyPayloadsResponse out;
  out.set_running(progress.running);
  out.set_payloads(progress.payloads);
  out.set_payload_bytes(progress.payload_bytes);
  out.set_read_payloads(progress.read_payloads);
  out.set_read_bytes(progress.read_bytes);
  out.set_freed(progress.freed);
  out.set_damaged(progress.damaged);
  for (const std::string& what : progress.damage) out.add_damage(what);
  if (progress.began_ms == 0) return out;
  out.set_began_ms_ago(now_ms - progress.began_ms);
  out.set_took_ms((progress.running ? now_ms : progress.ended_ms) - progress.began_ms);
  return out;
}

// Calls that wait for the end; the ticker looks at them.
class VerifyCalls {
 public:
  explicit VerifyCalls(ServiceContext* context) : context_(context) {}

  void Begin(const v1::VerifyPayloadsRequest& request, VerifyResponder responder) {
    const auto rate = RateOf(request);
    absl::Status status = rate.status();
    if (status.ok() && request.wait_ms() > kWaitMsMax) {
      status = absl::InvalidArgumentError(
          absl::StrCat("wait_ms: is ", request.wait_ms(), "; the limit is ", kWaitMsMax));
    }
    if (status.ok() && request.start()) status = context_->verification->Start(*rate);
    if (!status.ok()) return responder.Fail(status);
    Look({std::move(responder), node::Engine::NowMs() + request.wait_ms()});
  }

  void Tick() {
    std::vector<Wait> waits;
    {
      MutexLock lock(&mutex_);
      waits.swap(waits_);
    }
    for (Wait& wait : waits) Look(std::move(wait));
  }

 private:
  struct Wait {
    VerifyResponder answer;
    uint64_t until_ms;
  };

  void Look(Wait wait) {
    const auto progress = context_->verification->progress();
    const bool waits = progress.running && node::Engine::NowMs() < wait.until_ms &&
                       !context_->draining && !wait.answer.cancelled();
    if (!waits) return wait.answer.Reply(ToWire(progress));
    MutexLock lock(&mutex_);
    waits_.push_back(std::move(wait));
  }

  ServiceContext* const context_;
  Mutex mutex_;
  std::vector<Wait> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void AddVerifyMethods(ServiceContext* context, MethodTable* methods) {
  auto calls = std::make_shared<VerifyCalls>(context);
  context->ticker->Add(kLookMs, [context, calls](uint64_t now_ms) {
    context->verification->Tick(now_ms);
    calls->Tick();
  });
  methods->AddUnary(
      "/forebay.v1.AdminService/VerifyPayloads",
      TypedUnary<v1::VerifyPayloadsRequest, v1::VerifyPayloadsResponse>(
          [calls](const CallContext&, const v1::VerifyPayloadsRequest& request,
                  VerifyResponder responder) { calls->Begin(request, std::move(responder)); }));
}

}  // namespace forebay::server
