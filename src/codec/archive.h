// Byte encoding of plain structs: little-endian, fields in the order that the struct lists them.
//
// A struct takes part by `template <class A> void Fields(A& a) { a(x, y, z); }`. Writer appends to
// a string; Reader checks every length against what is left before it allocates, and turns not-ok
// on the first surprise; a Reader that is not ok gives zeros. Not thread-safe. Hash containers are
// not supported: their order is not data.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace forebay::codec {

static_assert(std::endian::native == std::endian::little, "the encoding copies native integers");

template <class T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <class T, class A>
concept HasFields = requires(T& t, A& a) {
  t.Fields(a);
};

class Parts;

class Writer {
 public:
  // `later`: takes what of a snapshot is to be encoded later (snapshot_parts.h); null: nothing is.
  explicit Writer(std::string* out, Parts* later = nullptr) : out_(out), later_(later) {}
  Parts* later() const { return later_; }

  template <class... T>
  void operator()(const T&... values) {
    (Put(values), ...);
  }
  void Bytes(const void* data, size_t size) { out_->append(static_cast<const char*>(data), size); }

 private:
  template <Scalar T>
  void Put(const T& v) {
    Bytes(&v, sizeof(v));
  }
  template <class Tag, class Rep>
  void Put(const StrongId<Tag, Rep>& id) {
    Put(id.value);
  }
  void Put(const PolicyVersion& v) { (*this)(v.branch, v.number); }
  void Put(const std::string& s) {
    Put(static_cast<uint32_t>(s.size()));
    Bytes(s.data(), s.size());
  }
  template <class T>
  void Put(const std::vector<T>& v) {
    Put(static_cast<uint32_t>(v.size()));
    for (const auto& e : v) Put(e);
  }
  template <class T>
  void Put(const std::deque<T>& v) {
    Put(static_cast<uint32_t>(v.size()));
    for (const auto& e : v) Put(e);
  }
  template <class K, class V>
  void Put(const std::map<K, V>& v) {
    Put(static_cast<uint32_t>(v.size()));
    for (const auto& e : v) Put(e);
  }
  template <class T>
  void Put(const std::optional<T>& v) {
    Put(v.has_value());
    if (v) Put(*v);
  }
  template <class A, class B>
  void Put(const std::pair<A, B>& v) {
    (*this)(v.first, v.second);
  }
  template <class... T>
  void Put(const std::variant<T...>& v) {
    Put(static_cast<uint8_t>(v.index()));
    std::visit([this](const auto& e) { Put(e); }, v);
  }
  template <class T>
  requires HasFields<T, Writer>
  void Put(const T& v) {
    const_cast<T&>(v).Fields(*this);  // Fields only hands references to operator() above
  }

  std::string* const out_;
  Parts* const later_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  bool ok() const { return ok_; }
  // True when everything was read and nothing was wrong.
  bool Done() const { return ok_ && in_.empty(); }
  size_t left() const { return in_.size(); }

  template <class... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }
  void Bytes(void* to, size_t size) {
    if (size > in_.size()) {
      Fail();
      std::memset(to, 0, size);
      return;
    }
    std::memcpy(to, in_.data(), size);
    in_.remove_prefix(size);
  }
  void Skip(size_t size) {
    if (size > in_.size()) return Fail();
    in_.remove_prefix(size);
  }
  void Fail() {
    ok_ = false;
    in_ = {};
  }

 private:
  template <Scalar T>
  void Get(T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      Bytes(&byte, 1);
      if (byte > 1) Fail();
      v = byte == 1;
    } else {
      Bytes(&v, sizeof(v));
    }
  }
  template <class Tag, class Rep>
  void Get(StrongId<Tag, Rep>& id) {
    Get(id.value);
  }
  void Get(PolicyVersion& v) { (*this)(v.branch, v.number); }
  void Get(std::string& s) {
    uint32_t size = 0;
    Get(size);
    if (size > in_.size()) return Fail();
    s.assign(in_.substr(0, size));
    in_.remove_prefix(size);
  }
  template <class T>
  void Get(std::vector<T>& v) {
    GetList(v);
  }
  template <class T>
  void Get(std::deque<T>& v) {
    GetList(v);
  }
  // Keys ascend strictly: a map has one encoding.
  template <class K, class V>
  void Get(std::map<K, V>& v) {
    uint32_t size = 0;
    Get(size);
    if (size > in_.size()) return Fail();
    v.clear();
    for (uint32_t i = 0; i < size && ok_; ++i) {
      std::pair<K, V> entry;
      Get(entry);
      if (!v.empty() && !(v.rbegin()->first < entry.first)) return Fail();
      v.emplace_hint(v.end(), std::move(entry));
    }
  }
  template <class T>
  void GetList(T& v) {
    uint32_t size = 0;
    Get(size);
    if (size > in_.size()) return Fail();  // every element takes at least a byte
    v.clear();
    for (uint32_t i = 0; i < size && ok_; ++i) Get(v.emplace_back());
  }
  template <class T>
  void Get(std::optional<T>& v) {
    bool has = false;
    Get(has);
    v.reset();
    if (has) Get(v.emplace());
  }
  template <class A, class B>
  void Get(std::pair<A, B>& v) {
    (*this)(v.first, v.second);
  }
  template <class... T>
  void Get(std::variant<T...>& v) {
    uint8_t index = 0;
    Get(index);
    if (index >= sizeof...(T)) return Fail();
    GetAlternative<0>(v, index);
  }
  template <size_t I, class... T>
  void GetAlternative(std::variant<T...>& v, uint8_t index) {
    if constexpr (I < sizeof...(T)) {
      if (I == index) {
        Get(v.template emplace<I>());
      } else {
        GetAlternative<I + 1>(v, index);
      }
    }
  }
  template <class T>
  requires HasFields<T, Reader>
  void Get(T& v) { v.Fields(*this); }

  std::string_view in_;
  bool ok_ = true;
};

template <class T>
std::string Encode(const T& value) {
  std::string out;
  Writer writer(&out);
  writer(value);
  return out;
}

// False when `bytes` are not exactly one value.
template <class T>
bool Decode(std::string_view bytes, T* value) {
  Reader reader(bytes);
  reader(*value);
  return reader.Done();
}

}  // namespace forebay::codec
