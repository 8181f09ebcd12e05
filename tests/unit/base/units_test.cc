#include "base/units.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(BytesText, HasOneDecimalBelowAHundredOfItsUnit) {
  EXPECT_EQ(BytesText(17), "17 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(uint64_t{312} << 10), "312 KiB");
  EXPECT_EQ(BytesText(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace forebay
