#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/agent_groups.h"
#include "lib/env/changed_rewards.h"
#include "lib/env/dict_keys.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/previous_step.h"

namespace troupe::env {

/// What stands between an environment and the policies. Plain value; as it is, only DictKeys has an effect.
struct WrapperOptions {
  int64_t max_episode_steps = 0;  ///< 0: no limit
  DictKeys dict_keys;
  std::vector<int64_t> crop;  ///< of images: [top, left, height, width]; empty: all
  bool grayscale = false;
  std::vector<int64_t> resize;  ///< of images: [height, width]; empty: as they are
  std::vector<AgentGroup> groups;
  RewardChange rewards;
  int64_t frame_stack = 1;
  PreviousStep previous_step;
  std::string observation_fn;  ///< an ObservationFunction; empty: none
};

/// Which of the options an error is about. Values are not stored anywhere.
enum class WrapperOption : uint8_t {
  kMaxEpisodeSteps,
  kDictKeys,
  kCrop,
  kGrayscale,
  kResize,
  kGroups,
  kRewards,
  kFrameStack,
  kPreviousStep,
  kObservationFn
};

/// `env` with the wrappers that `options` ask for, from the inside out in the order of its members: limits are the
/// task's own, so they come first; images are cropped and made small before anybody keeps them; groups take apart what
/// is observed only when it is known; rewards are those of groups; frames are of what is observed, not of a function's
/// result, and hold no actions, or images would be none; and a function sees everything else done. Errors are those of
/// the wrapper; `culprit`, where given, says which.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithWrappers(std::unique_ptr<MultiAgentEnv> env,
                                                            const WrapperOptions& options,
                                                            std::optional<WrapperOption>* culprit = nullptr);

}  // namespace troupe::env
