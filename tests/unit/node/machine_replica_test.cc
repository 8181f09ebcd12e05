// Replicas at work, on real files: what a leader that was cut off has proposed is neither committed
// nor answered, whatever its successor commits at the same positions.
#include "node/machine_replica.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sync.h"

namespace forebay::node {
namespace {

using cluster::NodeId;

// Remembers every command.
class Words final : public ReplicatedState {
 public:
  bool Apply(LogPosition, std::string_view command) override {
    const std::lock_guard lock(mutex_);
    words_.emplace_back(command);
    return true;
  }
  void Snapshot(codec::Writer& writer) const override {
    const std::lock_guard lock(mutex_);
    writer(words_);
  }
  bool Restore(std::string_view snapshot) override {
    const std::lock_guard lock(mutex_);
    return codec::Decode(snapshot, &words_);
  }
  std::vector<std::string> words() const {
    const std::lock_guard lock(mutex_);
    return words_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> words_;
};

class MachineReplicaTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kNodes = 3;

  // Three nodes in one process. A node that is cut off hears nobody, and nobody hears it.
  struct Node final : PeerTransport {
    void Send(NodeId to, std::string_view, std::string bytes) override {
      Node& other = *test->nodes_[to.value - 1];
      if (!cut && !other.cut && other.replica) other.replica->OnMessage(bytes);
    }
    void SendSnapshot(NodeId, std::string_view, std::string, std::function<std::string()>,
                      absl::AnyInvocable<void(absl::Status)> done) override {
      done(absl::UnavailableError("not in this test"));
    }
    MachineReplicaTest* test = nullptr;
    std::atomic<bool> cut{false};
    std::atomic<int> deposed{0};
    Words words;
    std::shared_ptr<MachineReplica> replica;
  };

  MachineReplicaTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "replica-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    configuration_.in_sync = {NodeId(1)};
    configuration_.min_in_sync = 2;
    for (uint32_t id = 1; id <= kNodes; ++id) {
      configuration_.incarnations[NodeId(id)] = cluster::Incarnation(id == 1 ? 1 : 0);
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->test = this;
    }
    for (uint32_t id = 1; id <= kNodes; ++id) Open(id);
    for (const auto& node : nodes_) node->replica->OnConfiguration(Revision(1), configuration_);
  }
  ~MachineReplicaTest() override {
    for (const auto& node : nodes_) node->replica->Close();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static cluster::ConfigurationRevision Revision(uint64_t value) {
    return cluster::ConfigurationRevision(value);
  }

  void Open(uint32_t id) {
    Node& node = *nodes_[id - 1];
    MachineReplicaOptions options{.log = {.directory = absl::StrCat(folder_, "/", id),
                                          .name = "words",
                                          .incarnation = 1,
                                          .nonce = id},
                                  .node = NodeId(id)};
    MachineReplicaPorts ports;
    ports.peers = &node;
    ports.swap = [this, &node](const replication::Swap& swap, auto answer) {
      Swap(node, swap, std::move(answer));
    };
    ports.deposed = [&node] { ++node.deposed; };
    ports.failed = [](const absl::Status& status, bool) { ADD_FAILURE() << status; };
    ports.snapshot = [](const auto&) {};
    ports.encode = [](auto work) { work(); };
    auto opened = MachineReplica::Open(disk_.get(), options, ports, &node.words);
    ASSERT_TRUE(opened.ok()) << opened.status();
    node.replica = *std::move(opened);
  }

  // The coordinator: one value, compared and swapped.
  void Swap(Node& node, const replication::Swap& swap,
            absl::AnyInvocable<void(const replication::SwapAnswer&)> answer) {
    if (node.cut) return answer({.id = swap.id});
    replication::SwapAnswer said{.id = swap.id};
    {
      const std::lock_guard lock(mutex_);
      const bool done = swap.base == Revision(revision_);
      if (done) {
        configuration_ = swap.next;
        ++revision_;
      }
      said.outcome = done ? replication::SwapOutcome::kDone : replication::SwapOutcome::kRefused;
      said.revision = Revision(revision_);
      said.current = configuration_;
    }
    answer(said);
  }

  // Time goes on until that is so; false if it never is.
  bool Await(const std::function<bool()>& so) {
    const absl::Time until = absl::Now() + absl::Seconds(30);
    while (!so() && absl::Now() < until) {
      for (const auto& node : nodes_) node->replica->Tick();
      {
        const std::lock_guard lock(mutex_);
        for (const auto& node : nodes_) {
          if (!node->cut) node->replica->OnConfiguration(Revision(revision_), configuration_);
        }
      }
      absl::SleepFor(absl::Milliseconds(5));  // poll: replicas speak to each other
    }
    return so();
  }
  Node* Serving(const Node* but = nullptr) {
    for (const auto& node : nodes_) {
      if (node.get() != but && node->replica->serving()) return node.get();
    }
    return nullptr;
  }
  size_t InSync() {
    const std::lock_guard lock(mutex_);
    return configuration_.in_sync.size();
  }

  std::string folder_;
  std::string why_;
  const std::unique_ptr<io::Disk> disk_ =
      io::NewDisk({.workers_max = 2, .allow_uring = false}, &why_);
  std::mutex mutex_;
  cluster::Configuration configuration_;
  uint64_t revision_ = 1;
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_F(MachineReplicaTest, WhatADeposedLeaderProposedIsNeitherCommittedNorAnswered) {
  ASSERT_TRUE(Await([&] { return Serving() != nullptr && InSync() == kNodes; }));
  Node* const old = Serving();
  std::atomic<int> first{0};
  old->replica->ProposeOwn("kept",
                           [&](const absl::Status& status) { first = status.ok() ? 1 : -1; });
  ASSERT_TRUE(Await([&] { return first != 0; }));
  ASSERT_EQ(first, 1);
  old->replica->Lead();
  const LogPosition before = old->replica->committed();

  old->cut = true;
  std::atomic<int> lost{0}, next{0};
  for (int i = 0; i < 3; ++i) {
    old->replica->ProposeOwn(absl::StrCat("lost ", i),
                             [&](const absl::Status& status) { lost += status.ok() ? 100 : 1; });
  }
  ASSERT_TRUE(Await([&] { return Serving(old) != nullptr; }));
  // As many entries as the old leader has, and more: at the same positions.
  for (int i = 0; i < 6; ++i) {
    Serving(old)->replica->ProposeOwn(absl::StrCat("next ", i), [&](const absl::Status& status) {
      next += status.ok() ? 1 : 100;
    });
  }
  ASSERT_TRUE(Await([&] { return next == 6; }));
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(old->replica->committed(), before);

  old->cut = false;
  ASSERT_TRUE(Await([&] { return old->deposed > 0 && InSync() == kNodes; }));
  EXPECT_EQ(lost, 3);  // refused, each once
  EXPECT_EQ(old->replica->committed(), before);
  EXPECT_FALSE(old->replica->serving());
  std::vector<std::string> all = {"kept"};
  for (int i = 0; i < 6; ++i) all.push_back(absl::StrCat("next ", i));
  for (const auto& node : nodes_) {
    if (node.get() == old) continue;
    ASSERT_TRUE(Await([&] { return node->words.words() == all; }));
  }
}

TEST_F(MachineReplicaTest, AStartFindsWhatWasWritten) {
  ASSERT_TRUE(Await([&] { return Serving() != nullptr && InSync() == kNodes; }));
  std::atomic<int> done{0};
  for (int i = 0; i < 5; ++i) {
    Serving()->replica->ProposeOwn(absl::StrCat("word ", i), [&](const absl::Status& status) {
      done += status.ok() ? 1 : 100;
    });
  }
  ASSERT_TRUE(Await([&] { return done == 5; }));
  for (uint32_t id = 1; id <= kNodes; ++id) {
    nodes_[id - 1]->replica->Close();
    EXPECT_TRUE(nodes_[id - 1]->words.Restore(codec::Encode(std::vector<std::string>())));
    Open(id);
    EXPECT_FALSE(nodes_[id - 1]->replica->empty());
  }
  std::vector<std::string> all;
  for (int i = 0; i < 5; ++i) all.push_back(absl::StrCat("word ", i));
  for (const auto& node : nodes_) {
    ASSERT_TRUE(Await([&] { return node->words.words() == all; }));
  }
}

}  // namespace
}  // namespace forebay::node
