#include "tests/cluster_simulation/simulation.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/cluster_simulation/client.h"
#include "tests/cluster_simulation/faults.h"
#include "tests/cluster_simulation/invariants/progress.h"
#include "tests/cluster_simulation/node.h"
#include "tests/cluster_simulation/world.h"

namespace forebay::cluster_simulation {
namespace {

constexpr size_t kFactsKept = 200;

class Simulation {
 public:
  Simulation(const HistoryOptions& options, bool with_facts, HistoryResult* result)
      : options_(options),
        result_(*result),
        dice_(HashCombine(options.seed, 0xc1057e5)),
        network_(options_, &queue_, &dice_, &result->stats),
        checker_(options_.machines, &result->stats,
                 [this](uint32_t machine, NodeId node, cluster::Incarnation incarnation,
                        replication::LogPlace place) {
                   return Holds(machine, node, incarnation, place);
                 }),
        coordinator_(
            options_, &queue_, &dice_, &result->stats, &network_,
            [this](NodeId node, uint32_t machine, cluster::ConfigurationRevision revision,
                   const cluster::Configuration& configuration) {
              nodes_[node.value - 1]->OnNews(machine, revision, configuration);
            },
            [this](uint32_t machine, const cluster::Configuration& configuration) {
              Note(absl::StrCat("machine ", machine, " is now: ", cluster::Text(configuration)));
              checker_.OnConfiguration(machine, configuration);
            }),
        world_{options_,      queue_,   dice_,
               result->stats, network_, coordinator_,
               checker_,      nodes_,   [this](const std::string& fact) { Note(fact); },
               with_facts},
        faults_(&world_) {}

  void Run();

 private:
  InSyncHoldsCommitted::Holds Holds(uint32_t machine, NodeId node, cluster::Incarnation incarnation,
                                    replication::LogPlace place) const;
  void Note(const std::string& fact);
  void Create();
  void Heal();
  bool Done() const;
  uint64_t Acknowledged(uint32_t machine) const;
  std::string WhyWaiting() const;

  const HistoryOptions options_;
  HistoryResult& result_;
  simulation::EventQueue queue_;
  simulation::Dice dice_;
  Network network_;
  Checker checker_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Coordinator coordinator_;
  World world_;
  Faults faults_;
  std::vector<std::unique_ptr<Client>> clients_;
  Progress progress_;
  bool healed_ = false;
};

InSyncHoldsCommitted::Holds Simulation::Holds(uint32_t machine, NodeId node,
                                              cluster::Incarnation incarnation,
                                              replication::LogPlace place) const {
  using Answer = InSyncHoldsCommitted::Holds;
  const Node& at = *nodes_[node.value - 1];
  const Disk& disk = at.disk(machine);
  if (disk.incarnation() != incarnation) return Answer::kOtherIncarnation;
  const auto holds = [&place](const replication::EntryLog& log) {
    return log.base().position >= place.position || log.Has(place);
  };
  const bool on_disk = disk.snapshot_base().position >= place.position || holds(disk.log());
  const replication::Replica* replica = at.replica(machine);
  return on_disk && (replica == nullptr || holds(replica->log())) ? Answer::kYes : Answer::kNo;
}

void Simulation::Note(const std::string& fact) {
  if (!world_.tracing) return;
  result_.facts.push_back(absl::StrCat(queue_.now_ms(), " ms: ", fact));
  if (result_.facts.size() > kFactsKept) result_.facts.erase(result_.facts.begin());
}

void Simulation::Create() {
  for (uint32_t i = 1; i <= options_.nodes; ++i)
    nodes_.push_back(std::make_unique<Node>(&world_, NodeId(i)));
  for (uint32_t m = 0; m < options_.machines; ++m) {
    cluster::Configuration first;
    first.min_in_sync = options_.min_in_sync;
    for (uint32_t i = 0; i < options_.replicas; ++i) {
      const NodeId node((m + i) % options_.nodes + 1);
      first.incarnations[node] = cluster::Incarnation(1);
    }
    for (const auto& [node, incarnation] : first.incarnations) first.in_sync.push_back(node);
    coordinator_.Create(first);
    for (uint32_t c = 0; c < options_.clients; ++c)
      clients_.push_back(std::make_unique<Client>(&world_, m, c));
  }
  for (const auto& node : nodes_) node->Start();
  for (const auto& client : clients_)
    queue_.After(options_.clients_begin_ms + dice_.Below(1'000),
                 [c = client.get()] { c->Start(); });
}

uint64_t Simulation::Acknowledged(uint32_t machine) const {
  uint64_t sum = 0;
  for (uint32_t c = 0; c < options_.clients; ++c)
    sum += clients_[machine * options_.clients + c]->acknowledged();
  return sum;
}

void Simulation::Heal() {
  healed_ = true;
  Note("everything heals");
  faults_.Heal();
  std::vector<uint64_t> acknowledged;
  for (uint32_t m = 0; m < options_.machines; ++m) acknowledged.push_back(Acknowledged(m));
  progress_.Healed(queue_.now_ms(), std::move(acknowledged));
}

bool Simulation::Done() const {
  for (uint32_t m = 0; m < options_.machines; ++m) {
    if (!progress_.Shown(m, Acknowledged(m), coordinator_.At(m))) return false;
  }
  return true;
}

std::string Simulation::WhyWaiting() const {
  std::string text;
  for (uint32_t m = 0; m < options_.machines; ++m) {
    absl::StrAppend(&text, "machine ", m, " (", cluster::Text(coordinator_.At(m)), "):");
    for (const auto& node : nodes_) {
      const replication::Replica* replica = node->replica(m);
      absl::StrAppend(&text, " node ", node->id().value);
      if (replica == nullptr) continue;
      absl::StrAppend(&text, replica->role() == replication::Role::kPrimary ? " primary" : "",
                      " epoch ", replica->epoch().value, " under ",
                      node->disk(m).incarnation().value, " at ",
                      replica->log().last().position.value, " synced ", replica->synced().value,
                      " committed ", replica->committed().value, ";");
    }
  }
  return text;
}

void Simulation::Run() {
  Create();
  faults_.Start();
  uint64_t next_look_ms = 0;
  while (!checker_.violation()) {
    queue_.RunNext();
    if (!healed_ && queue_.now_ms() >= options_.faulty_ms) Heal();
    if (!healed_ || queue_.now_ms() < next_look_ms) continue;
    next_look_ms = queue_.now_ms() + options_.tick_ms;
    if (Done()) break;
    if (progress_.Late(queue_.now_ms())) checker_.Fail(Progress::kName, WhyWaiting());
  }
  result_.violation = checker_.violation();
  result_.at_ms = queue_.now_ms();
  result_.stats.histories = 1;
  result_.stats.events = queue_.events();
  result_.stats.virtual_ms = queue_.now_ms();
  for (uint32_t m = 0; m < options_.machines; ++m)
    result_.hash = HashCombine(HashCombine(result_.hash, Acknowledged(m)), checker_.HistoryHash(m));
}

}  // namespace

HistoryResult RunHistory(const HistoryOptions& options, bool with_facts) {
  HistoryResult result;
  Simulation(options, with_facts, &result).Run();
  return result;
}

}  // namespace forebay::cluster_simulation
