#include "client/transport_hint.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace forebay::client {

std::string TransportHint(std::string_view message, bool tls) {
  // OpenSSL and BoringSSL write the same in their own ways.
  const std::string text = absl::StrReplaceAll(
      absl::AsciiStrToLower(absl::string_view(message.data(), message.size())), {{"_", " "}});
  if (!tls) {
    return absl::StrContains(text, "socket closed") ||
                   absl::StrContains(text, "connection reset by peer")
               ? "TLS: it closed the connection; the daemon may ask for TLS"
               : "";
  }
  if (absl::StrContains(text, "certificate verify failed")) {
    return "TLS: the daemon's certificate is not signed by the CA that was given";
  }
  if (absl::StrContains(text, "hostname verification")) {
    return "TLS: the daemon's certificate does not name this address";
  }
  if (absl::StrContains(text, "wrong version number")) {
    return "TLS: what listens there does not speak TLS";
  }
  if (absl::StrContains(text, "socket closed") || absl::StrContains(text, "handshake")) {
    return "TLS: it ended the handshake; the daemon may ask for a client's certificate of its CA";
  }
  return "";
}

}  // namespace forebay::client
