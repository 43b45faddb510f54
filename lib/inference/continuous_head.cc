#include "lib/inference/continuous_head.h"

#include <algorithm>
#include <cmath>

#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

using policy::ContinuousDistribution;
using space::ActionWord;

constexpr float kLeastStd = 1e-6f;  // of a log-probability: without noise an action has none
constexpr float kHalfLogTwoPi = 0.91893853f;
constexpr float kLogTwo = 0.69314718f;
// Of a Beta: a gamma's first attempts, whose numbers come with the row's, and those that may follow. All are refused
// with a probability below 0.05 to the power of their number.
constexpr int kGammaWords = 4;
constexpr int kRetryBlocks = 32;

struct Pair {
  float first = 0, second = 0;
};
/// Two standard normal numbers of two words (Box & Muller, "A note on the generation of random normal deviates", 1958).
inline Pair Normals(uint32_t a, uint32_t b) {
  const float radius = std::sqrt(-2.0f * std::log(base::ToOpenUniformFloat(a)));
  const float angle = 6.2831853f * base::ToUniformFloat(b);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// The logarithm of the gamma function, x >= 1: Stirling's series from 8 on, with an error below 1e-10. std::lgamma
/// writes a global.
double LogGamma(double x) {
  double product = 1;
  for (; x < 8; x += 1) product *= x;
  const double t = 1 / (x * x);
  const double series = (1.0 / 12 + t * (-1.0 / 360 + t * (1.0 / 1260 + t * (-1.0 / 1680 + t / 1188)))) / x;
  return (x - 0.5) * std::log(x) - x + 0.91893853320467274 + series - std::log(product);
}

double OnePlusSoftplus(float output) {
  const double x = std::min(output, policy::kMaxBetaOutput);
  return 1 + (x > 40 ? x : std::log1p(std::exp(x)));
}

double LogDensityOfBeta(double action, double alpha, double beta) {
  return (alpha - 1) * std::log(0.5 + 0.5 * action) + (beta - 1) * std::log(0.5 - 0.5 * action) +
         LogGamma(alpha + beta) - LogGamma(alpha) - LogGamma(beta) - 0.69314718055994531;
}

/// One gamma of shape at least 1 (Marsaglia & Tsang, "A simple method for generating gamma variables", 2000).
class GammaSampler {
 public:
  explicit GammaSampler(double shape) : d_(shape - 1.0 / 3), c_(1 / std::sqrt(9 * d_)) {}

  /// Of four random words, two attempts; false: both are refused.
  bool Try(const uint32_t* words, double* gamma) const {
    const Pair normals = Normals(words[0], words[1]);
    return Try(normals.first, words[2], gamma) || Try(normals.second, words[3], gamma);
  }
  /// What stands for a gamma if all attempts fail.
  double usual() const { return d_; }

 private:
  bool Try(double normal, uint32_t word, double* gamma) const {
    const double root = 1 + c_ * normal;
    if (root <= 0) return false;
    const double cube = root * root * root;
    const double log_accepted = 0.5 * normal * normal + d_ * (1 - cube + std::log(cube));
    if (std::log(double{base::ToOpenUniformFloat(word)}) >= log_accepted) return false;
    *gamma = d_ * cube;
    return true;
  }

  double d_;
  double c_;
};

/// `place`: of the gamma among all that the row's episode may draw.
double DrawGamma(double shape, const uint32_t* words, base::PhiloxKey retry_key, const RowKey& key, uint32_t place) {
  const GammaSampler sampler(shape);
  double gamma = sampler.usual();
  if (sampler.Try(words, &gamma)) return gamma;
  for (uint32_t i = 0; i < kRetryBlocks; ++i) {
    const auto more = base::Philox4x32(retry_key, {key.env_id.value(), key.episode,
                                                   static_cast<uint32_t>(key.slot.value()), place * kRetryBlocks + i});
    if (sampler.Try(more.data(), &gamma)) break;
  }
  return gamma;
}

}  // namespace

float GaussianLogp(float action, float mean, float log_std) {
  const float z = (action - mean) * std::exp(-log_std);
  return -0.5f * z * z - log_std - kHalfLogTwoPi;
}

float LogSlopeOfTanh(float action) {
  const float size = std::abs(action);
  return 2.0f * (kLogTwo - size - std::log1p(std::exp(-2.0f * size)));
}

float BetaLogp(float action, float alpha_output, float beta_output) {
  return static_cast<float>(LogDensityOfBeta(action, OnePlusSoftplus(alpha_output), OnePlusSoftplus(beta_output)));
}

ContinuousHead::ContinuousHead(const policy::PolicySpec& spec)
    : distribution_(spec.continuous),
      is_free_(spec.log_std_size() > 0),
      min_log_std_(static_cast<float>(spec.min_log_std)),
      max_log_std_(static_cast<float>(spec.max_log_std)),
      log_std_(static_cast<size_t>(spec.log_std_size())),
      std_(log_std_.size()) {}

int64_t ContinuousHead::RandomWords(int64_t words) const {
  if (distribution_ == ContinuousDistribution::kBeta) return words * 2 * kGammaWords;
  return (words + 1) / 2 * 2;  // Box and Muller's normals come in pairs, a word each
}

void ContinuousHead::SetLogStd(const float* log_std) {
  for (size_t i = 0; i < std_.size(); ++i) {
    log_std_[i] = std::clamp(log_std[i], min_log_std_, max_log_std_);
    std_[i] = std::exp(log_std_[i]);
  }
}

void ContinuousHead::SetStd(float std) {
  std::fill(std_.begin(), std_.end(), std);
  std::fill(log_std_.begin(), log_std_.end(), std::log(std::max(std, kLeastStd)));
}

float ContinuousHead::LogStdOf(const ContinuousCall& call, const float* outputs, int64_t element) const {
  if (is_free_) return log_std_[static_cast<size_t>(call.log_std + element)];
  return std::clamp(outputs[call.words + element], min_log_std_, max_log_std_);
}

void ContinuousHead::Sample(const ContinuousCall& call) const {
  switch (distribution_) {
    case ContinuousDistribution::kGaussian:
      return is_free_ ? SampleFreeGaussian(call) : SampleGaussian<false>(call);
    case ContinuousDistribution::kSquashedGaussian:
      return SampleGaussian<true>(call);
    case ContinuousDistribution::kBeta:
      return SampleBeta(call);
  }
}

// The default keeps the bits that it always had: its log-probability is of the number drawn, SampleGaussian's of the
// action as it is recorded.
void ContinuousHead::SampleFreeGaussian(const ContinuousCall& call) const {
  const float* std = std_.data() + call.log_std;
  const float* log_std = log_std_.data() + call.log_std;
  for (int64_t r = 0; r < call.rows; ++r) {
    const float* mean = call.outputs + r * call.output_stride;
    const uint32_t* words = call.random + r * call.random_stride;
    ActionWord* out = call.actions + r * call.action_stride + call.word;
    for (int64_t i = 0; i < call.words; i += 2) {
      float eps[2] = {0, 0};
      if (call.random != nullptr) {
        const Pair normals = Normals(words[i], words[i + 1]);
        eps[0] = normals.first;
        eps[1] = normals.second;
      }
      for (int64_t j = 0; j < 2 && i + j < call.words; ++j) {
        out[i + j].f32 = mean[i + j] + std[i + j] * eps[j];
        call.logp[r] += -0.5f * eps[j] * eps[j] - log_std[i + j] - kHalfLogTwoPi;
      }
    }
  }
}

template <bool kSquashed>
void ContinuousHead::SampleGaussian(const ContinuousCall& call) const {
  for (int64_t r = 0; r < call.rows; ++r) {
    const float* outputs = call.outputs + r * call.output_stride;
    ActionWord* out = call.actions + r * call.action_stride + call.word;
    Pair normals;
    for (int64_t i = 0; i < call.words; ++i) {
      if (call.random != nullptr && i % 2 == 0) {
        const uint32_t* words = call.random + r * call.random_stride + i;
        normals = Normals(words[0], words[1]);
      }
      const float log_std = LogStdOf(call, outputs, i);
      out[i].f32 = outputs[i] + std::exp(log_std) * (i % 2 == 0 ? normals.first : normals.second);
      // Of the action as it is recorded, which rounding may have moved by more than a narrow deviation.
      call.logp[r] += GaussianLogp(out[i].f32, outputs[i], log_std);
      if (kSquashed) call.logp[r] -= LogSlopeOfTanh(out[i].f32);
    }
  }
}

void ContinuousHead::SampleBeta(const ContinuousCall& call) const {
  const base::PhiloxKey retry_key = base::PhiloxKey::Make(call.seed, base::RandomStream::kActionRetry);
  for (int64_t r = 0; r < call.rows; ++r) {
    const float* outputs = call.outputs + r * call.output_stride;
    const RowKey& key = call.keys[r];
    ActionWord* out = call.actions + r * call.action_stride + call.word;
    for (int64_t i = 0; i < call.words; ++i) {
      const double alpha = OnePlusSoftplus(outputs[i]);
      const double beta = OnePlusSoftplus(outputs[call.words + i]);
      double a = alpha;
      double b = beta;
      if (call.random != nullptr) {
        // x ~ Beta is the first gamma's share of both.
        const uint32_t* words = call.random + r * call.random_stride + i * 2 * kGammaWords;
        const auto place = static_cast<uint32_t>((key.env_step * call.action_stride + call.word + i) * 2);
        a = DrawGamma(alpha, words, retry_key, key, place);
        b = DrawGamma(beta, words + kGammaWords, retry_key, key, place + 1);
      }
      const auto action = static_cast<float>((a - b) / (a + b));
      out[i].f32 = std::clamp(action, -policy::kMaxBetaAction, policy::kMaxBetaAction);
      call.logp[r] += static_cast<float>(LogDensityOfBeta(out[i].f32, alpha, beta));
    }
  }
}

}  // namespace troupe::inference
