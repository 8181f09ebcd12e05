#include "server/http_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::server {
namespace {

// A reader that is slow or silent holds a thread; probes must get one all the same.
constexpr size_t kThreads = 16;
constexpr size_t kBodyBytesMax = 1 << 20;
constexpr int kTimeoutSeconds = 2;
constexpr int kKeepAliveSeconds = 1;

}  // namespace

class HttpServer::Impl {
 public:
  httplib::Server server;
  std::thread thread;
  int port = 0;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {
  auto& server = impl_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kBodyBytesMax);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  // The library's own choice would let two daemons share a port unseen.
  server.set_socket_options([](socket_t socket) {
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
