#include "ctl/task_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace forebay::ctl {
namespace {

using ::testing::HasSubstr;

TEST(TaskLinesTest, ReadsIdsOfTextAndNumbersAndKeepsTheLine) {
  std::istringstream in("{\"id\": \"a\", \"q\": 1}\n\n  {\"id\": 17}  \n{\"id\": -3, \"w\": 2.5}");
  TaskLines lines(&in, {.weight = "w"});
  v1::Task task;
  ASSERT_TRUE(lines.Next(&task));
  EXPECT_EQ(task.external_id(), "a");
  EXPECT_EQ(task.payload(), "{\"id\": \"a\", \"q\": 1}");
  EXPECT_FALSE(task.has_weight());
  ASSERT_TRUE(lines.Next(&task));
  EXPECT_EQ(task.external_id(), "17");
  EXPECT_EQ(task.payload(), "{\"id\": 17}");
  ASSERT_TRUE(lines.Next(&task));
  EXPECT_EQ(task.external_id(), "-3");
  EXPECT_EQ(task.weight(), 2.5);
  EXPECT_FALSE(lines.Next(&task));
  EXPECT_TRUE(lines.status().ok()) << lines.status();
}

TEST(TaskLinesTest, AByteOrderMarkIsNoContent) {
  std::istringstream in("\xef\xbb\xbf{\"id\": \"a\"}\n{\"id\": \"b\"}");
  TaskLines lines(&in, {});
  v1::Task task;
  ASSERT_TRUE(lines.Next(&task)) << lines.status();
  EXPECT_EQ(task.payload(), "{\"id\": \"a\"}");
  EXPECT_TRUE(lines.Next(&task)) << lines.status();
}

TEST(TaskLinesTest, LinesAreNumberedIfThatIsWanted) {
  std::istringstream in("{\"a\": 1}\n\n{\"a\": 2}\n");
  TaskLines lines(&in, {.id = ""});
  v1::Task task;
  ASSERT_TRUE(lines.Next(&task));
  EXPECT_EQ(task.external_id(), "1");
  ASSERT_TRUE(lines.Next(&task));
  EXPECT_EQ(task.external_id(), "3");
}

std::string ErrorOf(const std::string& text) {
  std::istringstream in(text);
  TaskLines lines(&in, {.weight = "w"});
  v1::Task task;
  while (lines.Next(&task)) {
  }
  return std::string(lines.status().message());
}

TEST(TaskLinesTest, ErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("{\"id\": 1}\nno json"), HasSubstr("line 2: is no JSON object"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("{\"q\": 1}"), HasSubstr("line 1: has no field 'id'"));
  EXPECT_THAT(ErrorOf("{\"id\": 1.5}"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("{\"id\": 1e300}"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("{\"id\": null}"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("{\"id\": 1, \"w\": \"heavy\"}"), HasSubstr("'w'"));
}

}  // namespace
}  // namespace forebay::ctl
