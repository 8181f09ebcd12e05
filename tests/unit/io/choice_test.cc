// Which disk is chosen, and what io_uring keeps to; and file systems that a test mounts for itself.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

// From here on the calling thread, and those it starts, are refused io_uring.
bool ForbidUring(int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 4, .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

absl::Status WriteSomething(Disk& disk, const std::string& path) {
  Answers written;
  absl::Status result;
  disk.Open(path, {.mode = OpenMode::kCreate}, [&](absl::StatusOr<FileRef> file) {
    if (!file.ok()) {
      result = file.status();
      return written.Count();
    }
    disk.Write(*file, 0, {{"text", 4}}, [&](absl::Status status) {
      result = std::move(status);
      written.Count();
    });
  });
  written.Wait();
  return result;
}

TEST(NewDisk, TakesThreadsWhereIoUringIsRefusedAndSaysWhy) {
  const ScratchFolder folder;
  for (const int error : {EPERM, ENOSYS}) {
    std::thread([&] {
      ASSERT_TRUE(ForbidUring(error));
      std::string why;
      const auto disk = NewDisk({}, &why);
      EXPECT_EQ(disk->name(), "threads");
      EXPECT_EQ(why.find("threads: io_uring is refused: setup: "), 0u) << why;
      EXPECT_NE(why.find(error == EPERM ? "EPERM" : "ENOSYS"), std::string::npos) << why;
      EXPECT_NE(why.find("seccomp"), std::string::npos) << why;
      EXPECT_TRUE(WriteSomething(*disk, folder.path() + "/" + std::to_string(error)).ok());
    }).join();
  }
}

TEST(NewDisk, TakesThreadsWhereItIsToldTo) {
  std::string why;
  EXPECT_EQ(NewDisk({.allow_uring = false}, &why)->name(), "threads");
  EXPECT_EQ(why, "threads: io_uring is switched off by configuration");
}

TEST(NewDisk, TakesIoUringWhereItIsNotRefused) {
  std::string why;
  const auto disk = NewDisk({}, &why);
  if (disk->name() == "io_uring") {
    EXPECT_EQ(why, "io_uring: the kernel allows it");
  } else {
    EXPECT_EQ(why.find("threads: io_uring is refused: "), 0u) << why;
  }
}

int KernelWorkers() {
  int count = 0;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name.rfind("iou-wrk", 0) == 0) ++count;
  }
  return count;
}

// Every buffered write and every sync wants a worker of the kernel.
TEST(UringDisk, TheKernelsWorkersAreBounded) {
  constexpr int kWorkersMax = 2;
  std::string why;
  const auto disk = NewDisk({.queue_depth = 64, .workers_max = kWorkersMax}, &why);
  if (disk->name() != "io_uring") return;  // then there are none
  const ScratchFolder folder;
  std::vector<FileRef> files(16);
  for (size_t i = 0; i < files.size(); ++i) {
    Answers opened;
    disk->Open(folder.path() + "/" + std::to_string(i), {.mode = OpenMode::kCreate},
               [&](absl::StatusOr<FileRef> file) {
                 files[i] = *std::move(file);
                 opened.Count();
               });
    opened.Wait();
  }
  const std::string bytes(100'000, 'x');
  int most = 0;
  for (int round = 0; round < 20 || most == 0; ++round) {
    Answers left(static_cast<int>(2 * files.size()));
    for (const FileRef& file : files) {
      disk->Write(file, 0, {{bytes.data(), bytes.size()}}, [&](auto) { left.Count(); });
      disk->Sync(file, [&](auto) { left.Count(); });
    }
    while (disk->use().in_flight > 0) most = std::max(most, KernelWorkers());
    left.Wait();
  }
  EXPECT_LE(most, kWorkersMax);
}

// --- file systems of one's own ---

void PutText(const char* path, const std::string& text) { std::ofstream(path) << text; }

// In a process of its own: a mount point of its own there, or why it may have none.
std::string MountForThisProcess(const char* type, const char* options, const std::string& at) {
  if (unshare(CLONE_NEWNS) != 0) {
    const uid_t user = getuid();
    const gid_t group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no mounts without privileges here";
    PutText("/proc/self/setgroups", "deny");
    PutText("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    PutText("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "/ is not private";
  if (mount("forebay-test", at.c_str(), type, 0, options) != 0) return "it is not mounted";
  return "";
}

class DiskOn : public DiskTest<PoolKind> {
 public:
  // Runs with the file system mounted; a failed expectation fails the process.
  void RunOn(const char* type, const char* options, bool uring, void (DiskOn::*body)()) {
    kind_.disk.reset();  // a process with threads gets no name space
    const std::string refused = MountForThisProcess(type, options, kind_.path());
    if (!refused.empty()) {
      std::cerr << "not tried: " << refused << "\n";
      std::filesystem::remove(kind_.path());
      std::_Exit(0);
    }
    std::string why;
    kind_.disk = NewDisk({.allow_uring = uring}, &why);
    (this->*body)();
    kind_.disk.reset();
    umount2(kind_.path().c_str(), MNT_DETACH);
    std::filesystem::remove(kind_.path());
    std::cerr << "tried" << (HasFailure() ? " in vain" : " and well") << "\n";
    std::_Exit(HasFailure() ? 1 : 0);
  }

  void FillUp() {
    const FileRef file = Create("a");
    const std::string bytes(3 << 20, 'x');
    const absl::Status status = Write(file, 0, bytes);
    EXPECT_EQ(ErrorOf(status), ENOSPC) << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(*Size(file), uint64_t{1} << 20);  // what there was room for
    EXPECT_EQ(SpaceOf(kind_.path())->free_bytes, 0u);
    EXPECT_EQ(ErrorOf(Allocate(file, 2 << 20)), ENOSPC);
    EXPECT_TRUE(Truncate(file, 0).ok());
    EXPECT_TRUE(Write(file, 0, std::string(1 << 19, 'y')).ok());  // room came back
    EXPECT_EQ(SpaceOf(kind_.path())->total_bytes, uint64_t{1} << 20);
  }

  void WriteWithoutDirectAccess() {
    const FileRef file = Create("a", true);
    EXPECT_FALSE(file->direct());
    EXPECT_TRUE(Write(file, 3, "text").ok());
    EXPECT_EQ(*Read(file, 3, 4), "text");
  }

 private:
  void TestBody() override {}
};

class OwnFileSystem : public testing::TestWithParam<bool> {
 protected:
  // Threads and mounts: a process started anew.
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(OwnFileSystem, AFullOneTakesWhatFitsAndGoesOnWhenThereIsRoom) {
  EXPECT_EXIT(DiskOn().RunOn("tmpfs", "size=1m", GetParam(), &DiskOn::FillUp),
              testing::ExitedWithCode(0), "tried");
}

TEST_P(OwnFileSystem, OneWithoutDirectAccessIsWrittenBuffered) {
  EXPECT_EXIT(DiskOn().RunOn("ramfs", "", GetParam(), &DiskOn::WriteWithoutDirectAccess),
              testing::ExitedWithCode(0), "tried");
}

INSTANTIATE_TEST_SUITE_P(Disks, OwnFileSystem, testing::Bool(),
                         [](const auto& info) { return info.param ? "Uring" : "Threads"; });

}  // namespace
}  // namespace forebay::io
