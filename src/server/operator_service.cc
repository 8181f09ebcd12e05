#include "server/operator_service.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sync.h"
#include "forebay/v1/operator.pb.h"
#include "node/cluster_keys.h"
#include "node/engine.h"
#include "operators/operator_calls.h"
#include "server/disk_probe.h"
#include "server/grpc/typed.h"
#include "server/log.h"
#include "server/observation.h"
#include "server/version.h"

namespace forebay::server {
namespace {

constexpr absl::Duration kCoordinatorTimeout = absl::Seconds(5);
constexpr absl::Duration kLookTimeout = absl::Seconds(2);
constexpr size_t kWaitingMax = 64;
// What `doctor` holds against one another.
constexpr const char* kSameOnAll[] = {"shards",
                                      "run.seed",
                                      "steps.open_max",
                                      "memory.task_bytes_max",
                                      "cluster.replicas",
                                      "cluster.min_in_sync",
                                      "cluster.heartbeat_ms",
                                      "cluster.suspect_ms"};

cluster::NodeId Self(const node::Config& config) {
  return cluster::NodeId(static_cast<uint32_t>(config.cluster_node));
}

void FillReplicas(const OperatorPorts& ports, v1::NodeState* out) {
  for (const auto& [machine, view] : LookAtReplicas(*ports.replicas, kLookTimeout)) {
    v1::ReplicaState* replica = out->add_replicas();
    replica->set_machine(machine);
    replica->set_role(view.role == replication::Role::kPrimary ? "primary" : "backup");
    replica->set_serving(view.serving);
    replica->set_failed(view.failed);
    replica->set_epoch(view.epoch.value);
    replica->set_leader(view.leader.value);
    replica->set_incarnation(view.incarnation.value);
    replica->set_last(view.last.value);
    replica->set_synced(view.synced.value);
    replica->set_committed(view.committed.value);
    replica->set_applied(view.applied.value);
  }
}

void FillPeers(const OperatorPorts& ports, v1::NodeState* out) {
  const absl::Time now = absl::Now();
  for (const auto& [node, stats] : ports.peer_stats()) {
    v1::PeerState* peer = out->add_peers();
    peer->set_node(node.value);
    peer->set_address(stats.address);
    peer->set_connected(stats.connected);
    peer->set_silent_ms(stats.last_heard == absl::InfinitePast()
                            ? UINT64_MAX
                            : static_cast<uint64_t>(std::max<int64_t>(
                                  0, absl::ToInt64Milliseconds(now - stats.last_heard))));
    peer->set_dropped_messages(stats.dropped_messages);
    peer->set_failures(stats.failures);
  }
}

// A read just now, and how long it took.
void FillCoordinator(const OperatorPorts& ports, v1::NodeState* out) {
  struct Wait {
    Notification over;
    absl::Status status;
  };
  auto wait = std::make_shared<Wait>();
  const absl::Time begin = absl::Now();
  ports.coordinator->Get(absl::StrCat(node::ClusterPrefix(ports.config->cluster_name), "run"),
                         kLookTimeout, [wait](const absl::StatusOr<node::KeyState>& state) {
                           wait->status = state.status();
                           wait->over.Notify();
                         });
  wait->over.Wait();
  const node::CoordinatorHealth health = ports.coordinator->Health();
  out->set_coordinator_reachable(wait->status.ok());
  if (wait->status.ok()) {
    out->set_coordinator_latency_us(static_cast<uint64_t>(
        std::max<int64_t>(1, absl::ToInt64Microseconds(absl::Now() - begin))));
    return;
  }
  out->set_coordinator_why(std::string(wait->status.message()));
  out->set_coordinator_away_ms(
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(health.unreachable))));
}

void FillDisks(const node::Config& config, v1::NodeState* out) {
  const std::pair<const char*, const std::string*> directories[] = {
      {"storage.directory", &config.storage_directory},
      {"storage.segment_directory", &config.storage_segment_directory}};
  for (const auto& [entry, path] : directories) {
    v1::DirectoryState* directory = out->add_directories();
    directory->set_entry(entry);
    directory->set_path(*path);
    const auto look = LookAtDisk(*path);
    if (!look.ok()) {
      directory->set_error(std::string(look.status().message()));
      continue;
    }
    directory->set_sync_us(look->sync_us);
    directory->set_free_bytes(look->free_bytes);
    directory->set_total_bytes(look->total_bytes);
  }
}

}  // namespace

std::vector<std::pair<std::string, node::ReplicaView>> LookAtReplicas(
    const std::vector<std::shared_ptr<node::MachineReplica>>& replicas, absl::Duration timeout) {
  struct Wait {
    Mutex mutex;
    CondVar changed;
    std::map<size_t, node::ReplicaView> seen;
  };
  auto wait = std::make_shared<Wait>();
  for (size_t i = 0; i < replicas.size(); ++i) {
    replicas[i]->Look([wait, i](const node::ReplicaView& view) {
      MutexLock lock(&wait->mutex);
      wait->seen[i] = view;
      wait->changed.NotifyAll();
    });
  }
  std::vector<std::pair<std::string, node::ReplicaView>> views;
  const ::forebay::Deadline deadline = DeadlineIn(timeout);
  MutexLock lock(&wait->mutex);
  while (wait->seen.size() < replicas.size() && wait->changed.WaitUntil(&wait->mutex, deadline)) {
  }
  for (const auto& [i, view] : wait->seen) views.emplace_back(replicas[i]->name(), view);
  return views;
}

struct OperatorService::Lane {
  explicit Lane(const char* name) : workers(1, name) {}
  io::Workers workers;
  std::atomic<size_t> waiting{0};
};

// Answers a call of one kind, on its lane.
template <class Request, class Response>
void OperatorService::Add(MethodTable* methods, const char* name, Lane* lane,
                          Answer<Request, Response> answer) {
  methods->AddUnary(
      absl::StrCat("/forebay.v1.OperatorService/", name),
      TypedUnary<Request, Response>(
          [lane, answer](const CallContext&, Request request, TypedResponder<Response> responder) {
            if (lane->waiting.fetch_add(1) >= kWaitingMax) {
              lane->waiting.fetch_sub(1);
              responder.Fail(absl::ResourceExhaustedError(absl::StrCat(
                  kWaitingMax, " calls wait already: the coordinator or a disk is slow")));
              return;
            }
            auto shared = std::make_shared<TypedResponder<Response>>(std::move(responder));
            const bool posted =
                lane->workers.Post([lane, answer, request = std::move(request), shared] {
                  const absl::StatusOr<Response> response = answer(request);
                  lane->waiting.fetch_sub(1);
                  if (response.ok()) {
                    shared->Reply(*response);
                  } else {
                    shared->Fail(response.status());
                  }
                });
            if (!posted) shared->Fail(absl::UnavailableError("shutting down"));
          }));
}

OperatorService::OperatorService(OperatorPorts ports)
    : ports_(std::move(ports)),
      operator_(ports_.coordinator, ports_.config->cluster_name,
                static_cast<uint32_t>(ports_.config->cluster_replicas), kCoordinatorTimeout),
      acts_(std::make_unique<Lane>("operators")),
      disks_(std::make_unique<Lane>("doctor")) {}

OperatorService::~OperatorService() { Close(); }

void OperatorService::Close() {
  if (std::exchange(closed_, true)) return;
  acts_->workers.Stop();
  disks_->workers.Stop();
}

absl::StatusOr<v1::OperatorState> OperatorService::GetState() const {
  auto state = operators::GetState(operator_, ports_.config->cluster_name);
  if (state.ok()) state->set_answered_by(Self(*ports_.config).value);
  return state;
}

absl::StatusOr<v1::OperatorChangeResponse> OperatorService::Change(
    const v1::OperatorChangeRequest& request) const {
  auto response = operators::Change(operator_, request);
  Log(response.ok() ? LogLevel::kInfo : LogLevel::kWarning, "an operator's act",
      {{"act", v1::OperatorAct_Name(request.act())},
       {"outcome", response.ok() ? response->what() : std::string(response.status().message())},
       {"who", request.who()},
       {"why", request.why()}});
  return response;
}

v1::NodeState OperatorService::GetNode() const {
  const node::Config& config = *ports_.config;
  v1::NodeState out;
  out.set_node(Self(config).value);
  out.set_version(kVersion);
  out.set_uptime_ms(node::Engine::NowMs() - ports_.started_ms);
  out.set_leads(ports_.leads());
  FillReplicas(ports_, &out);
  FillPeers(ports_, &out);
  FillCoordinator(ports_, &out);
  for (const node::ConfigEntry& entry : node::ConfigEntries()) {
    if (std::ranges::find(kSameOnAll, std::string_view(entry.name)) != std::end(kSameOnAll)) {
      (*out.mutable_config())[entry.name] = node::Get(config, entry);
    }
  }
  FillDisks(config, &out);
  out.set_open_files(ReadProcess().open_files);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) out.set_open_files_max(files.rlim_cur);
  return out;
}

v1::ProbeStoreResponse OperatorService::ProbeStore(const v1::ProbeStoreRequest& request) const {
  const std::string& directory = ports_.config->storage_segment_directory;
  const uint32_t self = Self(*ports_.config).value;
  v1::ProbeStoreResponse out;
  out.set_directory(directory);
  absl::Status status;
  if (request.write()) status.Update(WriteProbe(directory, request.nonce(), self));
  for (const uint32_t node : request.look_for()) {
    if (HasProbe(directory, request.nonce(), node)) out.add_found(node);
  }
  if (request.remove()) status.Update(RemoveProbe(directory, request.nonce(), self));
  if (!status.ok()) out.set_error(std::string(status.message()));
  return out;
}

void OperatorService::AddTo(MethodTable* methods) {
  Add<v1::GetOperatorStateRequest, v1::OperatorState>(
      methods, "GetState", acts_.get(),
      [this](const v1::GetOperatorStateRequest&) { return GetState(); });
  Add<v1::OperatorChangeRequest, v1::OperatorChangeResponse>(
      methods, "Change", acts_.get(),
      [this](const v1::OperatorChangeRequest& request) { return Change(request); });
  Add<v1::GetNodeRequest, v1::NodeState>(methods, "GetNode", disks_.get(),
                                         [this](const v1::GetNodeRequest&) { return GetNode(); });
  Add<v1::ProbeStoreRequest, v1::ProbeStoreResponse>(
      methods, "ProbeStore", disks_.get(),
      [this](const v1::ProbeStoreRequest& request) { return ProbeStore(request); });
}

}  // namespace forebay::server
