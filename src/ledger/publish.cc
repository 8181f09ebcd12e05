// Versions: announced as pending, then as published; and which engine holds which.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

std::string Name(const PolicyVersion& version) {
  return absl::StrCat(version.branch, "/", version.number);
}

bool SameWeights(const Announcement& a, const Announcement& b) {
  return a.version == b.version && a.base == b.base && a.where == b.where &&
         a.checksum == b.checksum;
}

// The version that a run begins with is there before anybody says where.
bool Unplaced(const Announcement& published) {
  return published.version.number == 0 && published.where.empty();
}

absl::Status CheckAnnouncement(const Announcement& a) {
  if (a.phase != VersionPhase::kPending && a.phase != VersionPhase::kPublished) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase: ", static_cast<int>(a.phase), ", pending (1) or published (2)"));
  }
  if (a.where.size() > kWhereBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("where: ", a.where.size(), " bytes, at most ", kWhereBytesMax));
  }
  if (a.checksum.size() > kChecksumBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("checksum: ", a.checksum.size(), " bytes, at most ", kChecksumBytesMax));
  }
  if (a.base && (a.base->branch != a.version.branch || a.base->number >= a.version.number)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "base: ", Name(*a.base), ", older than and on the branch of ", Name(a.version)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status State::CheckOne(const PublishVersion& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  const Announcement& a = c.announcement;
  FOREBAY_RETURN_IF_ERROR(CheckAnnouncement(a));
  FOREBAY_RETURN_IF_ERROR(CheckChannels());
  if (a.version.branch != committed_version_.branch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "version: ", Name(a.version), " is not on the branch ", committed_version_.branch));
  }
  if (a.version > committed_version_) {
    return absl::FailedPreconditionError(
        absl::StrCat("version: ", Name(a.version), " is from the future, at most ",
                     Name(committed_version_), ", which the last committed step made"));
  }
  if (a.version < branch_begin_) {
    return absl::FailedPreconditionError(absl::StrCat("version: ", Name(a.version), ", at least ",
                                                      Name(branch_begin_),
                                                      ", with which the branch begins"));
  }
  const PolicyVersion& least = a.phase == VersionPhase::kPending && pending_
                                   ? std::max(pending_->version, published_.version)
                                   : published_.version;
  if (a.version < least && !SameWeights(a, published_)) {
    return absl::FailedPreconditionError(absl::StrCat("version: ", Name(a.version), ", at least ",
                                                      Name(least), ", which was announced"));
  }
  if (a.version == published_.version && !SameWeights(a, published_) && !Unplaced(published_)) {
    return absl::FailedPreconditionError(absl::StrCat("version: ", Name(a.version),
                                                      " was published as \"", published_.where,
                                                      "\" ", published_.checksum));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const PublishVersion& c, Tag tag, Effects* effects) {
  Answer(tag, StatusReply{}, effects);
  const Announcement& a = c.announcement;
  if (SameWeights(a, published_)) return absl::OkStatus();
  if (a.phase == VersionPhase::kPending) {
    if (pending_ && SameWeights(a, *pending_)) return absl::OkStatus();
    pending_ = a;
  } else {
    published_ = a;
    if (pending_ && pending_->version <= a.version) pending_.reset();
    ++counters_.versions_published;
    if (rollouts_since_published_ > 0) {
      measured_rollouts_ = (3 * measured_rollouts_ + rollouts_since_published_ + 2) / 4;
      rollouts_since_published_ = 0;
    }
  }
  announcements_.push_back(a);
  if (announcements_.size() > kAnnouncementsKept) announcements_.pop_front();
  effects->announcements.push_back(a);
  return absl::OkStatus();
}

absl::Status State::CheckOne(const ReportAdoption& c) const {
  if (c.engine.empty() || c.engine.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine: ", c.engine.size(), " bytes, from 1 to ", kNameBytesMax));
  }
  // An engine may hold weights of an abandoned branch for a while.
  if (c.version > versions_.announced) {
    return absl::InvalidArgumentError(absl::StrCat("version: ", Name(c.version), ", at most ",
                                                   Name(versions_.announced),
                                                   ", the newest announced"));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const ReportAdoption& c, Tag tag, Effects* effects) {
  Adoption& adoption = adoptions_[c.engine];
  adoption.version = c.version;
  adoption.pending_to_loaded_ms = c.pending_to_loaded_ms;
  adoption.pause_ms = c.pause_ms;
  ++adoption.reports;
  adoption.last = ++adoption_reports_;
  if (adoptions_.size() > kEnginesKept) {
    // Engines come and go for months; the one that was silent longest makes room.
    adoptions_.erase(std::min_element(
        adoptions_.begin(), adoptions_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

}  // namespace forebay::ledger
