#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/prng.h"

namespace forebay {
namespace {

std::string RandomBytes(size_t size, uint64_t seed) {
  Prng prng(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(prng.Next());
  }
  return bytes;
}

// The definition, bit by bit, with the reversed Castagnoli polynomial.
uint32_t SlowCrc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~crc;
}

// The values of RFC 3720, appendix B.4.
TEST(Crc32c, GivesTheKnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, AgreesWithTheDefinitionForEveryShortLength) {
  const std::string bytes = RandomBytes(300, 1);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string_view piece(bytes.data(), size);
    ASSERT_EQ(Crc32c(piece), SlowCrc32c(piece)) << "size " << size;
  }
}

TEST(Crc32c, ContinuesFromAnyCut) {
  const std::string bytes = RandomBytes(257, 2);
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::string_view view(bytes);
    ASSERT_EQ(Crc32c(view.substr(cut), Crc32c(view.substr(0, cut))), whole) << "cut " << cut;
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  std::string bytes = RandomBytes(64, 3);
  const uint32_t whole = Crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(Crc32c(bytes), whole) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
}

TEST(JoinCrc32c, GivesTheSumOfBothAreas) {
  const std::string bytes = RandomBytes(70'000, 6);
  const std::string_view all = bytes;
  for (const size_t size : {0u, 1u, 2u, 255u, 4'096u, 65'537u, 70'000u}) {
    for (const size_t first : {size_t{0}, size_t{1}, size / 3, size - size / 3, size}) {
      if (first > size) continue;
      const auto second = all.substr(first, size - first);
      ASSERT_EQ(JoinCrc32c(Crc32c(all.substr(0, first)), Crc32c(second), second.size()),
                Crc32c(all.substr(0, size)))
          << first << " of " << size;
      ASSERT_EQ(JoinCrc32cPlain(Crc32c(all.substr(0, first)), Crc32c(second), second.size()),
                Crc32c(all.substr(0, size)))
          << first << " of " << size;
    }
  }
}

TEST(JoinCrc32c, TakesLengthsThatNoAreaHas) {
  // To move a sum by n bytes and then by n more is to move it by 2n.
  for (int bits = 0; bits < 60; ++bits) {
    const uint64_t bytes = uint64_t{1} << bits;
    EXPECT_EQ(JoinCrc32c(JoinCrc32c(0x12345678, 0, bytes), 0, bytes),
              JoinCrc32c(0x12345678, 0, 2 * bytes));
  }
}

TEST(JoinCrc32c, AgreesWithTheDefinitionBitByBit) {
  Prng prng(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto first = static_cast<uint32_t>(prng.Next());
    const auto second = static_cast<uint32_t>(prng.Next());
    // Of any magnitude: as many lengths of few bits as of many.
    const uint64_t bytes = (prng.Next() >> 3) >> prng.Below(61);
    ASSERT_EQ(JoinCrc32c(first, second, bytes), JoinCrc32cPlain(first, second, bytes))
        << first << " " << second << " " << bytes;
  }
}

TEST(CopyCrc32c, CopiesAndSumsAcrossPieces) {
  for (const size_t size : {0u, 1u, 16383u, 16384u, 16385u, 100'000u}) {
    const std::string from = RandomBytes(size, size);
    std::string to(size + 2, '#');
    EXPECT_EQ(CopyCrc32c(to.data() + 1, from.data(), size), Crc32c(from));
    EXPECT_EQ(to, "#" + from + "#") << "size " << size;
  }
}

TEST(CopyCrc32c, AgreesForEveryShortLengthAndPlace) {
  const std::string bytes = RandomBytes(300, 5);
  for (size_t size = 0; size <= 290; ++size) {
    const size_t place = size % 9;
    std::string to(size + 2, '#');
    ASSERT_EQ(CopyCrc32c(to.data() + 1, bytes.data() + place, size, 7),
              Crc32c({bytes.data() + place, size}, 7))
        << "size " << size;
    ASSERT_EQ(to, "#" + bytes.substr(place, size) + "#") << "size " << size;
  }
}

TEST(CopyCrc32c, ContinuesFromAnEarlierSum) {
  const std::string from = RandomBytes(40'000, 4);
  std::string to(from.size(), '\0');
  const uint32_t first = CopyCrc32c(to.data(), from.data(), 12'345);
  const uint32_t both =
      CopyCrc32c(to.data() + 12'345, from.data() + 12'345, from.size() - 12'345, first);
  EXPECT_EQ(both, Crc32c(from));
  EXPECT_EQ(to, from);
}

// Past the caches from 4 KiB on, where heads and tails of every length are copied apart.
TEST(CopyCrc32c, CopiesFromAnyPlaceToAnyPlace) {
  constexpr size_t kLane = 32;
  const std::string from = RandomBytes(20'000, 8);
  for (size_t shift = 0; shift <= kLane; ++shift) {
    for (const size_t size : {4'095u, 4'096u, 4'097u, 4'223u, 16'384u, 19'811u}) {
      const std::string_view piece = std::string_view(from).substr(kLane - shift, size);
      std::string to(size + kLane + 2, '#');
      ASSERT_EQ(CopyCrc32c(to.data() + 1 + shift, piece.data(), size, 5), Crc32c(piece, 5));
      ASSERT_EQ(to, std::string(1 + shift, '#') + std::string(piece) +
                        std::string(to.size() - size - 1 - shift, '#'))
          << "size " << size << " shift " << shift;
    }
  }
}

}  // namespace
}  // namespace forebay
