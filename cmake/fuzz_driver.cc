// Stands in for libFuzzer where that is not linked: runs LLVMFuzzerTestOneInput over every file of the folders given
// and over mutations of each, drawn with a fixed seed so that a failure comes back. Finds less than libFuzzer, but on
// every landing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerInput = 1000;
constexpr uint32_t kSeed = 1;

void Run(const std::vector<uint8_t>& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

/// One of: a flipped bit, a byte replaced, a run of bytes removed or doubled, the end cut off.
void Mutate(std::mt19937& random, std::vector<uint8_t>& input) {
  if (input.empty()) {
    input.push_back(static_cast<uint8_t>(random()));
    return;
  }
  const size_t at = random() % input.size();
  const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at);
  const size_t length = 1 + random() % std::min<size_t>(input.size() - at, 16);
  switch (random() % 5) {
    case 0:
      input[at] ^= static_cast<uint8_t>(1U << (random() % 8));
      break;
    case 1:
      input[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      input.erase(begin, begin + static_cast<std::ptrdiff_t>(length));
      break;
    case 3: {
      const std::vector<uint8_t> copy(begin, begin + static_cast<std::ptrdiff_t>(length));
      input.insert(begin, copy.begin(), copy.end());
      break;
    }
    default:
      input.resize(at);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::vector<uint8_t>> inputs = {{}};
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      std::fprintf(stderr, "fuzz_driver: '%s' is not a folder with a corpus\n", argv[i]);
      return 2;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  std::mt19937 random(kSeed);
  for (const std::vector<uint8_t>& input : inputs) {
    Run(input);
    for (int i = 0; i < kMutationsPerInput; ++i) {
      std::vector<uint8_t> mutated = input;
      for (uint32_t n = 1 + random() % 4; n > 0; --n) Mutate(random, mutated);
      Run(mutated);
    }
  }
  std::printf("fuzz_driver: %zu inputs, %d mutations of each, seed %u\n", inputs.size(), kMutationsPerInput, kSeed);
  return 0;
}
