#include "io/operation.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace forebay::io {
namespace {

class OperationTest : public testing::Test {
 protected:
  OperationTest() { closer_->Stop(); }

  std::shared_ptr<PosixFile> File(bool direct) {
    return std::make_shared<PosixFile>("/a", -1, direct, closer_);
  }
  Operation New(Operation::Kind kind, bool direct = false) {
    Operation operation(kind, File(direct), 1'000 * kAlignment);
    return operation;
  }
  // Offset in the file, then the pieces that the next call gets, as distances into memory_.
  std::vector<uint64_t> Next(const Operation& operation) {
    std::vector<uint64_t> next{operation.offset() - 1'000 * kAlignment};
    for (const iovec& piece : operation.Rest()) {
      next.push_back(static_cast<uint64_t>(static_cast<char*>(piece.iov_base) - memory_.data()));
      next.push_back(piece.iov_len);
    }
    return next;
  }

  const std::shared_ptr<Workers> closer_ = std::make_shared<Workers>(1, "closer");
  std::string memory_ = std::string(20 * kAlignment, 'x');
};

using Kind = Operation::Kind;
using Places = std::vector<uint64_t>;

TEST_F(OperationTest, AShortWriteGoesOnWhereItStopped) {
  Operation write = New(Kind::kWrite);
  write.AddPiece(memory_.data(), 100);
  write.AddPiece(memory_.data() + 500, 0);
  write.AddPiece(memory_.data() + 1'000, 50);
  EXPECT_EQ(Next(write), (Places{0, 0, 100, 1'000, 50}));
  EXPECT_FALSE(write.Advance(30));
  EXPECT_EQ(Next(write), (Places{30, 30, 70, 1'000, 50}));
  EXPECT_FALSE(write.Advance(70));
  EXPECT_EQ(Next(write), (Places{100, 1'000, 50}));
  EXPECT_FALSE(write.Advance(49));
  EXPECT_TRUE(write.Advance(1));
  EXPECT_EQ(write.moved(), 150u);
  EXPECT_TRUE(write.Result().ok());
}

TEST_F(OperationTest, AShortDirectWriteGoesBackToTheLastAlignedByte) {
  Operation write = New(Kind::kWrite, true);
  write.AddPiece(memory_.data(), 3 * kAlignment);
  write.AddPiece(memory_.data() + 8 * kAlignment, kAlignment);
  EXPECT_FALSE(write.Advance(kAlignment + 512));
  EXPECT_EQ(Next(write),
            (Places{kAlignment, kAlignment, 2 * kAlignment, 8 * kAlignment, kAlignment}));
  EXPECT_TRUE(write.Advance(3 * kAlignment));
  EXPECT_EQ(write.moved(), 4 * kAlignment);
}

TEST_F(OperationTest, AWriteWithoutProgressIsAnError) {
  Operation write = New(Kind::kWrite);
  write.AddPiece(memory_.data(), 100);
  EXPECT_FALSE(write.Advance(10));
  EXPECT_TRUE(write.Advance(0));
  EXPECT_EQ(ErrorOf(write.Result()), EIO);
  EXPECT_EQ(write.moved(), 10u);
  Operation direct = New(Kind::kWrite, true);
  direct.AddPiece(memory_.data(), 2 * kAlignment);
  EXPECT_TRUE(direct.Advance(512));
  EXPECT_EQ(ErrorOf(direct.Result()), EIO);
}

TEST_F(OperationTest, AnErrorAfterAShortWriteIsTold) {
  Operation write = New(Kind::kWrite);
  write.AddPiece(memory_.data(), 100);
  EXPECT_FALSE(write.Advance(10));
  EXPECT_TRUE(write.Advance(-ENOSPC));
  EXPECT_EQ(write.Result().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(write.Result().message(), "write /a: ENOSPC, No space left on device");
}

TEST_F(OperationTest, AShortReadAsksAgainUntilNothingNewComes) {
  Operation read = New(Kind::kRead);
  read.AddPiece(memory_.data(), 100);
  EXPECT_FALSE(read.Advance(30));
  EXPECT_EQ(Next(read), (Places{30, 30, 70}));
  EXPECT_FALSE(read.Advance(20));
  EXPECT_TRUE(read.Advance(0));
  EXPECT_EQ(read.moved(), 50u);
  EXPECT_TRUE(read.Result().ok());
}

TEST_F(OperationTest, AShortDirectReadAsksAgainFromAnAlignedByte) {
  Operation read = New(Kind::kRead, true);
  read.AddPiece(memory_.data(), 4 * kAlignment);
  EXPECT_FALSE(read.Advance(kAlignment + 100));
  EXPECT_EQ(Next(read), (Places{kAlignment, kAlignment, 3 * kAlignment}));
  EXPECT_FALSE(read.Advance(200));  // the file grew
  EXPECT_EQ(Next(read), (Places{kAlignment, kAlignment, 3 * kAlignment}));
  EXPECT_TRUE(read.Advance(200));
  EXPECT_EQ(read.moved(), kAlignment + 200);
}

TEST_F(OperationTest, WhatWasInterruptedIsRepeatedButNotForEver) {
  Operation read = New(Kind::kRead);
  read.AddPiece(memory_.data(), 100);
  EXPECT_FALSE(read.retried());
  EXPECT_FALSE(read.Advance(-EINTR));
  EXPECT_TRUE(read.retried());
  EXPECT_EQ(Next(read), (Places{0, 0, 100}));
  int calls = 1;
  while (!read.Advance(-EAGAIN)) ASSERT_LT(++calls, 10'000);
  EXPECT_EQ(ErrorOf(read.Result()), EAGAIN);
}

TEST_F(OperationTest, ASyncIsNeverAskedTwice) {
  for (const int error : {EINTR, EAGAIN, EIO, EDQUOT}) {
    Operation sync = New(Kind::kSync);
    EXPECT_TRUE(sync.Advance(-error));
    EXPECT_EQ(ErrorOf(sync.Result()), error);
  }
}

TEST(ErrnoStatus, CarriesTheNumberAndSaysItsName) {
  const absl::Status stale = ErrnoStatus(ESTALE, "read", "/a");
  EXPECT_EQ(ErrorOf(stale), ESTALE);
  EXPECT_EQ(stale.message(), "read /a: ESTALE, Stale file handle");
  EXPECT_EQ(ErrnoStatus(4000, "read", "/a").message(), "read /a: errno 4000, unknown error");
  EXPECT_EQ(ErrorOf(absl::OkStatus()), 0);
  EXPECT_EQ(ErrorOf(absl::NotFoundError("no errno")), 0);
}

}  // namespace
}  // namespace forebay::io
