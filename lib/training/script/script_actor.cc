#include "lib/training/script/script_actor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/status_macros.h"
#include "lib/inference/actor.h"
#include "lib/training/script/script_modules.h"
#include "lib/training/torch/torch_status.h"

namespace troupe::training {
namespace {

constexpr int64_t kRowFloats = 16;  // a multiple of every table's lanes

}  // namespace

absl::StatusOr<std::unique_ptr<inference::PolicyActor>> ScriptActor::Create(const policy::PolicySpec& spec,
                                                                            uint64_t seed) {
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ScriptNetwork> script, LoadScript(spec, spec.actor, Device{}));
  TROUPE_ASSIGN_OR_RETURN(const inference::KernelTable* kernels, inference::FindKernels(inference::Backend::kAuto));
  return std::unique_ptr<inference::PolicyActor>(new ScriptActor(spec, seed, kernels, std::move(script)));
}

ScriptActor::ScriptActor(const policy::PolicySpec& spec, uint64_t seed, const inference::KernelTable* kernels,
                         std::unique_ptr<ScriptNetwork> script)
    : spec_(spec),
      layout_(policy::ParameterLayout::For(spec)),
      script_(std::move(script)),
      stride_((spec.actor_output_size() + kRowFloats - 1) / kRowFloats * kRowFloats),
      sampler_(spec, seed, kernels),
      observations_(spec),
      values_(torch::zeros({layout_.acting_size()})) {
  script_->Bind([this](const std::string& name) {
    const policy::ParameterEntry* const entry = layout_.Find(absl::StrCat(spec_.actor.role, ".", name));
    return values_.narrow(0, entry->offset, entry->count).view(entry->shape);
  });
}

absl::Status ScriptActor::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec_.id.value(), "\": no weights"));
  }
  if (weights == weights_) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(weights->Validate(spec_, layout_.acting_size()));
  weights_ = std::move(weights);
  std::copy(weights_->actor.begin(), weights_->actor.end(), values_.data_ptr<float>());
  sampler_.SetWeights(*weights_);
  return absl::OkStatus();
}

bool ScriptActor::TakeOver(const policy::PolicySpec& spec) {
  spec_ = spec;
  weights_ = nullptr;
  return true;
}

void ScriptActor::Forward(const inference::ActInput& input) {
  const torch::NoGradGuard no_grad;
  const ScriptWidths& widths = script_->widths();
  const auto floats = [&](const float* data, int64_t columns) {
    return torch::from_blob(const_cast<float*>(data), {input.rows, columns}, torch::kFloat32);
  };
  const torch::Tensor agent_id = torch::zeros({input.rows, widths.agent_id});
  for (int64_t r = 0; r < input.rows && widths.agent_id > 0; ++r) {
    agent_id.data_ptr<float>()[r * widths.agent_id + input.keys[r].slot.value()] = 1.0f;
  }
  torch::Tensor mask = torch::empty({input.rows, 0}, torch::kBool);
  if (widths.mask > 0) {
    mask = torch::from_blob(const_cast<uint8_t*>(input.action_mask), {input.rows, widths.mask}, torch::kUInt8)
               .to(torch::kBool);
  }
  const int64_t state_size = script_->state_size();
  const torch::Tensor before = state_size > 0 ? floats(input.state_in, state_size) : script_->FirstState(input.rows);
  const ScriptOutputs given =
      script_->Run(floats(observations_.Prepare(input, *weights_), widths.observation), agent_id, before, mask);
  const torch::Tensor outputs = given.outputs.contiguous();
  const float* const from = outputs.data_ptr<float>();
  auto* const to = reinterpret_cast<float*>(outputs_.data());
  for (int64_t r = 0; r < input.rows; ++r) {
    std::copy_n(from + r * widths.output, widths.output, to + r * stride_);
    std::fill(to + r * stride_ + widths.output, to + (r + 1) * stride_, 0.0f);
  }
  if (state_size == 0) return;
  // Last: outputs may be a part of the state that was given, which state_out may overwrite.
  const torch::Tensor after = given.state.contiguous();
  std::memmove(input.state_out, after.data_ptr<float>(), static_cast<size_t>(after.numel()) * sizeof(float));
}

absl::Status ScriptActor::Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) {
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(inference::CheckHasMask(spec_, input));
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" has no weights yet"));
  }
  TROUPE_RETURN_IF_ERROR(inference::CheckHasState(spec_, input));
  TROUPE_RETURN_IF_ERROR(inference::CheckSlots(spec_, input));
  observations_.EnsureCapacity(input.rows);
  outputs_.EnsureCapacity(static_cast<size_t>(input.rows * stride_) * sizeof(float));
  sampler_.EnsureCapacity(input.rows);
  TROUPE_RETURN_IF_ERROR(CatchTorch(absl::StrCat("acting for policy \"", spec_.id.value(), "\""), [&] {
    Forward(input);
    return absl::OkStatus();
  }));
  const auto* const outputs = reinterpret_cast<const float*>(outputs_.data());
  if (!base::AllFinite({outputs, static_cast<size_t>(input.rows * stride_)}))
    return inference::OutputNotFinite(spec_, *weights_);
  if (!base::AllFinite({input.state_out, static_cast<size_t>(input.rows * script_->state_size())})) {
    return inference::StateNotFinite(spec_, *weights_);
  }
  return sampler_.Sample(spec_, input, outputs, stride_, actions, logp);
}

}  // namespace troupe::training
