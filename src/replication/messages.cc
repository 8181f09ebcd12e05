#include "replication/messages.h"

#include "absl/status/status.h"
#include "codec/archive.h"
#include "replication/options.h"

namespace forebay::replication {
namespace {

constexpr uint8_t kFormat = 1;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status Check(const Append& append, Epoch epoch) {
  if (append.entries.size() > kEntriesPerMessageMax) return Bad("too many entries in a message");
  if ((append.before.position == LogPosition()) != (append.before.epoch == Epoch()))
    return Bad("a log begins at position 0 in epoch 0");
  if (append.before.position.value > UINT64_MAX - kEntriesPerMessageMax)
    return Bad("a position beyond all logs");
  if (append.reign_start == LogPosition()) return Bad("a reign begins with an entry");
  Epoch last = append.before.epoch;
  for (const Entry& entry : append.entries) {
    if (entry.epoch < last || entry.epoch == Epoch()) return Bad("epochs of entries rise, from 1");
    if (entry.command.size() > kCommandBytesMax) return Bad("a command that is too long");
    last = entry.epoch;
  }
  return last <= epoch ? absl::OkStatus() : Bad("an entry of a later epoch than its message");
}

absl::Status Check(const Appended& answer, Epoch) {
  return answer.matched && answer.synced > answer.end ? Bad("synced beyond what is matched")
                                                      : absl::OkStatus();
}

absl::Status Check(const Hello& hello, Epoch epoch) {
  return hello.last.epoch <= epoch ? absl::OkStatus()
                                   : Bad("a log of a later epoch than its message");
}

absl::Status Check(const TakeOver&, Epoch) { return absl::OkStatus(); }

absl::Status Check(const Goodbye&, Epoch) { return absl::OkStatus(); }

}  // namespace

std::string EncodeMessage(const Message& message) {
  std::string bytes(1, static_cast<char>(kFormat));
  codec::Writer writer(&bytes);
  writer(message);
  return bytes;
}

absl::StatusOr<Message> DecodeMessage(std::string_view bytes) {
  Message message;
  if (bytes.empty() || static_cast<uint8_t>(bytes[0]) != kFormat)
    return Bad("a message between replicas in a format that is not known");
  if (!codec::Decode(bytes.substr(1), &message))
    return Bad("a message between replicas that cannot be decoded");
  if (message.from == NodeId() || message.incarnation == Incarnation())
    return Bad("a message between replicas of nobody");
  // Only Hello may come from a time before all reigns.
  if (message.epoch == Epoch() && !std::holds_alternative<Hello>(message.body))
    return Bad("a message of no reign");
  absl::Status status =
      std::visit([&message](const auto& body) { return Check(body, message.epoch); }, message.body);
  if (!status.ok()) return status;
  return message;
}

}  // namespace forebay::replication
