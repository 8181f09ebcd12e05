// buffer-ctl export
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/units.h"
#include "codec/wire.h"
#include "ctl/column_values.h"
#include "ctl/command.h"
#include "ctl/output_file.h"
#include "ctl/rollout_filter.h"
#include "ctl/rollout_json.h"
#include "ctl/safetensors.h"

namespace forebay::ctl {
namespace {

// A blob of at most so many bytes is looked at whether it is text.
constexpr uint64_t kTextBytesMax = uint64_t{16} << 20;

struct Arguments {
  RolloutChoice choice;
  std::string format = "jsonl";
  std::string path;
  bool force = false;
};

// Where rollouts go. One that fails half-way is taken back by Drop.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual absl::Status Take(const v1::RolloutState& rollout, const RolloutReader& reader) = 0;
  virtual absl::Status Drop() = 0;
  virtual absl::Status Finish(bool replace) = 0;
};

void AppendValue(v1::DType dtype, const char* at, std::string* out) {
  if (dtype == v1::DTYPE_U64 || dtype == v1::DTYPE_I64) {
    uint64_t value = 0;
    std::memcpy(&value, at, sizeof(value));
    if (dtype == v1::DTYPE_U64) {
      absl::StrAppend(out, value);
    } else {
      absl::StrAppend(out, static_cast<int64_t>(value));
    }
    return;
  }
  const double value = ValueAt(dtype, at);
  if (!IsFloat(dtype)) {
    absl::StrAppend(out, static_cast<int64_t>(value));
  } else if (dtype == v1::DTYPE_F64) {
    *out += JsonNumber(value);
  } else {
    *out += JsonNumber(static_cast<float>(value));
  }
}

// A line of JSON a rollout.
class JsonLines final : public Sink {
 public:
  JsonLines(ScratchFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  absl::Status Take(const v1::RolloutState& rollout, const RolloutReader& reader) override {
    begin_ = file_.bytes();
    const v1::RolloutHeader& header = reader.header();
    FOREBAY_RETURN_IF_ERROR(
        file_.Append(absl::StrCat("{", RolloutFields(rollout, header), ",\"columns\":{")));
    for (int i = 0; i < header.columns_size(); ++i) {
      const v1::Column& column = header.columns(i);
      FOREBAY_RETURN_IF_ERROR(file_.Append(absl::StrCat(i > 0 ? "," : "", JsonText(column.name()),
                                                        ":", ColumnFields(header, column))));
      FOREBAY_RETURN_IF_ERROR(HasRows(column) ? AppendRows(reader, i) : AppendBytes(reader, i));
      FOREBAY_RETURN_IF_ERROR(file_.Append("}"));
    }
    return file_.Append("}}\n");
  }
  absl::Status Drop() override { return file_.TruncateTo(begin_); }
  absl::Status Finish(bool replace) override { return file_.RenameTo(path_, replace); }

 private:
  absl::Status AppendRows(const RolloutReader& reader, int column) {
    const v1::DType dtype = reader.header().columns(column).dtype();
    const uint32_t size = ValueBytes(dtype);
    bool first = true;
    FOREBAY_RETURN_IF_ERROR(file_.Append(",\"values\":["));
    FOREBAY_RETURN_IF_ERROR(reader.ReadColumn(column, [&](std::string_view piece) {
      std::string text;
      for (; piece.size() >= size; piece.remove_prefix(size)) {
        if (!std::exchange(first, false)) text += ',';
        AppendValue(dtype, piece.data(), &text);
      }
      return file_.Append(text);
    }));
    return file_.Append("]");
  }

  // Ragged columns and blobs: text if that is what it is, else base64.
  absl::Status AppendBytes(const RolloutReader& reader, int column) {
    if (reader.header().columns(column).bytes() <= kTextBytesMax) {
      const auto bytes = reader.ReadColumn(column, kTextBytesMax);
      if (!bytes.ok()) return bytes.status();
      const bool text = codec::IsUtf8(*bytes);
      return file_.Append(text ? absl::StrCat(",\"text\":", JsonText(*bytes))
                               : absl::StrCat(",\"base64\":\"", absl::Base64Escape(*bytes), "\""));
    }
    FOREBAY_RETURN_IF_ERROR(file_.Append(",\"base64\":\""));
    std::string left;  // base64 turns three bytes at a time into four
    FOREBAY_RETURN_IF_ERROR(reader.ReadColumn(column, [&](std::string_view piece) {
      left += piece;
      const size_t whole = left.size() / 3 * 3;
      const auto status = file_.Append(absl::Base64Escape(left.substr(0, whole)));
      left.erase(0, whole);
      return status;
    }));
    return file_.Append(absl::StrCat(absl::Base64Escape(left), "\""));
  }

  ScratchFile file_;
  const std::string path_;
  uint64_t begin_ = 0;  // of the last line
};

// A tensor a column, named "ROLLOUT/COLUMN".
class Tensors final : public Sink {
 public:
  explicit Tensors(SafetensorsWriter writer) : writer_(std::move(writer)) {}

  absl::Status Take(const v1::RolloutState& rollout, const RolloutReader& reader) override {
    const v1::RolloutHeader& header = reader.header();
    const std::string id = Hex(rollout.rollout_id());
    std::string about = absl::StrCat("{", RolloutFields(rollout, header), ",\"columns\":{");
    for (int i = 0; i < header.columns_size(); ++i) {
      const v1::Column& column = header.columns(i);
      // What has no rows is bytes to a reader; the text about the rollout has the rest.
      writer_.Begin(absl::StrCat(id, "/", column.name()),
                    HasRows(column) ? column.dtype() : v1::DTYPE_U8, ShapeOf(header, column));
      FOREBAY_RETURN_IF_ERROR(
          reader.ReadColumn(i, [this](std::string_view piece) { return writer_.Append(piece); }));
      absl::StrAppend(&about, i > 0 ? "," : "", JsonText(column.name()), ":",
                      ColumnFields(header, column), "}");
    }
    return writer_.EndGroup(id, about + "}}");
  }
  absl::Status Drop() override { return writer_.DropGroup(); }
  absl::Status Finish(bool replace) override { return writer_.Finish(replace); }

 private:
  SafetensorsWriter writer_;
};

absl::StatusOr<std::unique_ptr<Sink>> NewSink(const Arguments& arguments) {
  if (arguments.format == "safetensors") {
    auto writer = SafetensorsWriter::Create(arguments.path);
    if (!writer.ok()) return writer.status();
    return std::make_unique<Tensors>(*std::move(writer));
  }
  auto file = ScratchFile::Create(arguments.path);
  if (!file.ok()) return file.status();
  return std::make_unique<JsonLines>(*std::move(file), arguments.path);
}

struct Counts {
  uint64_t rollouts = 0, payload_bytes = 0;
  uint64_t gone = 0;  // trained or dropped while they were read
  uint64_t lost = 0;  // held, but their bytes are lost
};

// One that cannot be read is left out, and counted.
absl::Status ExportOne(const Context& context, const v1::RolloutState& rollout, Sink* sink,
                       Counts* counts) {
  const auto reader = RolloutReader::Open(context, rollout.rollout_id());
  absl::Status status = reader.status();
  if (status.ok()) {
    status = sink->Take(rollout, *reader);
    if (!status.ok()) {
      if (auto dropped = sink->Drop(); !dropped.ok()) return dropped;
    }
  }
  if (absl::IsNotFound(status)) {
    ++counts->gone;
  } else if (absl::IsDataLoss(status)) {
    ++counts->lost;
  } else if (status.ok()) {
    ++counts->rollouts;
    counts->payload_bytes += rollout.payload_bytes();
  } else {
    return status;
  }
  return absl::OkStatus();
}

void Print(Context* context, const Arguments& arguments, const Counts& counts, const WalkEnd& end) {
  std::ostream& out = *context->out;
  if (context->json) {
    out << absl::StrCat(
        "{\"file\": ", JsonText(arguments.path), ", \"rollouts\": ", counts.rollouts,
        ", \"payload_bytes\": ", counts.payload_bytes, ", \"gone\": ", counts.gone,
        ", \"lost\": ", counts.lost,
        ", \"all\": ", end.page_token.empty() && !end.look_max_hit ? "true" : "false", "}\n");
    return;
  }
  out << counts.rollouts << " rollouts of " << BytesText(counts.payload_bytes) << " in "
      << arguments.path << "\n";
  if (counts.gone > 0) out << counts.gone << " were trained or dropped meanwhile, and left out\n";
  if (counts.lost > 0) out << counts.lost << " have lost their bytes, and were left out\n";
  if (end.look_max_hit)
    out << "looked at " << end.looked << " rollouts, and there are more: see --look\n";
}

absl::Status Export(Context& context, const Arguments& arguments) {
  struct stat about;
  const bool there = lstat(arguments.path.c_str(), &about) == 0;
  if (there && !S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", arguments.path, "' is no plain file: only those are written"));
  }
  if (there && !arguments.force) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", arguments.path, "' is there; --force replaces it"));
  }
  auto sink = NewSink(arguments);
  if (!sink.ok()) return sink.status();
  Counts counts;
  const auto end = WalkRollouts(context, arguments.choice, [&](const v1::RolloutState& rollout) {
    return ExportOne(context, rollout, sink->get(), &counts);
  });
  if (!end.ok()) return end.status();
  FOREBAY_RETURN_IF_ERROR((*sink)->Finish(arguments.force));
  if (counts.lost > 0) context.exit_code = kExitDegraded;
  Print(&context, arguments, counts, *end);
  return absl::OkStatus();
}

}  // namespace

void AddExport(Commands* commands) {
  auto arguments = std::make_shared<Arguments>();
  arguments->choice.limit = 100'000'000;
  auto* command = commands->root()->add_subcommand(
      "export", "Rollouts that the buffer holds, with their columns, into a file");
  AddRolloutOptions(command, &arguments->choice);
  command->add_option("--format", arguments->format, "One JSON object a line, or tensors")
      ->check(CLI::IsMember({"jsonl", "safetensors"}))
      ->capture_default_str();
  command->add_option("-O,--out", arguments->path, "The file; there when all of it is")->required();
  command->add_flag("--force", arguments->force, "Replace a file that is there");
  commands->On(command, [arguments](Context& c) { return Export(c, *arguments); });
}

}  // namespace forebay::ctl
