#include "node/command_text.h"

#include <deque>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "codec/actor_messages.h"
#include "codec/archive.h"
#include "ledger/commands.h"
#include "node/replica_record.h"
#include "shard/messages.h"
#include "storage/content_record.h"

namespace forebay::node {
namespace {

// "PutRollouts" of forebay::shard::PutRollouts: as the compiler knows it, so that no table of names
// has to follow the commands.
template <class T>
std::string NameOf() {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("T = ") + 4);
  name = name.substr(0, name.find_first_of(";]"));
  return std::string(name.substr(name.rfind(':') + 1));
}

// An archive (codec/archive.h) that writes text.
class TextWriter {
 public:
  explicit TextWriter(size_t bytes_max) : bytes_max_(bytes_max) {}

  template <class... T>
  void operator()(const T&... values) {
    (Field(values), ...);
  }
  template <class T>
  requires codec::HasFields<T, TextWriter>
  void Put(const T& v) {
    Open('(');
    const_cast<T&>(v).Fields(*this);  // Fields only hands references to operator() above
    Close(')');
  }
  std::string Take() {
    if (full()) {
      text_.resize(bytes_max_);
      text_ += "...";
    }
    return std::move(text_);
  }

 private:
  bool full() const { return text_.size() > bytes_max_; }
  void Open(char bracket) {
    text_ += bracket;
    first_ = true;
  }
  void Close(char bracket) {
    text_ += bracket;
    first_ = false;
  }
  template <class T>
  void Field(const T& v) {
    if (full()) return;
    if (!std::exchange(first_, false)) text_ += ", ";
    Put(v);
    first_ = false;
  }

  template <codec::Scalar T>
  void Put(const T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      text_ += v ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
      absl::StrAppend(&text_, static_cast<uint64_t>(v));
    } else if constexpr (sizeof(T) == 1) {
      absl::StrAppend(&text_, static_cast<int>(v));
    } else {
      absl::StrAppend(&text_, v);
    }
  }
  template <class Tag, class Rep>
  void Put(const StrongId<Tag, Rep>& id) {
    Put(id.value);
  }
  void Put(const PolicyVersion& v) { absl::StrAppend(&text_, v.branch, "/", v.number); }
  void Put(const std::string& s) {
    absl::StrAppend(&text_, "\"", absl::CHexEscape(s.substr(0, bytes_max_)), "\"");
  }
  template <class T>
  void Put(const std::vector<T>& v) {
    List(v);
  }
  template <class T>
  void Put(const std::deque<T>& v) {
    List(v);
  }
  template <class K, class V>
  void Put(const std::map<K, V>& v) {
    List(v);
  }
  template <class A, class B>
  void Put(const std::pair<A, B>& v) {
    Put(v.first);
    text_ += ": ";
    Put(v.second);
  }
  template <class T>
  void Put(const std::optional<T>& v) {
    if (v.has_value()) {
      Put(*v);
    } else {
      text_ += "none";
    }
  }
  template <class... T>
  void Put(const std::variant<T...>& v) {
    std::visit(
        [this]<class E>(const E& e) {
          text_ += NameOf<E>();
          Put(e);
        },
        v);
  }
  template <class T>
  void List(const T& list) {
    Open('[');
    for (auto it = list.begin(); it != list.end() && !full(); ++it) Field(*it);
    Close(']');
  }

  const size_t bytes_max_;
  std::string text_;
  bool first_ = true;
};

template <class Command>
std::optional<CommandText> TextOfCommand(std::string_view record, size_t bytes_max) {
  Command command;
  if (!codec::Decode(record, &command)) return std::nullopt;
  return std::visit(
      [bytes_max]<class C>(const C& c) {
        TextWriter writer(bytes_max);
        writer.Put(c);
        return CommandText{NameOf<C>(), writer.Take()};
      },
      command);
}

std::optional<CommandText> TextOfContent(std::string_view record, size_t bytes_max) {
  PayloadId id;
  std::string_view item;
  codec::TaskContent content;
  if (!storage::DecodeContentRecord(record, &id, &item) ||
      !codec::DecodeTaskContent(item, &content)) {
    return std::nullopt;
  }
  std::string fields = absl::StrCat(
      "(", absl::Hex(id.value), ", \"",
      absl::CHexEscape({content.external_id.data(), content.external_id.size()}), "\", ",
      content.payload.size(), " bytes, ", content.attributes.size(), " bytes)");
  if (fields.size() > bytes_max) fields = fields.substr(0, bytes_max) + "...";
  return CommandText{"Task", std::move(fields)};
}

}  // namespace

std::optional<CommandText> TextOfRecord(std::string_view machine, std::string_view record,
                                        size_t bytes_max) {
  if (machine == "ledger") return TextOfCommand<ledger::Command>(record, bytes_max);
  if (machine == "contents") return TextOfContent(record, bytes_max);
  if (machine.starts_with("shard-")) return TextOfCommand<shard::Command>(record, bytes_max);
  return std::nullopt;
}

std::optional<CommandText> TextOfReplicaRecord(std::string_view machine, std::string_view record,
                                               size_t bytes_max) {
  const auto write = DecodeLogWrite(record);
  if (!write.ok()) return std::nullopt;
  if (const auto* append = std::get_if<replication::AppendEntry>(&write->what)) {
    CommandText text{
        absl::StrCat("entry ", append->position.value, ", epoch ", append->entry.epoch.value, ": "),
        ""};
    if (append->entry.command.empty()) {
      text.name += "the begin of a reign";
      return text;
    }
    std::optional<CommandText> command;
    if (machine == "contents") {
      std::vector<std::string> items;
      if (codec::Decode(append->entry.command, &items)) {
        command = CommandText{absl::StrCat(items.size(), " contents"), ""};
      }
    } else {
      command = TextOfRecord(machine, append->entry.command, bytes_max);
    }
    if (!command) return std::nullopt;
    text.name += command->name;
    text.fields = std::move(command->fields);
    return text;
  }
  if (const auto* truncate = std::get_if<replication::TruncateLog>(&write->what)) {
    return CommandText{absl::StrCat("taken back from entry ", truncate->from.value), ""};
  }
  const auto& base = std::get<replication::RestartLog>(write->what).base;
  return CommandText{absl::StrCat("goes on after a peer's snapshot at entry ", base.position.value,
                                  ", epoch ", base.epoch.value),
                     ""};
}

}  // namespace forebay::node
