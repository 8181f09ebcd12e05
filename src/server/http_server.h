// A small HTTP server for pages that are made on demand, on threads of its own.
//
// Add pages before Start. Pages are made on the server's threads and may block for a while. Stop
// once, or leave it to the destructor.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace forebay::server {

struct HttpPage {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  HttpServer();
  ~HttpServer();

  void Add(const std::string& path, std::function<HttpPage()> make);
  // Port 0 takes a free one. Unavailable when it cannot listen there.
  absl::Status Start(const std::string& host, int port);
  int port() const;
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::server
