// The log against what the disk can do: group commit with so many records in flight, beside a bare
// pwrite and fdatasync of the same bytes, in turns on the same disk; and recovery.
//
//   TMPDIR=/folder bin/log_benchmark --seconds=4 --recover_mib=512 --items=1000000
//
// Files lie in the folder that TMPDIR names (/tmp if none), and are gone afterwards. Recovery reads
// what was just written, so from the page cache: its figure is that of the checks and copies.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "base/check.h"
#include "io/disk.h"
#include "storage/content_log.h"
#include "storage/log_recovery.h"
#include "storage/log_writer.h"

ABSL_FLAG(double, seconds, 4, "of each measurement of appending");
ABSL_FLAG(int, record_bytes, 300, "of a record and of an item");
ABSL_FLAG(uint64_t, recover_mib, 512, "log to recover");
ABSL_FLAG(uint64_t, items, 1'000'000, "task contents to recover");

namespace {

using namespace forebay;
using namespace forebay::storage;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The owner's loop, on the main thread.
class Loop {
 public:
  LogPost post() {
    return [this](absl::AnyInvocable<void()> work) {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      changed_.notify_one();
    };
  }
  void RunOne() {
    absl::AnyInvocable<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> queue_;
};

// A folder with a disk.
class Place {
 public:
  explicit Place(bool uring) {
    std::string name = (std::filesystem::temp_directory_path() / "log-benchmark-XXXXXX").string();
    FOREBAY_CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
    std::string why;
    disk = io::NewDisk({.allow_uring = uring}, &why);
  }
  ~Place() {
    disk.reset();
    std::filesystem::remove_all(path);
  }
  std::string path;
  Loop loop;  // after the disk's last answer
  std::unique_ptr<io::Disk> disk;
};

void Failed(absl::Status status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

struct Rate {
  double records = 0, syncs = 0, bytes_a_batch = 0;
};

// Each record that is durable is followed by another one.
Rate MeasureLog(bool uring, int in_flight, double seconds) {
  Place place(uring);
  const std::string record(static_cast<size_t>(absl::GetFlag(FLAGS_record_bytes)), 'r');
  LogWriter log(place.disk.get(), {.directory = place.path, .name = "shard-0"}, LogPosition(1), 1,
                place.loop.post(), {nullptr, Failed});
  uint64_t next = 1;
  const double begin = Now();
  double now = begin;
  while (now < begin + seconds) {
    while (next <= log.durable().value + static_cast<uint64_t>(in_flight)) {
      log.Append(LogPosition(next++), record);
    }
    place.loop.RunOne();
    now = Now();
  }
  const double took = now - begin;
  const auto batches = static_cast<double>(std::max<uint64_t>(log.use().batches, 1));
  return {static_cast<double>(log.durable().value) / took, batches / took,
          static_cast<double>(log.use().bytes) / batches};
}

// The same bytes by hand.
double MeasureBare(uint64_t bytes, double seconds) {
  Place place(false);
  const std::string path = place.path + "/bare";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0644);
  FOREBAY_CHECK(file >= 0);
  const std::string batch(bytes, 'b');
  const double begin = Now();
  uint64_t syncs = 0;
  double now = begin;
  for (; now < begin + seconds; now = Now(), ++syncs) {
    FOREBAY_CHECK(pwrite(file, batch.data(), bytes, static_cast<off_t>(syncs * bytes)) ==
                  static_cast<ssize_t>(bytes));
    FOREBAY_CHECK(fdatasync(file) == 0);
  }
  close(file);
  return static_cast<double>(syncs) / (now - begin);
}

void MeasureAppend(int in_flight) {
  constexpr int kTurns = 4;
  const double seconds = absl::GetFlag(FLAGS_seconds) / kTurns;
  Rate uring, pool;
  double bare = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Rate* rate : {&uring, &pool}) {
      const Rate one = MeasureLog(rate == &uring, in_flight, seconds);
      rate->records += one.records / kTurns;
      rate->syncs += one.syncs / kTurns;
      rate->bytes_a_batch = one.bytes_a_batch;
    }
    bare += MeasureBare(LogAligned(static_cast<uint64_t>(uring.bytes_a_batch)), seconds) / kTurns;
  }
  std::printf(
      "%5d in flight: io_uring %8.0f records/s %6.0f syncs/s; threads %8.0f, %6.0f; "
      "bare %6.0f syncs/s of %.0f bytes\n",
      in_flight, uring.records, uring.syncs, pool.records, pool.syncs, bare, uring.bytes_a_batch);
}

void MeasureRecovery() {
  Place place(true);
  const uint64_t bytes = absl::GetFlag(FLAGS_recover_mib) << 20;
  const std::string record(static_cast<size_t>(absl::GetFlag(FLAGS_record_bytes)), 'r');
  {
    LogWriter log(place.disk.get(), {.directory = place.path, .name = "shard-0"}, LogPosition(1), 1,
                  place.loop.post(), {nullptr, Failed});
    uint64_t next = 1;
    while (log.use().bytes < bytes) {
      while (!log.full()) log.Append(LogPosition(next++), record);
      place.loop.RunOne();
    }
    while (log.durable().value + 1 < next) place.loop.RunOne();
  }
  uint64_t seen = 0;
  LogSink sink;
  sink.record = [&seen](LogPosition, std::string_view view) {
    seen += view.size();
    return absl::OkStatus();
  };
  const auto log = RecoverLog(Blocking(place.disk.get()), place.path, "shard-0", sink);
  if (!log.ok()) return Failed(log.status());
  std::printf("recovery of the log: %.0f records, %.0f MiB in %.2f s\n",
              static_cast<double>(log->records), static_cast<double>(log->bytes >> 20),
              log->seconds);
}

void MeasureContents() {
  Place place(true);
  const uint64_t items = absl::GetFlag(FLAGS_items);
  const std::string item(static_cast<size_t>(absl::GetFlag(FLAGS_record_bytes)), 'i');
  std::vector<PayloadId> stored;
  {
    ContentStore store(uint64_t{64} << 30);
    ContentLog log(place.disk.get(), {.directory = place.path}, {.next = LogPosition(1)}, &store,
                   place.loop.post(), place.loop.post(), Failed);
    uint64_t asked = 0;
    const std::vector<std::string_view> batch(1'000, item);
    while (stored.size() < items) {
      for (; asked < items && !log.full(); asked += batch.size()) {
        log.Add(batch, [&](auto ids) { stored.insert(stored.end(), ids->begin(), ids->end()); });
      }
      place.loop.RunOne();
    }
  }
  ContentStore store(uint64_t{64} << 30);
  const auto contents =
      RecoverContents(Blocking(place.disk.get()), place.path, std::move(stored), &store);
  if (!contents.ok()) return Failed(contents.status());
  const auto& log = contents->log;
  std::printf("recovery of task contents: %.0f items, %.0f MiB in %.2f s\n",
              static_cast<double>(log.records), static_cast<double>(log.bytes >> 20), log.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  for (const int in_flight : {1, 16, 256, 4096}) MeasureAppend(in_flight);
  MeasureRecovery();
  MeasureContents();
  return 0;
}
