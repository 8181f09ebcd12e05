#include "io/operation.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace forebay::io {
namespace {

int64_t OrErrno(int64_t result) { return result < 0 ? -errno : result; }

std::string_view NameOf(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kRead:
      return "read";
    case Operation::Kind::kWrite:
    case Operation::Kind::kWriteSynced:
      return "write";
    case Operation::Kind::kSync:
      return "sync";
    case Operation::Kind::kAllocate:
      return "allocate";
    case Operation::Kind::kTruncate:
      return "truncate";
  }
  return "";
}

}  // namespace

void Operation::AddPiece(char* data, size_t size) {
  if (size == 0) return;
  pieces_.push_back({data, size});
  total_ += size;
}

int64_t Operation::Call() {
  const int descriptor = file_->descriptor();
  const absl::Span<const iovec> rest = Rest();
  const auto count = static_cast<int>(rest.size());
  const auto at = static_cast<off_t>(offset());
  switch (kind_) {
    case Kind::kRead:
      return OrErrno(preadv(descriptor, rest.data(), count, at));
    case Kind::kWrite:
      return OrErrno(pwritev(descriptor, rest.data(), count, at));
    case Kind::kWriteSynced:
      return OrErrno(pwritev2(descriptor, rest.data(), count, at, RWF_DSYNC));
    case Kind::kSync:
      return OrErrno(fdatasync(descriptor));
    case Kind::kAllocate:
      return OrErrno(fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, at));
    case Kind::kTruncate:
      return OrErrno(ftruncate(descriptor, at));
  }
  return -EINVAL;
}

bool Operation::Advance(int64_t result) {
  if (result < 0) {
    const auto error = static_cast<int>(-result);
    // A sync is never asked twice: the second may report success for what the first has lost.
    const bool syncs = kind_ == Kind::kSync || kind_ == Kind::kWriteSynced;
    const bool again = (error == EINTR || error == EAGAIN) && !syncs;
    if (again && ++retries_ <= kRetriesMax) return false;
    return Fail(error);
  }
  if (kind_ == Kind::kSync || kind_ == Kind::kAllocate || kind_ == Kind::kTruncate) return true;
  const size_t reached = from_ + static_cast<size_t>(result);
  FOREBAY_CHECK(reached <= total_);
  if (reached == total_) {
    moved_ = total_;
    return true;
  }
  const size_t next = file_->direct() ? reached / kAlignment * kAlignment : reached;
  if (kind_ == Kind::kRead) {
    // A short read may have met an error or a signal; only one that brings nothing new has met the
    // file's end.
    if (reached <= moved_) return true;
    moved_ = reached;
  } else {
    if (next <= moved_) return Fail(EIO);  // no error and no progress: never to be asked again
    moved_ = next;
  }
  Continue(next);
  return false;
}

bool Operation::Fail(int error) {
  error_ = error;
  return true;
}

void Operation::Continue(size_t from) {
  from_ = from;
  rest_.clear();
  size_t skip = from;
  for (const iovec& piece : pieces_) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    if (skipped == piece.iov_len) continue;
    rest_.push_back({static_cast<char*>(piece.iov_base) + skipped, piece.iov_len - skipped});
  }
}

absl::Status Operation::Result() const {
  return error_ == 0 ? absl::OkStatus() : ErrnoStatus(error_, NameOf(kind_), file_->path());
}

}  // namespace forebay::io
