// A snapshot whose big tables are encoded later, piece by piece, while the state goes on.
//
// Parts belongs to the loop of the state that it is of, as the state does: not thread-safe. A Piece
// may run on any thread: what it reads does not change any more. The bytes of all pieces, in their
// order, are those that a plain Writer would have got at the moment of the snapshot.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "codec/archive.h"

namespace forebay::codec {

// Appends its bytes; runs once. Empty: there is no piece left.
using Piece = absl::AnyInvocable<void(std::string* to)>;

// What a state copies because it changes while a snapshot still needs it as it was.
struct CopyCount {
  uint64_t bytes = 0;
};

// A part of a snapshot that is not encoded yet.
class Part {
 public:
  virtual ~Part() = default;
  // Called when the piece before has run and is gone. With the end, and with the part, what it
  // holds of the state is let go.
  virtual Piece Next() = 0;
};

class Parts {
 public:
  Parts() = default;
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // For State::Snapshot, once. What is put into it is encoded at once, but for Add.
  Writer& writer() { return writer_; }
  // What comes next in the order of the bytes.
  void Add(std::string bytes) { Add(std::make_unique<Bytes>(std::move(bytes))); }
  void Add(std::unique_ptr<Part> part) {
    AddBytes();
    parts_.push_back(std::move(part));
  }
  // After the snapshot was taken; as Part::Next.
  Piece Next() {
    AddBytes();
    while (!parts_.empty()) {
      if (Piece piece = parts_.front()->Next()) return piece;
      parts_.pop_front();
    }
    return nullptr;
  }

  const std::shared_ptr<CopyCount>& copies() const { return copies_; }

 private:
  class Bytes final : public Part {
   public:
    explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
    Piece Next() override {
      if (bytes_.empty()) return nullptr;
      return [bytes = std::exchange(bytes_, {})](std::string* to) { to->append(bytes); };
    }

   private:
    std::string bytes_;
  };

  void AddBytes() {
    if (!bytes_.empty()) parts_.push_back(std::make_unique<Bytes>(std::exchange(bytes_, {})));
  }

  std::string bytes_;  // since the last part
  Writer writer_{&bytes_, this};
  std::deque<std::unique_ptr<Part>> parts_;
  const std::shared_ptr<CopyCount> copies_ = std::make_shared<CopyCount>();
};

}  // namespace forebay::codec
