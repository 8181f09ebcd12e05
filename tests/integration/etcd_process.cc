#include "tests/integration/etcd_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/security/credentials.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "tests/integration/daemon.h"

namespace forebay::integration {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(20);

// Ports that are free now. All are held until all are known, so that they differ.
std::vector<int> FreePorts(size_t count) {
  std::vector<int> sockets, ports;
  for (size_t i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    FOREBAY_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    FOREBAY_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    sockets.push_back(fd);
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int fd : sockets) close(fd);
  return ports;
}

template <class Response, class Request>
bool Ask(const std::string& endpoint, const char* method, const Request& request,
         Response* response) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel =
      grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  return grpc::internal::BlockingUnaryCall(
             channel.get(),
             grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC), &context,
             request, response)
      .ok();
}

}  // namespace

EtcdCluster::EtcdCluster(size_t members, std::vector<std::string> flags)
    : flags_(std::move(flags)), members_(members) {
  const std::vector<int> ports = FreePorts(2 * members);
  for (size_t i = 0; i < members; ++i) {
    members_[i].client = absl::StrCat("127.0.0.1:", ports[2 * i]);
    members_[i].peer = absl::StrCat("127.0.0.1:", ports[2 * i + 1]);
    members_[i].folder = absl::StrCat(directory_.path(), "/", i);
    FOREBAY_CHECK(std::filesystem::create_directory(members_[i].folder));
  }
  for (size_t i = 0; i < members; ++i) Spawn(i);
  for (size_t i = 0; i < members; ++i) AwaitServing(i);
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(i);
}

std::vector<std::string> EtcdCluster::endpoints() const {
  std::vector<std::string> all;
  for (const Member& member : members_) all.push_back(member.client);
  return all;
}

void EtcdCluster::Spawn(size_t index) {
  Member& member = members_[index];
  std::vector<std::string> peers;
  for (size_t i = 0; i < members_.size(); ++i) {
    peers.push_back(absl::StrCat("m", i, "=http://", members_[i].peer));
  }
  std::vector<std::string> words = {
      "etcd",
      absl::StrCat("--name=m", index),
      absl::StrCat("--data-dir=", member.folder, "/data"),
      absl::StrCat("--listen-client-urls=http://", member.client),
      absl::StrCat("--advertise-client-urls=http://", member.client),
      absl::StrCat("--listen-peer-urls=http://", member.peer),
      absl::StrCat("--initial-advertise-peer-urls=http://", member.peer),
      absl::StrCat("--initial-cluster=", absl::StrJoin(peers, ",")),
      // Quicker than etcd's own settings, which are for wide networks.
      "--heartbeat-interval=50",
      "--election-timeout=500",
  };
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = member.folder + "/log";
  member.pid = fork();
  FOREBAY_CHECK(member.pid >= 0);
  if (member.pid > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  dup2(fd, 1);
  dup2(fd, 2);
  execvp(argv[0], argv.data());
  dprintf(2, "there is no program etcd: install the package etcd-server (./dev setup test)\n");
  _exit(127);
}

etcdserverpb::StatusResponse EtcdCluster::Status(size_t member, bool* ok) const {
  etcdserverpb::StatusResponse response;
  *ok = Ask(members_[member].client, "/etcdserverpb.Maintenance/Status",
            etcdserverpb::StatusRequest(), &response);
  return response;
}

void EtcdCluster::AwaitServing(size_t index) {
  const absl::Time until = absl::Now() + kStartTimeout * Slowness();
  while (true) {
    bool ok = false;
    const auto status = Status(index, &ok);
    if (ok && status.leader() != 0) {
      members_[index].id = status.header().member_id();
      return;
    }
    int ended = 0;
    if (waitpid(members_[index].pid, &ended, WNOHANG) != 0 || absl::Now() > until) {
      std::fprintf(stderr, "etcd does not start:\n%s\n", Log(index).c_str());
      FOREBAY_CHECK(false);
    }
    absl::SleepFor(kLook);  // poll: the member has a leader
  }
}

size_t EtcdCluster::Leader(size_t asked) const {
  bool ok = false;
  const auto status = Status(asked, &ok);
  FOREBAY_CHECK(ok);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].id == status.leader()) return i;
  }
  std::fprintf(stderr, "etcd has no leader:\n%s\n", Log(asked).c_str());
  FOREBAY_CHECK(false);
  return 0;
}

void EtcdCluster::Freeze(size_t member) const {
  FOREBAY_CHECK(kill(members_[member].pid, SIGSTOP) == 0);
  // It takes a moment until the last thread stands still.
  waitpid(members_[member].pid, nullptr, WUNTRACED);
}

void EtcdCluster::Thaw(size_t member) const {
  FOREBAY_CHECK(kill(members_[member].pid, SIGCONT) == 0);
}

void EtcdCluster::Kill(size_t index) {
  Member& member = members_[index];
  if (member.pid <= 0) return;
  kill(member.pid, SIGKILL);
  waitpid(member.pid, nullptr, 0);
  member.pid = -1;
}

void EtcdCluster::Start(size_t member) {
  Kill(member);
  Spawn(member);
  AwaitServing(member);
}

void EtcdCluster::Compact(uint64_t revision) const {
  etcdserverpb::CompactionRequest request;
  request.set_revision(static_cast<int64_t>(revision));
  request.set_physical(true);
  etcdserverpb::CompactionResponse response;
  FOREBAY_CHECK(Ask(members_[0].client, "/etcdserverpb.KV/Compact", request, &response));
}

void EtcdCluster::DemandUser(const std::string& user, const std::string& password) const {
  // Requests of two texts each, as that for a token.
  const auto ask = [this](const char* method, const std::string& first, const std::string& second) {
    etcdserverpb::AuthenticateRequest request;
    request.set_name(first);
    request.set_password(second);
    etcdserverpb::CompactionResponse response;
    FOREBAY_CHECK(Ask(members_[0].client, method, request, &response));
  };
  ask("/etcdserverpb.Auth/UserAdd", user, password);
  ask("/etcdserverpb.Auth/UserAdd", "root", password);
  ask("/etcdserverpb.Auth/RoleAdd", "root", "");
  ask("/etcdserverpb.Auth/UserGrantRole", "root", "root");
  ask("/etcdserverpb.Auth/UserGrantRole", user, "root");
  ask("/etcdserverpb.Auth/AuthEnable", "", "");
}

std::string EtcdCluster::ValueAt(size_t member, const std::string& key) const {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  etcdserverpb::RangeResponse response;
  FOREBAY_CHECK(Ask(members_[member].client, "/etcdserverpb.KV/Range", request, &response));
  return response.kvs().empty() ? "" : response.kvs(0).value();
}

std::string EtcdCluster::Log(size_t member) const {
  std::ifstream file(members_[member].folder + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace forebay::integration
