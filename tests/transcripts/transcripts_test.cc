// The main flows as readable text, compared with the files beside this one.
// FOREBAY_UPDATE_TRANSCRIPTS=1 (or
// `./dev test transcripts -- --update`) writes the files anew; read the difference before it is
// committed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/transcripts/script.h"

namespace forebay::transcripts {
namespace {

std::vector<std::filesystem::path> Files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(FOREBAY_TRANSCRIPTS)) {
    if (entry.path().extension() == ".txt" && entry.path().filename() != "CMakeLists.txt")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Transcript : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Transcript, IsWhatHappens) {
  const std::string expected = Read(GetParam());
  const std::string actual = Script().Run(expected);
  if (std::getenv("FOREBAY_UPDATE_TRANSCRIPTS") != nullptr) std::ofstream(GetParam()) << actual;
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(Script().Run(actual), actual) << "a second run differs";
  EXPECT_EQ(actual.find("BROKEN"), std::string::npos);
  EXPECT_EQ(actual.find("no such command"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Flows, Transcript, testing::ValuesIn(Files()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace forebay::transcripts
