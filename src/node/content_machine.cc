#include "node/content_machine.h"

#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "codec/archive.h"
#include "codec/snapshot_parts.h"

namespace forebay::node {
namespace {

using storage::ContentStore;

// A piece of a snapshot is about as large.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

void WriteItem(PayloadId id, std::string_view item, codec::Writer& writer) {
  writer(id, static_cast<uint32_t>(item.size()));
  writer.Bytes(item.data(), item.size());
}

// Items stay where they are, and what lies before the end does not change.
class ItemsPart final : public codec::Part {
 public:
  ItemsPart(const ContentStore* store, const ContentStore::End& end) : store_(store), end_(end) {}

  codec::Piece Next() override {
    if (over_) return nullptr;
    auto bytes = std::make_shared<std::string>();
    codec::Writer writer(bytes.get());
    over_ = !store_->ForEach(end_, &next_, [&](PayloadId id, std::string_view item) {
      WriteItem(id, item, writer);
      return bytes->size() < kPieceBytes;
    });
    return [bytes](std::string* to) { to->append(*bytes); };
  }

 private:
  const ContentStore* const store_;
  const ContentStore::End end_;
  PayloadId next_;
  bool over_ = false;
};

}  // namespace

std::string ContentMachine::CommandOf(const std::vector<std::string>& items) {
  return codec::Encode(items);
}

bool ContentMachine::Apply(LogPosition, std::string_view command) {
  std::vector<std::string> items;
  if (!codec::Decode(command, &items)) return false;
  const std::vector<std::string_view> views(items.begin(), items.end());
  std::vector<PayloadId> ids(items.size());
  // A refusal changes nothing, on every node.
  if (absl::Status status = store_->Add(views, absl::MakeSpan(ids)); !status.ok()) {
    last_ = std::move(status);
  } else {
    last_ = std::move(ids);
  }
  return true;
}

void ContentMachine::Snapshot(codec::Writer& writer) const {
  const ContentStore::End end = store_->end();
  writer(end.arenas, end.open, end.open_used);
  auto items = std::make_unique<ItemsPart>(store_, end);
  if (writer.later() != nullptr) return writer.later()->Add(std::move(items));
  while (codec::Piece piece = items->Next()) {
    std::string bytes;
    piece(&bytes);
    writer.Bytes(bytes.data(), bytes.size());
  }
}

bool ContentMachine::Restore(std::string_view snapshot) {
  codec::Reader reader(snapshot);
  ContentStore::End end;
  reader(end.arenas, end.open, end.open_used);
  store_->Clear();
  if (!reader.ok() || !store_->RestoreEnd(end).ok()) return false;
  while (reader.ok() && reader.left() > 0) {
    PayloadId id;
    uint32_t size = 0;
    reader(id, size);
    if (size > reader.left()) return false;
    const std::string_view item = snapshot.substr(snapshot.size() - reader.left(), size);
    if (!store_->RestoreAt(id, item).ok()) return false;
    reader.Skip(size);
  }
  return reader.ok();
}

}  // namespace forebay::node
