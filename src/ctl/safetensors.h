// Writes a file in the safetensors format: the header's length (8 bytes, little endian), a JSON
// object that names each tensor with dtype, shape and place, and the tensors' bytes without gaps.
//
// The wider a tensor's values the further at the front it lies, so that each begins at a multiple
// of its values' size. Tensors come one group (a rollout) after another and are kept in scratch
// files, a file a width, until all of them are known. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/output_file.h"
#include "forebay/v1/types.pb.h"

namespace forebay::ctl {

class SafetensorsWriter {
 public:
  // What readers take at most for a header.
  static constexpr uint64_t kHeaderBytesMax = 100'000'000;

  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path);

  // A tensor's bytes follow by Append. Names are unique.
  void Begin(std::string_view name, v1::DType dtype, const std::vector<uint64_t>& shape);
  absl::Status Append(std::string_view bytes);
  // The tensors since the last call belong together: they stay, with a line of text about them
  // under `name`. ResourceExhausted when the header would be longer than readers take.
  absl::Status EndGroup(std::string_view name, std::string_view about);
  // They are taken back.
  absl::Status DropGroup();
  // All of it under `path`.
  absl::Status Finish(bool replace);

 private:
  static constexpr size_t kWidths = 4;  // 8, 4, 2, 1 bytes
  struct Tensor {
    std::string begin;    // "name":{"dtype":"F32","shape":[3]
    size_t width = 0;     // index of its file
    uint64_t offset = 0;  // in that file
    uint64_t bytes = 0;
  };

  explicit SafetensorsWriter(std::string path) : path_(std::move(path)) {}
  // An upper bound while offsets are not known.
  uint64_t HeaderBytesMost() const;
  std::string Header() const;

  std::string path_;
  std::vector<ScratchFile> files_;
  std::vector<Tensor> tensors_;
  size_t group_begin_ = 0;                       // index of its first tensor
  std::array<uint64_t, kWidths> group_bytes_{};  // of the files when it began
  std::string about_;                            // entries of __metadata__
  uint64_t names_bytes_ = 0;
};

}  // namespace forebay::ctl
