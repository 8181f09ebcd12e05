// Policy versions and announcements between the wire and the core.
//
// Pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "forebay/v1/actor.pb.h"
#include "ledger/messages.h"

namespace forebay::server {

// The one policy that a run trains, until runs train several.
inline constexpr const char* kMainPolicy = "main";

inline absl::Status CheckPolicyName(const std::string& name, const char* field) {
  if (name.empty() || name == kMainPolicy) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": '", name, "' is not a policy of this run; it has '", kMainPolicy, "'"));
}

inline PolicyVersion FromWire(const v1::PolicyVersion& version) {
  return {.branch = version.branch(), .number = version.number()};
}

inline void ToWire(PolicyVersion version, v1::PolicyVersion* out) {
  out->set_policy(kMainPolicy);
  out->set_branch(version.branch);
  out->set_number(version.number);
}

inline void ToWire(const ledger::Announcement& announcement, v1::PolicyAnnouncement* out) {
  ToWire(announcement.version, out->mutable_version());
  out->set_phase(announcement.phase == ledger::VersionPhase::kPending
                     ? v1::VERSION_PHASE_PENDING
                     : v1::VERSION_PHASE_PUBLISHED);
  if (announcement.base) ToWire(*announcement.base, out->mutable_base());
  out->set_where(announcement.where);
  out->set_checksum(announcement.checksum);
  out->set_step(announcement.step.value);
}

inline absl::Status FromWire(const v1::PolicyAnnouncement& announcement,
                             ledger::Announcement* out) {
  FOREBAY_RETURN_IF_ERROR(
      CheckPolicyName(announcement.version().policy(), "announcement.version.policy"));
  switch (announcement.phase()) {
    case v1::VERSION_PHASE_PENDING:
      out->phase = ledger::VersionPhase::kPending;
      break;
    case v1::VERSION_PHASE_PUBLISHED:
      out->phase = ledger::VersionPhase::kPublished;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("announcement.phase: ", announcement.phase(),
                                                     " is neither pending nor published"));
  }
  out->version = FromWire(announcement.version());
  if (announcement.has_base()) out->base = FromWire(announcement.base());
  out->where = announcement.where();
  out->checksum = announcement.checksum();
  out->step = StepId(announcement.step());
  return absl::OkStatus();
}

}  // namespace forebay::server
