#include "lib/outside/check_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/outside/limits.h"

namespace troupe::outside {
namespace {

using space::ActionLeaf;
using space::ActionWord;

constexpr size_t kMaxShown = 64;  // characters of a name

template <typename... Parts>
absl::Status Bad(const std::string& agent, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("agent \"", base::LogSafe(agent, kMaxShown), "\": ", parts...));
}

absl::StatusOr<std::vector<std::byte>> CheckObservation(const space::Space& space, const AgentReport& report) {
  const bool is_image = space.flat_dtype() == tensor::DType::kUint8;
  const std::string& name = report.agent;
  if (is_image ? !report.observation.empty() : !report.image.empty()) {
    return Bad(name, "got ", is_image ? "an observation of floats" : "an image", ", expected ",
               is_image ? "an image" : "an observation", ": its space is ", space.ToString());
  }
  const size_t got = is_image ? report.image.size() : report.observation.size();
  if (got == 0) return std::vector<std::byte>();
  if (got != static_cast<size_t>(space.flat_size())) {
    return Bad(name, "its observation has ", got, " elements, expected ", space.flat_size());
  }
  if (!is_image && !base::AllFinite(report.observation)) {
    const auto bad = std::find_if(report.observation.begin(), report.observation.end(),
                                  [](float value) { return !std::isfinite(value); });
    return Bad(name, "element ", bad - report.observation.begin(), " of its observation is ", *bad,
               ", expected a finite number");
  }
  const void* const from = is_image ? static_cast<const void*>(report.image.data()) : report.observation.data();
  std::vector<std::byte> row(is_image ? got : got * sizeof(float));
  std::memcpy(row.data(), from, row.size());
  return row;
}

absl::Status CheckMask(const env::AgentSpec& agent, StepKind kind, const AgentReport& report) {
  const std::string& mask = report.action_mask;
  if (!agent.has_action_mask || !report.observed()) {
    if (mask.empty()) return absl::OkStatus();
    return Bad(report.agent, "got an action mask, expected none: ",
               agent.has_action_mask ? "it comes with an observation" : "env.external.spaces says that it has none");
  }
  if (mask.size() != static_cast<size_t>(agent.action_space.mask_size())) {
    return Bad(report.agent, "its action mask has ", mask.size(), " bytes, expected ", agent.action_space.mask_size());
  }
  const auto odd = std::find_if(mask.begin(), mask.end(), [](char byte) { return byte != 0 && byte != 1; });
  if (odd != mask.end()) {
    return Bad(report.agent, "byte ", odd - mask.begin(), " of its action mask is ", int{static_cast<uint8_t>(*odd)},
               ", expected 0 or 1");
  }
  // Who does not act any more may be allowed nothing, as in the last position of a game.
  if (kind == StepKind::kEnd || report.end != End::kNone) return absl::OkStatus();
  for (const ActionLeaf& leaf : space::ActionLeaves(agent.action_space)) {
    if (leaf.kind != ActionLeaf::Kind::kCategorical) continue;
    const auto begin = mask.begin() + leaf.mask_offset;
    if (std::find(begin, begin + leaf.categories, 1) == begin + leaf.categories) {
      return Bad(report.agent, "its action mask forbids all ", leaf.categories, " values of word ", leaf.word,
                 ", expected at least one that is allowed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogged(const env::AgentSpec& agent, const AgentReport& report, AgentStep* step) {
  const ClientAction& action = *report.action;
  const std::vector<ActionLeaf> leaves = space::ActionLeaves(agent.action_space);
  for (const ActionLeaf& leaf : leaves) {
    if (leaf.kind == ActionLeaf::Kind::kCategorical) continue;
    return Bad(
        report.agent,
        "LogActions takes discrete actions alone: of a continuous one it is not known what was sampled before it "
        "was bounded; ask GetActions");
  }
  if (!action.logp.has_value()) {
    return Bad(report.agent,
               "its action has no log_prob: the run trains on-policy, and needs the log-probability with which the "
               "action was drawn; give it, or ask GetActions");
  }
  // A density may exceed 1, a probability may not, but for the last bits. Of one that is next to nothing the ratio to
  // any policy is so large that no step with it is finite, whoever else is in the minibatch.
  if (!(*action.logp >= kMinLogProb && *action.logp <= 1e-3f)) {
    return Bad(report.agent, "its log_prob is ", *action.logp, ", expected the logarithm of a probability, at least ",
               kMinLogProb);
  }
  absl::StatusOr<std::vector<ActionWord>> words = FromClient(agent.action_space, action);
  if (!words.ok()) return Bad(report.agent, std::string(words.status().message()));
  if (const absl::Status inside = agent.action_space.ContainsAction(*words); !inside.ok()) {
    return Bad(report.agent, "its action: ", std::string(inside.message()));
  }
  for (const ActionLeaf& leaf : leaves) {
    const int64_t category = (*words)[static_cast<size_t>(leaf.word)].i32 - leaf.start;
    if (step->action_mask.empty() || step->action_mask[static_cast<size_t>(leaf.mask_offset + category)] == 1) continue;
    return Bad(report.agent, "its action takes value ", category, " of word ", leaf.word, ", which its mask forbids");
  }
  step->logged = *std::move(words);
  step->logged_logp = *action.logp;
  return absl::OkStatus();
}

absl::StatusOr<AgentStep> CheckAgent(const env::EnvSpec& spec, StepKind kind, const AgentReport& report) {
  const absl::StatusOr<base::AgentSlot> slot = spec.FindAgent(base::AgentId(report.agent));
  if (!slot.ok()) {
    return Bad(report.agent, "there is no such agent, expected one of env.external.spaces");
  }
  const env::AgentSpec& agent = spec.possible_agents[static_cast<size_t>(slot->value())];
  AgentStep step;
  step.slot = *slot;
  step.end = report.end;
  TROUPE_ASSIGN_OR_RETURN(step.observation, CheckObservation(agent.observation_space, report));
  TROUPE_RETURN_IF_ERROR(CheckMask(agent, kind, report));
  step.action_mask.assign(report.action_mask.begin(), report.action_mask.end());
  if (!IsReward(report.reward)) {
    return Bad(report.agent, "its reward is ", report.reward, ", expected at most ", kMaxAbsReward, " either way");
  }
  step.reward = static_cast<float>(report.reward);
  if (!step.observed() && step.end == End::kNone && step.reward == 0) {
    return Bad(report.agent, "the report says nothing of it, expected an observation, a reward or an end");
  }
  const bool decides = kind == StepKind::kLogActions && step.acts();
  if (report.action.has_value() && !decides) {
    return Bad(
        report.agent, "got an action, expected none: ",
        kind == StepKind::kLogActions ? "it does not act" : "LogActions takes actions that were decided outside");
  }
  if (!decides) return step;
  if (!report.action.has_value()) return Bad(report.agent, "it acts, and its action is missing");
  TROUPE_RETURN_IF_ERROR(CheckLogged(agent, report, &step));
  return step;
}

absl::Status CheckState(const env::EnvSpec& spec, const std::vector<float>& state) {
  const int64_t size = spec.state_kind == env::StateKind::kNone ? 0 : spec.state_space.flat_size();
  if (state.size() != static_cast<size_t>(size)) {
    return absl::InvalidArgumentError(absl::StrCat("the state has ", state.size(), " elements, expected ", size,
                                                   size == 0 ? ": env.external.state_space is empty" : ""));
  }
  if (base::AllFinite(state)) return absl::OkStatus();
  return absl::InvalidArgumentError("the state is not finite");
}

}  // namespace

bool IsReward(double reward) { return std::abs(reward) <= kMaxAbsReward; }

absl::StatusOr<CheckedStep> CheckStep(const env::EnvSpec& spec, StepKind kind, const StepReport& report) {
  CheckedStep step;
  TROUPE_RETURN_IF_ERROR(CheckState(spec, report.state));
  step.state = report.state;
  step.weights = report.weights;
  std::vector<bool> seen(spec.possible_agents.size());
  bool any_acts = false;
  for (const AgentReport& agent : report.agents) {
    TROUPE_ASSIGN_OR_RETURN(AgentStep checked, CheckAgent(spec, kind, agent));
    const auto slot = static_cast<size_t>(checked.slot.value());
    if (seen[slot]) return Bad(agent.agent, "it is there twice, expected once");
    seen[slot] = true;
    any_acts = any_acts || checked.acts();
    step.agents.push_back(std::move(checked));
  }
  if (kind != StepKind::kEnd && !any_acts) {
    return absl::InvalidArgumentError(
        "no agent acts, expected an observation of at least one that goes on; EndEpisode ends the episode");
  }
  return step;
}

ClientAction ToClient(const space::Space& space, const ActionWord* words) {
  ClientAction action;
  for (const ActionLeaf& leaf : space::ActionLeaves(space)) {
    for (int64_t word = leaf.word; word < leaf.word + leaf.words; ++word) {
      if (leaf.kind == ActionLeaf::Kind::kCategorical) {
        action.discrete.push_back(words[word].i32);
      } else {
        action.continuous.push_back(words[word].f32);
      }
    }
  }
  return action;
}

absl::StatusOr<std::vector<ActionWord>> FromClient(const space::Space& space, const ClientAction& action) {
  std::vector<ActionWord> words(static_cast<size_t>(space.action_words()));
  size_t discrete = 0;
  size_t continuous = 0;
  for (const ActionLeaf& leaf : space::ActionLeaves(space)) {
    for (int64_t word = leaf.word; word < leaf.word + leaf.words; ++word) {
      ActionWord& to = words[static_cast<size_t>(word)];
      if (leaf.kind == ActionLeaf::Kind::kCategorical) {
        if (discrete < action.discrete.size()) to.i32 = action.discrete[discrete];
        ++discrete;
      } else {
        if (continuous < action.continuous.size()) to.f32 = action.continuous[continuous];
        ++continuous;
      }
    }
  }
  if (discrete == action.discrete.size() && continuous == action.continuous.size()) return words;
  return absl::InvalidArgumentError(absl::StrCat("its action has ", action.discrete.size(), " discrete and ",
                                                 action.continuous.size(), " continuous words, expected ", discrete,
                                                 " and ", continuous));
}

}  // namespace troupe::outside
