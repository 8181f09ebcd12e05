#include "server/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"
#include "server/admin.h"
#include "server/grpc/fetch_stream.h"
#include "server/grpc/files.h"
#include "server/grpc/push_stream.h"
#include "server/grpc/reflection.h"
#include "server/log.h"
#include "server/metrics_page.h"
#include "server/tokens.h"
#include "server/version.h"

namespace forebay::server {
namespace {

// Requests of the admin service may be larger than the frames of rollouts.
constexpr uint64_t kMessageBytesMin = uint64_t{16} << 20;
// How often waits are counted, and payload memory is looked after.
constexpr uint64_t kLookMs = 100;
constexpr uint64_t kStorageLookMs = 20;
constexpr auto kObserveTimeout = absl::Seconds(5);
constexpr auto kSealTimeout = absl::Seconds(5);
constexpr auto kDiskTimeout = absl::Seconds(2);
constexpr auto kSwitchOverTimeout = absl::Seconds(3);
constexpr auto kDrainLook = std::chrono::milliseconds(20);
constexpr auto kQuiet = std::chrono::milliseconds(500);

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = (uint64_t{random()} << 32) | random();
  return id;
}

// Without its log the daemon can promise nothing any more, and what it said before holds: whoever
// starts it again finds all of it.
void EndAtOnce(std::string_view log, const absl::Status& status) {
  Log(LogLevel::kError, "the log has failed, so the daemon ends",
      {{"log", std::string(log)}, {"why", std::string(status.message())}});
  _exit(kLogFailed);
}

}  // namespace

Daemon::Daemon(const node::Config& config, std::unique_ptr<ClusterRun> cluster,
               std::unique_ptr<RunStorage> storage, std::function<void()> restart)
    : config_(config),
      live_config_(config),
      restart_(std::move(restart)),
      cluster_(std::move(cluster)),
      storage_(std::move(storage)),
      engine_(std::make_unique<node::Engine>(
          node::Engine::Options{.shards = static_cast<uint32_t>(config.shards),
                                .run = storage_->run(),
                                .run_seed = config.run_seed,
                                .open_steps_max = static_cast<uint32_t>(config.steps_open_max),
                                .absent_after_ms = config.steps_shard_absent_after_ms},
          storage_.get())),
      push_port_(engine_.get(), &catalog_, storage_.get(), &metrics_),
      fetch_port_(engine_.get(), &clients_),
      verification_(std::make_shared<PayloadVerification>(&context_)),
      relief_(&context_),
      push_stalls_(&context_, &push_watch_),
      wait_sampler_(&context_) {
  context_.engine = engine_.get();
  context_.catalog = &catalog_;
  context_.clients = &clients_;
  context_.storage = storage_.get();
  context_.payloads = storage_->payloads();
  context_.contents = storage_->contents();
  context_.ticker = &ticker_;
  context_.config = &live_config_;
  context_.metrics = &metrics_;
  context_.verification = verification_.get();
  context_.started_ms = node::Engine::NowMs();
  if (cluster_ != nullptr) context_.cluster = [this] { return cluster_->Facts(); };
  context_.run = storage_->run();
  context_.renew_interval_ms = config.renew_interval_ms;
  context_.rollout_bytes_max = config.limits_rollout_bytes_max;
  context_.frame_bytes_max = config.limits_frame_bytes_max;
}

Daemon::~Daemon() {
  if (cluster_ != nullptr) cluster_->Stop();
  if (lead_.joinable()) lead_.join();
  verification_->Close();
  ticker_.Stop();
  http_server_.Stop();
  if (rpc_server_ != nullptr) rpc_server_->Shutdown(std::chrono::milliseconds(0));
  // What still waits in the engine holds handles on calls; it goes before the server does.
  engine_.reset();
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const node::Config& config,
                                                      std::function<void()> restart) {
  uint64_t run = RandomId();
  std::unique_ptr<ClusterRun> cluster;
  if (config.clustered()) {
    auto opened = ClusterRun::Open(config, run);
    if (!opened.ok()) return opened.status();
    cluster = *std::move(opened);
    run = cluster->run();
  }
  auto storage = RunStorage::Open(config, run, EndAtOnce, cluster.get());
  if (!storage.ok()) return storage.status();
  std::unique_ptr<Daemon> daemon(
      new Daemon(config, std::move(cluster), *std::move(storage), std::move(restart)));
  FOREBAY_RETURN_IF_ERROR(daemon->cluster_ != nullptr ? daemon->Follow() : daemon->Begin());
  daemon->AddServices();
  FOREBAY_RETURN_IF_ERROR(daemon->Listen());
  daemon->ticker_.Start();
  return daemon;
}

absl::Status Daemon::Follow() {
  FOREBAY_RETURN_IF_ERROR(storage_->Follow(
      engine_.get(),
      [this](const node::AbsentMachines& absent) {
        lead_ = std::thread([this, absent] { Lead(absent); });
      },
      [this](const std::string& why) { OnDeposed(why); }));
  for (const std::string& note : cluster_->notes()) {
    Log(LogLevel::kInfo, "replica", {{"note", note}});
  }
  return absl::OkStatus();
}

void Daemon::Lead(const node::AbsentMachines& absent) {
  const uint64_t epoch = cluster_->epoch().value;
  storage_->SetEpoch(epoch);
  if (absl::Status status = Begin(absent); !status.ok()) {
    Log(LogLevel::kError, "the node cannot lead, and begins anew",
        {{"why", std::string(status.message())}});
    return restart_();
  }
  Log(LogLevel::kInfo, "leads", {{"epoch", epoch}});
}

// Nothing that was not committed was answered: all of it is the next leader's to decide.
void Daemon::OnDeposed(const std::string& why) {
  if (leaving_) {
    return deposed_.Notify();
  }
  Log(LogLevel::kWarning, absl::StrCat(why, ", and this one begins anew"));
  restart_();
}

absl::Status Daemon::Begin(const node::AbsentMachines& absent) {
  FOREBAY_RETURN_IF_ERROR(engine_->Begin(storage_->journal(), absent));
  for (const std::string& note : storage_->notes()) {
    Log(LogLevel::kInfo, "storage", {{"note", note}});
  }
  for (const std::string& loss : storage_->losses()) {
    Log(LogLevel::kWarning, "storage", {{"note", loss}});
  }
  for (uint32_t i = 0; i < engine_->shards(); ++i) {
    const absl::Status& presence = engine_->Presence(ShardId(static_cast<uint8_t>(i)));
    if (presence.ok()) continue;
    Log(LogLevel::kError, "a shard is absent; the run goes on without it",
        {{"shard", i}, {"why", presence.message()}});
  }
  absl::Status status;
  Notification done;
  engine_->OnLedger([&](node::LedgerLoop& loop, uint64_t) {
    for (const ledger::Source& source : loop.state().sources()) {
      status.Update(catalog_.Put(source.id, source.settings));
    }
    loop.primary().SetDriftRules({.hold_k3 = live_config_.Get().drift_hold_k3});
    done.Notify();
  });
  done.Wait();
  if (status.ok()) serving_ = true;
  return status;
}

void Daemon::AddTick(uint64_t interval_ms, Ticker::Work work) {
  ticker_.Add(interval_ms, [this, work = std::move(work)](uint64_t now_ms) {
    if (serving_) work(now_ms);
  });
}

void Daemon::AddServices() {
  AddActorService(&context_, &methods_);
  AddTrainerService(&context_, &methods_);
  AddSourceMethods(&context_, &methods_);
  AddTaskMethods(&context_, &methods_);
  AddTaskListMethods(&context_, &methods_);
  AddRolloutMethods(&context_, &methods_);
  AddDropMethods(&context_, &methods_);
  AddReadRollout(&context_, &methods_);
  AddClientMethods(&context_, &methods_);
  AddEvalMethods(&context_, &methods_);
  AddStorageMethods(&context_, &methods_);
  AddVerifyMethods(&context_, &methods_);
  AddRewindMethods(&context_, &methods_);
  AddDriftMethods(&context_, &methods_);
  AddStatusMethods(&context_, &methods_);
  AddTick(kStorageLookMs, [this](uint64_t) { storage_->Tick(); });
  AddTick(kLookMs, [this](uint64_t now_ms) { relief_.Tick(now_ms); });
  AddTick(kLookMs, [this](uint64_t now_ms) { wait_sampler_.Tick(now_ms); });
  AddTick(kLookMs, [this](uint64_t now_ms) { push_stalls_.Tick(now_ms); });
  live_config_.OnChange([this](const node::Config& changed) { Apply(changed); });
  const PushOptions push{
      .engine = &push_port_,
      .store = storage_->payloads(),
      .limits = {.rollout_bytes_max = config_.limits_rollout_bytes_max,
                 .frames_in_flight_max = static_cast<uint32_t>(config_.limits_stream_frames_max),
                 .bytes_in_flight_max = config_.limits_stream_bytes_max},
      .cold_columns = config_.cold_columns(),
      .watch = &push_watch_};
  methods_.AddStream("/forebay.v1.ActorService/Push", MakePushStream(push));
  methods_.AddStream("/forebay.v1.ActorService/PushGroup", MakePushGroupStream(push));
  FetchOptions fetch{.engine = &fetch_port_, .store = storage_->payloads()};
  fetch.limits.frame_bytes_max = config_.limits_frame_bytes_max;
  fetch.limits.frame_bytes_default =
      std::min(fetch.limits.frame_bytes_default, config_.limits_frame_bytes_max);
  fetch.limits.queued_bytes_max = config_.limits_fetch_queue_bytes_max;
  methods_.AddStream("/forebay.v1.TrainerService/Fetch", MakeFetchStream(fetch));
  if (cluster_ != nullptr) {
    cluster_->AddServices(&cluster_map_, &ticker_, &methods_, [this] { return serving_.load(); });
  } else {
    cluster_map_.Set(AloneView(context_.run));
    AddClusterService(&cluster_map_, &ticker_, &methods_);
  }
  health_.AddTo(&methods_);
  AddReflection(&methods_);
}

void Daemon::Apply(const node::Config& changed) {
  storage_->payloads()->budget().SetLimits(changed.memory_payload_bytes_max,
                                           changed.completion_reserve_bytes());
  storage_->SetRetentionBytesMax(changed.retention_bytes_max());
  storage_->SetKeep(changed.keep());
  if (serving_) {
    engine_->OnLedger(
        [rules = drift::Rules{.hold_k3 = changed.drift_hold_k3}](node::LedgerLoop& loop, uint64_t) {
          loop.primary().SetDriftRules(rules);
        });
  }
  context_.renew_interval_ms = changed.renew_interval_ms;
  SetLogLevel(changed.log_level);
}

absl::Status Daemon::AddAuthorization(RpcServerOptions* options) {
  if (config_.auth_tokens_file.empty()) return absl::OkStatus();
  FOREBAY_RETURN_IF_ERROR(ReadTokens(config_.auth_tokens_file, &authorizer_));
  authorizer_.AddRule("/forebay.v1.ActorService/", Role::kActor);
  authorizer_.AddRule("/forebay.v1.TrainerService/", Role::kTrainer);
  authorizer_.AddRule("/forebay.v1.AdminService/", Role::kOperator);
  authorizer_.AddKnown("/forebay.v1.ClusterService/");
  authorizer_.AddRule("/forebay.v1.PeerService/", Role::kPeer);
  authorizer_.AddOpen("/grpc.health.v1.Health/");
  options->authorize = [this](std::string_view method, std::string_view token) {
    return authorizer_.Check(method, token);
  };
  return absl::OkStatus();
}

absl::Status Daemon::Listen() {
  RpcServerOptions options;
  options.allow_remote_without_tls = config_.listen_allow_remote;
  options.tls = {config_.tls_cert, config_.tls_key, config_.tls_client_ca};
  options.io_threads = static_cast<int>(config_.server_io_threads);
  options.message_bytes_max = std::max(kMessageBytesMin, 2 * config_.limits_frame_bytes_max);
  options.calls_max = config_.limits_calls_max;
  if (cluster_ != nullptr) {
    options.admit = [this](std::string_view method) {
      if (serving_ || ServedByAnyNode(method)) return absl::OkStatus();
      return DoesNotLead(*cluster_map_.Get());
    };
    options.before_queues_end = [this] { cluster_->StopSending(); };
  }
  FOREBAY_RETURN_IF_ERROR(AddAuthorization(&options));
  HostPort grpc;
  if (!config_.listen_grpc.empty()) {
    auto address = ParseAddress("listen.grpc", config_.listen_grpc);
    if (!address.ok()) return address.status();
    FOREBAY_RETURN_IF_ERROR(CheckReach("listen.grpc", address->host,
                                       config_.listen_allow_remote || !config_.tls_cert.empty()));
    grpc = *address;
    options.addresses.push_back(config_.listen_grpc);
  }
  auto unix_path = UnixPath(config_);
  if (!unix_path.ok()) return unix_path.status();
  if (!unix_path->empty()) {
    FOREBAY_RETURN_IF_ERROR(ClearUnixPath(*unix_path));
    options.addresses.push_back(absl::StrCat("unix:", *unix_path));
  }
  auto server = RpcServer::Start(options, &methods_);
  if (!server.ok()) return server.status();
  rpc_server_ = *std::move(server);
  unix_path_ = *unix_path;
  if (!config_.listen_grpc.empty()) grpc.port = rpc_server_->ports()[0];
  HostPort http;
  FOREBAY_RETURN_IF_ERROR(ListenHttp(&http));
  return Announce(grpc, http);
}

std::shared_ptr<Observation> Daemon::Look() {
  struct Wait {
    Notification done;
    std::shared_ptr<Observation> seen;
  };
  auto wait = std::make_shared<Wait>();
  Observe(&context_, [wait](std::shared_ptr<Observation> seen) {
    wait->seen = std::move(seen);
    wait->done.Notify();
  });
  if (!wait->done.WaitFor(kObserveTimeout)) return nullptr;
  return wait->seen;
}

absl::Status Daemon::ListenHttp(HostPort* http) {
  if (config_.listen_http.empty()) return absl::OkStatus();
  auto address = ParseAddress("listen.http", config_.listen_http);
  if (!address.ok()) return address.status();
  FOREBAY_RETURN_IF_ERROR(CheckReach("listen.http", address->host, config_.listen_allow_remote));
  const HttpPage stuck{.status = 503, .body = "the daemon's loops do not answer\n"};
  const HttpPage follows{.body = "follows\n"};
  http_server_.Add("/metrics", [this, stuck] {
    constexpr char kType[] = "text/plain; version=0.0.4; charset=utf-8";
    const ClusterPage cluster = cluster_ != nullptr ? cluster_->Page() : ClusterPage();
    if (!serving_) {
      return HttpPage{.content_type = kType,
                      .body = FollowerMetricsPage(cluster, methods_,
                                                  node::Engine::NowMs() - context_.started_ms)};
    }
    const auto seen = Look();
    if (seen == nullptr) return stuck;
    return HttpPage{.content_type = kType, .body = MetricsPage(*seen, metrics_, methods_, cluster)};
  });
  http_server_.Add("/healthz", [this, stuck, follows] {
    if (!serving_) return follows;
    return Look() == nullptr ? stuck : HttpPage{.body = "ok\n"};
  });
  http_server_.Add("/readyz", [this, stuck, follows] {
    if (!serving_) return follows;
    if (context_.draining) return HttpPage{.status = 503, .body = "draining\n"};
    return Look() == nullptr ? stuck : HttpPage{.body = "ready\n"};
  });
  if (absl::Status status = http_server_.Start(address->host, address->port); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), ": ", WhyNotListen(config_.listen_http)));
  }
  *http = {address->host, http_server_.port()};
  return absl::OkStatus();
}

absl::Status Daemon::Announce(const HostPort& grpc, const HostPort& http) {
  const auto text = [](const HostPort& address) {
    return address.port == 0 ? std::string() : absl::StrCat(address.host, ":", address.port);
  };
  const std::string grpc_address = text(grpc);
  if (cluster_ != nullptr) {
    const auto or_own = [](const std::string& set, const std::string& own) {
      return set.empty() ? own : set;
    };
    FOREBAY_RETURN_IF_ERROR(
        cluster_->Start({.grpc = or_own(config_.cluster_advertise, grpc_address),
                         .http = or_own(config_.cluster_advertise_http, text(http))},
                        rpc_server_->shared_queue()));
  }
  Log(LogLevel::kInfo, cluster_ != nullptr ? "following" : "serving",
      {{"version", kVersion},
       {"run", absl::StrCat(absl::Hex(context_.run, absl::kZeroPad16))},
       {"grpc", grpc_address},
       {"unix", unix_path_},
       {"http", text(http)},
       {"shards", config_.shards},
       {"payload_bytes_max", config_.memory_payload_bytes_max},
       {"rollout_bytes_max", config_.limits_rollout_bytes_max}});
  return WriteAnnounceFile(absl::StrCat(
      "{\"grpc\": ", JsonText(grpc_address), ", \"unix\": ", JsonText(unix_path_),
      ", \"http\": ", JsonText(text(http)), ", \"pid\": ", static_cast<int64_t>(getpid()), "}\n"));
}

absl::Status Daemon::WriteAnnounceFile(const std::string& text) const {
  const std::string& path = config_.listen_announce_file;
  if (path.empty()) return absl::OkStatus();
  // Written aside and renamed: who waits for the file sees all of it.
  const std::string aside = absl::StrCat(path, ".new");
  errno = 0;
  std::ofstream file(aside);
  file << text;
  file.close();
  if (!file) return FileError("listen.announce_file", "write", aside, errno);
  if (std::rename(aside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(aside.c_str());
  return FileError("listen.announce_file", "replace", path, error);
}

// Nothing is under way that could still come to an end: no leases are out, or nobody is connected.
// An actor that is, is silent between two calls.
bool Daemon::Idle() {
  const auto seen = Look();
  if (seen == nullptr) return false;
  uint64_t leases = 0, running = 0, ended = 0;
  for (const auto& source : seen->sources) leases += source.in_flight;
  for (const auto& method : methods_.methods()) {
    running += method.stats.running;
    for (const auto& count : method.stats.ended) ended += count;
  }
  leases_out_ = leases;
  const auto now = std::chrono::steady_clock::now();
  if (running > 0 || std::exchange(calls_ended_, ended) != ended) last_call_ = now;
  return leases == 0 || now - last_call_ >= kQuiet;
}

void Daemon::LogCutOff() const {
  uint64_t calls = 0;
  std::string methods;
  for (const auto& method : methods_.methods()) {
    const uint64_t running = method.stats.running;
    if (running == 0) continue;
    calls += running;
    absl::StrAppend(&methods, methods.empty() ? "" : ", ", running, " ",
                    method.name.substr(method.name.rfind('/') + 1));
  }
  Log(LogLevel::kWarning, "a second signal: ended at once, what ran was cut off",
      {{"calls", calls}, {"methods", methods}, {"leases", leases_out_.load()}});
}

bool Daemon::MarkLogs() {
  auto marked = std::make_shared<Notification>();
  engine_->LookAtLogs([this, marked] { storage_->LookAtContents([marked] { marked->Notify(); }); });
  return marked->WaitFor(kSealTimeout);
}

// The others need not find out that this node is gone.
void Daemon::LeaveCluster() {
  auto left = std::make_shared<Notification>();
  cluster_->Leave([left] { left->Notify(); });
  if (!left->WaitFor(kSwitchOverTimeout)) {
    Log(LogLevel::kWarning, "the cluster could not be told that this node ends");
  }
}

// Another node takes over in a moment, with all leases: actors need not be told. False if none can.
bool Daemon::SwitchOver() {
  leaving_ = true;
  auto asked = std::make_shared<Notification>();
  auto answer = std::make_shared<absl::Status>();
  cluster_->SwitchOver(cluster::NodeId(), [asked, answer](absl::Status status) {
    *answer = std::move(status);
    asked->Notify();
  });
  if (!asked->WaitFor(kSwitchOverTimeout)) *answer = absl::DeadlineExceededError("no answer");
  if (answer->ok() && !deposed_.WaitFor(kSwitchOverTimeout)) {
    *answer = absl::DeadlineExceededError("the one that was asked did not");
  }
  if (!answer->ok()) {
    Log(LogLevel::kWarning, "no other node took over", {{"why", std::string(answer->message())}});
    return false;
  }
  serving_ = false;
  rpc_server_->EndCalls(DoesNotLead(*cluster_map_.Get()), ServedByAnyNode);
  LeaveCluster();
  rpc_server_->Shutdown(std::chrono::milliseconds(0));
  Log(LogLevel::kInfo, "another node leads; stopped");
  return true;
}

Daemon::End Daemon::Drain() {
  if (cluster_ != nullptr && !serving_) {
    leaving_ = true;
    LeaveCluster();
    cluster_->Stop();
    rpc_server_->Shutdown(std::chrono::milliseconds(0));
    Log(LogLevel::kInfo, "stopped");
    return End::kClean;
  }
  if (cluster_ != nullptr && SwitchOver()) return End::kHandedOver;
  const std::chrono::milliseconds drain(live_config_.Get().shutdown_drain_ms);
  const auto until = std::chrono::steady_clock::now() + drain;
  Log(LogLevel::kInfo, "draining", {{"drain_ms", drain.count()}});
  context_.draining = true;
  health_.SetServing(false);
  ForEachShard(
      engine_.get(), [](node::ShardLoop& loop, uint64_t) { loop.primary().SetDraining(true); },
      [] {});
  engine_->EndStepWaits();
  // Half of the time for actors to hear of it and to save what they have, the rest for calls to
  // end.
  const auto actors_until = until - drain / 2;
  last_call_ = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < actors_until && !Idle()) {
    std::this_thread::sleep_for(kDrainLook);
  }
  verification_->Close();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  rpc_server_->Shutdown(std::max(left, std::chrono::milliseconds(0)));
  if (!storage_->Seal(kSealTimeout)) {
    Log(LogLevel::kWarning, "the open segments could not be ended: the next start reads more",
        {{"waited_ms", absl::ToInt64Milliseconds(kSealTimeout)}});
  }
  ticker_.Stop();
  if (!MarkLogs()) {
    Log(LogLevel::kWarning, "it could not be noted how far the logs are synced",
        {{"waited_ms", absl::ToInt64Milliseconds(kSealTimeout)}});
  }
  const uint64_t hanging = storage_->AwaitDisk(kDiskTimeout);
  if (hanging > 0) {
    Log(LogLevel::kWarning, "the store of rollouts hangs: ended without waiting for it",
        {{"operations", hanging}, {"waited_ms", absl::ToInt64Milliseconds(kDiskTimeout)}});
    return End::kHangs;
  }
  Log(LogLevel::kInfo, "stopped");
  return End::kClean;
}

}  // namespace forebay::server
