#include "codec/header_decoder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/wire.h"

namespace forebay::codec {
namespace {

// One layout for so many headers at most, after the first few.
constexpr uint32_t kLayoutCost = 8;
constexpr uint32_t kCreditMax = 64;
// A number of more bytes is not expected; of ten not all bits count.
constexpr size_t kVarintBytesMax = 8;

// A number of the header: where its bytes lie, and where its value goes.
struct Slot {
  uint32_t at = 0;
  uint8_t width = 0;
  uint8_t size = 0;  // of the value
  void* to = nullptr;
};

// By encoding: each kind is read by a loop of its own. No field has numbers of two kinds, and of
// one kind they are in the order in which the decoder met them.
struct Slots {
  std::vector<Slot> varints, fixed4, fixed8;
};

uint64_t Load(const char* bytes, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

uint64_t ReadKnownVarint(const char* bytes, size_t width) {
  uint64_t value = static_cast<uint64_t>(bytes[0]) & 0x7f;
  for (size_t i = 1; i < width; ++i) {
    value |= (static_cast<uint64_t>(bytes[i]) & 0x7f) << (7 * i);
  }
  return value;
}

void ReadSlots(const Slots& slots, const char* bytes) {
  for (const Slot& slot : slots.varints) {
    const uint64_t value = ReadKnownVarint(bytes + slot.at, slot.width);
    if (slot.size == sizeof(uint64_t)) {
      std::memcpy(slot.to, &value, sizeof(uint64_t));
    } else {
      const auto low = static_cast<uint32_t>(value);
      std::memcpy(slot.to, &low, sizeof(low));
    }
  }
  for (const Slot& slot : slots.fixed4) std::memcpy(slot.to, bytes + slot.at, 4);
  for (const Slot& slot : slots.fixed8) std::memcpy(slot.to, bytes + slot.at, 8);
}

// Finds the numbers of a header that was decoded from `bytes`.
class SlotFinder {
 public:
  SlotFinder(std::string_view bytes, RolloutHeader* header, Slots* slots)
      : begin_(bytes.data()), header_(header), slots_(slots) {}

  // False if a layout cannot hold the header.
  bool Find(std::string_view bytes) {
    WireReader r(bytes);
    while (r.Next()) Field(r);
    // A name that came twice is one reward.
    return r.ok() && holds_ && rewards_ == header_->rewards.size();
  }

 private:
  Slot SlotAt(const char* at, const WireReader& r, size_t size, void* to) const {
    const auto width = static_cast<size_t>(r.rest().data() - at);
    return {static_cast<uint32_t>(at - begin_), static_cast<uint8_t>(width),
            static_cast<uint8_t>(size), to};
  }
  template <class T>
  void Varint(WireReader& r, T* to) {
    const char* const at = r.rest().data();
    r.Varint();
    slots_->varints.push_back(SlotAt(at, r, sizeof(T), to));
    holds_ &= slots_->varints.back().width <= kVarintBytesMax;
  }
  template <class T>
  void Fixed(WireReader& r, T* to) {
    const char* const at = r.rest().data();
    r.Fixed<T>();
    (sizeof(T) == 8 ? slots_->fixed8 : slots_->fixed4).push_back(SlotAt(at, r, sizeof(T), to));
  }

  void Field(WireReader& r) {
    switch (r.tag()) {
      case Fixed64Tag(1):
        return Fixed(r, &header_->attempt_id);
      case Fixed32Tag(2):
        return Fixed(r, &header_->token);
      case BytesTag(4):
        return SequenceFields(r.Message(), &header_->sequences[sequences_++]);
      case BytesTag(5):
        return ColumnFields(r.Message(), &header_->columns[columns_++]);
      case BytesTag(6):
        return RewardFields(r.Message());
      case VarintTag(7):
        return Varint(r, &header_->duration_ms);
      default:
        return r.Skip();
    }
  }

  void SequenceFields(WireReader r, HeaderSequence* sequence) {
    while (r.Next()) {
      switch (r.tag()) {
        case VarintTag(1):
          Varint(r, &sequence->tokens);
          break;
        case VarintTag(2):
          Varint(r, &sequence->prompt_tokens);
          break;
        case VarintTag(3):
          Varint(r, &sequence->loss_tokens);
          break;
        case BytesTag(4):
          RunFields(r.Message(), &header_->version_runs[runs_++]);
          break;
        case BytesTag(5):
          TurnFields(r.Message(), &header_->turns[turns_++]);
          break;
        case Fixed32Tag(6):
          Fixed(r, &*sequence->advantage);
          break;
        default:
          r.Skip();
      }
    }
  }

  void RunFields(WireReader r, HeaderVersionRun* run) {
    uint32_t* const fields[] = {&run->offset, &run->branch, &run->number, &run->loss_tokens};
    while (r.Next()) {
      const bool known = r.type() == WireType::kVarint && r.field() <= std::size(fields);
      known ? Varint(r, fields[r.field() - 1]) : r.Skip();
    }
  }

  void TurnFields(WireReader r, HeaderTurn* turn) {
    uint32_t* const fields[] = {&turn->offset, &turn->tokens};
    while (r.Next()) {
      const bool known = r.type() == WireType::kVarint && r.field() <= std::size(fields);
      known ? Varint(r, fields[r.field() - 1]) : r.Skip();
    }
  }

  void ColumnFields(WireReader r, HeaderColumn* column) {
    while (r.Next()) {
      switch (r.tag()) {
        case VarintTag(6):
          Varint(r, &column->bytes);
          break;
        case Fixed32Tag(7):
          Fixed(r, &*column->crc32c);
          break;
        case VarintTag(8):
          Varint(r, &header_->sequence_bytes[parts_++]);
          break;
        case BytesTag(8): {
          WireReader packed(r.Bytes());
          while (!packed.rest().empty()) Varint(packed, &header_->sequence_bytes[parts_++]);
          break;
        }
        default:
          r.Skip();
      }
    }
  }

  void RewardFields(WireReader r) {
    if (rewards_ == header_->rewards.size()) {
      holds_ = false;
      return;
    }
    HeaderReward& reward = header_->rewards[rewards_++];
    while (r.Next()) {
      r.tag() == Fixed64Tag(2) ? Fixed(r, &reward.value) : r.Skip();
    }
  }

  const char* const begin_;
  RolloutHeader* const header_;
  Slots* const slots_;
  bool holds_ = true;
  // How many of each have been met.
  size_t sequences_ = 0, columns_ = 0, rewards_ = 0, runs_ = 0, turns_ = 0, parts_ = 0;
};

}  // namespace

struct HeaderDecoder::Layout {
  // Eight bytes: those that are the same in all headers of the layout, and which they are. Of a
  // number in varint bytes it is the bit that says whether another byte follows.
  struct Word {
    uint64_t fixed = 0;
    uint64_t mask = 0;
  };

  bool Make(std::string_view from);
  bool Holds(std::string_view bytes) const;

  uint64_t number = 0;
  std::string bytes;     // of the first one; the header's text lies here
  RolloutHeader header;  // its vectors stay as they are: slots point into them
  std::vector<Word> words;
  Slots slots;
};

bool HeaderDecoder::Layout::Make(std::string_view from) {
  bytes = from;
  FieldError error;
  FOREBAY_CHECK(DecodeRolloutHeader(bytes, &header, &error));
  if (!SlotFinder(bytes, &header, &slots).Find(bytes)) return false;
  for (HeaderColumn& column : header.columns) column.shape_checked = true;
  std::string mask(bytes.size(), '\xff');
  for (const Slot& slot : slots.varints) std::fill_n(mask.begin() + slot.at, slot.width, '\x80');
  for (const auto* fixed : {&slots.fixed4, &slots.fixed8}) {
    for (const Slot& slot : *fixed) std::fill_n(mask.begin() + slot.at, slot.width, '\0');
  }
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const size_t size = std::min(sizeof(uint64_t), bytes.size() - at);
    Word& word = words.emplace_back();
    word.mask = Load(mask.data() + at, size);
    word.fixed = Load(bytes.data() + at, size) & word.mask;
  }
  return true;
}

bool HeaderDecoder::Layout::Holds(std::string_view other) const {
  if (other.size() != bytes.size()) return false;
  const size_t whole = other.size() / sizeof(uint64_t);
  uint64_t difference = 0;
  for (size_t i = 0; i < whole; ++i) {
    const uint64_t word = Load(other.data() + i * sizeof(uint64_t), sizeof(uint64_t));
    difference |= (word & words[i].mask) ^ words[i].fixed;
  }
  if (const size_t rest = other.size() % sizeof(uint64_t); rest > 0) {
    const uint64_t word = Load(other.data() + whole * sizeof(uint64_t), rest);
    difference |= (word & words[whole].mask) ^ words[whole].fixed;
  }
  return difference == 0;
}

HeaderDecoder::HeaderDecoder() : credit_(kCreditMax) {}
HeaderDecoder::~HeaderDecoder() = default;

const RolloutHeader* HeaderDecoder::Decode(std::string_view bytes, FieldError* error) {
  credit_ = std::min(credit_ + 1, kCreditMax);
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (!layouts_[i]->Holds(bytes)) continue;
    if (i > 0) std::rotate(layouts_.begin(), layouts_.begin() + i, layouts_.begin() + i + 1);
    Layout& layout = *layouts_.front();
    ReadSlots(layout.slots, bytes.data());
    layout_ = layout.number;
    return &layout.header;
  }
  layout_ = 0;
  return DecodeRolloutHeader(bytes, &header_, error) ? &header_ : nullptr;
}

void HeaderDecoder::Make(std::string_view bytes) {
  if (bytes.size() > kLayoutBytesMax || credit_ < kLayoutCost) return;
  credit_ -= kLayoutCost;
  auto layout = std::make_unique<Layout>();
  if (!layout->Make(bytes)) return;
  layout->number = ++last_layout_;
  if (layouts_.size() == kLayoutsMax) layouts_.pop_back();
  layouts_.insert(layouts_.begin(), std::move(layout));
}

}  // namespace forebay::codec
