// Quantities as text for people. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace forebay {

// "1.5 GiB", "312 KiB", "17 B".
std::string BytesText(uint64_t bytes);

}  // namespace forebay
