#include "ctl/text.h"

#include <gtest/gtest.h>

namespace forebay::ctl {
namespace {

TEST(Printable, LetsTextBeAndStopsWhatSteersATerminal) {
  EXPECT_EQ(Printable("two lines\n\tof text, \xc3\xa9\xe2\x82\xac"),
            "two lines\n\tof text, \xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(Printable("\x1b[2Jgone\r\x07\x7f"), "\\x1b[2Jgone\\x0d\\x07\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "\\x9b31m\xc2\xa0");
  EXPECT_EQ(Printable("not UTF-8: \xff\xc3"), "not UTF-8: \\xff\\xc3");
  EXPECT_EQ(Printable(""), "");
}

}  // namespace
}  // namespace forebay::ctl
