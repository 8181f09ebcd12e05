#include "server/grpc/health.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/sync.h"
#include "codec/wire.h"

namespace forebay::server {
namespace {

// grpc.health.v1.HealthCheckResponse.ServingStatus.
enum Serving : uint32_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// HealthCheckRequest: {string service = 1}.
std::optional<std::string> DecodeRequest(grpc::ByteBuffer body) {
  grpc::Slice slice;
  if (!body.DumpToSingleSlice(&slice).ok()) return std::nullopt;
  codec::WireReader r(std::string_view(reinterpret_cast<const char*>(slice.begin()), slice.size()));
  std::string service;
  while (r.Next()) {
    if (r.tag() == codec::BytesTag(1)) {
      service = r.String();
    } else {
      r.Skip();
    }
  }
  if (!r.ok()) return std::nullopt;
  return service;
}

grpc::ByteBuffer EncodeResponse(uint32_t state) {
  std::string text;
  codec::WireWriter(&text).Varint(1, state);
  grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status BadRequest() {
  return absl::InvalidArgumentError("the request is no grpc.health.v1.HealthCheckRequest");
}

}  // namespace

// One Watch: the state now, then each change.
class Health::Watcher final : public StreamHandler {
 public:
  explicit Watcher(Health* health) : health_(health) {}

  void OnStart(Stream& stream, const CallContext& /*call*/) override { stream.Read(); }
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override {
    auto service = DecodeRequest(std::move(body));
    if (!service.has_value()) {
      stream.Finish(BadRequest());
      return;
    }
    service_ = *std::move(service);
    stream_ = &stream;
    id_ = health_->AddWatcher(stream.ref(), this);
    Tell();
  }
  void OnHalfClose(Stream& stream) override {
    if (id_ == 0) stream.Finish(BadRequest());
  }
  void OnDrain(Stream& stream) override { stream.Finish(absl::UnavailableError("shutting down")); }
  void OnDone() override { health_->RemoveWatcher(id_); }

  void Tell() {
    const uint32_t state = health_->StateOf(service_);
    if (std::exchange(told_, state) != state) stream_->Write(EncodeResponse(state));
  }

 private:
  Health* const health_;
  std::string service_;
  Stream* stream_ = nullptr;
  uint64_t id_ = 0;
  uint32_t told_ = 0;
};

void Health::AddTo(MethodTable* methods) {
  methods_ = methods;
  methods->AddUnary("/grpc.health.v1.Health/Check",
                    [this](const CallContext&, grpc::ByteBuffer body, Responder responder) {
                      const auto service = DecodeRequest(std::move(body));
                      if (!service.has_value()) {
                        responder.Fail(BadRequest());
                        return;
                      }
                      const uint32_t state = StateOf(*service);
                      if (state == kServiceUnknown) {
                        responder.Fail(absl::NotFoundError("unknown service"));
                      } else {
                        responder.Reply(EncodeResponse(state));
                      }
                    });
  methods->AddStream("/grpc.health.v1.Health/Watch",
                     [this] { return std::make_unique<Watcher>(this); });
}

uint32_t Health::StateOf(const std::string& service) const {
  const std::vector<std::string> services = methods_->Services();
  if (!service.empty() && std::find(services.begin(), services.end(), service) == services.end()) {
    return kServiceUnknown;
  }
  return serving_.load() ? kServing : kNotServing;
}

void Health::SetServing(bool serving) {
  serving_.store(serving);
  MutexLock lock(&mutex_);
  for (const auto& [id, watching] : watchers_) {
    watching.stream.Post([watcher = watching.watcher] { watcher->Tell(); });
  }
}

uint64_t Health::AddWatcher(StreamRef stream, Watcher* watcher) {
  MutexLock lock(&mutex_);
  watchers_[++last_watcher_] = {std::move(stream), watcher};
  return last_watcher_;
}

void Health::RemoveWatcher(uint64_t id) {
  MutexLock lock(&mutex_);
  watchers_.erase(id);
}

}  // namespace forebay::server
