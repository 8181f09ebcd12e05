// What only the disks with threads and kernels under them can get wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

template <class Kind>
class RealDiskTest : public DiskTest<Kind> {};
using Kinds = testing::Types<PoolKind, UringKind>;
TYPED_TEST_SUITE(RealDiskTest, Kinds);

constexpr auto kPatience = std::chrono::seconds(30);

template <class Condition>
void Until(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    // poll: what the disk's threads do next
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TYPED_TEST(RealDiskTest, AnswersThousandsOfOperationsOfManyThreadsOnceEach) {
  constexpr int kThreads = 4, kEach = 1'500, kSize = 512;
  this->kind_.disk = TypeParam::New({.queue_depth = 5, .workers_max = 3});
  std::vector<FileRef> files;
  for (int t = 0; t < kThreads; ++t) files.push_back(this->Create(std::to_string(t)));
  std::vector<std::atomic<int>> answers(kThreads * kEach);
  Answers left(kThreads * kEach);
  std::vector<std::string> texts;
  for (int i = 0; i < kThreads * kEach; ++i)
    texts.push_back(std::string(kSize, char('a' + i % 26)));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) {
        const auto place = static_cast<uint64_t>(i % kEach) * kSize;
        this->disk().Write(files[t], place, {{texts[i].data(), kSize}},
                           [&, i](absl::Status status) {
                             EXPECT_TRUE(status.ok()) << status;
                             ++answers[i];
                             left.Count();
                           });
        if (i % 300 == 0) this->disk().Sync(files[t], [](absl::Status s) { EXPECT_TRUE(s.ok()); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  left.Wait();
  for (const auto& count : answers) ASSERT_EQ(count, 1);
  for (int t = 0; t < kThreads; ++t) {
    std::string expected;
    for (int i = t * kEach; i < (t + 1) * kEach; ++i) expected += texts[i];
    EXPECT_EQ(*this->Read(files[t], 0, expected.size() + 1), expected);
  }
  EXPECT_EQ(this->disk().use().writes, uint64_t{kThreads * kEach});
}

TYPED_TEST(RealDiskTest, WhatIsBeyondTheDepthWaitsInOrder) {
  this->kind_.disk = TypeParam::New({.queue_depth = 1, .workers_max = 1});
  const FileRef file = this->Create("a");
  std::vector<int> order;
  Answers all;
  for (int i = 0; i < 300; ++i) {
    this->disk().Write(file, 0, {{"x", 1}}, [&, i](absl::Status status) {
      EXPECT_TRUE(status.ok());
      order.push_back(i);
      if (order.size() == 300) all.Count();
    });
  }
  all.Wait();
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TYPED_TEST(RealDiskTest, AnAnswerMayStartTheNextOperation) {
  const FileRef file = this->Create("a");
  Answers all;
  int written = 0;
  std::function<void(absl::Status)> next = [&](absl::Status status) {
    EXPECT_TRUE(status.ok());
    if (written == 500) return all.Count();
    this->disk().Write(file, static_cast<uint64_t>(written++), {{"x", 1}}, next);
  };
  next(absl::OkStatus());
  all.Wait();
  EXPECT_EQ(*this->Size(file), 500u);
}

TYPED_TEST(RealDiskTest, DestructionWaitsForAllThatRunsAndWhatItStarts) {
  std::atomic<int> written{0}, synced{0}, renamed{0};
  const std::string bytes(100'000, 'x');
  FileRef file = this->Create("a");
  Disk* disk = &this->disk();
  for (uint64_t i = 0; i < 100; ++i) {
    disk->Write(file, i * bytes.size(), {{bytes.data(), bytes.size()}}, [&](absl::Status status) {
      EXPECT_TRUE(status.ok());
      if (++written % 10 > 0) return;
      disk->Sync(file, [&](absl::Status status) {
        EXPECT_TRUE(status.ok());
        ++synced;
        disk->Rename(this->In("no"), this->In("where"), [&](absl::Status status) {
          EXPECT_EQ(ErrorOf(status), ENOENT);
          ++renamed;
        });
      });
    });
  }
  this->kind_.disk.reset();
  EXPECT_EQ(written, 100);
  EXPECT_EQ(synced, 10);
  EXPECT_EQ(renamed, 10);
  EXPECT_EQ(file->path(), this->In("a"));  // outlives the disk
  file.reset();
  this->kind_.disk = TypeParam::New();
  EXPECT_EQ(*this->Size(*this->Open(this->In("a"), OpenMode::kRead)), 100 * bytes.size());
}

TYPED_TEST(RealDiskTest, AFileWhoseOwnerLetsGoIsWrittenAllTheSameAndThenClosed) {
  const auto descriptors = [] {
    std::error_code ignored;
    const auto all = std::filesystem::directory_iterator("/proc/self/fd", ignored);
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  const std::string bytes(1 << 20, 'x');
  Answers done;
  FileRef file = this->Create("a");
  EXPECT_EQ(descriptors(), before + 1);
  this->disk().Write(std::move(file), 0, {{bytes.data(), bytes.size()}}, [&](absl::Status status) {
    EXPECT_TRUE(status.ok());
    done.Count();
  });
  done.Wait();
  Until([&] { return descriptors() == before; });
  EXPECT_EQ(*this->Read(*this->Open(this->In("a"), OpenMode::kRead), 0, bytes.size()), bytes);
}

// The thread that runs data cannot go on, as with a store that hangs.
TYPED_TEST(RealDiskTest, NamesGoOnWhileDataHangsAndUseSaysSo) {
  this->kind_.disk = TypeParam::New({.queue_depth = 1, .workers_max = 1});
  const FileRef file = this->Create("a");
  Answers entered, heal, last;
  this->disk().Write(file, 0, {{"x", 1}}, [&](absl::Status) {
    entered.Count();
    heal.Wait();
  });
  entered.Wait();
  this->disk().Write(file, 1, {{"y", 1}}, [&](absl::Status) { last.Count(); });
  Until([&] { return this->disk().use().oldest_ms >= 20; });
  EXPECT_EQ(this->disk().use().in_flight, 1u);
  EXPECT_TRUE(this->Rename("a", "b").ok());
  EXPECT_NE(this->Create("c"), nullptr);
  EXPECT_FALSE(last.complete());
  heal.Count();
  last.Wait();
  EXPECT_EQ(this->disk().use().in_flight, 0u);
}

TYPED_TEST(RealDiskTest, AFullDeviceIsSaidByItsName) {
  const FileRef file = *this->Open("/dev/full", OpenMode::kWrite);
  const absl::Status status = this->Write(file, 0, "text");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorOf(status), ENOSPC);
  EXPECT_EQ(status.message(), "write /dev/full: ENOSPC, No space left on device");
  EXPECT_EQ(this->disk().use().errors, 1u);
}

TYPED_TEST(RealDiskTest, AWriteThatIsCutShortGoesOnToItsError) {
  const FileRef file = this->Create("a");
  const std::string bytes(300'000, 'x');
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status =
      this->WritePieces(file, 0, {{bytes.data(), 70'000}, {bytes.data(), 230'000}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ErrorOf(status), EFBIG);
  EXPECT_EQ(*this->Size(file), 100'000u);
  EXPECT_EQ(this->disk().use().written_bytes, 100'000u);
}

TYPED_TEST(RealDiskTest, DirectAndBufferedFilesTakeWritesOfManySizes) {
  for (const bool direct : {false, true}) {
    const FileRef file = this->Create(direct ? "direct" : "buffered", direct);
    std::vector<std::unique_ptr<AlignedBuffer>> buffers;
    Answers left(40);
    uint64_t at = 0;
    for (size_t i = 1; i <= 40; ++i) {
      const size_t size = i * kAlignment;
      buffers.push_back(std::make_unique<AlignedBuffer>(size, static_cast<char>('A' + i)));
      this->disk().Write(file, at, {{buffers.back()->data(), size}}, [&](absl::Status status) {
        EXPECT_TRUE(status.ok()) << status;
        left.Count();
      });
      at += size;
    }
    left.Wait();
    ASSERT_TRUE(this->Sync(file).ok());
    AlignedBuffer all(at);
    ASSERT_EQ(*this->ReadInto(file, 0, all.span()), at);
    at = 0;
    for (size_t i = 1; i <= 40; ++i) {
      for (size_t end = at + i * kAlignment; at < end; ++at) {
        ASSERT_EQ(all.data()[at], static_cast<char>('A' + i));
      }
    }
  }
}

}  // namespace
}  // namespace forebay::io
