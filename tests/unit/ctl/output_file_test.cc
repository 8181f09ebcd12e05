#include "ctl/output_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ctl/safetensors.h"

namespace forebay::ctl {
namespace {

namespace fs = std::filesystem;

class OutputFile : public ::testing::Test {
 protected:
  OutputFile() {
    std::string pattern = (fs::temp_directory_path() / "forebay-out-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~OutputFile() override { fs::remove_all(folder_); }

  std::string Path() const { return folder_ + "/out"; }
  std::string Content() const {
    std::ifstream file(Path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

TEST_F(OutputFile, IsThereWholeOrNotAtAll) {
  {
    auto file = ScratchFile::Create(Path());
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("half").ok());
    EXPECT_FALSE(fs::exists(Path()));
  }
  EXPECT_EQ(Files(), 0u) << "what was not finished is gone";
  auto file = ScratchFile::Create(Path());
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("one, two").ok());
  ASSERT_TRUE(file->TruncateTo(3).ok());
  ASSERT_TRUE(file->Append("!").ok());
  EXPECT_EQ(file->bytes(), 4u);
  ASSERT_TRUE(file->RenameTo(Path(), false).ok());
  EXPECT_EQ(Content(), "one!");
}

TEST_F(OutputFile, ReplacesOnlyWhenToldTo) {
  std::ofstream(Path()) << "before";
  {
    auto file = ScratchFile::Create(Path());
    ASSERT_TRUE(file->Append("after").ok());
    const absl::Status refused = file->RenameTo(Path(), false);
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_NE(std::string(refused.message()).find("--force"), std::string::npos);
  }
  EXPECT_EQ(Content(), "before");
  auto file = ScratchFile::Create(Path());
  ASSERT_TRUE(file->Append("after").ok());
  ASSERT_TRUE(file->RenameTo(Path(), true).ok());
  EXPECT_EQ(Content(), "after");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(OutputFile, AFolderThatIsNotThereIsNamed) {
  const auto file = ScratchFile::Create(folder_ + "/none/out");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(std::string(file.status().message()).find("none/out"), std::string::npos);
}

TEST_F(OutputFile, SafetensorsLieByWidthWithoutGaps) {
  auto writer = SafetensorsWriter::Create(Path());
  ASSERT_TRUE(writer.ok()) << writer.status();
  writer->Begin("a/mask", v1::DTYPE_U8, {3});
  ASSERT_TRUE(writer->Append("xyz").ok());
  writer->Begin("a/tokens", v1::DTYPE_U32, {1, 2});
  ASSERT_TRUE(writer->Append("aaaa").ok());
  ASSERT_TRUE(writer->Append("bbbb").ok());
  ASSERT_TRUE(writer->EndGroup("a", "{\"reward\":1}").ok());
  writer->Begin("b/mask", v1::DTYPE_U8, {5});
  ASSERT_TRUE(writer->Append("gone!").ok());
  ASSERT_TRUE(writer->DropGroup().ok());
  writer->Begin("c/mask", v1::DTYPE_BOOL, {1});
  ASSERT_TRUE(writer->Append("c").ok());
  ASSERT_TRUE(writer->EndGroup("c", "{}").ok());
  ASSERT_TRUE(writer->Finish(false).ok());
  const std::string header =
      "{\"__metadata__\":{\"a\":\"{\\\"reward\\\":1}\",\"c\":\"{}\"},"
      "\"a/tokens\":{\"dtype\":\"U32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
      "\"a/mask\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]},"
      "\"c/mask\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[11,12]}}";
  const size_t padded = (header.size() + 7) / 8 * 8;
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(padded % 256);
  expected[1] = static_cast<char>(padded / 256);
  expected += header + std::string(padded - header.size(), ' ') + "aaaabbbbxyzc";
  EXPECT_EQ(Content(), expected);
}

}  // namespace
}  // namespace forebay::ctl
