// A snapshot that is encoded piece by piece, while the array changes, is of its moment.
#include "codec/copy_on_write_array.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "base/prng.h"

namespace forebay::codec {
namespace {

// Large, so that few make a piece.
struct Element {
  uint64_t value = 0;
  char filling[120 * 1024] = {};
};
constexpr size_t kChunk = 4;
using Array = CopyOnWriteArray<Element, kChunk>;
constexpr uint64_t kChunkBytes = kChunk * sizeof(Element);
// So many chunks are a piece of at most 1 MiB.
constexpr size_t kPieceChunks = (size_t{1} << 20) / kChunkBytes;

void Encode(Writer& writer, std::span<const Element> elements) {
  for (const Element& element : elements) writer(element.value);
}

std::string Now(const Array& array) {
  std::string bytes;
  Writer writer(&bytes);
  array.Snapshot(writer, Encode);
  return bytes;
}

std::unique_ptr<Parts> Begin(const Array& array) {
  auto parts = std::make_unique<Parts>();
  array.Snapshot(parts->writer(), Encode);
  return parts;
}

std::string Rest(Parts& parts) {
  std::string bytes;
  while (Piece piece = parts.Next()) piece(&bytes);
  return bytes;
}

Array Filled(size_t size) {
  Array array;
  for (size_t i = 0; i < size; ++i) array.Append().value = i;
  return array;
}

TEST(CopyOnWriteArray, NothingIsCopiedWhileNothingChanges) {
  const Array array = Filled(5 * kChunk + 1);
  const auto parts = Begin(array);
  EXPECT_EQ(Rest(*parts), Now(array));
  EXPECT_EQ(parts->copies()->bytes, 0u);
}

TEST(CopyOnWriteArray, AChunkThatChangesIsCopiedOnce) {
  Array array = Filled(5 * kChunk);
  const std::string before = Now(array);
  const auto parts = Begin(array);
  array[0].value = 100;
  array[1].value = 101;
  array[4 * kChunk].value = 102;
  EXPECT_EQ(parts->copies()->bytes, 2 * kChunkBytes);
  EXPECT_EQ(std::as_const(array)[1].value, 101u);
  EXPECT_EQ(Rest(*parts), before);
  EXPECT_NE(Now(array), before);
}

TEST(CopyOnWriteArray, WhatIsEncodedIsNotCopiedAnyMore) {
  Array array = Filled(3 * kPieceChunks * kChunk);
  const auto parts = Begin(array);
  std::string bytes;
  parts->Next()(&bytes);
  const Piece second = parts->Next();
  array[0].value = 100;  // of the first piece, which has run
  EXPECT_EQ(parts->copies()->bytes, 0u);
  array[kPieceChunks * kChunk].value = 101;  // of the second one, which has not
  EXPECT_EQ(parts->copies()->bytes, kChunkBytes);
}

TEST(CopyOnWriteArray, WhatIsAppendedMeanwhileIsNotInIt) {
  Array array = Filled(kChunk + 1);
  const std::string before = Now(array);
  const auto parts = Begin(array);
  for (size_t i = 0; i < 3 * kChunk; ++i) array.Append().value = 7;
  EXPECT_EQ(Rest(*parts), before);
  EXPECT_EQ(array.size(), 4 * kChunk + 1);
}

TEST(CopyOnWriteArray, OneThatIsGivenUpCostsNothingAnyMore) {
  Array array = Filled(5 * kChunk);
  auto parts = Begin(array);
  array[0].value = 100;
  const auto copies = parts->copies();
  parts = nullptr;
  array[4 * kChunk].value = 101;
  EXPECT_EQ(copies->bytes, kChunkBytes);
  const std::string before = Now(array);
  const auto next = Begin(array);
  array[0].value = 102;
  EXPECT_EQ(Rest(*next), before);
}

TEST(CopyOnWriteArray, ASnapshotOutlivesItsArray) {
  std::optional<Array> array = Filled(3 * kPieceChunks * kChunk);
  const std::string before = Now(*array);
  const auto parts = Begin(*array);
  std::string bytes;
  Piece first = parts->Next();
  (*array)[(2 * kPieceChunks + 1) * kChunk].value = 100;
  array.reset();
  first(&bytes);
  first = nullptr;
  EXPECT_EQ(bytes + Rest(*parts), before);

  Array replaced = Filled(2 * kChunk);
  const std::string other = Now(replaced);
  const auto of_replaced = Begin(replaced);
  replaced = Filled(1);
  EXPECT_EQ(Rest(*of_replaced), other);
}

TEST(CopyOnWriteArray, SmallValuesAroundItKeepTheirPlaces) {
  Array array = Filled(kChunk);
  std::string plain;
  Writer writer(&plain);
  writer(uint32_t{1});
  array.Snapshot(writer, Encode);
  writer(uint32_t{2});
  Parts parts;
  parts.writer()(uint32_t{1});
  array.Snapshot(parts.writer(), Encode);
  parts.writer()(uint32_t{2});
  array[0].value = 9;
  EXPECT_EQ(Rest(parts), plain);
}

TEST(CopyOnWriteArray, AChunkIsCopiedOnceForAllThatNeedIt) {
  Array array = Filled(3 * kChunk);
  const std::string first = Now(array);
  const auto one = Begin(array);
  array[0].value = 100;
  const std::string second = Now(array);
  const auto two = Begin(array);
  array[0].value = 101;
  array[kChunk].value = 102;
  EXPECT_EQ(one->copies()->bytes + two->copies()->bytes, 3 * kChunkBytes);
  EXPECT_EQ(Rest(*two), second);
  array[2 * kChunk].value = 103;
  EXPECT_EQ(Rest(*one), first);
}

TEST(CopyOnWriteArray, SeveralSnapshotsOutliveTheirArray) {
  std::optional<Array> array = Filled(3 * kChunk);
  const std::string first = Now(*array);
  const auto one = Begin(*array);
  (*array)[kChunk].value = 100;
  const std::string second = Now(*array);
  const auto two = Begin(*array);
  array.reset();
  EXPECT_EQ(Rest(*one), first);
  EXPECT_EQ(Rest(*two), second);
}

TEST(CopyOnWriteArray, RandomChangesWhileItIsWritten) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    Array array;
    struct Look {
      std::unique_ptr<Parts> parts;
      std::string written, expected;
    };
    std::vector<Look> looks;  // at once
    int finished = 0;
    for (int i = 0; i < 600; ++i) {
      if (array.size() == 0 || prng.Below(4) == 0) array.Append().value = prng.Below(1000);
      array[prng.Below(array.size())].value = prng.Below(1000);
      if (looks.size() < 3 && prng.Below(4) == 0) looks.push_back({Begin(array), "", Now(array)});
      if (looks.empty()) continue;
      Look& look = looks[prng.Below(looks.size())];
      if (Piece piece = look.parts->Next()) {
        array[prng.Below(array.size())].value = prng.Below(1000);
        piece(&look.written);
      } else {
        ASSERT_EQ(look.written, look.expected) << "seed " << seed;
        std::swap(look, looks.back());
        looks.pop_back();
        ++finished;
      }
    }
    EXPECT_GT(finished, 5);
  }
}

}  // namespace
}  // namespace forebay::codec
