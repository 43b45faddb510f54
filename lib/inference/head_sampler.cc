#include "lib/inference/head_sampler.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/philox.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {

absl::Status OutputNotFinite(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights) {
  return absl::InternalError(absl::StrCat("policy \"", spec.id.value(),
                                          "\": the actor's output is not finite, weights version ", weights.version.n));
}

absl::Status StateNotFinite(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights) {
  return absl::InternalError(absl::StrCat("policy \"", spec.id.value(),
                                          "\": what it remembers is not finite, weights version ", weights.version.n));
}

HeadSampler::HeadSampler(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels)
    : kernels_(kernels),
      seed_(seed),
      action_words_(spec.action_words()),
      mask_size_(spec.mask_size()),
      takes_largest_(spec.actor.action_values),
      continuous_(spec) {
  // The last layer's columns: the logits of all discrete leaves, then the numbers of the continuous ones.
  int64_t output = 0;
  int64_t random = 0;
  int64_t log_std = 0;
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(spec.action_space);
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kCategorical) continue;
    leaves_.push_back({leaf, output, 0, random});
    output += leaf.categories;
    random += 1;
  }
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    leaves_.push_back({leaf, output, log_std, random});
    output += spec.OutputsOf(leaf);
    log_std += leaf.words;
    random += continuous_.RandomWords(leaf.words);
  }
  random_blocks_ = (random + 3) / 4;

  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const policy::ParameterEntry* log_std_entry = layout.Find("actor.log_std");
  TROUPE_CHECK((log_std_entry != nullptr) == (spec.log_std_size() > 0));
  if (log_std_entry != nullptr) log_std_offset_ = log_std_entry->offset;
  weights_of_row_.EnsureCapacity(static_cast<size_t>(spec.actor_output_size() + kernels_->lanes) * sizeof(float));
}

void HeadSampler::SetWeights(const policy::WeightSnapshot& weights) {
  const auto of = [&weights](const char* name) {
    const auto found = weights.exploration.find(name);
    return found == weights.exploration.end() ? std::nullopt : std::optional<double>(found->second);
  };
  epsilon_ = of(policy::WeightSnapshot::kEpsilon);
  if (takes_largest_ && !epsilon_) epsilon_ = 0;
  const std::optional<double> noise = of(policy::WeightSnapshot::kNoise);
  has_noise_ = noise.has_value();
  if (has_noise_) {
    continuous_.SetStd(static_cast<float>(*noise));
  } else {
    continuous_.SetLogStd(weights.actor.data() + log_std_offset_);
  }
}

void HeadSampler::EnsureCapacity(int64_t rows) {
  random_.EnsureCapacity(static_cast<size_t>(rows) * static_cast<size_t>(std::max<int64_t>(1, random_blocks_)) * 16);
  greedy_logp_.EnsureCapacity(static_cast<size_t>(rows) * sizeof(float));
}

absl::Status HeadSampler::Sample(const policy::PolicySpec& spec, const ActInput& input, const float* output,
                                 int64_t stride, space::ActionWord* actions, float* logp) {
  if (input.outputs != nullptr) {
    const int64_t size = spec.actor_output_size();
    for (int64_t r = 0; r < input.rows; ++r) std::copy_n(output + r * stride, size, input.outputs + r * size);
  }
  auto* random = reinterpret_cast<uint32_t*>(random_.data());
  if (!input.deterministic) {
    const base::PhiloxKey key = base::PhiloxKey::Make(SeedOf(input), base::RandomStream::kAction);
    kernels_->philox(
        {key.k0, key.k1, reinterpret_cast<const uint32_t*>(input.keys), input.rows, random_blocks_, random});
  }
  std::fill(logp, logp + input.rows, 0.0f);
  for (const Leaf& leaf : leaves_) {
    if (leaf.space.kind == space::ActionLeaf::Kind::kContinuous) {
      SampleContinuous(leaf, input, output, stride, actions, logp);
      continue;
    }
    CategoricalCall call;
    call.logits = output + leaf.output;
    call.logits_stride = stride;
    call.rows = input.rows;
    call.categories = leaf.space.categories;
    if (mask_size_ > 0) {
      call.mask = input.action_mask + leaf.space.mask_offset;
      call.mask_stride = mask_size_;
    }
    if (!input.deterministic && !epsilon_) {
      call.random = random + leaf.random;
      call.random_stride = random_blocks_ * 4;
    }
    call.start = static_cast<int32_t>(leaf.space.start);
    call.action = &actions[leaf.space.word].i32;
    call.action_stride = action_words_;
    call.logp = epsilon_ ? reinterpret_cast<float*>(greedy_logp_.data()) : logp;
    call.scratch = reinterpret_cast<float*>(weights_of_row_.data());
    const int64_t bad_row = kernels_->categorical(call);
    if (bad_row >= 0) return EverythingForbidden(spec, input.keys[bad_row]);
    if (epsilon_ && input.explores && !input.deterministic) ExploreEvenly(call, random + leaf.random, logp);
  }
  return absl::OkStatus();
}

void HeadSampler::ExploreEvenly(const CategoricalCall& mode, const uint32_t* random, float* logp) const {
  for (int64_t row = 0; row < mode.rows; ++row) {
    const uint8_t* const mask = mode.mask == nullptr ? nullptr : mode.mask + row * mode.mask_stride;
    int64_t allowed = mode.categories;
    if (mask != nullptr) allowed = mode.categories - std::count(mask, mask + mode.categories, uint8_t{0});
    // One word says whether it explores, and below epsilon what: it is even there, too.
    const double drawn = random[row * random_blocks_ * 4] * 0x1p-32;
    int32_t& action = mode.action[row * mode.action_stride];
    const int32_t greedy = action;
    if (drawn < *epsilon_) {
      auto left = std::min(allowed - 1, static_cast<int64_t>(drawn / *epsilon_ * static_cast<double>(allowed)));
      int64_t category = 0;
      while (true) {
        if (mask == nullptr || mask[category] != 0) {
          if (left == 0) break;
          --left;
        }
        ++category;
      }
      action = mode.start + static_cast<int32_t>(category);
    }
    const double even = *epsilon_ / static_cast<double>(allowed);
    logp[row] += static_cast<float>(std::log(action == greedy ? 1 - *epsilon_ + even : even));
  }
}

void HeadSampler::SampleContinuous(const Leaf& leaf, const ActInput& input, const float* output, int64_t stride,
                                   space::ActionWord* actions, float* logp) const {
  ContinuousCall call;
  call.rows = input.rows;
  call.words = leaf.space.words;
  call.word = leaf.space.word;
  call.outputs = output + leaf.output;
  call.output_stride = stride;
  call.log_std = leaf.log_std;
  if (!input.deterministic && (!has_noise_ || input.explores)) {
    call.random = reinterpret_cast<const uint32_t*>(random_.data()) + leaf.random;
    call.random_stride = random_blocks_ * 4;
  }
  call.keys = input.keys;
  call.seed = SeedOf(input);
  call.actions = actions;
  call.action_stride = action_words_;
  call.logp = logp;
  continuous_.Sample(call);
}

}  // namespace troupe::inference
