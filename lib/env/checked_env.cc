#include "lib/env/checked_env.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/base/traceback.h"
#include "lib/env/checked_env_writer.h"

namespace troupe::env {
namespace {

/// Whether an element is below its low or above its high. Without a branch in the loop, so that it vectorizes.
template <typename T>
bool AnyOutside(const T* row, const std::vector<float>& low, const std::vector<float>& high) {
  uint32_t outside = 0;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto value = static_cast<float>(row[i]);
    outside |= static_cast<uint32_t>(value < low[i]) | static_cast<uint32_t>(value > high[i]);
  }
  return outside != 0;
}

/// Appends the bounds of each element of a flattened row.
void AppendBounds(const space::Space& space, std::vector<float>* low, std::vector<float>* high) {
  if (!space.children().empty()) {
    for (const space::Space& child : space.children()) AppendBounds(child, low, high);
    return;
  }
  const bool box = space.kind() == space::SpaceKind::kBox;
  for (int64_t i = 0; i < space.flat_size(); ++i) {  // what is no Box is zeros and ones
    low->push_back(box ? static_cast<float>(space.low()[static_cast<size_t>(i)]) : 0.0f);
    high->push_back(box ? static_cast<float>(space.high()[static_cast<size_t>(i)]) : 1.0f);
  }
}

/// Whether a row of the type can be outside the bounds at all.
bool CanBeOutside(bool float_row, const std::vector<float>& low, const std::vector<float>& high) {
  const float least = float_row ? -std::numeric_limits<float>::infinity() : 0.0f;
  const float most = float_row ? std::numeric_limits<float>::infinity() : 255.0f;
  return std::any_of(low.begin(), low.end(), [least](float bound) { return bound > least; }) ||
         std::any_of(high.begin(), high.end(), [most](float bound) { return bound < most; });
}

size_t FirstNotFinite(const float* row, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(row[i])) return i;
  }
  return count;
}

/// `call`'s status, or what it threw as one.
template <typename Call>
absl::Status Guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("threw ", e.what()));
  } catch (...) {
    return absl::InternalError("threw something that is no std::exception");
  }
}

}  // namespace

CheckedEnv::CheckedEnv(std::unique_ptr<MultiAgentEnv> env) : CheckedEnv(std::move(env), Options()) {}

CheckedEnv::CheckedEnv(std::unique_ptr<MultiAgentEnv> env, Options options) : env_(std::move(env)), options_(options) {
  for (const AgentSpec& agent : env_->spec().possible_agents) {
    Slot slot;
    slot.flat_size = static_cast<size_t>(agent.observation_space.flat_size());
    slot.float_row = agent.observation_space.flat_dtype() == tensor::DType::kFloat32;
    if (agent.action_space.kind() == space::SpaceKind::kDiscrete) {
      slot.discrete = true;
      slot.low = static_cast<int32_t>(agent.action_space.start());
      slot.high = static_cast<int32_t>(agent.action_space.start() + agent.action_space.n() - 1);
    }
    if (agent.has_action_mask) {
      for (space::ActionLeaf& leaf : space::ActionLeaves(agent.action_space)) {
        if (leaf.kind == space::ActionLeaf::Kind::kCategorical) slot.mask_leaves.push_back(std::move(leaf));
      }
    }
    if (options_.count_outside_space) {
      AppendBounds(agent.observation_space, &slot.least, &slot.most);
      if (!CanBeOutside(slot.float_row, slot.least, slot.most)) {
        slot.least.clear();
        slot.most.clear();
      }
    }
    slots_.push_back(std::move(slot));
  }
  writer_ = std::make_unique<Writer>(*this);
}

CheckedEnv::~CheckedEnv() = default;

absl::Status CheckedEnv::BeginReset(const EpisodeSeed& seed) {
  if (in_flight_ != InFlight::kNone) return NotFinished();
  seed_ = seed;
  step_ = 0;
  running_ = false;
  failed_ = false;
  live_ = 0;
  for (Slot& slot : slots_) {
    slot.state = SlotState::kUnseen;
    slot.acted = false;
  }
  return absl::OkStatus();
}

absl::Status CheckedEnv::FinishReset(StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(FinishCall(out));
  if (live_ == 0) return Fail(Broken(EnvRule::kReset, kNoAgent, "Reset observed no agent, expected at least one"));
  running_ = true;
  return absl::OkStatus();
}

absl::Status CheckedEnv::BeginStep(ActionRows actions) {
  if (in_flight_ != InFlight::kNone) return NotFinished();
  if (!running_) {
    return WithEnvRule(absl::FailedPreconditionError(absl::StrCat(
                           Where(kNoAgent), failed_      ? "Step after an error, expected Reset"
                                            : step_ == 0 ? "Step before Reset"
                                                         : "Step after the end of the episode, expected Reset")),
                       EnvRule::kActions);
  }
  ++step_;
  return CheckActions(actions);
}

absl::Status CheckedEnv::Reset(const EpisodeSeed& seed, StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(BeginReset(seed));
  writer_->Begin(out, /*reset=*/true);
  const absl::Status status = Guarded([&] { return env_->Reset(seed, *writer_); });
  if (!status.ok()) return FailedInside(status);
  return FinishReset(out);
}

absl::Status CheckedEnv::Step(ActionRows actions, StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(BeginStep(actions));
  writer_->Begin(out, /*reset=*/false);
  const absl::Status status = Guarded([&] { return env_->Step(actions, *writer_); });
  if (!status.ok()) return FailedInside(status);
  return FinishCall(out);
}

absl::Status CheckedEnv::StartReset(const EpisodeSeed& seed) {
  TROUPE_RETURN_IF_ERROR(BeginReset(seed));
  const absl::Status status = Guarded([&] { return env_->StartReset(seed); });
  if (!status.ok()) return FailedInside(status);
  in_flight_ = InFlight::kReset;
  return absl::OkStatus();
}

absl::Status CheckedEnv::StartStep(ActionRows actions) {
  TROUPE_RETURN_IF_ERROR(BeginStep(actions));
  const absl::Status status = Guarded([&] { return env_->StartStep(actions); });
  if (!status.ok()) return FailedInside(status);
  in_flight_ = InFlight::kStep;
  return absl::OkStatus();
}

absl::Status CheckedEnv::Finish(StepWriter& out) {
  const InFlight call = std::exchange(in_flight_, InFlight::kNone);
  if (call == InFlight::kNone) {
    return WithEnvRule(absl::FailedPreconditionError(absl::StrCat(Where(kNoAgent), "Finish, but no call was started")),
                       EnvRule::kActions);
  }
  writer_->Begin(out, call == InFlight::kReset);
  const absl::Status status = Guarded([&] { return env_->Finish(*writer_); });
  if (!status.ok()) return FailedInside(status);
  return call == InFlight::kReset ? FinishReset(out) : FinishCall(out);
}

absl::Status CheckedEnv::Draw(Canvas& canvas) const {
  if (failed_ || (!running_ && step_ == 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(kNoAgent), "Draw, but there is no state: expected a Reset"));
  }
  return Guarded([&] { return env_->Draw(canvas); });
}

absl::Status CheckedEnv::NotFinished() const {
  return WithEnvRule(absl::FailedPreconditionError(
                         absl::StrCat(Where(kNoAgent), "a call was started and not finished, expected Finish")),
                     EnvRule::kActions);
}

absl::Status CheckedEnv::CheckActions(ActionRows actions) {
  const auto refuse = [this](absl::Status status) { return Fail(WithEnvRule(std::move(status), EnvRule::kActions)); };
  if (actions.size() != slots_.size()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat(Where(kNoAgent), "got ", actions.size(), " action rows, expected ", slots_.size())));
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const AgentSlot id(static_cast<int32_t>(i));
    const bool ready = slot.state == SlotState::kReady;
    if ((actions[i] != nullptr) != ready) {
      return refuse(absl::FailedPreconditionError(
          absl::StrCat(Where(id), ready ? "did not act though it was ready"
                                        : "acted unobserved: it is not ready now, expected no action")));
    }
    if (!ready) continue;
    slot.acted = true;
    if (slot.discrete) {
      if (actions[i]->i32 >= slot.low && actions[i]->i32 <= slot.high) continue;
    }
    const space::Space& action_space = env_->spec().possible_agents[i].action_space;
    const absl::Status inside =
        action_space.ContainsAction(absl::MakeConstSpan(actions[i], static_cast<size_t>(action_space.action_words())));
    if (!inside.ok()) {
      return refuse(absl::InvalidArgumentError(
          absl::StrCat(Where(id), "action outside ", action_space.ToString(), ": ", inside.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckedEnv::FinishCall(StepWriter& out) {
  if (!writer_->error().ok()) return Fail(std::move(writer_->error()));
  const EnvSpec& spec = env_->spec();
  if (spec.state_kind == StateKind::kPerEnv) {
    if (writer_->env_state() == nullptr)
      return Fail(Broken(EnvRule::kState, kNoAgent, "gave no global state, expected one every step"));
    const absl::Status status = CheckState(writer_->env_state(), "the global state");
    if (!status.ok()) return Fail(Broken(EnvRule::kState, kNoAgent, std::string(status.message())));
  }
  bool any_ended = false;
  bool all_truncated = true;
  outside_space_in_call_ = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const AgentSlot id(static_cast<int32_t>(i));
    if (slot.row != nullptr) {
      absl::Status status = CheckObserved(id);
      if (!status.ok()) return Fail(std::move(status));
      if (slot.state == SlotState::kUnseen || slot.state == SlotState::kDone) {
        ++live_;
        slot.acted = false;
      }
      slot.state = SlotState::kReady;
    } else if (slot.state == SlotState::kReady) {
      slot.state = SlotState::kWaiting;
    }
    if (slot.ended) {
      if (slot.state == SlotState::kUnseen) {
        return Fail(Broken(EnvRule::kDone, id, "was ended but never observed"));
      }
      slot.state = SlotState::kDone;
      --live_;
      any_ended = true;
      all_truncated = all_truncated && slot.truncated;
    }
  }
  if (writer_->all()) {
    running_ = false;
  } else if (live_ == 0 && any_ended) {
    running_ = false;
    ++missing_all_count_;
    if (all_truncated) {
      out.TruncateAll();
    } else {
      out.TerminateAll();
    }
  }
  return absl::OkStatus();
}

absl::Status CheckedEnv::CheckObserved(AgentSlot id) {
  const auto place = static_cast<size_t>(id.value());
  const Slot& slot = slots_[place];
  const AgentSpec& agent = env_->spec().possible_agents[place];
  if (slot.float_row) {
    const float* row = static_cast<const float*>(slot.row);
    if (!base::AllFinite({row, slot.flat_size})) {
      const size_t bad = FirstNotFinite(row, slot.flat_size);
      return Broken(EnvRule::kObservationValue, id,
                    absl::StrCat("observation element ", bad, " is ", row[bad], ", expected a finite number"));
    }
  }
  if (!slot.least.empty() &&
      (slot.float_row ? AnyOutside(static_cast<const float*>(slot.row), slot.least, slot.most)
                      : AnyOutside(static_cast<const uint8_t*>(slot.row), slot.least, slot.most))) {
    CountOutsideSpace(id);
  }
  if (options_.check_bounds) {
    const absl::Status inside = Contains(id);
    if (!inside.ok()) {
      return Broken(EnvRule::kObservationValue, id,
                    absl::StrCat("observation outside ", agent.observation_space.ToString(), ": ", inside.message()));
    }
  }
  if (!slot.mask_leaves.empty()) {
    if (slot.mask == nullptr)
      return Broken(EnvRule::kActionMask, id, "was observed without the action mask that its spec declares");
    const bool acts_next = !slot.ended && !writer_->all();
    for (const space::ActionLeaf& leaf : slot.mask_leaves) {
      bool any = false;
      for (int64_t i = leaf.mask_offset; i < leaf.mask_offset + leaf.categories; ++i) {
        if (slot.mask[i] > 1) {
          return Broken(
              EnvRule::kActionMask, id,
              absl::StrCat("action mask byte ", i, " is ", static_cast<int>(slot.mask[i]), ", expected 0 or 1"));
        }
        any = any || slot.mask[i] != 0;
      }
      if (acts_next && !any) {
        return Broken(EnvRule::kActionMask, id,
                      absl::StrCat("action mask allows nothing in bytes ", leaf.mask_offset, " to ",
                                   leaf.mask_offset + leaf.categories - 1, ", expected at least one action"));
      }
    }
  }
  if (env_->spec().state_kind == StateKind::kPerAgent) {
    if (slot.state_row == nullptr) return Broken(EnvRule::kState, id, "was observed without its global state");
    const absl::Status status = CheckState(slot.state_row, "its global state");
    if (!status.ok()) return Broken(EnvRule::kState, id, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckedEnv::Contains(AgentSlot id) const {
  const auto place = static_cast<size_t>(id.value());
  const Slot& slot = slots_[place];
  const space::Space& space = env_->spec().possible_agents[place].observation_space;
  if (slot.float_row) {
    return space.ContainsFlat(absl::MakeConstSpan(static_cast<const float*>(slot.row), slot.flat_size));
  }
  return space.ContainsFlat(absl::MakeConstSpan(static_cast<const uint8_t*>(slot.row), slot.flat_size));
}

void CheckedEnv::CountOutsideSpace(AgentSlot id) {
  Slot& slot = slots_[static_cast<size_t>(id.value())];
  if (!std::exchange(outside_space_in_call_, true)) ++outside_space_count_;
  if (std::exchange(slot.told_outside_space, true)) return;
  outside_space_.push_back({id, absl::StrCat(Where(id), std::string(Contains(id).message()))});
}

absl::Status CheckedEnv::CheckState(const float* row, const char* whose) {
  const space::Space& state_space = env_->spec().state_space;
  const size_t size = static_cast<size_t>(state_space.flat_size());
  if (!base::AllFinite({row, size})) {
    const size_t bad = FirstNotFinite(row, size);
    return absl::InternalError(
        absl::StrCat("element ", bad, " of ", whose, " is ", row[bad], ", expected a finite number"));
  }
  if (!options_.check_bounds) return absl::OkStatus();
  absl::Status inside = state_space.ContainsFlat(absl::MakeConstSpan(row, size));
  if (inside.ok()) return inside;
  return absl::InternalError(absl::StrCat(whose, " is outside ", state_space.ToString(), ": ", inside.message()));
}

absl::Status CheckedEnv::Fail(absl::Status status) {
  running_ = false;
  failed_ = true;
  return status;
}

absl::Status CheckedEnv::FailedInside(const absl::Status& status) {
  const std::optional<EnvRule> rule = EnvRuleOf(status);
  std::string text = base::LogSafe(std::string(status.message()), 1000);
  // A wrapper's environment was checked inside, and what came of it says where already.
  if (!rule.has_value() || !absl::StartsWith(text, absl::StrCat("environment ", spec().name, " ("))) {
    text = absl::StrCat(Where(kNoAgent), text);
  }
  absl::Status failed = WithEnvRule(absl::Status(status.code(), text), rule.value_or(EnvRule::kNoError));
  failed = base::WithCallbackBlamed(std::move(failed), base::IsCallbackBlamed(status));
  return Fail(base::WithTraceback(std::move(failed), base::TracebackOf(status)));
}

std::string CheckedEnv::Where(AgentSlot id) const {
  std::string where =
      absl::StrCat("environment ", env_->spec().name, " (env ", seed_.env_id.value(), ", episode ", seed_.episode, ")");
  if (id != kNoAgent) {
    const AgentSpec& agent = env_->spec().possible_agents[static_cast<size_t>(id.value())];
    absl::StrAppend(&where, ", agent ", base::LogSafe(agent.id.value()));
  }
  absl::StrAppend(&where, ", step ", step_, ": ");
  return where;
}

absl::Status CheckedEnv::Broken(EnvRule rule, AgentSlot id, const std::string& what) const {
  return WithEnvRule(absl::InternalError(absl::StrCat(Where(id), what)), rule);
}

}  // namespace troupe::env
