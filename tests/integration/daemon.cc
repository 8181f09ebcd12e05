#include "tests/integration/daemon.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"

namespace forebay::integration {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr absl::Duration kLook = absl::Milliseconds(10);

std::string Program() {
  if (const char* named = std::getenv("FOREBAY_BUFFERD"); named != nullptr) return named;
  if (const char* folder = std::getenv("FOREBAY_BIN"); folder != nullptr) {
    return absl::StrCat(folder, "/bufferd");
  }
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path() / "bufferd";
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The text after `"name": "` up to the next quote.
std::string Field(const std::string& json, const std::string& name) {
  const std::string key = absl::StrCat("\"", name, "\": \"");
  const size_t at = json.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return json.substr(begin, json.find('"', begin) - begin);
}

}  // namespace

double Slowness() {
  const char* text = std::getenv("FOREBAY_SLOWNESS");
  double value = 1;
  return text != nullptr && absl::SimpleAtod(text, &value) && value >= 1 ? value : 1;
}

Daemon::Daemon(std::vector<std::string> flags) : flags_(std::move(flags)) {
  std::string pattern = (std::filesystem::temp_directory_path() / "forebay-XXXXXX").string();
  FOREBAY_CHECK(mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  address_ = "127.0.0.1:0";
  Start();
}

void Daemon::Start() {
  const std::string announce = folder_ + "/announce.json";
  std::filesystem::remove(announce);
  std::vector<std::string> words = {
      Program(), "--listen.grpc=" + address_, "--listen.unix=" + folder_ + "/daemon.sock",
      "--listen.http=127.0.0.1:0", "--listen.announce_file=" + announce};
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = folder_ + "/log";
  pid_ = fork();
  FOREBAY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const absl::Time until = absl::Now() + kStartTimeout * Slowness();
  while (!std::filesystem::exists(announce)) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != 0 || absl::Now() > until) {
      std::fprintf(stderr, "%s does not start:\n%s\n", words[0].c_str(), Log().c_str());
      FOREBAY_CHECK(false);
    }
    absl::SleepFor(kLook);  // poll: the daemon announces itself
  }
  const std::string json = ReadAll(announce);
  address_ = Field(json, "grpc");
  unix_address_ = "unix:" + Field(json, "unix");
}

Daemon::~Daemon() {
  if (pid_ > 0 && Slowness() > 1) {
    // A sanitizer looks for leaks at a clean end.
    kill(pid_, SIGCONT);
    kill(pid_, SIGTERM);
    Wait(kStartTimeout);
  }
  Kill();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Daemon::Signal(int signal) const {
  if (pid_ <= 0) return;
  kill(pid_, signal);
  // It takes a moment until the last thread stands still.
  if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);
}

int Daemon::Wait(absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (absl::Now() > until) return -1;
    absl::SleepFor(kLook);  // poll: the process ends
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Daemon::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGCONT);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Daemon::StartAgain() {
  Kill();
  Start();
}

std::string Daemon::Log() const { return ReadAll(folder_ + "/log"); }

struct Wire::State {
  std::mutex mutex;  // guards the three below
  bool closed = false;
  bool cut = false;
  std::vector<int> sockets;
  std::atomic<bool> lose_requests{false}, lose_replies{false};
  int listener = -1;
  sockaddr_in to{};
  std::thread acceptor;
  std::vector<std::thread> pumps;  // of the acceptor's thread until it ended
};

namespace {

// Copies one way until either side ends; what comes while `lose` is set goes nowhere.
void Pump(int from, int to, const std::atomic<bool>* lose) {
  std::vector<char> buffer(256 * 1024);
  while (true) {
    const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    if (*lose) continue;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n =
          send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) {
        shutdown(from, SHUT_RDWR);
        return;
      }
      sent += n;
    }
  }
  shutdown(to, SHUT_RDWR);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Wire::Wire(const std::string& to) : state_(std::make_shared<State>()) {
  int port = 0;
  FOREBAY_CHECK(absl::SimpleAtoi(to.substr(to.rfind(':') + 1), &port));
  state_->to = Loopback(port);
  state_->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = Loopback(0);
  socklen_t size = sizeof(own);
  FOREBAY_CHECK(bind(state_->listener, reinterpret_cast<sockaddr*>(&own), size) == 0);
  FOREBAY_CHECK(listen(state_->listener, 16) == 0);
  getsockname(state_->listener, reinterpret_cast<sockaddr*>(&own), &size);
  address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  state_->acceptor = std::thread([state = state_.get()] {
    while (true) {
      const int in = accept4(state->listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (in < 0) return;
      const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const bool through =
          connect(out, reinterpret_cast<sockaddr*>(&state->to), sizeof(state->to)) == 0;
      const std::lock_guard lock(state->mutex);
      state->sockets.push_back(in);
      state->sockets.push_back(out);
      if (!through || state->cut || state->closed) {
        shutdown(in, SHUT_RDWR);
        continue;
      }
      state->pumps.emplace_back(Pump, in, out, &state->lose_requests);
      state->pumps.emplace_back(Pump, out, in, &state->lose_replies);
    }
  });
}

void Wire::Cut() {
  const std::lock_guard lock(state_->mutex);
  state_->cut = true;
  for (const int fd : state_->sockets) shutdown(fd, SHUT_RDWR);
}

void Wire::LoseRequests() { state_->lose_requests = true; }

void Wire::LoseReplies() { state_->lose_replies = true; }

void Wire::Mend() {
  state_->lose_requests = state_->lose_replies = false;
  const std::lock_guard lock(state_->mutex);
  state_->cut = false;
}

Wire::~Wire() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    for (const int fd : state_->sockets) shutdown(fd, SHUT_RDWR);
    shutdown(state_->listener, SHUT_RDWR);
  }
  state_->acceptor.join();
  for (auto& pump : state_->pumps) pump.join();
  for (const int fd : state_->sockets) close(fd);
  close(state_->listener);
}

std::unique_ptr<client::Client> Connect(const std::string& address) {
  auto client = client::Client::Connect({.address = address});
  FOREBAY_CHECK(client.ok());
  return *std::move(client);
}

}  // namespace forebay::integration
