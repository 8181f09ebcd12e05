// Small texts and messages that ask for something: settings on a command line, settings and step
// specs as they come over the wire, page tokens, addresses, a file of tokens. Each is taken or
// refused.
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "codec/wire.h"
#include "ctl/hex.h"
#include "ctl/rollout_filter.h"
#include "ctl/settings.h"
#include "ctl/text.h"
#include "forebay/v1/trainer.pb.h"
#include "ledger/check_source.h"
#include "ledger/check_spec.h"
#include "server/addresses.h"
#include "server/page.h"
#include "server/source_messages.h"
#include "server/step_messages.h"
#include "server/tokens.h"

namespace {

using namespace forebay;

const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

// What passed the checks says the same after another way over the wire.
void TakeSettings(const v1::SourceSettings& wire) {
  const auto settings = server::FromWire(wire);
  if (!settings.ok() || !ledger::CheckSettings(*settings).ok()) return;
  v1::SourceSettings again;
  server::ToWire(*settings, &again);
  const auto read = server::FromWire(again);
  if (!read.ok() || codec::Encode(*read) != codec::Encode(*settings)) std::abort();
}

void TakeSpec(const v1::StepSpec& wire) {
  static const server::CatalogSnapshot catalog;
  const auto spec = server::FromWire(wire, catalog);
  if (!spec.ok()) return;
  (void)ledger::CheckPacking(*spec);
  (void)ledger::CheckSelection(*spec);
  const ledger::StepSpec normal = ledger::Normalized(*spec);
  (void)ledger::SelectionDifference(normal, *spec);
  (void)ledger::PackingDifference(normal, *spec);
}

// Through a file in memory, which nobody else may read.
void TakeTokens(const std::string& text) {
  static const int file = [] {
    const int opened = memfd_create("tokens", MFD_CLOEXEC);
    if (opened < 0 || fchmod(opened, 0600) != 0) std::abort();
    return opened;
  }();
  if (ftruncate(file, 0) != 0) std::abort();
  if (pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) std::abort();
  server::TokenAuthorizer authorizer;
  (void)server::ReadTokens("/proc/self/fd/" + std::to_string(file), &authorizer);
}

void TakeText(const std::string& text) {
  v1::SourceSettings settings;
  std::set<std::string> fields;
  if (ctl::ApplySettings(absl::StrSplit(text, '\n'), &settings, &fields).ok()) {
    v1::SourceSettings merged;
    if (!server::MergeFields(settings, {fields.begin(), fields.end()}, &merged).ok()) std::abort();
    TakeSettings(merged);
  }
  v1::ListRolloutsRequest request;
  (void)ctl::ParseReward(text, &request);
  (void)ctl::ParseHex("ID", text, "rollouts");
  if (!codec::IsUtf8(ctl::Printable(text))) std::abort();
  TakeTokens(text);
  const auto place = server::ParsePageToken(text, 3);
  if (place.ok() && place->shard >= 3) std::abort();
  const auto address = server::ParseAddress("listen.grpc", text);
  if (address.ok() && (address->port < 0 || address->port > 65'535)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TakeText(std::string(reinterpret_cast<const char*>(data), size));
  v1::SourceSettings settings;
  if (settings.ParseFromArray(data, static_cast<int>(size))) TakeSettings(settings);
  v1::StepSpec spec;
  if (spec.ParseFromArray(data, static_cast<int>(size))) TakeSpec(spec);
  return 0;
}
