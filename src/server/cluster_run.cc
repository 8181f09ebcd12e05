#include "server/cluster_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/sync.h"
#include "server/grpc/files.h"
#include "server/log.h"

namespace forebay::server {
namespace {

// A node that cannot speak to the coordinator at its start says so then, and ends.
constexpr auto kStartTimeout = absl::Seconds(30);
constexpr auto kLookTimeout = absl::Seconds(1);
constexpr uint64_t kLogFileBytes = uint64_t{64} << 20;

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

const char* RoleText(const node::ClusterState& state, cluster::NodeId id, bool up, size_t in_sync) {
  if (!up) return "down";
  if (id == state.leader()) return "leads";
  return in_sync == state.machines.size() ? "follows" : "catching up";
}

v1::ClusterView ViewOf(const node::ClusterState& state, const std::string& name, uint64_t run,
                       cluster::NodeId self) {
  v1::ClusterView view;
  view.set_cluster(Hash64(name));
  view.set_run(run);
  view.set_node(self.value);
  view.set_leader(state.leader().value);
  view.set_leader_epoch(state.epoch().value);
  for (const auto& [id, address] : state.nodes) {
    const auto here = state.present.find(id);
    const bool up = here != state.present.end() || id == self;
    size_t in_sync = 0;
    for (const auto& [machine, of] : state.machines) in_sync += of.configuration.InSync(id) ? 1 : 0;
    const node::NodeAddress& at = here != state.present.end() ? here->second : address;
    v1::ClusterNode* node = view.add_nodes();
    node->set_id(id.value);
    node->set_address(at.grpc);
    node->set_http_address(at.http);
    node->set_up(up);
    node->set_machines_in_sync(static_cast<uint32_t>(in_sync));
    node->set_role(RoleText(state, id, up, in_sync));
  }
  for (const auto& [name_of, of] : state.machines) {
    v1::ClusterMachine* machine = view.add_machines();
    machine->set_name(name_of);
    machine->set_epoch(of.configuration.epoch.value);
    machine->set_primary(of.configuration.primary.value);
    for (const cluster::NodeId node : of.configuration.in_sync) machine->add_in_sync(node.value);
  }
  return view;
}

ClusterFacts FactsOf(const node::ClusterState& state, uint32_t replicas) {
  ClusterFacts facts;
  facts.leader = state.leader().value;
  facts.epoch = state.epoch().value;
  facts.machines = state.machines.size();
  facts.tolerated = node::ClusterOperator::Tolerated(state);
  facts.tolerable = node::ClusterOperator::Tolerable(state, replicas);
  facts.paused = state.paused.has_value();
  facts.paused_why = state.paused.value_or("");
  for (const auto& [node, revision] : state.drained) facts.drained.push_back(node.value);
  std::map<cluster::NodeId, ClusterFacts::Replicas> behind;
  for (const auto& [name, machine] : state.machines) {
    for (const auto& [node, incarnation] : machine.configuration.incarnations) {
      if (!machine.configuration.InSync(node)) behind[node].behind.push_back(name);
    }
  }
  for (auto& [node, replicas_of] : behind) {
    replicas_of.node = node.value;
    replicas_of.present = state.present.contains(node);
    facts.out_of_sync.push_back(std::move(replicas_of));
  }
  return facts;
}

}  // namespace

ClusterRun::ClusterRun(const node::Config& config, const node::RunIdentity& identity,
                       std::unique_ptr<etcd::Coordinator> coordinator)
    : config_(config),
      identity_(identity),
      coordinator_(std::move(coordinator)),
      encoder_(std::make_unique<io::Workers>(1, "snapshots")) {}

ClusterRun::~ClusterRun() { Stop(); }

absl::StatusOr<std::unique_ptr<ClusterRun>> ClusterRun::Open(const node::Config& config,
                                                             uint64_t new_run) {
  etcd::Options options;
  options.endpoints = config.etcd_endpoints();
  options.first = config.cluster_node;
  auto coordinator = etcd::Coordinator::Open(options);
  if (!coordinator.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.etcd: ", coordinator.status().message()));
  }
  // A run that lies here already is the cluster's, if the coordinator has forgotten it.
  node::RunIdentity proposed{.run = new_run, .run_seed = config.run_seed, .shards = config.shards};
  std::string why;
  const auto disk = io::NewDisk({.workers_max = 1, .allow_uring = false}, &why);
  const auto held = node::ReadIdentity(disk.get(), config.storage_directory);
  if (held.ok()) proposed.run = held->run;
  auto identity =
      node::AgreeOnRun(coordinator->get(), config.cluster_name, proposed, kStartTimeout);
  if (!identity.ok()) return identity.status();
  if (held.ok() && held->run != identity->run) {
    return absl::FailedPreconditionError(
        absl::StrCat("storage.directory: ", config.storage_directory, " holds run ",
                     absl::Hex(held->run, absl::kZeroPad16), ", and the cluster '",
                     config.cluster_name, "' has run ", absl::Hex(identity->run, absl::kZeroPad16),
                     ": give this node another directory, or the cluster another name"));
  }
  std::unique_ptr<ClusterRun> cluster(new ClusterRun(config, *identity, *std::move(coordinator)));
  FOREBAY_RETURN_IF_ERROR(cluster->OpenTransport());
  auto known = node::ReadCluster(cluster->coordinator_.get(), config.cluster_name, kStartTimeout);
  if (!known.ok()) return known.status();
  cluster->known_ = *std::move(known);
  return cluster;
}

absl::Status ClusterRun::OpenTransport() {
  peers::PeerTransportOptions options;
  options.cluster = absl::StrCat(config_.cluster_name, "/", absl::Hex(identity_.run));
  options.self = cluster::NodeId(static_cast<uint32_t>(config_.cluster_node));
  if (!config_.tls_cert.empty()) {
    options.tls.tls = true;
    auto cert = ReadFile("tls.cert", config_.tls_cert);
    if (!cert.ok()) return cert.status();
    auto key = ReadFile("tls.key", config_.tls_key);
    if (!key.ok()) return key.status();
    options.tls.cert = *std::move(cert);
    options.tls.key = *std::move(key);
    if (!config_.tls_client_ca.empty()) {
      auto root = ReadFile("tls.client_ca", config_.tls_client_ca);
      if (!root.ok()) return root.status();
      options.tls.root = *std::move(root);
    }
  }
  if (!config_.cluster_token_file.empty()) {
    auto token = ReadFile("cluster.token_file", config_.cluster_token_file);
    if (!token.ok()) return token.status();
    options.token = Trimmed(*std::move(token));
  }
  options.own_thread = false;
  options.on_trouble = [](cluster::NodeId peer, const absl::Status& why) {
    Log(LogLevel::kWarning, "a peer is not reached",
        {{"node", static_cast<uint64_t>(peer.value)}, {"why", std::string(why.message())}});
  };
  service_ = std::make_unique<peers::PeerService>(
      peers::PeerServiceOptions{.cluster = options.cluster, .self = options.self}, this);
  auto transport = peers::GrpcPeerTransport::Create(options);
  if (!transport.ok()) return transport.status();
  transport_ = *std::move(transport);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<node::MachineReplica>> ClusterRun::OpenReplica(
    const std::string& machine, node::ReplicatedState* state) {
  node::MachineReplicaOptions options{
      .log = {.directory = absl::StrCat(place_.directory, "/", machine),
              .name = machine,
              .file_bytes = kLogFileBytes,
              .pending_bytes_max = config_.storage_log_pending_bytes_max,
              .incarnation = place_.incarnation,
              .nonce = place_.nonce},
      .snapshot_log_bytes = config_.storage_snapshot_log_bytes,
      .snapshot_doubles = state == contents_.get(),
      .node = cluster::NodeId(static_cast<uint32_t>(config_.cluster_node))};
  options.replication.heartbeat_ms = config_.cluster_heartbeat_ms;
  options.replication.suspect_ms = config_.cluster_suspect_ms;
  if (const auto found = known_.machines.find(machine); found != known_.machines.end()) {
    options.known = found->second.configuration.incarnation(options.node);
  }
  node::MachineReplicaPorts ports;
  ports.peers = transport_.get();
  ports.swap = [this, machine](const replication::Swap& swap, auto answer) {
    node::ClusterNode* const node = started_;
    if (node == nullptr) return answer({.id = swap.id});
    node->Swap(machine, swap, std::move(answer));
  };
  ports.deposed = [this] {
    if (node::ClusterNode* const node = started_) node->OnDeposed();
  };
  ports.failed = [this, machine](const absl::Status& status, bool disk) {
    if (disk) return events_.failed(machine, status);
    Log(LogLevel::kError, "a replica has stopped, and stays so until the daemon is started anew",
        {{"machine", machine}, {"why", std::string(status.message())}});
  };
  ports.role_changed = [machine](const replication::RoleChange& change) {
    const bool primary = change.role == replication::Role::kPrimary;
    Log(change.from_cut_log ? LogLevel::kWarning : LogLevel::kInfo,
        change.from_cut_log
            ? "primary of a log that was cut: what was acknowledged last may be missing"
            : (primary ? "primary" : "backup"),
        {{"machine", machine}, {"epoch", change.epoch.value}});
  };
  ports.snapshot = [this, machine](const auto& taken) { events_.snapshot(machine, taken); };
  ports.encode = [encoder = encoder_.get()](auto work) { encoder->Post(std::move(work)); };
  auto replica =
      node::MachineReplica::Open(place_.disk, std::move(options), std::move(ports), state);
  if (replica.ok()) replicas_.push_back(*replica);
  return replica;
}

absl::Status ClusterRun::Follow(const Place& place, node::Engine* engine,
                                storage::ContentStore* contents, Events events) {
  place_ = place;
  events_ = std::move(events);
  journal_ = std::make_unique<node::ReplicatedJournal>(
      identity_.run_seed, [this](const std::string& machine, node::ReplicatedState* state) {
        return OpenReplica(machine, state);
      });
  FOREBAY_RETURN_IF_ERROR(engine->Follow(journal_.get()));
  contents_ = std::make_unique<node::ContentMachine>(contents);
  auto replica = OpenReplica("contents", contents_.get());
  if (!replica.ok()) return replica.status();
  content_replica_ = *std::move(replica);
  return absl::OkStatus();
}

void ClusterRun::AddServices(ClusterMap* map, Ticker* ticker, MethodTable* methods,
                             std::function<bool()> leads) {
  map_ = map;
  v1::ClusterView view;
  view.set_cluster(Hash64(config_.cluster_name));
  view.set_run(identity_.run);
  view.set_node(static_cast<uint32_t>(config_.cluster_node));
  map->Set(std::move(view));
  AddClusterService(map, ticker, methods);
  service_->AddTo(methods);
  operators_ =
      std::make_unique<OperatorService>(OperatorPorts{.coordinator = coordinator_.get(),
                                                      .config = &config_,
                                                      .replicas = &replicas_,
                                                      .leads = std::move(leads),
                                                      .peer_stats = [this] { return PeerStats(); },
                                                      .started_ms = node::Engine::NowMs()});
  operators_->AddTo(methods);
}

absl::Status ClusterRun::Start(node::NodeAddress address, grpc::CompletionQueue* queue) {
  transport_->Share(queue);
  address.empty =
      std::ranges::all_of(replicas_, [](const auto& replica) { return replica->empty(); });
  node_ = std::make_unique<node::ClusterNode>(
      node::ClusterOptions{.name = config_.cluster_name,
                           .node = cluster::NodeId(static_cast<uint32_t>(config_.cluster_node)),
                           .address = address,
                           .replicas = static_cast<uint32_t>(config_.cluster_replicas),
                           .min_in_sync = static_cast<uint32_t>(config_.cluster_min_in_sync),
                           .replace_after_ms = config_.cluster_replace_after_ms,
                           .lead_without_after_ms = config_.steps_shard_absent_after_ms},
      coordinator_.get(),
      node::ClusterCallbacks{
          .lead =
              [this](const node::AbsentMachines& absent) {
                content_replica_->Lead();
                events_.lead(absent);
              },
          .deposed = [this](const std::string& why) { events_.deposed(why); },
          .changed = [this](const node::ClusterState& state) { OnChanged(state); },
          .peers = [this](const auto& addresses) { transport_->SetPeers(addresses); },
          .note =
              [](const std::string& note) {
                Log(LogLevel::kWarning, "cluster", {{"note", note}});
              }});
  for (const auto& replica : replicas_) node_->Add(replica);
  started_ = node_.get();
  return node_->Start();
}

void ClusterRun::StopSending() {
  if (transport_ != nullptr) transport_->Stop();
}

void ClusterRun::Stop() {
  started_ = nullptr;
  if (operators_ != nullptr) operators_->Close();
  if (node_ != nullptr) node_->Stop();
  transport_.reset();
  for (const auto& replica : replicas_) replica->Close();
  encoder_->Stop();
}

void ClusterRun::OnChanged(const node::ClusterState& state) {
  const cluster::NodeId self(static_cast<uint32_t>(config_.cluster_node));
  map_->Set(ViewOf(state, config_.cluster_name, identity_.run, self));
  ClusterFacts facts = FactsOf(state, static_cast<uint32_t>(config_.cluster_replicas));
  facts.node = self.value;
  MutexLock lock(&facts_mutex_);
  facts_ = std::move(facts);
}

ClusterFacts ClusterRun::Facts() const {
  ClusterFacts facts;
  {
    MutexLock lock(&facts_mutex_);
    facts = facts_;
  }
  facts.node = static_cast<uint32_t>(config_.cluster_node);
  const node::CoordinatorHealth health = coordinator_->Health();
  facts.coordinator_reachable = health.reachable;
  facts.coordinator_away_ms =
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(health.unreachable)));
  facts.coordinator_why = std::string(health.why.message());
  return facts;
}

ClusterPage ClusterRun::Page() const {
  return {
      .facts = Facts(), .replicas = LookAtReplicas(replicas_, kLookTimeout), .peers = PeerStats()};
}

cluster::Epoch ClusterRun::epoch() {
  Notification over;
  cluster::Epoch epoch;
  replicas_[0]->Look([&](const node::ReplicaView& view) {
    epoch = view.epoch;
    over.Notify();
  });
  over.Wait();
  return epoch;
}

// The ids are known when the command is applied, in the replica's loop.
void ClusterRun::AddContents(const std::vector<std::string>& items, Added done) {
  content_replica_->ProposeOwn(node::ContentMachine::CommandOf(items),
                               [this, done = std::move(done)](absl::Status status) mutable {
                                 if (!status.ok()) return done(std::move(status));
                                 done(contents_->last());
                               });
}

std::vector<std::string> ClusterRun::notes() const {
  std::vector<std::string> notes;
  for (const auto& replica : replicas_) {
    notes.insert(notes.end(), replica->notes().begin(), replica->notes().end());
  }
  return notes;
}

peers::PeerStatsMap ClusterRun::PeerStats() const {
  peers::PeerStatsMap stats;
  if (transport_ != nullptr) transport_->GetStats(&stats);
  service_->GetStats(&stats);
  return stats;
}

void ClusterRun::OnMessage(std::string_view machine, std::string_view bytes) {
  if (node::ClusterNode* const node = started_) node->OnMessage(machine, bytes);
}

std::unique_ptr<node::SnapshotReceiver> ClusterRun::OnSnapshot(std::string_view machine,
                                                               std::string_view head) {
  node::ClusterNode* const node = started_;
  return node == nullptr ? nullptr : node->OnSnapshot(machine, head);
}

}  // namespace forebay::server
