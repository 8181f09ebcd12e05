#include "tests/transcripts/script.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "codec/archive.h"
#include "tests/transcripts/ports.h"

namespace forebay::transcripts {
namespace {

constexpr const char* kStates[] = {"", "open", "reserved", "sealed", "committed", "aborted"};

std::string Describe(const codec::ToShard& message) {
  if (const auto* m = std::get_if<codec::Reserve>(&message)) {
    return absl::StrCat("reserve ", m->groups, " groups for step ", m->step.value, " on version ",
                        m->train_version.number);
  }
  if (const auto* m = std::get_if<codec::Unreserve>(&message))
    return absl::StrCat("give back what step ", m->step.value, " holds");
  if (const auto* m = std::get_if<codec::StepCommitted>(&message)) {
    return absl::StrCat("step ", m->step.value, " is committed and makes version ", m->next.number);
  }
  if (const auto* m = std::get_if<codec::StepReplanned>(&message)) {
    return absl::StrCat("step ", m->step.value, " has revision ", m->revision.value);
  }
  if (const auto* m = std::get_if<codec::StepsReleased>(&message))
    return absl::StrCat("the payloads of steps up to ", m->step.value, " may go");
  if (const auto* m = std::get_if<codec::StepsCovered>(&message))
    return absl::StrCat("a checkpoint covers the steps up to ", m->step.value);
  if (const auto* m = std::get_if<codec::Rewound>(&message)) {
    return absl::StrCat("back to step ", m->step.value, ", those up to ", m->served_again.value,
                        " are served again; version ", m->version.branch, "/", m->version.number);
  }
  return "";
}

}  // namespace

Arguments::Arguments(const std::string& line) {
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos) {
      words_.emplace_back(word);
    } else {
      values_[std::string(word.substr(0, equals))] = std::string(word.substr(equals + 1));
    }
  }
}

std::string Arguments::Word(size_t i) const { return i + 1 < words_.size() ? words_[i + 1] : ""; }
bool Arguments::Has(const std::string& flag) const {
  return std::find(words_.begin() + 1, words_.end(), flag) != words_.end();
}
std::string Arguments::Text(const std::string& key, const std::string& otherwise) const {
  const auto found = values_.find(key);
  return found == values_.end() ? otherwise : found->second;
}
uint64_t Arguments::Number(const std::string& key, uint64_t otherwise) const {
  uint64_t value = otherwise;
  if (values_.contains(key)) FOREBAY_CHECK(absl::SimpleAtoi(values_.at(key), &value));
  return value;
}
double Arguments::Real(const std::string& key, double otherwise) const {
  double value = otherwise;
  if (values_.contains(key)) FOREBAY_CHECK(absl::SimpleAtod(values_.at(key), &value));
  return value;
}

std::string Script::Names::Of(char kind, uint64_t id) {
  const auto [entry, fresh] = numbers.try_emplace(id, numbers.size() + 1);
  return absl::StrCat(std::string(1, kind), entry->second);
}

uint64_t Script::Names::Find(const std::string& name) const {
  size_t number = 0;
  FOREBAY_CHECK(absl::SimpleAtoi(name.substr(1), &number));
  for (const auto& [id, known] : numbers) {
    if (known == number) return id;
  }
  return UINT64_MAX;  // nothing of that name was ever seen
}

void Script::Ports::OnDead(const std::vector<PayloadId>& payloads, const std::vector<PayloadId>&) {
  std::vector<std::string> names;
  for (const PayloadId id : payloads) names.push_back(script->payloads_.Of('p', id.value));
  if (!names.empty()) script->Say("freed: ", absl::StrJoin(names, " "));
}

void Script::Ports::OnCold(const std::vector<PayloadId>& payloads) {
  std::vector<std::string> names;
  for (const PayloadId id : payloads) names.push_back(script->payloads_.Of('p', id.value));
  script->Say("kept for a rewind: ", absl::StrJoin(names, " "));
}

void Script::Ports::SendToLedger(const codec::NumberedMessage& message) {
  codec::ToLedger decoded;
  FOREBAY_CHECK(codec::Decode(message.body, &decoded));
  const auto& reserved = std::get<codec::Reserved>(decoded);
  std::vector<std::string> names;
  for (const codec::GroupReport& group : reserved.groups)
    names.push_back(script->groups_.Of('g', group.group.value));
  script->Say("shard -> ledger: reserved for step ", reserved.step.value, ": ",
              names.empty() ? "nothing" : absl::StrJoin(names, " "));
  mail.push_back([this, message] { ledger_loop.FromShard(script->now_ms_, kShard, message); });
}

void Script::Ports::SendToShard(ShardId, const codec::NumberedMessage& message) {
  codec::ToShard decoded;
  FOREBAY_CHECK(codec::Decode(message.body, &decoded));
  const std::string text = Describe(decoded);
  if (!text.empty()) script->Say("ledger -> shard: ", text);
  mail.push_back([this, message] { shard_loop.FromLedger(script->now_ms_, message); });
}

void Script::Ports::OnAnnouncement(const ledger::Announcement& announcement) {
  script->Say("announced: version ", announcement.version.number,
              announcement.phase == ledger::VersionPhase::kPending ? " (pending)" : "");
}

Script::Script() : ports_(std::make_unique<Ports>(this)) {
  ports_->ledger_loop.Resend();
  Settle();
}

Script::~Script() = default;

std::string Script::Run(const std::string& script) {
  std::string output;
  for (const absl::string_view line : absl::StrSplit(script, '\n')) {
    if (!line.empty() && line[0] == ' ') continue;  // output of the last time
    absl::StrAppend(&output, line, "\n");
    if (line.empty() || line[0] == '#') continue;
    lines_.clear();
    Do(Arguments(std::string(line)));
    const std::string broken = ports_->shard.CheckInvariants();
    if (!broken.empty()) Say("BROKEN: ", broken);
    const absl::Status status = ports_->ledger.InvariantsHold();
    if (!status.ok()) Say("BROKEN: ", status.message());
    for (const std::string& out : lines_) absl::StrAppend(&output, out, "\n");
  }
  while (output.size() > 1 && output[output.size() - 2] == '\n') output.pop_back();
  return output;
}

void Script::Settle() {
  while (!ports_->mail.empty()) {
    auto deliver = std::move(ports_->mail.front());
    ports_->mail.pop_front();
    deliver();
  }
  std::sort(ports_->changed.begin(), ports_->changed.end());
  ports_->changed.erase(std::unique(ports_->changed.begin(), ports_->changed.end()),
                        ports_->changed.end());
  for (const StepId id : std::exchange(ports_->changed, {})) {
    if (const ledger::Step* step = ports_->ledger.step(id)) ShowStep(*step);
  }
}

void Script::ShowStep(const ledger::Step& step) {
  Say("step ", step.step.value, " revision ", step.revision.value, ": ",
      kStates[static_cast<int>(step.state)],
      step.state == ledger::StepState::kOpen
          ? absl::StrCat(", ", step.groups.size(), " of ", step.spec.groups, " groups")
          : "",
      step.failure.empty() ? "" : absl::StrCat(": ", step.failure));
  if (step.state != ledger::StepState::kSealed) return;
  for (size_t m = 0; m < step.mini_batches.size(); ++m) {
    const auto& mini_batch = step.mini_batches[m];
    Say("  mini-batch ", m, ": ", mini_batch.micro_batches_per_rank, " micro-batches a rank, ",
        mini_batch.totals.rollouts, " rollouts, ", mini_batch.totals.loss_tokens, " loss tokens");
  }
}

void Script::Ask(shard::Command command) {
  ports_->replies.clear();
  ports_->shard_loop.Propose(now_ms_, 1, std::move(command));
}

void Script::Ask(ledger::Command command) {
  ports_->ledger_replies.clear();
  ports_->ledger_loop.Propose(now_ms_, 1, std::move(command));
  for (const ledger::Reply& reply : ports_->ledger_replies) {
    const absl::Status status = std::visit([](const auto& r) { return r.status; }, reply);
    if (!status.ok()) Say("refused: ", status.ToString());
  }
}

void Script::Do(const Arguments& a) {
  if (a.command() == "source") {
    Source(a);
  } else if (a.command() == "tasks") {
    Tasks(a);
  } else if (a.command() == "wait") {
    Wait(a.Number("ms"));
  } else if (a.command() == "counters") {
    ShowCounters(a);
  } else if (!DoActor(a) && !DoTrainer(a)) {
    Say("no such command");
  }
  Settle();
}

bool Script::DoActor(const Arguments& a) {
  if (a.command() == "session") {
    const SessionId id(sessions_.size() + 1);
    sessions_[a.Word(0)] = id;
    Ask(shard::OpenSession{id, a.Word(0), "", "", ""});
  } else if (a.command() == "acquire") {
    Acquire(a);
  } else if (a.command() == "push") {
    Push(a);
  } else if (a.command() == "renew") {
    Renew(a);
  } else if (a.command() == "release" || a.command() == "fail") {
    GiveBack(a);
  } else if (a.command() == "reward") {
    Reward(a);
  } else if (a.command() == "eval") {
    StartEval(a);
  } else if (a.command() == "result") {
    ShowEval(a);
  } else {
    return false;
  }
  return true;
}

bool Script::DoTrainer(const Arguments& a) {
  if (a.command() == "attach") {
    Attach(a);
  } else if (a.command() == "open") {
    Open(a);
  } else if (a.command() == "fetch") {
    Fetch(a);
  } else if (a.command() == "commit") {
    Commit(a);
  } else if (a.command() == "abort") {
    Ask(ledger::AbortStep{trainers_[a.Word(0)].generation, StepId(a.Number("step")),
                          a.Text("reason")});
  } else if (a.command() == "advantages") {
    const StepId step(a.Number("step"));
    ledger::PutAdvantages put{
        trainers_[a.Word(0)].generation, step, ports_->ledger.step(step)->revision, {}};
    for (const absl::string_view value : absl::StrSplit(a.Text("values"), ',')) {
      put.advantages.push_back(0);
      FOREBAY_CHECK(absl::SimpleAtof(value, &put.advantages.back()));
    }
    Ask(put);
  } else if (a.command() == "publish") {
    Publish(a);
  } else if (a.command() == "checkpoint" || a.command() == "rewind") {
    GoBack(a);
  } else if (a.command() == "retain") {
    ports_->ledger_loop.primary().SetRetentionBytesMax(a.Number("bytes"));
  } else {
    return false;
  }
  return true;
}

void Script::Wait(uint64_t ms) {
  // In small steps, as a clock goes.
  for (const uint64_t until = now_ms_ + ms; now_ms_ < until;) {
    now_ms_ = std::min(until, now_ms_ + 100);
    const uint64_t expired =
        ports_->shard.Sources().empty() ? 0 : ports_->shard.Sources()[0].counters->expired;
    ports_->shard_loop.Tick(now_ms_);
    ports_->ledger_loop.Tick(now_ms_);
    if (!ports_->shard.Sources().empty() &&
        ports_->shard.Sources()[0].counters->expired > expired) {
      Say("at ", now_ms_, " ms: ", ports_->shard.Sources()[0].counters->expired - expired,
          " leases expired");
    }
    Settle();
  }
}

}  // namespace forebay::transcripts
