// Something that coordinators can be opened on, empty at first: a folder, or an etcd of its own.
//
// One thread. Coordinators end before it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "node/coordinator.h"

namespace forebay::integration {

inline constexpr const char* kBackends[] = {"local", "etcd"};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<node::Coordinator> Connect() = 0;
  // Makes changes until old ones are not kept any more, or has them forgotten; the oldest revision
  // that is kept.
  virtual uint64_t ForgetHistory(node::Coordinator* of) = 0;
  // A part of what its health names.
  virtual std::string Where() const = 0;
};

std::unique_ptr<Backend> NewBackend(const std::string& name);

}  // namespace forebay::integration
