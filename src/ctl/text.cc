#include "ctl/text.h"

#include <cstdio>

#include "codec/wire.h"

namespace forebay::ctl {

std::string Printable(std::string_view text) {
  const bool utf8 = codec::IsUtf8(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters too: c2 80 to c2 9f.
    const bool c1 = utf8 && byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool control = byte < 0x20 && byte != '\n' && byte != '\t';
    if (!control && !c1 && byte != 0x7f && (utf8 || byte < 0x7f)) {
      out.push_back(text[i]);
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x",
                  c1 ? static_cast<unsigned char>(text[++i]) : byte);
    out += escaped;
  }
  return out;
}

}  // namespace forebay::ctl
