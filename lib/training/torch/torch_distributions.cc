#include "lib/training/torch/torch_distributions.h"

#include <cmath>

namespace troupe::training {
namespace {

using policy::ContinuousDistribution;
using torch::Tensor;

const double kHalfLog2Pi = 0.5 * std::log(2.0 * M_PI);

void AddCategorical(const CategoricalPart& part, const Tensor& output, const Tensor& actions, const Tensor& mask,
                    ActionTerms* terms) {
  Tensor logits = output.narrow(1, part.output, part.categories);
  if (mask.defined()) {
    const Tensor forbidden = mask.narrow(1, part.mask_offset, part.categories).eq(0);
    logits = logits.masked_fill(forbidden, kMaskedLogit);  // torch::where would copy the number to the device and wait
  }
  const Tensor all = torch::log_softmax(logits, 1);
  const Tensor category = (actions.narrow(1, part.word, 1) - part.start).to(torch::kInt64);
  terms->logp = terms->logp + all.gather(1, category).squeeze(1);
  terms->entropy = terms->entropy - (all.exp() * all).sum(1);
}

/// log(1 - tanh(x)^2) without cancellation: 2 (log 2 - |x| - log(1 + exp(-2 |x|))).
Tensor LogSlopeOfTanh(const Tensor& x) {
  const Tensor size = x.abs();
  return 2.0 * (std::log(2.0) - size - torch::softplus(-2.0 * size));
}

/// Adds what tanh makes of a Gaussian: log pi(tanh x) = log N(x) - log(1 - tanh(x)^2). Its entropy is the Gaussian's
/// and the mean of that Jacobian, for which there is no closed form. The Gaussian's alone would reward deviations
/// however much of them tanh presses against its bounds, where the squashed entropy falls. So the Jacobian is taken at
/// the row's action, x = mean + deviation z with the row's z held: an estimate without bias of value and gradient (the
/// gradient through the sample, Kingma & Welling 2014) where the policy is the one that acted.
void Squash(const Tensor& action, const Tensor& mean, const Tensor& log_std, const Tensor& z, ActionTerms* terms) {
  terms->logp = terms->logp - LogSlopeOfTanh(action).sum(1);
  const Tensor moved = mean + log_std.exp() * z.detach();
  // Its value is the action's, without what rounding takes of the sum.
  terms->entropy = terms->entropy + LogSlopeOfTanh(action + (moved - moved.detach())).sum(1);
}

/// A part of Gaussians, squashed or not. `log_std` is [words], or [n, words].
void AddGaussian(const Tensor& mean, const Tensor& log_std, const Tensor& action, bool squashed, ActionTerms* terms) {
  const Tensor z = (action - mean) * (-log_std).exp();
  terms->logp = terms->logp + (-0.5 * z.square() - log_std - kHalfLog2Pi).sum(1);
  const Tensor entropies = log_std + (0.5 + kHalfLog2Pi);
  terms->entropy = terms->entropy + (log_std.dim() == 1 ? entropies.sum() : entropies.sum(1));
  if (squashed) Squash(action, mean, log_std, z, terms);
}

/// 2 x - 1 of x ~ Beta(alpha, beta), in double precision: the log-probability is a difference of large numbers where
/// alpha and beta are.
void AddBeta(const Tensor& outputs, int64_t words, const Tensor& action, ActionTerms* terms) {
  const Tensor both = 1.0 + torch::softplus(outputs.to(torch::kFloat64).clamp_max(policy::kMaxBetaOutput));
  const Tensor alpha = both.narrow(1, 0, words);
  const Tensor beta = both.narrow(1, words, words);
  const Tensor total = alpha + beta;
  const Tensor y = action.to(torch::kFloat64);
  const Tensor log_beta = torch::lgamma(alpha) + torch::lgamma(beta) - torch::lgamma(total);
  const Tensor logp = (alpha - 1.0) * (0.5 + 0.5 * y).log() + (beta - 1.0) * (0.5 - 0.5 * y).log() - log_beta;
  const Tensor entropy = log_beta - (alpha - 1.0) * torch::digamma(alpha) - (beta - 1.0) * torch::digamma(beta) +
                         (total - 2.0) * torch::digamma(total);
  const double stretch = std::log(2.0);  // of [0, 1] to [-1, 1]
  terms->logp = terms->logp + (logp - stretch).sum(1).to(torch::kFloat32);
  terms->entropy = terms->entropy + (entropy + stretch).sum(1).to(torch::kFloat32);
}

}  // namespace

ActionTerms TermsOf(const ActionHead& head, const Tensor& output, const Tensor& log_std, const Tensor& actions,
                    const Tensor& mask) {
  ActionTerms terms;
  terms.logp = torch::zeros({output.size(0)}, output.options().requires_grad(false));
  terms.entropy = torch::zeros_like(terms.logp);
  for (const CategoricalPart& part : head.categorical) AddCategorical(part, output, actions, mask, &terms);
  const bool squashed = head.distribution == ContinuousDistribution::kSquashedGaussian;
  for (const ContinuousPart& part : head.continuous) {
    const Tensor action = actions.narrow(1, part.word, part.words).contiguous().view(torch::kFloat32);
    if (head.distribution == ContinuousDistribution::kBeta) {
      AddBeta(output.narrow(1, part.output, 2 * part.words), part.words, action, &terms);
      continue;
    }
    const Tensor said = part.log_std >= 0 ? log_std.narrow(0, part.log_std, part.words)
                                          : output.narrow(1, part.output + part.words, part.words);
    AddGaussian(output.narrow(1, part.output, part.words), said.clamp(head.min_log_std, head.max_log_std), action,
                squashed, &terms);
  }
  return terms;
}

}  // namespace troupe::training
