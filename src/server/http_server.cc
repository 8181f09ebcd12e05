#include "server/http_server.h"

#include <httplib.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace forebay::server {
namespace {

// A reader that is slow or silent holds a thread; probes must get one all the same.
constexpr size_t kThreadsMax = 128;
// The library's own five are too few: who finds no place tries again a second later.
constexpr int kBacklog = 512;
constexpr size_t kBodyBytesMax = 1 << 20;
constexpr int kTimeoutSeconds = 2;
constexpr int kKeepAliveSeconds = 1;

// Threads as they are needed, up to the limit; above it the newest connection goes first: those
// that pile up are the ones that nobody drives.
class Threads final : public httplib::TaskQueue {
 public:
  ~Threads() override = default;

  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));
  Enqueued enqueue(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    if (waiting_.size() > idle_ && threads_.size() < kThreadsMax) {
      threads_.emplace_back([this] { Run(); });
    }
    changed_.notify_one();
    return static_cast<Enqueued>(true);
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      const auto work = std::move(waiting_.back());
      waiting_.pop_back();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards all below; threads_ is left alone once stopping_
  std::condition_variable changed_;
  std::vector<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace

class HttpServer::Impl {
 public:
  httplib::Server server;
  std::thread thread;
  int port = 0;
  int listener = -1;  // the library's
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {
  auto& server = impl_->server;
  server.new_task_queue = [] { return new Threads(); };
  server.set_payload_max_length(kBodyBytesMax);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  // The library's own choice would let two daemons share a port unseen.
  server.set_socket_options([this](socket_t socket) {
    impl_->listener = socket;
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Add(const std::string& path, std::function<HttpPage()> make) {
  impl_->server.Get(path,
                    [make = std::move(make)](const httplib::Request&, httplib::Response& response) {
                      const HttpPage page = make();
                      response.status = page.status;
                      response.set_content(page.body, page.content_type);
                    });
}

absl::Status HttpServer::Start(const std::string& host, int port) {
  const bool bracketed = !host.empty() && host.front() == '[';
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  auto& server = impl_->server;
  impl_->port = port;
  bool bound = false;
  if (port == 0) {
    impl_->port = server.bind_to_any_port(bare);
    bound = impl_->port > 0;
  } else {
    bound = server.bind_to_port(bare, port);
  }
  if (!bound) {
    return absl::UnavailableError(absl::StrCat("listen.http: cannot listen on ", host, ":", port));
  }
  listen(impl_->listener, kBacklog);
  impl_->thread = std::thread([this] { impl_->server.listen_after_bind(); });
  return absl::OkStatus();
}

int HttpServer::port() const { return impl_->port; }

void HttpServer::Stop() {
  if (!impl_->thread.joinable()) return;
  // A stop that comes before the loop runs would be overlooked.
  while (!impl_->server.is_running()) std::this_thread::yield();
  impl_->server.stop();
  impl_->thread.join();
}

}  // namespace forebay::server
