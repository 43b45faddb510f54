#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace troupe::base {

/// What a random number is for. Each stream is independent of the others for the same seed. Values are part of
/// what makes a run reproducible: never renumber.
enum class RandomStream : uint32_t {
  kReset = 1,         ///< initial states of environments
  kDynamics = 2,      ///< randomness inside an episode
  kAction = 3,        ///< sampling of actions
  kMapping = 4,       ///< which policy an agent gets
  kShuffle = 5,       ///< order of minibatches
  kEvaluation = 6,    ///< everything in evaluation episodes (mixed into the seed)
  kInit = 7,          ///< initial weights
  kTest = 8,          ///< random tests and benchmarks
  kQuery = 9,         ///< sampled answers to policy queries (mixed into the seed)
  kActionRetry = 10,  ///< sampling of actions, where a sampler refuses what it drew first
};

/// Key of the counter-based generator: a run's seed and a stream.
struct PhiloxKey {
  uint32_t k0 = 0;
  uint32_t k1 = 0;

  static constexpr PhiloxKey Make(uint64_t seed, RandomStream stream) {
    // SplitMix64's finalizer: neighbouring seeds and streams give unrelated keys.
    uint64_t z = seed + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(stream);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    return PhiloxKey{static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32)};
  }
};

/// What a draw belongs to: (global env id, episode ordinal, agent slot, number of the draw).
struct PhiloxCounter {
  uint32_t env_id = 0;
  uint32_t episode = 0;
  uint32_t slot = 0;
  uint32_t draw = 0;
};

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): four random words that are
/// a pure function of key and counter.
constexpr std::array<uint32_t, 4> Philox4x32(PhiloxKey key, PhiloxCounter counter) {
  uint32_t c0 = counter.env_id, c1 = counter.episode, c2 = counter.slot, c3 = counter.draw;
  uint32_t k0 = key.k0, k1 = key.k1;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0;
    const uint64_t p1 = 0xCD9E8D57ull * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Uniform in [0, 1) with 24 bits.
constexpr float ToUniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// Uniform in (0, 1), never 0 or 1: fit for a logarithm.
constexpr float ToOpenUniformFloat(uint32_t bits) { return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f; }
/// Uniform in [0, 1) with 53 bits from two words.
constexpr double ToUniformDouble(uint32_t hi, uint32_t lo) {
  return static_cast<double>(((static_cast<uint64_t>(hi) << 32) | lo) >> 11) * 0x1p-53;
}

/// Draws one after another from one (env, episode, slot): a small generator for environments and tests.
/// Satisfies UniformRandomBitGenerator. Not thread-safe; cheap to make and copy.
class PhiloxSequence {
 public:
  using result_type = uint32_t;

  PhiloxSequence(PhiloxKey key, PhiloxCounter start) : key_(key), counter_(start) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xFFFFFFFFu; }

  result_type operator()() {
    if (used_ == 4) {
      words_ = Philox4x32(key_, counter_);
      ++counter_.draw;
      used_ = 0;
    }
    return words_[used_++];
  }

  /// Uniform in [0, 1), 53 bits.
  double Uniform() {
    const uint32_t hi = (*this)();
    return ToUniformDouble(hi, (*this)());
  }
  /// Uniform in [low, high).
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  /// Uniform in [0, n); n > 0.
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>((static_cast<uint64_t>((*this)()) * n) >> 32); }
  /// Standard normal (Box-Muller; the second value is not kept, so that draws stay countable).
  double Normal() {
    const double u = 1.0 - Uniform();
    const double v = Uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  std::array<uint32_t, 4> words_{};
  int used_ = 4;
};

}  // namespace troupe::base
