// buffer-ctl inspect rollout: header, turns, rewards, versions, columns with what they hold, text.
#include "ctl/inspect_rollout.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/units.h"
#include "codec/wire.h"
#include "ctl/column_values.h"
#include "ctl/hex.h"
#include "ctl/rollout_reader.h"
#include "ctl/text.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

struct Arguments {
  std::string id;
  int limit = 100;
  bool text = false;
  uint64_t text_bytes = uint64_t{64} << 10;
};

// A column, looked at.
struct Seen {
  const v1::Column* column = nullptr;
  std::vector<uint64_t> shape;
  std::optional<ColumnStatistics> statistics;  // of one with rows
};

absl::StatusOr<std::vector<Seen>> LookAtColumns(const RolloutReader& reader) {
  std::vector<Seen> all;
  for (int i = 0; i < reader.header().columns_size(); ++i) {
    const v1::Column& column = reader.header().columns(i);
    Seen seen{.column = &column, .shape = ShapeOf(reader.header(), column)};
    if (HasRows(column)) {
      StatisticsCollector collector(column);
      const auto status = reader.ReadColumn(i, [&collector](std::string_view piece) {
        collector.Add(piece);
        return absl::OkStatus();
      });
      if (!status.ok()) return status;
      seen.statistics = collector.Result();
    }
    all.push_back(std::move(seen));
  }
  return all;
}

// Without a character that was cut in its middle.
void CutText(std::string* text) {
  while (!text->empty() && (text->back() & 0xc0) == 0x80) text->pop_back();
  if (!text->empty() && (text->back() & 0x80) != 0) text->pop_back();
}

// The text, or the ids of the tokens that it was made of; at most so many bytes.
struct Words {
  std::string text;
  bool ids = false;
  bool cut = false;
};

absl::StatusOr<Words> ReadText(const RolloutReader& reader, uint64_t bytes_max) {
  Words words;
  int column = reader.FindColumn("text");
  if (column >= 0) {
    auto bytes = reader.ReadColumn(column, bytes_max);
    if (!bytes.ok()) return bytes.status();
    words.text = *std::move(bytes);
  } else if ((column = reader.FindColumn("tokens")) >= 0) {
    // An id of several digits takes more than its four bytes.
    const auto bytes = reader.ReadColumn(column, bytes_max / 4 * 4);
    if (!bytes.ok()) return bytes.status();
    std::vector<uint32_t> tokens(bytes->size() / 4);
    std::memcpy(tokens.data(), bytes->data(), tokens.size() * 4);
    words.text = absl::StrJoin(tokens, " ");
    words.ids = true;
  } else {
    return absl::NotFoundError("--text: the rollout has neither a column 'text' nor 'tokens'");
  }
  words.cut = reader.header().columns(column).bytes() > bytes_max;
  if (words.text.size() > bytes_max) {
    words.text.resize(bytes_max);
    words.cut = true;
  }
  if (words.cut) CutText(&words.text);
  return words;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

Table ColumnTable(const std::vector<Seen>& columns) {
  Table table({"COLUMN", "DTYPE", "DOMAIN", "SHAPE", ">BYTES", ">LEAST", ">MEAN", ">GREATEST",
               ">NAN", ">INF", ">MISSING"});
  for (const Seen& seen : columns) {
    const v1::Column& c = *seen.column;
    std::vector<std::string> row = {c.name(), EnumName(c.dtype()), EnumName(c.domain()),
                                    ShapeText(seen.shape), absl::StrCat(c.bytes())};
    if (seen.statistics.has_value()) {
      const ColumnStatistics& s = *seen.statistics;
      const bool any = s.finite() > 0;
      row.insert(row.end(), {any ? Decimal(s.least) : "-", any ? Decimal(s.mean) : "-",
                             any ? Decimal(s.greatest) : "-", absl::StrCat(s.nan),
                             absl::StrCat(s.infinite), absl::StrCat(s.missing)});
    } else {
      row.insert(row.end(), 6, "-");
    }
    table.Add(std::move(row));
  }
  return table;
}

void PrintState(const v1::RolloutState& r, std::ostream& out) {
  out << "rollout " << Hex(r.rollout_id()) << " of group " << Hex(r.group_id()) << ", attempt "
      << Hex(r.attempt_id()) << "\n"
      << "source " << r.source() << ", task " << Printable(r.external_id()) << "; " << r.state();
  if (r.step() > 0) out << " by step " << r.step();
  out << ", " << EnumName(r.status()) << "\n"
      << "version " << Version(r.version()) << ", " << r.tokens() << " tokens, " << r.loss_tokens()
      << " in the loss, " << BytesText(r.payload_bytes()) << "\n"
      << "reward " << (r.rewarded() ? Decimal(r.reward()) : "missing") << ", advantage "
      << (r.state() == "held" ? "not yet" : Decimal(r.advantage())) << "\n";
}

void PrintHeader(const v1::RolloutHeader& h, std::ostream& out) {
  std::vector<std::pair<std::string, double>> rewards(h.rewards().begin(), h.rewards().end());
  std::sort(rewards.begin(), rewards.end());
  for (const auto& [name, value] : rewards) {
    out << "  " << Printable(name) << " = " << Decimal(value) << "\n";
  }
  out << "took " << Duration(h.duration_ms());
  if (!h.site().empty()) out << " at " << Printable(h.site());
  out << "\n";
  if (!h.extra_json().empty()) out << "extra " << Printable(h.extra_json()) << "\n";
}

// A table with no more rows than asked for.
void PrintRows(const Table& table, size_t rows, const char* what, std::ostream& out) {
  if (table.rows() > 0) out << "\n" << table.Text();
  if (rows > table.rows()) out << "... and " << rows - table.rows() << " more " << what << "\n";
}

void PrintSequences(const v1::RolloutHeader& h, int limit, std::ostream& out) {
  Table sequences({">SEQUENCE", ">TOKENS", ">PROMPT", ">LOSS", "VERSIONS FROM TOKEN"});
  Table turns(
      {">SEQUENCE", ">FROM", ">TOKENS", "ROLE", "ENGINE", ">TEMPERATURE", ">TOP P", ">TOOL WAIT"});
  size_t all_turns = 0;
  for (int i = 0; i < h.sequences_size(); ++i) {
    const auto& s = h.sequences(i);
    std::string versions;
    for (int v = 0; v < s.versions_size() && v < limit; ++v) {
      absl::StrAppend(&versions, v > 0 ? ", " : "", s.versions(v).branch(), "/",
                      s.versions(v).number(), " from ", s.versions(v).offset());
    }
    if (s.versions_size() > limit) absl::StrAppend(&versions, ", ...");
    if (i < limit) {
      sequences.Add({absl::StrCat(i), absl::StrCat(s.tokens()), absl::StrCat(s.prompt_tokens()),
                     absl::StrCat(s.loss_tokens()), versions.empty() ? "the attempt's" : versions});
    }
    for (const auto& t : s.turns()) {
      if (++all_turns > static_cast<size_t>(limit)) continue;
      turns.Add({absl::StrCat(i), absl::StrCat(t.offset()), absl::StrCat(t.tokens()),
                 Printable(t.role()), Printable(t.engine()), Decimal(t.sampling().temperature()),
                 Decimal(t.sampling().top_p()), Duration(t.tool_wait_ms())});
    }
  }
  PrintRows(sequences, static_cast<size_t>(h.sequences_size()), "sequences", out);
  PrintRows(turns, all_turns, "turns", out);
}

std::string Json(const Seen& seen) {
  const v1::Column& c = *seen.column;
  std::string out =
      absl::StrCat("{\"name\": ", JsonText(c.name()), ", \"dtype\": \"", EnumName(c.dtype()),
                   "\", \"domain\": \"", EnumName(c.domain()),
                   "\", \"shape\": ", ShapeText(seen.shape), ", \"bytes\": ", c.bytes());
  if (seen.statistics.has_value()) {
    const ColumnStatistics& s = *seen.statistics;
    const bool any = s.finite() > 0;
    absl::StrAppend(&out, ", \"min\": ", any ? JsonNumber(s.least) : "null",
                    ", \"mean\": ", any ? JsonNumber(s.mean) : "null",
                    ", \"max\": ", any ? JsonNumber(s.greatest) : "null", ", \"nan\": ", s.nan,
                    ", \"inf\": ", s.infinite, ", \"missing\": ", s.missing);
  }
  return out + "}";
}

void PrintJson(const RolloutReader& reader, const std::vector<Seen>& columns,
               const std::optional<Words>& words, std::ostream& out) {
  out << "{\n\"rollout\": " << ToJson(reader.state())
      << ",\n\"header\": " << ToJson(reader.header()) << ",\n\"columns\": [";
  for (size_t i = 0; i < columns.size(); ++i)
    out << (i == 0 ? "\n  " : ",\n  ") << Json(columns[i]);
  out << "\n]";
  if (words.has_value()) {
    out << ",\n\"" << (words->ids ? "token_ids" : "text")
        << "\": " << JsonText(codec::IsUtf8(words->text) ? words->text : Printable(words->text))
        << ",\n\"text_cut\": " << (words->cut ? "true" : "false");
  }
  out << "\n}\n";
}

absl::Status Inspect(Context& context, const Arguments& arguments) {
  const auto id = ParseHex("ID", arguments.id, "rollouts");
  if (!id.ok()) return id.status();
  const auto reader = RolloutReader::Open(context, *id);
  if (!reader.ok()) return reader.status();
  const auto columns = LookAtColumns(*reader);
  if (!columns.ok()) return columns.status();
  std::optional<Words> words;
  if (arguments.text) {
    auto read = ReadText(*reader, arguments.text_bytes);
    if (!read.ok()) return read.status();
    words = *std::move(read);
  }
  std::ostream& out = *context.out;
  if (context.json) {
    PrintJson(*reader, *columns, words, out);
    return absl::OkStatus();
  }
  PrintState(reader->state(), out);
  PrintHeader(reader->header(), out);
  PrintSequences(reader->header(), arguments.limit, out);
  out << "\n" << ColumnTable(*columns).Text();
  if (words.has_value()) {
    out << "\n" << (words->ids ? "token ids:\n" : "") << Printable(words->text) << "\n";
    if (words->cut) out << "... and more: see --text-bytes\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddInspectRollout(Commands* commands, CLI::App* inspect) {
  auto arguments = std::make_shared<Arguments>();
  auto* rollout = inspect->add_subcommand("rollout", "A rollout that the daemon's buffer holds");
  rollout->add_option("ID", arguments->id, "As `buffer-ctl rollouts` shows it")->required();
  rollout
      ->add_option("-n,--limit", arguments->limit,
                   "Sequences, versions of one, turns: at most so many")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  rollout->add_flag("--text", arguments->text,
                    "The column 'text', or the ids of the tokens if there is none");
  rollout->add_option("--text-bytes", arguments->text_bytes, "Of these, at most")
      ->check(CLI::Range(uint64_t{16}, uint64_t{1} << 30))
      ->capture_default_str();
  commands->On(rollout, [arguments](Context& c) { return Inspect(c, *arguments); });
}

}  // namespace forebay::ctl
