// The main of a fuzzer where libFuzzer is not at hand: replays the files of the corpus folders
// given as arguments, then feeds seeded mutations of them. FOREBAY_FUZZ_SECONDS bounds the
// mutations (default 1), FOREBAY_FUZZ_SEED chooses them (default 1). Which inputs are tried depends
// on the seed alone; the time only decides how many. An input that ends the process is left in the
// file fuzz-input-<pid> in the working directory.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/prng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using forebay::Prng;

constexpr size_t kMaxInputBytes = 64 * 1024;

std::string current_input;  // Read by the handler of SIGABRT alone, which runs in the thread that
                            // writes it.

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void SaveInput(int signal_number) {
  const std::string name = "fuzz-input-" + std::to_string(getpid());
  if (FILE* file = std::fopen(name.c_str(), "wb"); file != nullptr) {
    std::fwrite(current_input.data(), 1, current_input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "the input is in %s\n", name.c_str());
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void Run(const std::string& input) {
  current_input = input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::vector<std::string> ReadCorpus(int count, char** folders) {
  std::vector<std::filesystem::path> paths;
  for (int i = 0; i < count; ++i) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folders[i], error)) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// Numbers at which lengths and counts tend to break.
uint64_t BoundaryValue(Prng& prng) {
  const uint64_t power = uint64_t{1} << prng.Below(64);
  return power + prng.Below(3) - 1;
}

void MutateOnce(std::string& input, const std::vector<std::string>& corpus, Prng& prng) {
  const size_t at = input.empty() ? 0 : prng.Below(input.size());
  switch (prng.Below(7)) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << prng.Below(8)));
      break;
    case 1:
      if (!input.empty()) input[at] = static_cast<char>(prng.Next());
      break;
    case 2:
      input.resize(at);
      break;
    case 3:
      input.insert(at, 1 + prng.Below(16), static_cast<char>(prng.Next()));
      break;
    case 4:
      input.erase(at, 1 + prng.Below(16));
      break;
    case 5: {
      const uint64_t value = BoundaryValue(prng);
      const size_t width = size_t{1} << prng.Below(4);
      for (size_t i = 0; i < width && at + i < input.size(); ++i) {
        input[at + i] = static_cast<char>(value >> (8 * i));
      }
      break;
    }
    default:
      if (!corpus.empty()) {
        const std::string& other = corpus[prng.Below(corpus.size())];
        const size_t from = other.empty() ? 0 : prng.Below(other.size());
        input.replace(at, std::string::npos, other, from, std::string::npos);
      }
  }
  input.resize(std::min(input.size(), kMaxInputBytes));
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, SaveInput);
  const std::vector<std::string> corpus = ReadCorpus(argc - 1, argv + 1);
  for (const std::string& input : corpus) {
    Run(input);
  }
  const uint64_t seed = FromEnvironment("FOREBAY_FUZZ_SEED", 1);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(FromEnvironment("FOREBAY_FUZZ_SECONDS", 1));
  Prng prng(seed);
  uint64_t inputs = 0;
  Run("");
  while (std::chrono::steady_clock::now() < end) {
    std::string input = corpus.empty() ? "" : corpus[prng.Below(corpus.size())];
    for (uint64_t change = prng.Below(8) + 1; change > 0; --change) {
      MutateOnce(input, corpus, prng);
    }
    Run(input);
    ++inputs;
  }
  std::printf("seed %llu: %zu inputs of the corpus, %llu mutations\n",
              static_cast<unsigned long long>(seed), corpus.size(),
              static_cast<unsigned long long>(inputs));
  return 0;
}
