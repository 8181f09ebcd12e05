#include "ctl/safetensors.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "ctl/column_values.h"
#include "ctl/json.h"

namespace forebay::ctl {
namespace {

// ,"data_offsets":[,]} and two numbers of up to 20 digits, and a comma.
constexpr uint64_t kOffsetsBytesMost = 64;

size_t WidthOf(v1::DType dtype) {
  const uint32_t bytes = ValueBytes(dtype);
  return bytes == 8 ? 0 : bytes == 4 ? 1 : bytes == 2 ? 2 : 3;
}

const char* NameOf(v1::DType dtype) {
  static constexpr const char* kNames[] = {"U8",  "U8",  "I8",  "U16",  "I16", "U32", "I32",
                                           "U64", "I64", "F16", "BF16", "F32", "F64", "BOOL"};
  static_assert(std::size(kNames) == v1::DType_ARRAYSIZE);
  return kNames[dtype];
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path) {
  SafetensorsWriter writer(path);
  for (size_t i = 0; i < kWidths; ++i) {
    auto file = ScratchFile::Create(path);
    if (!file.ok()) return file.status();
    writer.files_.push_back(*std::move(file));
  }
  return writer;
}

void SafetensorsWriter::Begin(std::string_view name, v1::DType dtype,
                              const std::vector<uint64_t>& shape) {
  const size_t width = WidthOf(dtype);
  tensors_.push_back({.begin = absl::StrCat(JsonText(name), ":{\"dtype\":\"", NameOf(dtype),
                                            "\",\"shape\":[", absl::StrJoin(shape, ","), "]"),
                      .width = width,
                      .offset = files_[width].bytes()});
  names_bytes_ += tensors_.back().begin.size();
}

absl::Status SafetensorsWriter::Append(std::string_view bytes) {
  Tensor& tensor = tensors_.back();
  tensor.bytes += bytes.size();
  return files_[tensor.width].Append(bytes);
}

uint64_t SafetensorsWriter::HeaderBytesMost() const {
  return names_bytes_ + tensors_.size() * kOffsetsBytesMost + about_.size() + kOffsetsBytesMost;
}

absl::Status SafetensorsWriter::EndGroup(std::string_view name, std::string_view about) {
  absl::StrAppend(&about_, about_.empty() ? "" : ",", JsonText(name), ":", JsonText(about));
  group_begin_ = tensors_.size();
  for (size_t i = 0; i < kWidths; ++i) group_bytes_[i] = files_[i].bytes();
  if (HeaderBytesMost() <= kHeaderBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the header would have more than ", kHeaderBytesMax,
                   " bytes, and readers of safetensors take no more: choose fewer rollouts with "
                   "--limit or a filter, or take --format jsonl"));
}

absl::Status SafetensorsWriter::DropGroup() {
  while (tensors_.size() > group_begin_) {
    names_bytes_ -= tensors_.back().begin.size();
    tensors_.pop_back();
  }
  for (size_t i = 0; i < kWidths; ++i) {
    if (auto status = files_[i].TruncateTo(group_bytes_[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string SafetensorsWriter::Header() const {
  std::string header = absl::StrCat("{\"__metadata__\":{", about_, "}");
  uint64_t base = 0;
  // In the order of their places, as some readers want them.
  for (size_t width = 0; width < kWidths; ++width) {
    for (const Tensor& tensor : tensors_) {
      if (tensor.width != width) continue;
      const uint64_t begin = base + tensor.offset;
      absl::StrAppend(&header, ",", tensor.begin, ",\"data_offsets\":[", begin, ",",
                      begin + tensor.bytes, "]}");
    }
    base += files_[width].bytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

absl::Status SafetensorsWriter::Finish(bool replace) {
  auto file = ScratchFile::Create(path_);
  if (!file.ok()) return file.status();
  const std::string header = Header();
  const uint64_t bytes = header.size();
  FOREBAY_RETURN_IF_ERROR(file->Append({reinterpret_cast<const char*>(&bytes), sizeof(bytes)}));
  FOREBAY_RETURN_IF_ERROR(file->Append(header));
  for (const ScratchFile& width : files_) FOREBAY_RETURN_IF_ERROR(file->AppendAll(width));
  return file->RenameTo(path_, replace);
}

}  // namespace forebay::ctl
