#include "client/messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "codec/rollout_header.h"

namespace forebay::client {

PolicyVersion FromWire(const v1::PolicyVersion& version) {
  return {.policy = version.policy(), .branch = version.branch(), .number = version.number()};
}

void ToWire(const PolicyVersion& version, v1::PolicyVersion* out) {
  out->set_policy(version.policy);
  out->set_branch(version.branch);
  out->set_number(version.number);
}

Announcement FromWire(const v1::PolicyAnnouncement& a) {
  Announcement out{.version = FromWire(a.version()),
                   .published = a.phase() == v1::VERSION_PHASE_PUBLISHED,
                   .where = a.where(),
                   .checksum = a.checksum(),
                   .step = a.step(),
                   .arrived = absl::Now()};
  if (a.has_base()) out.base = FromWire(a.base());
  return out;
}

void ToWire(const Announcement& a, v1::PolicyAnnouncement* out) {
  ToWire(a.version, out->mutable_version());
  out->set_phase(a.published ? v1::VERSION_PHASE_PUBLISHED : v1::VERSION_PHASE_PENDING);
  if (a.base.has_value()) ToWire(*a.base, out->mutable_base());
  out->set_where(a.where);
  out->set_checksum(a.checksum);
  out->set_step(a.step);
}

void ToWire(const Usage& usage, v1::ClientUsage* out) {
  out->set_cpu_ms(usage.cpu_ms);
  out->set_resident_bytes(usage.resident_bytes);
  out->set_pushed_bytes(usage.pushed_bytes);
  out->set_fetched_bytes(usage.fetched_bytes);
  out->set_library_cpu_ms(usage.library_cpu_ms);
  out->set_host_load(usage.host_load);
}

namespace {

void ToWire(const Sequence& sequence, v1::Sequence* out) {
  out->set_tokens(sequence.tokens);
  out->set_prompt_tokens(sequence.prompt_tokens);
  out->set_loss_tokens(sequence.loss_tokens);
  for (const VersionRun& run : sequence.versions) {
    auto* r = out->add_versions();
    r->set_offset(run.offset);
    r->set_branch(run.branch);
    r->set_number(run.number);
    r->set_loss_tokens(run.loss_tokens);
  }
  for (const Turn& turn : sequence.turns) {
    auto* t = out->add_turns();
    t->set_offset(turn.offset);
    t->set_tokens(turn.tokens);
    t->set_role(turn.role);
    t->set_engine(turn.engine);
    t->set_tool_wait_ms(turn.tool_wait_ms);
    auto* sampling = t->mutable_sampling();
    sampling->set_temperature(turn.temperature);
    sampling->set_top_p(turn.top_p);
    sampling->set_top_k(turn.top_k);
    sampling->set_seed(turn.seed);
  }
  if (sequence.advantage.has_value()) out->set_advantage(*sequence.advantage);
}

Sequence FromWire(const v1::Sequence& sequence) {
  Sequence out{.tokens = sequence.tokens(),
               .prompt_tokens = sequence.prompt_tokens(),
               .loss_tokens = sequence.loss_tokens()};
  for (const auto& r : sequence.versions()) {
    out.versions.push_back({r.offset(), r.branch(), r.number(), r.loss_tokens()});
  }
  for (const auto& t : sequence.turns()) {
    out.turns.push_back({.offset = t.offset(),
                         .tokens = t.tokens(),
                         .role = t.role(),
                         .engine = t.engine(),
                         .temperature = t.sampling().temperature(),
                         .top_p = t.sampling().top_p(),
                         .top_k = t.sampling().top_k(),
                         .seed = t.sampling().seed(),
                         .tool_wait_ms = t.tool_wait_ms()});
  }
  if (sequence.has_advantage()) out.advantage = sequence.advantage();
  return out;
}

}  // namespace

std::vector<const Column*> SentColumns(const Rollout& rollout) {
  uint64_t tokens = 0;
  for (const Sequence& sequence : rollout.sequences) tokens += sequence.tokens;
  std::vector<const Column*> columns;
  for (const Column& column : rollout.columns) columns.push_back(&column);
  const auto size = [small = kSmallBytesPerToken * tokens](const Column* column) {
    return column->bytes.size() > small ? column->bytes.size() : 0;
  };
  std::stable_sort(columns.begin(), columns.end(),
                   [&size](const Column* a, const Column* b) { return size(a) < size(b); });
  return columns;
}

void ToWire(const Rollout& rollout, v1::RolloutHeader* out) {
  out->set_status(static_cast<v1::RolloutStatus>(rollout.status));
  for (const Sequence& sequence : rollout.sequences) ToWire(sequence, out->add_sequences());
  for (const Column* sent : SentColumns(rollout)) {
    const Column& column = *sent;
    auto* c = out->add_columns();
    c->set_name(column.name);
    c->set_dtype(static_cast<v1::DType>(column.dtype));
    c->set_domain(static_cast<v1::Domain>(column.domain));
    c->mutable_inner()->Add(column.inner.begin(), column.inner.end());
    c->set_missing(column.missing);
    c->set_bytes(column.bytes.size());
    c->mutable_sequence_bytes()->Add(column.sequence_bytes.begin(), column.sequence_bytes.end());
    if (rollout.checksums) c->set_crc32c(Crc32c(column.bytes));
  }
  for (const auto& [name, value] : rollout.rewards) (*out->mutable_rewards())[name] = value;
  out->set_duration_ms(rollout.duration_ms);
  out->set_extra_json(rollout.extra_json);
  out->set_site(rollout.site);
  out->set_engine(rollout.engine);
}

absl::StatusOr<Rollout> FromWire(const v1::RolloutHeader& header, std::string_view payload) {
  Rollout out{.status = static_cast<RolloutStatus>(header.status()),
              .rewards = {header.rewards().begin(), header.rewards().end()},
              .duration_ms = header.duration_ms(),
              .extra_json = header.extra_json(),
              .site = header.site(),
              .engine = header.engine()};
  for (const auto& sequence : header.sequences()) out.sequences.push_back(FromWire(sequence));
  for (const auto& c : header.columns()) {
    if (c.bytes() > payload.size()) {
      return absl::InternalError("a partial attempt has fewer bytes than its columns");
    }
    out.columns.push_back(
        {.name = c.name(),
         .dtype = static_cast<DType>(c.dtype()),
         .domain = static_cast<Domain>(c.domain()),
         .inner = {c.inner().begin(), c.inner().end()},
         .bytes = payload.substr(0, c.bytes()),
         .missing = c.missing(),
         .sequence_bytes = {c.sequence_bytes().begin(), c.sequence_bytes().end()}});
    payload.remove_prefix(c.bytes());
  }
  return out;
}

absl::StatusOr<std::string> EncodeChecked(const v1::RolloutHeader& header) {
  std::string bytes = header.SerializeAsString();
  codec::RolloutHeader decoded;
  codec::FieldError error;
  if (codec::DecodeRolloutHeader(bytes, &decoded, &error)) {
    error = codec::CheckRolloutHeader(decoded, bytes.size());
  }
  if (error.ok()) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(error.field, ": ", error.message));
}

absl::Status Check(const Rollout& rollout) {
  v1::RolloutHeader header;
  ToWire(rollout, &header);
  return EncodeChecked(header).status();
}

absl::StatusOr<PushReceipt> ReceiptOf(const v1::PushOutcome& outcome) {
  if (outcome.result() == v1::PUSH_RESULT_INVALID) {
    return absl::InvalidArgumentError(absl::StrCat(outcome.field(), ": ", outcome.message()));
  }
  return PushReceipt{.result = static_cast<PushResult>(outcome.result()),
                     .message = outcome.message()};
}

}  // namespace forebay::client
