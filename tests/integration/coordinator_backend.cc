#include "tests/integration/coordinator_backend.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "etcd/coordinator.h"
#include "io/disk.h"
#include "node/local_coordinator.h"
#include "tests/integration/coordinator_calls.h"
#include "tests/integration/etcd_process.h"
#include "tests/integration/run_directory.h"

namespace forebay::integration {
namespace {

class LocalBackend final : public Backend {
 public:
  LocalBackend() : disk_(io::NewDisk({}, &why_)) {}

  std::unique_ptr<node::Coordinator> Connect() override {
    auto opened = node::LocalCoordinator::Open(disk_.get(), directory_.path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  uint64_t ForgetHistory(node::Coordinator* of) override {
    const size_t each = node::CoordinatorLimits::kTransactionOperationsMax;
    uint64_t revision = 0;
    for (size_t made = 0; made <= node::LocalCoordinator::kHistoryMax; made += each) {
      node::Transaction transaction;
      for (size_t i = 0; i < each; ++i) transaction.changes.push_back({absl::StrCat("z", i), "x"});
      revision = Commit(of, std::move(transaction)).revision;
    }
    return revision;
  }
  std::string Where() const override { return directory_.path(); }

 private:
  RunDirectory directory_;
  std::string why_;
  std::unique_ptr<io::Disk> disk_;
};

class EtcdBackend final : public Backend {
 public:
  EtcdBackend() : cluster_(1) {}

  std::unique_ptr<node::Coordinator> Connect() override {
    auto opened = etcd::Coordinator::Open({.endpoints = cluster_.endpoints()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  uint64_t ForgetHistory(node::Coordinator* of) override {
    const uint64_t revision = Put(of, "z", "x").revision;
    cluster_.Compact(revision);
    return revision;
  }
  std::string Where() const override { return cluster_.endpoint(0); }

 private:
  EtcdCluster cluster_;
};

}  // namespace

std::unique_ptr<Backend> NewBackend(const std::string& name) {
  if (name == "etcd") return std::make_unique<EtcdBackend>();
  FOREBAY_CHECK(name == "local");
  return std::make_unique<LocalBackend>();
}

}  // namespace forebay::integration
