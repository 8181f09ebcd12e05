// A segment store over the simulator's disk, in virtual time, with calls that tests can follow.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "io/memory_disk.h"
#include "storage/segment_store.h"

namespace forebay::storage {

inline std::string RandomText(Prng& prng, size_t size) {
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(prng.Next());
  return text;
}

// A call of Finish: what came of it.
struct Put {
  std::string bytes;
  PayloadId id;
  std::optional<absl::Status> answer;

  bool ok() const { return answer.has_value() && answer->ok(); }
};
using PutRef = std::shared_ptr<Put>;

// A payload whose header is its first `header_bytes` bytes, and whose cold part is its last
// `cold_bytes`; none if there is no memory for it.
inline PutRef StartPut(SegmentStore& store, std::string bytes, size_t header_bytes = 1,
                       std::function<void()> answered = nullptr, size_t cold_bytes = 0) {
  const uint64_t hot_bytes = bytes.size() - cold_bytes;
  if (!store.budget().TryReserve(PayloadBuilder::Footprint(hot_bytes, cold_bytes))) return nullptr;
  auto put = std::make_shared<Put>();
  put->bytes = std::move(bytes);
  PayloadBuilder builder(&store.budget(), hot_bytes, cold_bytes);
  builder.AppendHeader(std::string_view(put->bytes).substr(0, header_bytes));
  builder.Append(std::string_view(put->bytes).substr(header_bytes), 0);
  store.Finish({&builder, 1}, {&put->id, 1}, [put, answered](const absl::Status& status) {
    EXPECT_FALSE(put->answer.has_value());
    put->answer = status;
    if (answered) answered();
  });
  return put;
}

inline std::string BytesOf(const PayloadView& view) {
  std::vector<BlockSlice> slices;
  EXPECT_TRUE(view.Slices(0, view.bytes(), &slices).ok());
  std::string bytes;
  for (const BlockSlice& slice : slices) bytes.append(slice.data, slice.size);
  return bytes;
}

// A call of Load.
struct Loaded {
  std::optional<absl::Status> answer;
  std::vector<PayloadView> views;

  bool ok() const { return answer.has_value() && answer->ok(); }
};
using LoadedRef = std::shared_ptr<Loaded>;

inline LoadedRef StartLoad(SegmentStore& store, const std::vector<PayloadId>& ids,
                           Parts parts = Parts::kAll) {
  auto loaded = std::make_shared<Loaded>();
  store.Load(ids, parts, [loaded](absl::StatusOr<std::vector<PayloadView>> views) {
    EXPECT_FALSE(loaded->answer.has_value());
    loaded->answer = views.status();
    if (views.ok()) loaded->views = *std::move(views);
  });
  return loaded;
}

class Host {
 public:
  explicit Host(SegmentStoreOptions options = {},
                std::shared_ptr<io::MemoryVolume> volume = nullptr,
                io::MemoryDiskOptions disk_options = {.delay_least_ms = 1, .delay_most_ms = 9})
      : volume(volume != nullptr ? std::move(volume) : std::make_shared<io::MemoryVolume>()),
        options(std::move(options)) {
    this->options.directory = "/data";
    this->options.cluster = "test";
    this->options.now_ms = [this] { return time.now_ms(); };
    this->options.after = time.time().after;
    disk = std::make_unique<io::MemoryDisk>(this->volume, time.time(), disk_options);
    store = std::make_unique<SegmentStore>(disk.get(), this->options);
  }
  ~Host() {
    store = nullptr;
    disk = nullptr;
  }

  std::optional<absl::StatusOr<StoreRecovery>> StartRecovery(std::vector<PayloadId> live) {
    auto result = std::make_shared<std::optional<absl::StatusOr<StoreRecovery>>>();
    store->Recover(std::move(live), [result](auto recovery) { *result = std::move(recovery); });
    Settle(60'000);
    return *result;
  }
  StoreRecovery Recover(std::vector<PayloadId> live = {}) {
    const auto result = StartRecovery(std::move(live));
    EXPECT_TRUE(result.has_value());
    if (!result.has_value() || !result->ok()) {
      ADD_FAILURE() << (result.has_value() ? result->status().ToString() : "no answer");
      return {};
    }
    return **result;
  }

  // Runs what is due within so much time, with ticks.
  void Advance(uint64_t ms) {
    const uint64_t until = time.now_ms() + ms;
    while (time.now_ms() < until) {
      time.Advance(std::min<uint64_t>(10, until - time.now_ms()));
      store->Tick();
    }
  }
  // Until nothing is under way at the disk, or for so long.
  void Settle(uint64_t most_ms = 2'000) {
    const uint64_t until = time.now_ms() + most_ms;
    do {
      Advance(10);
    } while (disk->use().in_flight > 0 && time.now_ms() < until);
  }

  // What is written at once, to the end.
  PutRef Write(std::string bytes, size_t cold_bytes = 0) {
    PutRef put = StartPut(*store, std::move(bytes), 1, nullptr, cold_bytes);
    Settle();
    EXPECT_TRUE(put != nullptr && put->ok());
    return put;
  }
  LoadedRef Load(const std::vector<PayloadId>& ids, Parts parts = Parts::kAll) {
    LoadedRef loaded = StartLoad(*store, ids, parts);
    Settle();
    return loaded;
  }
  // The bytes, or the error.
  std::string Read(PayloadId id) {
    const LoadedRef loaded = Load({id});
    if (!loaded->answer.has_value()) return "no answer";
    return loaded->ok() ? BytesOf(loaded->views[0]) : loaded->answer->ToString();
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& [name, inode] : volume->FilesIn("/data/segments")) names.push_back(name);
    return names;
  }

  io::ManualTime time;
  std::shared_ptr<io::MemoryVolume> volume;
  SegmentStoreOptions options;
  std::unique_ptr<io::MemoryDisk> disk;
  std::unique_ptr<SegmentStore> store;
};

}  // namespace forebay::storage
