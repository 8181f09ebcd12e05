// How fast the segment store writes and reads back, against plain calls of the same pattern on the
// same disk, in turns: spill_write and spill_read.
//
// The plain side: as many threads as the store has lanes (reads in flight), each with a file of its
// own, pwrite of write_bytes_max and fdatasync (pread of read_bytes_max), direct where the file
// system takes it. The store's side begins with the copy into payload blocks and ends with the last
// acknowledgement (with the last view). Prints megabytes a second, and the median of the paired
// ratios; with --json one object, in GB/s.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "base/check.h"
#include "storage/segment_store.h"

ABSL_FLAG(std::string, directory, ".", "where to write; a folder in it is made and removed");
ABSL_FLAG(uint64_t, megabytes, 512, "of each side in each round");
ABSL_FLAG(uint64_t, budget_megabytes, 256, "payload memory of the store");
ABSL_FLAG(uint64_t, payload_bytes, 500'000, "of each payload");
ABSL_FLAG(uint32_t, rounds, 5, "");
ABSL_FLAG(uint32_t, lanes, 4, "");
ABSL_FLAG(bool, direct, true, "");
ABSL_FLAG(bool, uring, true, "");
ABSL_FLAG(bool, plain, true, "the other side too; without it the peak of memory is the store's");
ABSL_FLAG(bool, store, true, "the store's side too");
ABSL_FLAG(bool, json, false, "print one JSON object");

namespace forebay::storage {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double PeakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

// Counts down; somebody waits for the end.
class Countdown {
 public:
  explicit Countdown(size_t left) : left_(left) {}
  void Count() {
    std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_;
};

SegmentStoreOptions Options(const std::string& directory) {
  SegmentStoreOptions options;
  options.directory = directory;
  options.bytes_max = absl::GetFlag(FLAGS_budget_megabytes) << 20;
  options.completion_reserve_bytes = options.bytes_max / 8;
  options.lanes = absl::GetFlag(FLAGS_lanes);
  options.direct = absl::GetFlag(FLAGS_direct);
  options.gc_grace_ms = 0;
  options.now_ms = [] {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
            .count());
  };
  return options;
}

void Admit(SegmentStore& store, uint64_t bytes) {
  if (store.budget().TryReserve(bytes)) return;
  Countdown admitted(1);
  store.budget().Await(bytes, 0, [&] { admitted.Count(); });
  admitted.Wait();
}

std::vector<PayloadId> StoreWrite(SegmentStore& store, uint64_t count) {
  const std::string bytes(absl::GetFlag(FLAGS_payload_bytes), 'x');
  std::vector<PayloadId> ids(count);
  Countdown safe(count);
  for (PayloadId& id : ids) {
    Admit(store, PayloadBuilder::Footprint(bytes.size()));
    PayloadBuilder builder(&store.budget(), bytes.size());
    builder.Append(bytes, 0);
    store.Finish({&builder, 1}, {&id, 1}, [&](const absl::Status& status) {
      FOREBAY_CHECK(status.ok());
      safe.Count();
    });
  }
  safe.Wait();
  return ids;
}

void StoreRead(SegmentStore& store, const std::vector<PayloadId>& ids) {
  const size_t at_once = std::max<size_t>(1, (4 << 20) / absl::GetFlag(FLAGS_payload_bytes));
  std::atomic<size_t> next{0};
  std::vector<std::thread> readers;
  for (uint32_t i = 0; i < SegmentStoreOptions().reads_max; ++i) {
    readers.emplace_back([&] {
      for (size_t k = at_once * next++; k < ids.size(); k = at_once * next++) {
        Countdown there(1);
        store.Load({ids.begin() + static_cast<long>(k),
                    ids.begin() + static_cast<long>(std::min(k + at_once, ids.size()))},
                   storage::Parts::kAll, [&](const auto& views) {
                     FOREBAY_CHECK(views.ok());
                     there.Count();
                   });
        there.Wait();
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
}

// `threads` of them, each with its part of the bytes; as many files as lanes. Seconds.
double Plain(const std::string& directory, uint64_t bytes, uint32_t threads, bool write) {
  const SegmentStoreOptions options;
  const auto begin = Clock::now();
  const size_t piece = write ? options.write_bytes_max : options.read_bytes_max;
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      const uint32_t files = absl::GetFlag(FLAGS_lanes);
      const std::string path = directory + "/plain" + std::to_string(i % files);
      const int flags =
          (write ? O_RDWR | O_CREAT : O_RDONLY) | (absl::GetFlag(FLAGS_direct) ? O_DIRECT : 0);
      const int file = open(path.c_str(), flags, 0600);
      FOREBAY_CHECK(file >= 0);
      WriteBuffer buffer(piece);
      std::fill_n(buffer.data(), piece, 'x');
      for (uint64_t at = 0; at + piece <= bytes / threads; at += piece) {
        const auto offset = static_cast<off_t>(i / files * (bytes / threads) + at);
        const ssize_t moved = write ? pwrite(file, buffer.data(), piece, offset)
                                    : pread(file, buffer.data(), piece, offset);
        FOREBAY_CHECK(moved == static_cast<ssize_t>(piece));
        if (write) FOREBAY_CHECK(fdatasync(file) == 0);
      }
      close(file);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return Seconds(begin);
}

struct Figures {
  std::vector<double> store, plain, ratios, cpu_s_per_gb;
  void Add(double store_mb_s, double plain_mb_s, double cpu) {
    store.push_back(store_mb_s);
    plain.push_back(plain_mb_s);
    ratios.push_back(store_mb_s / plain_mb_s);
    cpu_s_per_gb.push_back(cpu);
  }
  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  void Print(const char* name) const {
    std::printf("%s: store %.0f MB/s, plain %.0f MB/s, ratio %.2f\n", name, Median(store),
                Median(plain), Median(ratios));
  }
  void PrintJson(const char* name) const {
    std::printf(
        "\"%s\": {\"value\": %.4f, \"limit\": %.4f, \"ratio\": %.4f, \"cpu_s_per_gb\": %.4f}", name,
        Median(store) / 1e3, Median(plain) / 1e3, Median(ratios), Median(cpu_s_per_gb));
  }
};

void Recover(SegmentStore& store) {
  Countdown recovered(1);
  store.Recover({}, [&](const auto& recovery) {
    FOREBAY_CHECK(recovery.ok());
    recovered.Count();
  });
  recovered.Wait();
}

// A mount with `discard` tells the disk of freed blocks before its next commit ends, which takes as
// long as some writes: apart from what is measured, on both sides.
void SyncFileSystem(const std::string& directory) {
  const int folder = open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  FOREBAY_CHECK(folder >= 0 && syncfs(folder) == 0);
  close(folder);
}

// All but the newest, which stays for its number.
void UnlinkDead(SegmentStore& store) {
  constexpr double kMostSeconds = 120;
  const auto begin = Clock::now();
  store.Tick();
  while (store.store_use().segments_dead > 1) {
    FOREBAY_CHECK(Seconds(begin) < kMostSeconds);
    // poll: until the disk has unlinked them
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    store.Tick();
  }
}

// What one side took.
struct Times {
  double write = 0, read = 0;  // seconds
  double write_cpu = 0, read_cpu = 0;
};

Times RunStore(SegmentStore& store, const SegmentStoreOptions& options, uint64_t bytes) {
  Times times;
  auto begin = Clock::now();
  double cpu = CpuSeconds();
  const std::vector<PayloadId> ids = StoreWrite(store, bytes / absl::GetFlag(FLAGS_payload_bytes));
  times.write = Seconds(begin);
  times.write_cpu = CpuSeconds() - cpu;
  // Evicts all, when the last write has let go of what it wrote.
  const uint64_t all = options.bytes_max - options.completion_reserve_bytes;
  Admit(store, all);
  store.budget().Unreserve(all);
  begin = Clock::now();
  cpu = CpuSeconds();
  StoreRead(store, ids);
  times.read = Seconds(begin);
  times.read_cpu = CpuSeconds() - cpu;
  store.Free(ids);
  UnlinkDead(store);
  SyncFileSystem(options.directory);
  return times;
}

// As the store's, its files are new: growing costs more than writing over.
Times RunPlain(const SegmentStoreOptions& options, uint64_t bytes) {
  Times times;
  times.write = Plain(options.directory, bytes, options.lanes, true);
  times.read = Plain(options.directory, bytes, options.reads_max, false);
  for (uint32_t i = 0; i < options.lanes; ++i) {
    std::filesystem::remove(options.directory + "/plain" + std::to_string(i));
  }
  SyncFileSystem(options.directory);
  return times;
}

// The side that goes first alternates.
void Round(SegmentStore& store, const SegmentStoreOptions& options, bool plain_first,
           Figures* write, Figures* read) {
  const uint64_t bytes = absl::GetFlag(FLAGS_megabytes) << 20;
  const double megabytes = static_cast<double>(bytes) / 1e6;
  Times ours, plain;
  const bool with_plain = absl::GetFlag(FLAGS_plain);
  if (with_plain && plain_first) plain = RunPlain(options, bytes);
  if (absl::GetFlag(FLAGS_store)) ours = RunStore(store, options, bytes);
  if (with_plain && !plain_first) plain = RunPlain(options, bytes);
  const auto speed = [&](double seconds) { return seconds == 0 ? 0 : megabytes / seconds; };
  write->Add(speed(ours.write), speed(plain.write), ours.write_cpu / megabytes * 1e3);
  read->Add(speed(ours.read), speed(plain.read), ours.read_cpu / megabytes * 1e3);
  if (absl::GetFlag(FLAGS_json)) return;
  std::printf("  write %.0f against %.0f, read %.0f against %.0f MB/s; CPU s/GB %.2f, %.2f\n",
              write->store.back(), write->plain.back(), read->store.back(), read->plain.back(),
              write->cpu_s_per_gb.back(), read->cpu_s_per_gb.back());
}

}  // namespace
}  // namespace forebay::storage

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  std::string why;
  const auto disk = forebay::io::NewDisk({.allow_uring = absl::GetFlag(FLAGS_uring)}, &why);
  const bool json = absl::GetFlag(FLAGS_json);
  if (!json) std::printf("%s\n", why.c_str());
  const std::string directory = absl::GetFlag(FLAGS_directory) + "/spill_benchmark";
  std::filesystem::create_directories(directory);
  const auto options = forebay::storage::Options(directory);
  forebay::storage::Figures write, read;
  {
    forebay::storage::SegmentStore store(disk.get(), options);
    forebay::storage::Recover(store);
    forebay::storage::Figures cold;  // the first round also takes memory from the system
    if (absl::GetFlag(FLAGS_store)) forebay::storage::Round(store, options, false, &cold, &cold);
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
      forebay::storage::Round(store, options, i % 2 == 0, &write, &read);
    }
  }
  std::filesystem::remove_all(directory);
  if (json) {
    std::printf("{");
    write.PrintJson("spill_write");
    std::printf(", ");
    read.PrintJson("spill_read");
    std::printf(", \"io\": \"%s\"}\n", std::string(disk->name()).c_str());
    return 0;
  }
  write.Print("spill_write");
  read.Print("spill_read");
  std::printf("peak of memory: %.0f MB\n", forebay::storage::PeakMegabytes());
}
