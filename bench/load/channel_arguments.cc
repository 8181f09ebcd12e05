#include "bench/load/channel_arguments.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace forebay::bench {

absl::StatusOr<ChannelArguments> ParseChannelArguments(const std::vector<std::string>& texts) {
  ChannelArguments arguments;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    int value = 0;
    if (at == 0 || at == std::string::npos || !absl::SimpleAtoi(text.substr(at + 1), &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("channel argument \"", text, "\" is not name=integer"));
    }
    arguments[text.substr(0, at)] = value;
  }
  return arguments;
}

}  // namespace forebay::bench
