#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/action_distribution.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/space.h"

namespace troupe::inference {

// Log-densities of one element of an action, in nats, of the number that is recorded. They hold in the tails.

/// Of the normal distribution at `action`.
float GaussianLogp(float action, float mean, float log_std);
/// log(1 - tanh(action)^2): what the log-density of tanh(action) has less than that of `action`.
float LogSlopeOfTanh(float action);
/// Of 2 x - 1 at `action`, in [-policy::kMaxBetaAction, policy::kMaxBetaAction], where x ~ Beta(alpha, beta) and each
/// of the two is 1 + softplus(min(output, policy::kMaxBetaOutput)).
float BetaLogp(float action, float alpha_output, float beta_output);

/// Rows of one continuous leaf to act for; memory belongs to the caller.
struct ContinuousCall {
  int64_t rows = 0;
  int64_t words = 0;  ///< of the leaf
  int64_t word = 0;   ///< the leaf's first of the action row
  /// [rows, PolicySpec::OutputsOf the leaf], rows output_stride apart.
  const float* outputs = nullptr;
  int64_t output_stride = 0;
  int64_t log_std = 0;  ///< the leaf's first element of actor.log_std
  /// [rows, ContinuousHead::RandomWords], rows random_stride apart; nullptr: take the mode, of a Beta the mean.
  const uint32_t* random = nullptr;
  int64_t random_stride = 0;
  const RowKey* keys = nullptr;          ///< [rows]
  uint64_t seed = 0;                     ///< for draws that a sampler makes beyond its random words
  space::ActionWord* actions = nullptr;  ///< the rows' first words, action_stride apart
  int64_t action_stride = 0;
  float* logp = nullptr;  ///< [rows], added to
};

/// Draws continuous actions as a policy's distribution says (policy::ContinuousDistribution), the same for every back
/// end of kernels. Made and used by its Actor; not thread-safe; allocates in SetLogStd alone, the first time.
class ContinuousHead {
 public:
  explicit ContinuousHead(const policy::PolicySpec& spec);

  /// Random words of a row that a leaf of `words` elements needs.
  int64_t RandomWords(int64_t words) const;
  /// The values of actor.log_std, [log_std_size]; nothing is read where that is 0.
  void SetLogStd(const float* log_std);
  /// The standard deviation of all elements of a free Gaussian, whatever actor.log_std says.
  void SetStd(float std);
  void Sample(const ContinuousCall& call) const;

 private:
  void SampleFreeGaussian(const ContinuousCall& call) const;
  template <bool kSquashed>
  void SampleGaussian(const ContinuousCall& call) const;
  void SampleBeta(const ContinuousCall& call) const;
  /// Log standard deviation of a row's element. `outputs`: the row's of the leaf.
  float LogStdOf(const ContinuousCall& call, const float* outputs, int64_t element) const;

  const policy::ContinuousDistribution distribution_;
  const bool is_free_;
  const float min_log_std_;
  const float max_log_std_;
  std::vector<float> log_std_;  // within its bounds
  std::vector<float> std_;
};

}  // namespace troupe::inference
