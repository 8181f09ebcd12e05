#include "server/grpc/method_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::server {

Method& MethodTable::Add(std::string name) {
  FOREBAY_CHECK(name.size() > 1 && name[0] == '/' && name.find('/', 1) != std::string::npos);
  FOREBAY_CHECK(!by_name_.contains(name));
  Method& method = methods_.emplace_back();
  method.name = name;
  by_name_.emplace(std::move(name), &method);
  return method;
}

void MethodTable::AddUnary(std::string name, UnaryHandler handler) {
  Add(std::move(name)).unary = std::move(handler);
}

void MethodTable::AddStream(std::string name, StreamFactory factory) {
  Add(std::move(name)).stream = std::move(factory);
}

Method* MethodTable::Find(std::string_view name) const {
  const auto at = by_name_.find(absl::string_view(name.data(), name.size()));
  return at == by_name_.end() ? nullptr : at->second;
}

std::vector<std::string> MethodTable::Services() const {
  std::vector<std::string> services;
  for (const Method& method : methods_) {
    std::string service = method.name.substr(1, method.name.find('/', 1) - 1);
    if (std::find(services.begin(), services.end(), service) == services.end()) {
      services.push_back(std::move(service));
    }
  }
  return services;
}

}  // namespace forebay::server
