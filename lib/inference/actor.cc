#include "lib/inference/actor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"

namespace troupe::inference {
namespace {

constexpr float kObservationClip = 10.0f;
constexpr int64_t kCacheLineFloats = 16;

float* Floats(tensor::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

bool AllFinite(const float* values, int64_t count) {
  uint32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof(bits));
    any |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
  }
  return any == 0;
}

}  // namespace

absl::StatusOr<const KernelTable*> FindKernels(Backend backend) {
  if (backend == Backend::kEigen) return &PortableKernels();
#ifdef TROUPE_KERNEL_X86_64_V4
  if (backend == Backend::kAvx512 || backend == Backend::kAuto) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
      return &kAvx512Kernels;
    }
  }
#endif
#ifdef TROUPE_KERNEL_X86_64_V3
  if (backend == Backend::kAvx2 || backend == Backend::kAuto) {
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2")) {
      return &kAvx2Kernels;
    }
  }
#endif
  if (backend == Backend::kAuto) return &PortableKernels();
  return absl::UnimplementedError(
      absl::StrCat("this build or processor has no kernels for back end ", static_cast<int>(backend)));
}

absl::StatusOr<std::unique_ptr<Actor>> Actor::Create(const policy::PolicySpec& spec, uint64_t seed, Backend backend) {
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  if (!spec.policy_class.has_weights()) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" is of class ",
                                                   spec.policy_class.ToString(), ", expected one with weights"));
  }
  TROUPE_RETURN_IF_ERROR(policy::CheckIsMlp("the actor", spec.actor));
  TROUPE_ASSIGN_OR_RETURN(const KernelTable* kernels, FindKernels(backend));
  return std::unique_ptr<Actor>(new Actor(spec, seed, kernels));
}

Actor::Actor(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels)
    : spec_(spec),
      kernels_(kernels),
      seed_(seed),
      obs_size_(spec.observation_size()),
      action_words_(spec.action_words()),
      mask_size_(spec.mask_size()),
      output_size_(spec.actor_output_size()),
      uint8_obs_(spec.observation_space.flat_dtype() == tensor::DType::kUint8) {
  // The last layer's columns: the logits of all discrete leaves, then the means of the continuous ones.
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
    output += leaf.words;
    log_std += leaf.words;
    random += (leaf.words + 1) / 2 * 2;  // Box and Muller's normals come in pairs, a word each
  }
  random_blocks_ = (random + 3) / 4;
  std_.resize(static_cast<size_t>(log_std));

  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const size_t num_layers = spec.actor.hidden_sizes.size() + 1;
  layers_.resize(num_layers);
  int64_t packed_floats = 0;
  for (size_t l = 0; l < num_layers; ++l) {
    const policy::ParameterEntry* weight = layout.Find(absl::StrCat("actor.", l, ".weight"));
    const policy::ParameterEntry* bias = layout.Find(absl::StrCat("actor.", l, ".bias"));
    TROUPE_CHECK(weight != nullptr && bias != nullptr && weight->shape.size() == 2);
    weight_offset_.push_back(weight->offset);
    bias_offset_.push_back(bias->offset);
    DenseLayer& layer = layers_[l];
    layer.raw_stride = weight->shape[1];
    layer.out = weight->shape[0];
    layer.in = l == 0 ? obs_size_ : weight->shape[1];  // the one-hot's columns become bias rows
    layer.out_padded = (layer.out + kernels_->lanes - 1) / kernels_->lanes * kernels_->lanes;
    const int64_t bias_rows = l == 0 ? std::max<int64_t>(1, spec.agent_id_size) : 1;
    const auto reserve = [&](int64_t rows) {
      const int64_t place = packed_floats;
      packed_floats += (rows * layer.out_padded + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
      return place;
    };
    bias_place_.push_back(reserve(bias_rows));
    weight_place_.push_back(reserve(layer.in));
  }
  packed_.EnsureCapacity(static_cast<size_t>(packed_floats) * sizeof(float));
  for (size_t l = 0; l < num_layers; ++l) {
    layers_[l].bias = Floats(packed_) + bias_place_[l];
    layers_[l].packed = Floats(packed_) + weight_place_[l];
  }
  const policy::ParameterEntry* log_std_entry = layout.Find("actor.log_std");
  TROUPE_CHECK((log_std_entry != nullptr) == (log_std > 0));
  if (log_std_entry != nullptr) log_std_offset_ = log_std_entry->offset;
}

absl::Status Actor::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": no weights"));
  if (weights == weights_) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(weights->Validate(spec_));
  weights_ = std::move(weights);
  for (size_t l = 0; l < layers_.size(); ++l) PackLayer(l);
  for (size_t i = 0; i < std_.size(); ++i)
    std_[i] = std::exp(weights_->actor[static_cast<size_t>(log_std_offset_) + i]);
  return absl::OkStatus();
}

bool Actor::TakeOver(const policy::PolicySpec& spec) {
  // The shape decides everything that was made from the spec but its names.
  spec_ = spec;
  weights_ = nullptr;
  return true;
}

void Actor::PackLayer(size_t index) {
  DenseLayer& layer = layers_[index];
  const float* raw = weights_->actor.data() + weight_offset_[index];
  const float* raw_bias = weights_->actor.data() + bias_offset_[index];
  layer.raw = raw;
  float* packed = Floats(packed_) + weight_place_[index];
  const int64_t panel = kernels_->panel_vectors * kernels_->lanes;
  for (int64_t column = 0; column < layer.out_padded;) {
    const int64_t width = layer.out_padded - column >= panel ? panel : kernels_->lanes;
    for (int64_t k = 0; k < layer.in; ++k) {
      for (int64_t o = column; o < column + width; ++o)
        *packed++ = o < layer.out ? raw[o * layer.raw_stride + k] : 0.0f;
    }
    column += width;
  }
  const int64_t one_hot = index == 0 ? spec_.agent_id_size : 0;
  float* bias = Floats(packed_) + bias_place_[index];
  for (int64_t row = 0; row < std::max<int64_t>(1, one_hot); ++row) {
    for (int64_t o = 0; o < layer.out_padded; ++o) {
      float value = o < layer.out ? raw_bias[o] : 0.0f;
      if (one_hot > 0 && o < layer.out) value += raw[o * layer.raw_stride + layer.in + row];
      *bias++ = value;
    }
  }
}

void Actor::EnsureRows(int64_t rows) {
  if (rows <= capacity_rows_) return;
  // Half again, so that a slowly growing batch does not allocate every time.
  capacity_rows_ = rows + rows / 2;
  const auto capacity = static_cast<size_t>(capacity_rows_);
  int64_t widest = kernels_->lanes;
  for (const DenseLayer& layer : layers_) widest = std::max(widest, layer.out_padded);
  for (tensor::Buffer& scratch : scratch_)
    scratch.EnsureCapacity(static_cast<size_t>(kMlpChunkRows * widest) * sizeof(float));
  if (uint8_obs_ || spec_.normalize_observations)
    input_.EnsureCapacity(capacity * static_cast<size_t>(obs_size_) * sizeof(float));
  output_.EnsureCapacity(capacity * static_cast<size_t>(layers_.back().out_padded) * sizeof(float));
  random_.EnsureCapacity(capacity * static_cast<size_t>(std::max<int64_t>(1, random_blocks_)) * 16);
  weights_of_row_.EnsureCapacity(static_cast<size_t>(output_size_ + kernels_->lanes) * sizeof(float));
}

const float* Actor::PrepareInput(const ActInput& input) {
  if (!uint8_obs_ && !spec_.normalize_observations) return static_cast<const float*>(input.obs);
  float* out = Floats(input_);
  const int64_t count = input.rows * obs_size_;
  if (uint8_obs_) {
    const auto* bytes = static_cast<const uint8_t*>(input.obs);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(bytes[i]) * (1.0f / 255.0f);
  }
  if (!spec_.normalize_observations) return out;
  const float* mean = weights_->observation_mean.data();
  const float* inverse_std = weights_->observation_inverse_std.data();
  const float* in = uint8_obs_ ? out : static_cast<const float*>(input.obs);
  for (int64_t r = 0; r < input.rows; ++r) {
    for (int64_t i = 0; i < obs_size_; ++i) {
      const float z = (in[r * obs_size_ + i] - mean[i]) * inverse_std[i];
      out[r * obs_size_ + i] = std::min(std::max(z, -kObservationClip), kObservationClip);
    }
  }
  return out;
}

absl::Status Actor::RunMlp(const ActInput& input) {
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" has no weights yet"));
  }
  for (int64_t r = 0; spec_.agent_id_size > 0 && r < input.rows; ++r) {
    const int32_t slot = input.keys[r].slot.value();
    if (slot >= 0 && slot < spec_.agent_id_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": row ", r, " is of agent slot ",
                                                   slot, ", expected 0 to ", spec_.agent_id_size - 1));
  }
  EnsureRows(input.rows);
  MlpCall call;
  call.layers = layers_.data();
  call.num_layers = static_cast<int64_t>(layers_.size());
  call.activation = static_cast<int>(spec_.actor.activation);
  call.input = PrepareInput(input);
  call.input_stride = obs_size_;
  call.rows = input.rows;
  if (spec_.agent_id_size > 0) {
    call.bias_row = &input.keys[0].slot.value();
    call.bias_row_stride = sizeof(RowKey) / sizeof(int32_t);
  }
  call.scratch[0] = Floats(scratch_[0]);
  call.scratch[1] = Floats(scratch_[1]);
  call.output = Floats(output_);
  kernels_->mlp(call);
  return absl::OkStatus();
}

absl::Status Actor::Forward(const ActInput& input, absl::Span<float> output) {
  if (static_cast<int64_t>(output.size()) != input.rows * output_size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("output has ", output.size(), " elements, expected ", input.rows * output_size_));
  }
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(RunMlp(input));
  for (int64_t r = 0; r < input.rows; ++r) {
    const float* row = Floats(output_) + r * layers_.back().out_padded;
    std::copy(row, row + output_size_, output.begin() + r * output_size_);
  }
  return absl::OkStatus();
}

absl::Status Actor::Act(const ActInput& input, space::ActionWord* actions, float* logp) {
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckHasMask(spec_, input));
  TROUPE_RETURN_IF_ERROR(RunMlp(input));
  const int64_t stride = layers_.back().out_padded;
  const float* output = Floats(output_);
  if (kernels_ == &PortableKernels()) {
    // Eigen leaves the padding as it was.
    for (int64_t r = 0; r < input.rows; ++r) {
      std::fill(Floats(output_) + r * stride + output_size_, Floats(output_) + (r + 1) * stride, 0.0f);
    }
  }
  if (!AllFinite(output, input.rows * stride)) {
    return absl::InternalError(absl::StrCat(
        "policy \"", spec_.id.value(), "\": the actor's output is not finite, weights version ", weights_->version.n));
  }
  auto* random = reinterpret_cast<uint32_t*>(random_.data());
  if (!input.deterministic) {
    const base::PhiloxKey key = base::PhiloxKey::Make(seed_, base::RandomStream::kAction);
    kernels_->philox(
        {key.k0, key.k1, reinterpret_cast<const uint32_t*>(input.keys), input.rows, random_blocks_, random});
  }
  std::fill(logp, logp + input.rows, 0.0f);
  for (const Leaf& leaf : leaves_) {
    if (leaf.space.kind == space::ActionLeaf::Kind::kContinuous) {
      SampleGaussian(leaf, input, actions, logp);
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
    if (!input.deterministic) {
      call.random = random + leaf.random;
      call.random_stride = random_blocks_ * 4;
    }
    call.start = static_cast<int32_t>(leaf.space.start);
    call.action = &actions[leaf.space.word].i32;
    call.action_stride = action_words_;
    call.logp = logp;
    call.scratch = Floats(weights_of_row_);
    const int64_t bad_row = kernels_->categorical(call);
    if (bad_row >= 0) return EverythingForbidden(spec_, input.keys[bad_row]);
  }
  return absl::OkStatus();
}

void Actor::SampleGaussian(const Leaf& leaf, const ActInput& input, space::ActionWord* actions, float* logp) const {
  constexpr float kHalfLogTwoPi = 0.91893853f;
  const int64_t stride = layers_.back().out_padded;
  const auto* means = reinterpret_cast<const float*>(output_.data()) + leaf.output;
  const float* std = std_.data() + leaf.log_std;
  const float* log_std = weights_->actor.data() + log_std_offset_ + leaf.log_std;
  const auto* random = reinterpret_cast<const uint32_t*>(random_.data()) + leaf.random;
  for (int64_t r = 0; r < input.rows; ++r) {
    const float* mean = means + r * stride;
    const uint32_t* words = random + r * random_blocks_ * 4;
    space::ActionWord* out = actions + r * action_words_ + leaf.space.word;
    for (int64_t i = 0; i < leaf.space.words; i += 2) {
      float eps[2] = {0, 0};
      if (!input.deterministic) {
        // Box and Muller, "A note on the generation of random normal deviates" (1958).
        const float radius = std::sqrt(-2.0f * std::log(base::ToOpenUniformFloat(words[i])));
        const float angle = 6.2831853f * base::ToUniformFloat(words[i + 1]);
        eps[0] = radius * std::cos(angle);
        eps[1] = radius * std::sin(angle);
      }
      for (int64_t j = 0; j < 2 && i + j < leaf.space.words; ++j) {
        out[i + j].f32 = mean[i + j] + std[i + j] * eps[j];
        logp[r] += -0.5f * eps[j] * eps[j] - log_std[i + j] - kHalfLogTwoPi;
      }
    }
  }
}

}  // namespace troupe::inference
