// What gRPC's words for a failed connection mean, for people: whose certificate, which side lacks
// TLS.
//
// Pure. gRPC has no codes for these, so its text is looked at; a text that is not known has no
// hint.
#pragma once

#include <string>
#include <string_view>

namespace forebay::client {

// "" or a clause that begins with "TLS: ". `tls`: this side speaks it.
std::string TransportHint(std::string_view message, bool tls);

}  // namespace forebay::client
