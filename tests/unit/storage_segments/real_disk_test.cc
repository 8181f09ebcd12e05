// The segment store over real disks, with threads: far more bytes than memory go through it and
// come back, also in the next process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "base/prng.h"
#include "storage/segment_store.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kBudget = 20 << 20;

uint64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// A store with somebody who ticks and looks at its memory.
class Running {
 public:
  Running(io::Disk* disk, const SegmentStoreOptions& options) : store(disk, options) {
    ticker_ = std::thread([this, stop = stop_.get_future()] {
      while (stop.wait_for(std::chrono::milliseconds(5)) == std::future_status::timeout) {
        store.Tick();
        most_used = std::max(most_used, store.use().budget.used_bytes);
      }
    });
  }
  ~Running() { StopTicking(); }
  void StopTicking() {
    if (!ticker_.joinable()) return;
    stop_.set_value();
    ticker_.join();
  }

  StoreRecovery Recover(std::vector<PayloadId> live) {
    std::promise<StoreRecovery> result;
    store.Recover(std::move(live), [&](absl::StatusOr<StoreRecovery> recovery) {
      EXPECT_TRUE(recovery.ok()) << recovery.status();
      result.set_value(recovery.ok() ? *std::move(recovery) : StoreRecovery());
    });
    return result.get_future().get();
  }

  // Waits for memory, then for the disk. The last `cold` bytes are the cold part.
  PayloadId Write(const std::string& bytes, uint64_t cold) {
    const uint64_t hot = bytes.size() - cold;
    std::promise<void> admitted;
    store.budget().Await(PayloadBuilder::Footprint(hot, cold), 0, [&] { admitted.set_value(); });
    admitted.get_future().get();
    PayloadBuilder builder(&store.budget(), hot, cold);
    builder.Append(bytes, 0);
    PayloadId id;
    std::promise<absl::Status> answer;
    store.Finish({&builder, 1}, {&id, 1},
                 [&](const absl::Status& status) { answer.set_value(status); });
    const absl::Status status = answer.get_future().get();
    EXPECT_TRUE(status.ok()) << status;
    return id;
  }

  // The crc of each.
  std::vector<uint32_t> Read(const std::vector<PayloadId>& ids) {
    std::promise<absl::StatusOr<std::vector<PayloadView>>> answer;
    store.Load(ids, Parts::kAll, [&](auto views) { answer.set_value(std::move(views)); });
    const auto views = answer.get_future().get();
    EXPECT_TRUE(views.ok()) << views.status();
    std::vector<uint32_t> crcs;
    if (!views.ok()) return crcs;
    for (const PayloadView& view : *views) {
      std::vector<BlockSlice> slices;
      EXPECT_TRUE(view.Slices(0, view.bytes(), &slices).ok());
      uint32_t crc = 0;
      for (const BlockSlice& slice : slices) crc = Crc32c({slice.data, slice.size}, crc);
      crcs.push_back(crc);
    }
    return crcs;
  }

  SegmentStore store;
  uint64_t most_used = 0;  // of the ticker until it has stopped

 private:
  std::promise<void> stop_;
  std::thread ticker_;
};

std::string Payload(uint64_t seed) {
  Prng prng(seed);
  std::string bytes(400'000 + prng.Below(200'000), '\0');
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = prng.Next();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, bytes.data() + at);
  }
  return bytes;
}

struct Case {
  bool uring;
  bool direct;
  uint64_t payloads;
};

class SegmentStoreOnDisk : public testing::TestWithParam<Case> {
 protected:
  SegmentStoreOnDisk() {
    std::string why;
    disk = io::NewDisk({.allow_uring = GetParam().uring}, &why);
    options.directory = folder.path();
    options.bytes_max = kBudget;
    options.completion_reserve_bytes = kBudget / 4;
    options.want_bytes_max = kBudget / 4;
    options.segment_bytes = 16 << 20;
    options.gc_grace_ms = 0;
    options.direct = GetParam().direct;
    options.now_ms = NowMs;
  }

  void WriteAll(Running& running) {
    std::vector<std::thread> writers;
    ids.resize(GetParam().payloads);
    crcs.resize(ids.size());
    std::atomic<size_t> next{0};
    for (int i = 0; i < 8; ++i) {
      writers.emplace_back([&] {
        for (size_t k = next++; k < ids.size(); k = next++) {
          const std::string bytes = Payload(k);
          crcs[k] = Crc32c(bytes);
          ids[k] = running.Write(bytes, k % 3 == 0 ? bytes.size() / 4 * 3 : 0);
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
  }

  void ReadAll(Running& running) {
    std::vector<std::thread> readers;
    std::atomic<size_t> next{0};
    constexpr size_t kAtOnce = 8;
    running.store.Want(StepId(1), ids);
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&] {
        for (size_t k = kAtOnce * next++; k < ids.size(); k = kAtOnce * next++) {
          const size_t end = std::min(k + kAtOnce, ids.size());
          const std::vector<uint32_t> read = running.Read({&ids[k], &ids[k] + (end - k)});
          EXPECT_TRUE(std::equal(read.begin(), read.end(), &crcs[k], &crcs[k] + (end - k)));
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
  }

  io::ScratchFolder folder;
  std::unique_ptr<io::Disk> disk;
  SegmentStoreOptions options;
  std::vector<PayloadId> ids;
  std::vector<uint32_t> crcs;
};

TEST_P(SegmentStoreOnDisk, TakesFarMoreThanMemoryAndGivesItBack) {
  {
    Running running(disk.get(), options);
    running.Recover({});
    WriteAll(running);
    EXPECT_GT(running.store.store_use().evictions, 0u);
    ReadAll(running);
    EXPECT_GT(running.store.store_use().reads_back, 0u);
    running.StopTicking();
    EXPECT_LE(running.most_used, kBudget);
  }
  options.incarnation = 1;
  {
    Running again(disk.get(), options);
    const StoreRecovery recovery = again.Recover(ids);
    EXPECT_EQ(recovery.payloads, ids.size());
    EXPECT_TRUE(recovery.lost.empty());
    ReadAll(again);
    again.store.Free(ids);
    EXPECT_EQ(again.store.use().payloads, 0u);
    again.StopTicking();
    EXPECT_LE(again.most_used, kBudget);
    again.store.Tick();  // unlinks
  }
  disk = nullptr;  // waits for that
  // The newest file stays, for its number.
  const std::filesystem::directory_iterator left(folder.path() + "/segments");
  EXPECT_EQ(std::distance(begin(left), end(left)), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SegmentStoreOnDisk,
                         testing::Values(Case{true, true, 400}, Case{false, true, 100},
                                         Case{false, false, 100}),
                         [](const auto& info) {
                           return std::string(info.param.uring ? "Ring" : "Pool") +
                                  (info.param.direct ? "Direct" : "Buffered");
                         });

}  // namespace
}  // namespace forebay::storage
