// The client's conversions of what a daemon answers.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "client/messages.h"
#include "forebay/v1/actor.pb.h"

namespace {

const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  forebay::v1::AcquireResponse response;
  if (response.ParseFromArray(data, static_cast<int>(size))) {
    for (const auto& assignment : response.assignments()) {
      const auto& partial = assignment.partial();
      const auto rollout = forebay::client::FromWire(partial.header(), partial.payload());
      if (!rollout.ok()) continue;
      // Every column lies in the payload.
      const std::string_view payload = partial.payload();
      for (const auto& column : rollout->columns) {
        if (column.bytes.empty()) continue;
        if (column.bytes.data() < payload.data() ||
            column.bytes.data() + column.bytes.size() > payload.data() + payload.size()) {
          std::abort();
        }
      }
      (void)forebay::client::Check(*rollout);
    }
  }
  forebay::v1::PushReply reply;
  if (reply.ParseFromArray(data, static_cast<int>(size))) {
    for (const auto& outcome : reply.outcomes()) (void)forebay::client::ReceiptOf(outcome);
  }
  forebay::v1::PolicyAnnouncement announcement;
  if (announcement.ParseFromArray(data, static_cast<int>(size))) {
    (void)forebay::client::FromWire(announcement);
  }
  forebay::v1::RolloutHeader header;
  if (header.ParseFromArray(data, static_cast<int>(size))) {
    (void)forebay::client::FromWire(header, bytes);
  }
  return 0;
}
