#include "ctl/table.h"

#include <gtest/gtest.h>

namespace forebay::ctl {
namespace {

TEST(TableTest, AlignsTextLeftAndNumbersRight) {
  Table table({"NAME", ">COUNT", "NOTE"});
  table.Add({"a", "5", ""});
  table.Add({"long name", "1234", "x"});
  EXPECT_EQ(table.Text(),
            "NAME       COUNT  NOTE\n"
            "a              5\n"
            "long name   1234  x\n");
}

TEST(TableTest, CountsCharactersAndLetsNoControlCharacterThrough) {
  Table table({"NAME", "NOTE"});
  table.Add({"\xc3\xa4\xc3\xb6", "x"});
  table.Add({"abc\x1b[2J", "y\n"});
  EXPECT_EQ(table.Text(),
            "NAME     NOTE\n"
            "\xc3\xa4\xc3\xb6       x\n"
            "abc [2J  y\n");
}

TEST(UnitsTest, AreShort) {
  EXPECT_EQ(Duration(850), "850 ms");
  EXPECT_EQ(Duration(12'300), "12.3 s");
  EXPECT_EQ(Duration(250'000), "4 min 10 s");
  EXPECT_EQ(Duration(11'100'000), "3 h 5 min");
  EXPECT_EQ(Duration(uint64_t{5} * 86'400'000), "5 d 0 h");
  EXPECT_EQ(Decimal(0.3125), "0.3125");
  EXPECT_EQ(Decimal(128'700.4), "128700");
}

TEST(UnitsTest, AVersionNamesItsBranchOnlyIfItIsUnusual) {
  v1::PolicyVersion version;
  version.set_number(12);
  EXPECT_EQ(Version(version), "12");
  version.set_branch(1);
  EXPECT_EQ(Version(version), "main/1/12");
  version.set_policy("critic");
  EXPECT_EQ(Version(version), "critic/1/12");
}

}  // namespace
}  // namespace forebay::ctl
