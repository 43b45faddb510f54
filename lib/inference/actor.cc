#include "lib/inference/actor.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"

namespace troupe::inference {
namespace {

float* Floats(tensor::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

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
  if (spec.actor.encoder == policy::EncoderKind::kTorchScript) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": the actor is ",
                                                   policy::ModuleText(spec.actor.module), ", expected no module"));
  }
  TROUPE_ASSIGN_OR_RETURN(const KernelTable* kernels, FindKernels(backend));
  return std::unique_ptr<Actor>(new Actor(spec, seed, kernels));
}

Actor::Actor(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels)
    : spec_(spec),
      kernels_(kernels),
      acting_size_(policy::ParameterLayout::For(spec).acting_size()),
      obs_size_(spec.observation_size()),
      output_size_(spec.actor_output_size()),
      sampler_(spec, seed, kernels),
      observations_(spec),
      uint8_obs_(spec.observation_space.flat_dtype() == tensor::DType::kUint8),
      convolutions_(spec, kernels),
      network_(spec, kernels),
      observed_leaves_(spec, network_, kernels),
      output_stride_(network_.head().back().out_padded) {}

absl::Status Actor::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": no weights"));
  if (weights == weights_) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(weights->Validate(spec_, acting_size_));
  weights_ = std::move(weights);
  convolutions_.Pack(weights_->actor);
  observed_leaves_.Pack(weights_->actor);
  network_.Pack(weights_->actor);
  sampler_.SetWeights(*weights_);
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
  if (convolutions_.empty() || spec_.normalize_observations) observations_.EnsureCapacity(capacity_rows_);
  output_.EnsureCapacity(capacity * static_cast<size_t>(output_stride_) * sizeof(float));
  sampler_.EnsureCapacity(capacity_rows_);
}

absl::Status Actor::CheckInput(const ActInput& input) const {
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" has no weights yet"));
  }
  TROUPE_RETURN_IF_ERROR(CheckHasState(spec_, input));
  return CheckSlots(spec_, input);
}

absl::Status Actor::RunNetwork(const ActInput& input) {
  TROUPE_RETURN_IF_ERROR(CheckInput(input));
  EnsureRows(input.rows);
  MlpCall call;
  call.layers = network_.head().data();
  call.num_layers = static_cast<int64_t>(network_.head().size());
  call.activation = static_cast<int>(spec_.actor.activation);
  const bool images_of_bytes = uint8_obs_ && !convolutions_.empty();
  if (!images_of_bytes) call.input = observations_.Prepare(input, *weights_);
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
  if (!base::AllFinite({output, static_cast<size_t>(input.rows * stride)})) {
    return OutputNotFinite(spec_, *weights_);
  }
  if (!network_.core().empty() &&
      !base::AllFinite({input.state_out, static_cast<size_t>(input.rows * spec_.actor_state_size())})) {
    return StateNotFinite(spec_, *weights_);
  }
  return sampler_.Sample(spec_, input, output, stride, actions, logp);
}

}  // namespace troupe::inference
