#include "lib/env/wrappers.h"

#include <cmath>
#include <utility>

#include "lib/env/frame_stack.h"
#include "lib/env/image_wrappers.h"
#include "lib/env/observation_function.h"
#include "lib/env/time_limit.h"

namespace troupe::env {

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithWrappers(std::unique_ptr<MultiAgentEnv> env,
                                                            const WrapperOptions& options,
                                                            std::optional<WrapperOption>* culprit) {
  using Env = std::unique_ptr<MultiAgentEnv>;
  absl::StatusOr<Env> wrapped = std::move(env);
  const auto wrap = [&](WrapperOption option, auto&& with) {
    if (!wrapped.ok()) return;
    wrapped = with(*std::move(wrapped));
    if (!wrapped.ok() && culprit != nullptr) *culprit = option;
  };
  wrap(WrapperOption::kMaxEpisodeSteps, [&](Env inner) -> absl::StatusOr<Env> {
    if (options.max_episode_steps == 0) return inner;
    return WithTimeLimit(std::move(inner), options.max_episode_steps);
  });
  wrap(WrapperOption::kDictKeys, [&](Env inner) { return WithDictKeys(std::move(inner), options.dict_keys); });
  wrap(WrapperOption::kCrop, [&](Env inner) -> absl::StatusOr<Env> {
    if (options.crop.empty()) return inner;
    return WithCrop(std::move(inner), options.crop);
  });
  wrap(WrapperOption::kGrayscale, [&](Env inner) -> absl::StatusOr<Env> {
    if (!options.grayscale) return inner;
    return WithGrayscale(std::move(inner));
  });
  wrap(WrapperOption::kResize, [&](Env inner) -> absl::StatusOr<Env> {
    if (options.resize.empty()) return inner;
    return WithResize(std::move(inner), options.resize);
  });
  wrap(WrapperOption::kGroups, [&](Env inner) { return WithAgentGroups(std::move(inner), options.groups); });
  wrap(WrapperOption::kRewards, [&](Env inner) -> absl::StatusOr<Env> {
    const RewardChange& rewards = options.rewards;
    if (rewards.scale == 1 && std::isinf(rewards.low) && std::isinf(rewards.high)) return inner;
    return WithChangedRewards(std::move(inner), rewards);
  });
  wrap(WrapperOption::kFrameStack, [&](Env inner) { return WithFrameStack(std::move(inner), options.frame_stack); });
  wrap(WrapperOption::kPreviousStep,
       [&](Env inner) { return WithPreviousStep(std::move(inner), options.previous_step); });
  wrap(WrapperOption::kObservationFn,
       [&](Env inner) { return WithObservationFunction(std::move(inner), options.observation_fn); });
  return wrapped;
}

}  // namespace troupe::env
