// A directory of the test's own, for a daemon that keeps its run, and with what it reads and writes
// there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace forebay::integration {

class RunDirectory {
 public:
  // `io`: the daemon's storage.io.
  explicit RunDirectory(std::string io = "auto") : io_(std::move(io)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "forebay-run-XXXXXX").string();
    path_ = mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  RunDirectory(const RunDirectory&) = delete;
  ~RunDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::vector<std::string> Flags() const {
    return {absl::StrCat("--storage.directory=", path_), absl::StrCat("--storage.io=", io_)};
  }

 private:
  const std::string io_;
  std::string path_;
};

// Tests that hold whatever the disk is used with: GetParam is storage.io.
class WithBothDisks : public testing::TestWithParam<const char*> {
 protected:
  const RunDirectory directory_{GetParam()};
};
#define FOREBAY_WITH_BOTH_DISKS(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(Disk, suite, testing::Values("auto", "threads"), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace forebay::integration
