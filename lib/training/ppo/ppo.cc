#include "lib/training/ppo/ppo.h"

#include "lib/base/status_macros.h"
#include "lib/training/core/on_policy_group.h"
#include "lib/training/ppo/ppo_row_loss.h"

namespace troupe::training {
namespace {

const fused::LossKernels* PpoKernelsFor([[maybe_unused]] fused::Unit unit) {
#if defined(TROUPE_KERNEL_X86_64_V4)
  if (unit == fused::Unit::kAvx512) return fused::PpoAvx512Kernels();
#endif
#if defined(TROUPE_KERNEL_X86_64_V3)
  if (unit == fused::Unit::kAvx2) return fused::PpoAvx2Kernels();
#endif
  return nullptr;
}

constexpr RowColumn kPpoActorColumns[] = {RowColumn::kOldLogp, RowColumn::kAdvantage};
constexpr RowColumn kPpoCriticColumns[] = {RowColumn::kValueTarget, RowColumn::kOldValue};
constexpr RowLoss kPpoRowLoss = {"ppo", kPpoActorColumns, kPpoCriticColumns, &PpoKernelsFor};

class Ppo final : public Algorithm {
 public:
  std::string_view name() const override { return "ppo"; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    TROUPE_ASSIGN_OR_RETURN(const PpoOptions options, ParsePpoOptions(spec));
    return StateForm{.value_moments = options.use_value_norm};
  }

  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          uint64_t /*seed*/) const override {
    TROUPE_ASSIGN_OR_RETURN(const PpoOptions options, ParsePpoOptions(*members.front().algorithm));
    OnPolicyPlan plan;
    plan.options = options;
    plan.num_epochs = options.num_epochs;
    plan.minibatch_size = options.minibatch_size;
    plan.loss = PpoLossCall(options);
    plan.statistics = {{"Policy/KL", /*last_epoch=*/true}, {"Policy/Clip fraction"}};
    plan.stop_above = options.target_kl;
    return std::make_unique<OnPolicyGroup>(std::move(plan));
  }
};

}  // namespace

const Algorithm& PpoAlgorithm() {
  static const auto& ppo = *new Ppo;
  return ppo;
}

RowLossCall PpoLossCall(const PpoOptions& options) {
  RowLossCall call{.loss = &kPpoRowLoss};
  call.numbers[fused::kPpoClipParam] = options.clip_param;
  call.numbers[fused::kPpoClipLow] = 1.0 - options.clip_param;
  call.numbers[fused::kPpoClipHigh] = 1.0 + options.clip_param;
  call.numbers[fused::kPpoValueClip] = options.use_value_clip ? options.value_clip_param : 0.0;
  return call;
}

}  // namespace troupe::training
