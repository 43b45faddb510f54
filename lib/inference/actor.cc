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
      continuous_(spec, seed),
      uint8_obs_(spec.observation_space.flat_dtype() == tensor::DType::kUint8),
      convolutions_(spec, kernels),
      network_(spec, kernels),
      observed_leaves_(spec, network_, kernels),
      output_stride_(network_.head().back().out_padded) {
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
}

absl::Status Actor::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": no weights"));
  if (weights == weights_) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(weights->Validate(spec_));
  weights_ = std::move(weights);
  convolutions_.Pack(weights_->actor);
  observed_leaves_.Pack(weights_->actor);
  network_.Pack(weights_->actor);
  continuous_.SetLogStd(weights_->actor.data() + log_std_offset_);
  return absl::OkStatus();
}

bool Actor::TakeOver(const policy::PolicySpec& spec) {
  // The shape decides everything that was made from the spec but its names.
  spec_ = spec;
  weights_ = nullptr;
  return true;
}

void Actor::EnsureRows(int64_t rows) {
  if (rows <= capacity_rows_) return;
  // Half again, so that a slowly growing batch does not allocate every time.
  capacity_rows_ = rows + rows / 2;
  const auto capacity = static_cast<size_t>(capacity_rows_);
  const size_t chunk_bytes = static_cast<size_t>(kMlpChunkRows * network_.widest_between()) * sizeof(float);
  for (tensor::Buffer& scratch : scratch_) scratch.EnsureCapacity(chunk_bytes);
  if (!network_.core().empty()) {
    for (tensor::Buffer& between : between_) between.EnsureCapacity(chunk_bytes);
    const CoreLayer& layer = network_.core()[0];
    const int64_t scratch_floats = kernels_->core_scratch ? 2 * kMlpChunkRows * layer.gates * layer.size : 0;
    core_scratch_.EnsureCapacity(static_cast<size_t>(scratch_floats) * sizeof(float));
  }
  if ((uint8_obs_ && convolutions_.empty()) || spec_.normalize_observations)
    input_.EnsureCapacity(capacity * static_cast<size_t>(obs_size_) * sizeof(float));
  output_.EnsureCapacity(capacity * static_cast<size_t>(output_stride_) * sizeof(float));
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

absl::Status Actor::CheckInput(const ActInput& input) const {
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" has no weights yet"));
  }
  if (!network_.core().empty() && (input.state_in == nullptr || input.state_out == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy \"", spec_.id.value(), "\": no ", input.state_in == nullptr ? "state_in" : "state_out", " for ",
        input.rows, " rows, expected ", spec_.actor_state_size(), " elements a row, which its core remembers"));
  }
  for (int64_t r = 0; spec_.agent_id_size > 0 && r < input.rows; ++r) {
    const int32_t slot = input.keys[r].slot.value();
    if (slot >= 0 && slot < spec_.agent_id_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": row ", r, " is of agent slot ",
                                                   slot, ", expected 0 to ", spec_.agent_id_size - 1));
  }
  return absl::OkStatus();
}

absl::Status Actor::RunNetwork(const ActInput& input) {
  TROUPE_RETURN_IF_ERROR(CheckInput(input));
  EnsureRows(input.rows);
  MlpCall call;
  call.layers = network_.head().data();
  call.num_layers = static_cast<int64_t>(network_.head().size());
  call.activation = static_cast<int>(spec_.actor.activation);
  const bool images_of_bytes = uint8_obs_ && !convolutions_.empty();
  if (!images_of_bytes) call.input = PrepareInput(input);
  call.input_stride = obs_size_;
  call.rows = input.rows;
  if (spec_.agent_id_size > 0) {
    call.bias_row = &input.keys[0].slot.value();
    call.bias_row_stride = sizeof(RowKey) / sizeof(int32_t);
  }
  call.scratch[0] = Floats(scratch_[0]);
  call.scratch[1] = Floats(scratch_[1]);
  call.output = Floats(output_);
  if (network_.core().empty() && convolutions_.empty() && observed_leaves_.empty()) {
    RunLayers(call);
  } else {
    RunChunks(input, call);
  }
  return absl::OkStatus();
}

void Actor::RunChunks(const ActInput& input, const MlpCall& whole) {
  const absl::Span<const DenseLayer> encoder = network_.encoder();
  const int64_t state_size = spec_.actor_state_size();
  for (int64_t first = 0; first < input.rows; first += kMlpChunkRows) {
    // What the next layer reads: at first the inputs, and whose they are.
    MlpCall call = whole;
    call.rows = std::min(kMlpChunkRows, input.rows - first);
    if (!observed_leaves_.empty()) {
      call.input = observed_leaves_.Run(whole.input + first * whole.input_stride, call.rows);
      call.input_stride = observed_leaves_.output_stride();
    } else if (convolutions_.empty()) {
      call.input = whole.input + first * whole.input_stride;
    } else {
      const bool bytes = whole.input == nullptr;
      const void* const images =
          bytes ? static_cast<const void*>(static_cast<const uint8_t*>(input.obs) + first * obs_size_)
                : whole.input + first * obs_size_;
      call.input = convolutions_.Run(images, bytes, call.rows);
      call.input_stride = convolutions_.output_stride();
    }
    if (whole.bias_row != nullptr) call.bias_row = whole.bias_row + first * whole.bias_row_stride;
    const auto take = [&call](const float* output, int64_t stride) {
      call.input = output;
      call.input_stride = stride;
      call.bias_row = nullptr;
    };
    size_t next = 0;  // of between_
    if (!encoder.empty()) {
      call.layers = encoder.data();
      call.num_layers = static_cast<int64_t>(encoder.size());
      call.activate_last = true;
      call.output = Floats(between_[next]);
      RunLayers(call);
      take(Floats(between_[next]), encoder.back().out_padded);
      next = 1 - next;
    }
    CoreCall core;
    core.rows = call.rows;
    core.state_in = input.state_in + first * state_size;
    core.state_out = input.state_out + first * state_size;
    core.state_stride = state_size;
    core.scratch = Floats(core_scratch_);
    for (const CoreLayer& layer : network_.core()) {
      core.layer = &layer;
      core.input = call.input;
      core.input_stride = call.input_stride;
      core.bias_row = call.bias_row;
      core.bias_row_stride = call.bias_row_stride;
      core.output = Floats(between_[next]);
      kernels_->core(core);
      take(Floats(between_[next]), layer.size_padded);
      next = 1 - next;
      const int64_t of_layer = state_size / static_cast<int64_t>(network_.core().size());
      core.state_in += of_layer;
      core.state_out += of_layer;
    }
    call.layers = whole.layers;
    call.num_layers = whole.num_layers;
    call.activate_last = false;
    call.output = whole.output + first * output_stride_;
    RunLayers(call);
  }
}

absl::Status Actor::Forward(const ActInput& input, absl::Span<float> output) {
  if (static_cast<int64_t>(output.size()) != input.rows * output_size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("output has ", output.size(), " elements, expected ", input.rows * output_size_));
  }
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(RunNetwork(input));
  for (int64_t r = 0; r < input.rows; ++r) {
    const float* row = Floats(output_) + r * output_stride_;
    std::copy(row, row + output_size_, output.begin() + r * output_size_);
  }
  return absl::OkStatus();
}

absl::Status Actor::Act(const ActInput& input, space::ActionWord* actions, float* logp) {
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckHasMask(spec_, input));
  TROUPE_RETURN_IF_ERROR(RunNetwork(input));
  const int64_t stride = output_stride_;
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
  if (!network_.core().empty() && !AllFinite(input.state_out, input.rows * spec_.actor_state_size())) {
    return absl::InternalError(absl::StrCat("policy \"", spec_.id.value(),
                                            "\": what its core remembers is not finite, weights version ",
                                            weights_->version.n));
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
      SampleContinuous(leaf, input, actions, logp);
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

void Actor::SampleContinuous(const Leaf& leaf, const ActInput& input, space::ActionWord* actions, float* logp) const {
  ContinuousCall call;
  call.rows = input.rows;
  call.words = leaf.space.words;
  call.word = leaf.space.word;
  call.outputs = reinterpret_cast<const float*>(output_.data()) + leaf.output;
  call.output_stride = output_stride_;
  call.log_std = leaf.log_std;
  if (!input.deterministic) {
    call.random = reinterpret_cast<const uint32_t*>(random_.data()) + leaf.random;
    call.random_stride = random_blocks_ * 4;
  }
  call.keys = input.keys;
  call.actions = actions;
  call.action_stride = action_words_;
  call.logp = logp;
  continuous_.Sample(call);
}

}  // namespace troupe::inference
