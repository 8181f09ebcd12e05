// Who holds a directory, and what a killed holder leaves.
#include "storage/log_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "io/disk.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::storage {
namespace {

TEST(DirectoryLockTest, ASecondHolderIsRefusedUntilTheFirstIsGone) {
  const io::ScratchFolder folder;
  {
    const auto first = DirectoryLock::Take(folder.path());
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = DirectoryLock::Take(folder.path());
    EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
    EXPECT_NE(second.status().message().find(absl::StrCat("process ", getpid())),
              std::string::npos);
  }
  EXPECT_TRUE(DirectoryLock::Take(folder.path()).ok());
}

TEST(DirectoryLockTest, AFileThatIsDeletedOrReplacedIsNoticed) {
  const io::ScratchFolder folder;
  const std::string file = folder.path() + "/lock";
  {
    const auto lock = DirectoryLock::Take(folder.path());
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(lock->Check().ok());
    ASSERT_EQ(unlink(file.c_str()), 0);
    EXPECT_TRUE(absl::IsDataLoss(lock->Check()));
    EXPECT_NE(lock->Check().message().find(file), std::string::npos);
    const auto other = DirectoryLock::Take(folder.path());
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_TRUE(absl::IsDataLoss(lock->Check()));
    EXPECT_TRUE(other->Check().ok());
  }
}

TEST(DirectoryLockTest, AKilledHolderLeavesNothingToCleanUp) {
  const io::ScratchFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = DirectoryLock::Take(folder.path());
    const char answer = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_TRUE(absl::IsUnavailable(DirectoryLock::Take(folder.path()).status()));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(DirectoryLock::Take(folder.path()).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(DirectoryLockTest, AMissingDirectoryIsNamed) {
  const auto lock = DirectoryLock::Take("/no-such-directory");
  EXPECT_EQ(io::ErrorOf(lock.status()), ENOENT);
  EXPECT_NE(lock.status().message().find("/no-such-directory/lock"), std::string::npos);
}

}  // namespace
}  // namespace forebay::storage
