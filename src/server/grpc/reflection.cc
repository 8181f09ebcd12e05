#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codec/wire.h"

namespace forebay::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

constexpr uint32_t kNotFound = 5;
constexpr uint32_t kUnimplemented = 12;

void AppendError(uint32_t code, std::string_view message, std::string* response) {
  std::string error;
  codec::WireWriter writer(&error);
  writer.Varint(1, code);
  writer.Bytes(2, message);
  codec::WireWriter(response).Message(7, error);
}

// The file, with all that it imports before it.
void Collect(const FileDescriptor* file, std::set<std::string>* seen,
             std::vector<std::string>* files) {
  if (!seen->insert(file->name()).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) Collect(file->dependency(i), seen, files);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  files->push_back(proto.SerializeAsString());
}

void AppendFile(const FileDescriptor* file, std::string* response) {
  if (file == nullptr) {
    AppendError(kNotFound, "no such file or symbol", response);
    return;
  }
  std::set<std::string> seen;
  std::vector<std::string> files;
  Collect(file, &seen, &files);
  std::string answer;
  // The file itself comes first: clients take the first one as what they asked for.
  for (auto at = files.rbegin(); at != files.rend(); ++at) {
    codec::WireWriter(&answer).Message(1, *at);
  }
  codec::WireWriter(response).Message(4, answer);
}

void AppendServices(const MethodTable& methods, std::string* response) {
  std::string list;
  for (const std::string& service : methods.Services()) {
    std::string entry;
    codec::WireWriter(&entry).Bytes(1, service);
    codec::WireWriter(&list).Message(1, entry);
  }
  codec::WireWriter(response).Message(6, list);
}

// ServerReflectionRequest to ServerReflectionResponse; false if it is no request.
bool Respond(std::string_view request, const MethodTable& methods, std::string* response) {
  codec::WireReader r(request);
  uint32_t asked = 0;
  std::string_view argument;
  while (r.Next()) {
    switch (r.tag()) {
      case codec::BytesTag(3):
      case codec::BytesTag(4):
      case codec::BytesTag(6):
      case codec::BytesTag(7):
        asked = r.field();
        argument = r.String();
        break;
      case codec::BytesTag(5):  // extensions, of which there are none
        asked = r.field();
        r.Skip();
        break;
      default:
        r.Skip();
    }
  }
  if (!r.ok()) return false;
  codec::WireWriter(response).Message(2, request);
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (asked) {
    case 3:
      AppendFile(pool.FindFileByName(std::string(argument)), response);
      break;
    case 4:
      AppendFile(pool.FindFileContainingSymbol(std::string(argument)), response);
      break;
    case 7:
      AppendServices(methods, response);
      break;
    default:
      AppendError(kUnimplemented, "no extensions here", response);
  }
  return true;
}

class ReflectionStream final : public StreamHandler {
 public:
  explicit ReflectionStream(const MethodTable* methods) : methods_(methods) {}

  void OnStart(Stream& stream, const CallContext& /*call*/) override { stream.Read(); }
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override {
    grpc::Slice slice;
    std::string response;
    if (!body.DumpToSingleSlice(&slice).ok() ||
        !Respond({reinterpret_cast<const char*>(slice.begin()), slice.size()}, *methods_,
                 &response)) {
      stream.Finish(absl::InvalidArgumentError("the request is no ServerReflectionRequest"));
      return;
    }
    grpc::Slice answer(response);
    stream.Write(grpc::ByteBuffer(&answer, 1));
    // The next question is read when this answer is on its way.
    stream.queued_bytes() > kDrainedBytes ? void(waiting_ = true) : stream.Read();
  }
  void OnHalfClose(Stream& stream) override { stream.Finish(absl::OkStatus()); }
  void OnDrained(Stream& stream) override {
    if (std::exchange(waiting_, false)) stream.Read();
  }
  void OnDrain(Stream& stream) override { stream.Finish(absl::UnavailableError("shutting down")); }

 private:
  const MethodTable* const methods_;
  bool waiting_ = false;
};

}  // namespace

void AddReflection(MethodTable* methods) {
  methods->AddStream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                     [methods] { return std::make_unique<ReflectionStream>(methods); });
}

}  // namespace forebay::server
