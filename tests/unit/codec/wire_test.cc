#include "codec/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/prng.h"

namespace forebay::codec {
namespace {

TEST(Wire, VarintsReadBack) {
  Prng prng(1);
  std::vector<uint64_t> values = {0, 1, 127, 128, 16'383, 16'384, UINT32_MAX, UINT64_MAX};
  for (int i = 0; i < 1000; ++i) values.push_back(prng.Next() >> prng.Below(64));
  for (const uint64_t value : values) {
    std::string bytes;
    WireWriter(&bytes).RawVarint(value);
    EXPECT_EQ(bytes.size(), VarintSize(value));
    const char* at = bytes.data();
    uint64_t read = 0;
    ASSERT_TRUE(ReadVarint(&at, bytes.data() + bytes.size(), &read));
    EXPECT_EQ(read, value);
    at = bytes.data();
    EXPECT_FALSE(ReadVarint(&at, bytes.data() + bytes.size() - 1, &read) && read == value);
  }
}

TEST(Wire, RefusesVarintsOfMoreThanTenBytes) {
  const std::string bytes(11, '\x80');
  const char* at = bytes.data();
  uint64_t value = 0;
  EXPECT_FALSE(ReadVarint(&at, bytes.data() + bytes.size(), &value));
  EXPECT_EQ(at, bytes.data());
}

TEST(Wire, KnowsUtf8) {
  for (const char* good : {"", "plain ascii text", "caf\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "long enough for a word \xff", "\xe2\x82"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(Wire, AReaderStopsAtTheFirstSurprise) {
  std::string bytes;
  WireWriter writer(&bytes);
  writer.Bytes(1, "text");
  bytes.push_back('\x12');  // field 2 of bytes, without a length
  WireReader r(bytes);
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.String(), "text");
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.Bytes(), "");
  EXPECT_FALSE(r.ok());
  EXPECT_FALSE(r.Next());
  EXPECT_EQ(r.Varint(), 0u);
}

TEST(Wire, LeavesOutZeroes) {
  std::string bytes;
  WireWriter writer(&bytes);
  writer.Varint(1, 0);
  writer.Fixed(2, 0.0);
  writer.Bytes(3, "");
  EXPECT_TRUE(bytes.empty());
  writer.Message(4, "");
  EXPECT_EQ(bytes.size(), 2u);
}

}  // namespace
}  // namespace forebay::codec
