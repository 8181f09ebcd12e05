// A directory of the test's own, for a daemon that keeps its run.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace forebay::integration {

class RunDirectory {
 public:
  RunDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "forebay-run-XXXXXX").string();
    path_ = mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  RunDirectory(const RunDirectory&) = delete;
  ~RunDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::vector<std::string> Flags() const { return {absl::StrCat("--storage.directory=", path_)}; }

 private:
  std::string path_;
};

}  // namespace forebay::integration
