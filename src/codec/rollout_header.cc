#include "codec/rollout_header.h"

#include "codec/wire.h"

namespace forebay::codec {
namespace {

void DecodeVersionRun(WireReader r, RolloutHeader* header, bool* ok) {
  HeaderVersionRun& run = header->version_runs.emplace_back();
  while (r.Next()) {
    switch (r.tag()) {
      case VarintTag(1):
        run.offset = r.Varint32();
        break;
      case VarintTag(2):
        run.branch = r.Varint32();
        break;
      case VarintTag(3):
        run.number = r.Varint32();
        break;
      case VarintTag(4):
        run.loss_tokens = r.Varint32();
        break;
      default:
        r.Skip();
    }
  }
  *ok &= r.ok();
}

// Nothing of it is used here; it is read so that what is refused is what protobuf refuses.
void DecodeSampling(WireReader r, bool* ok) {
  while (r.Next()) r.Skip();
  *ok &= r.ok();
}

void DecodeTurn(WireReader r, RolloutHeader* header, bool* ok) {
  HeaderTurn& turn = header->turns.emplace_back();
  while (r.Next()) {
    switch (r.tag()) {
      case VarintTag(1):
        turn.offset = r.Varint32();
        break;
      case VarintTag(2):
        turn.tokens = r.Varint32();
        break;
      case BytesTag(3):
        r.String();
        break;
      case BytesTag(4):
        turn.engine = r.String();
        break;
      case BytesTag(5):
        DecodeSampling(r.Message(), ok);
        break;
      default:
        r.Skip();
    }
  }
  *ok &= r.ok();
}

void DecodeSequence(WireReader r, RolloutHeader* header, bool* ok) {
  HeaderSequence& sequence = header->sequences.emplace_back();
  sequence.versions.begin = static_cast<uint32_t>(header->version_runs.size());
  sequence.turns.begin = static_cast<uint32_t>(header->turns.size());
  while (r.Next()) {
    switch (r.tag()) {
      case VarintTag(1):
        sequence.tokens = r.Varint32();
        break;
      case VarintTag(2):
        sequence.prompt_tokens = r.Varint32();
        break;
      case VarintTag(3):
        sequence.loss_tokens = r.Varint32();
        break;
      case BytesTag(4):
        ++sequence.versions.count;
        DecodeVersionRun(r.Message(), header, ok);
        break;
      case BytesTag(5):
        ++sequence.turns.count;
        DecodeTurn(r.Message(), header, ok);
        break;
      case Fixed32Tag(6):
        sequence.advantage = r.Fixed<float>();
        break;
      default:
        r.Skip();
    }
  }
  *ok &= r.ok();
}

void AddInner(HeaderColumn* column, uint64_t value) {
  if (column->inner_count < kInnerDimensionsMax) {
    column->inner[column->inner_count] = static_cast<uint32_t>(value);
  }
  ++column->inner_count;
}

void AddSequenceBytes(RolloutHeader* header, HeaderColumn* column, uint64_t value) {
  header->sequence_bytes.push_back(value);
  ++column->sequence_bytes.count;
}

// A field of a column's shape; false if it is none.
bool DecodeShapeField(WireReader& r, HeaderColumn* column, bool* ok) {
  switch (r.tag()) {
    case BytesTag(1):
      column->name = r.String();
      return true;
    case VarintTag(2):
      column->dtype = r.Varint32();
      return true;
    case VarintTag(3):
      AddInner(column, r.Varint());
      return true;
    case BytesTag(3): {
      WireReader packed(r.Bytes());
      while (packed.ok() && !packed.rest().empty()) AddInner(column, packed.Varint());
      *ok &= packed.ok();
      return true;
    }
    case VarintTag(4):
      column->domain = r.Varint32();
      return true;
    case Fixed64Tag(5):
      column->missing = r.Fixed<double>();
      return true;
    default:
      return false;
  }
}

// A field of a column that differs from rollout to rollout; false if it is none.
bool DecodeExtentField(WireReader& r, RolloutHeader* header, HeaderColumn* column, bool* ok) {
  switch (r.tag()) {
    case VarintTag(6):
      column->bytes = r.Varint();
      return true;
    case Fixed32Tag(7):
      column->crc32c = r.Fixed<uint32_t>();
      return true;
    case VarintTag(8):
      AddSequenceBytes(header, column, r.Varint());
      return true;
    case BytesTag(8): {
      WireReader packed(r.Bytes());
      while (packed.ok() && !packed.rest().empty()) {
        AddSequenceBytes(header, column, packed.Varint());
      }
      *ok &= packed.ok();
      return true;
    }
    default:
      return false;
  }
}

void DecodeColumn(WireReader r, RolloutHeader* header, bool* ok) {
  HeaderColumn& column = header->columns.emplace_back();
  column.sequence_bytes.begin = static_cast<uint32_t>(header->sequence_bytes.size());
  while (r.Next()) {
    if (DecodeExtentField(r, header, &column, ok) || DecodeShapeField(r, &column, ok)) continue;
    r.Skip();
  }
  *ok &= r.ok();
}

// An entry of the map; false if there is no room for another name.
bool DecodeReward(WireReader r, RolloutHeader* header, bool* ok) {
  HeaderReward entry;
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(1):
        entry.name = r.String();
        break;
      case Fixed64Tag(2):
        entry.value = r.Fixed<double>();
        break;
      default:
        r.Skip();
    }
  }
  *ok &= r.ok();
  for (HeaderReward& known : header->rewards) {
    if (known.name == entry.name) {
      known.value = entry.value;
      return true;
    }
  }
  if (header->rewards.size() == kRewardsMax) return false;
  header->rewards.push_back(entry);
  return true;
}

bool TooMany(FieldError* error, std::string field, size_t limit) {
  error->field = std::move(field);
  error->message = "has more than " + std::to_string(limit) + " entries";
  return false;
}

// One field; false if it goes beyond a count's limit.
bool DecodeField(WireReader& r, RolloutHeader* header, bool* ok, FieldError* error) {
  switch (r.tag()) {
    case Fixed64Tag(1):
      header->attempt_id = r.Fixed<uint64_t>();
      return true;
    case Fixed32Tag(2):
      header->token = r.Fixed<uint32_t>();
      return true;
    case VarintTag(3):
      header->status = r.Varint32();
      return true;
    case BytesTag(4):
      if (header->sequences.size() == kSequencesMax)
        return TooMany(error, "sequences", kSequencesMax);
      DecodeSequence(r.Message(), header, ok);
      return true;
    case BytesTag(5):
      if (header->columns.size() == kColumnsMax) return TooMany(error, "columns", kColumnsMax);
      DecodeColumn(r.Message(), header, ok);
      return true;
    case BytesTag(6):
      if (!DecodeReward(r.Message(), header, ok)) return TooMany(error, "rewards", kRewardsMax);
      return true;
    case VarintTag(7):
      header->duration_ms = r.Varint();
      return true;
    case BytesTag(8):
      header->extra_json = r.String();
      return true;
    case VarintTag(9):
      header->partial = r.Varint() != 0;
      return true;
    case BytesTag(10):
      header->source = r.String();
      return true;
    case BytesTag(11):
      header->site = r.String();
      return true;
    case BytesTag(12):
      header->engine = r.String();
      return true;
    default:
      r.Skip();
      return true;
  }
}

}  // namespace

void RolloutHeader::Clear() {
  attempt_id = 0;
  token = 0;
  status = 0;
  sequences.clear();
  columns.clear();
  rewards.clear();
  duration_ms = 0;
  extra_json = {};
  partial = false;
  source = {};
  site = {};
  engine = {};
  version_runs.clear();
  turns.clear();
  sequence_bytes.clear();
}

size_t RolloutHeader::FindColumn(std::string_view name) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == name) return i;
  }
  return kColumnsMax;
}

bool DecodeRolloutHeader(std::string_view bytes, RolloutHeader* header, FieldError* error) {
  header->Clear();
  if (bytes.size() > kHeaderBytesMax) {
    error->field = "header";
    error->message = "has " + std::to_string(bytes.size()) + " bytes, at most " +
                     std::to_string(kHeaderBytesMax);
    return false;
  }
  WireReader r(bytes);
  bool ok = true;
  while (r.Next()) {
    if (!DecodeField(r, header, &ok, error)) return false;
  }
  if (ok && r.ok()) return true;
  error->field = "header";
  error->message = "is no RolloutHeader";
  return false;
}

uint64_t SequencePartBytes(const RolloutHeader& header, const HeaderColumn& column,
                           size_t sequence) {
  const HeaderSequence& s = header.sequences[sequence];
  switch (column.domain_or_token()) {
    case Domain::kUnspecified:
    case Domain::kToken:
      return RowBytes(column) * s.tokens;
    case Domain::kResponseToken:
      return RowBytes(column) * (s.tokens - s.prompt_tokens);
    case Domain::kTokenButLast:
      return RowBytes(column) * (s.tokens - 1);
    case Domain::kSequence:
      return RowBytes(column);
    case Domain::kRagged:
    case Domain::kBlob:
      break;
  }
  return column.sequence_bytes.count > sequence ? header.parts(column)[sequence] : column.bytes;
}

}  // namespace forebay::codec
