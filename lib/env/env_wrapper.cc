#include "lib/env/env_wrapper.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/checked_env.h"

namespace troupe::env {
namespace {

std::unique_ptr<MultiAgentEnv> Checked(std::unique_ptr<MultiAgentEnv> env) {
  const bool is_checked =
      dynamic_cast<EnvWrapper*>(env.get()) != nullptr || dynamic_cast<CheckedEnv*>(env.get()) != nullptr;
  return is_checked ? std::move(env) : std::make_unique<CheckedEnv>(std::move(env));
}

}  // namespace

EnvWrapper::EnvWrapper(std::unique_ptr<MultiAgentEnv> inner, EnvSpec spec)
    : inner_(Checked(std::move(inner))), spec_(std::move(spec)) {}

void EnvWrapper::Begin(const EpisodeSeed& seed) {
  seed_ = seed;
  step_ = 0;
}

absl::Status EnvWrapper::Reset(const EpisodeSeed& seed, StepWriter& out) {
  Begin(seed);
  TROUPE_RETURN_IF_ERROR(inner_->Reset(seed, BeginCall(out)));
  return EndCall(out);
}

absl::Status EnvWrapper::CheckSize(ActionRows actions) const {
  if (actions.size() == spec_.possible_agents.size()) return absl::OkStatus();
  return WithEnvRule(
      absl::FailedPreconditionError(absl::StrCat("environment ", spec_.name, ": got ", actions.size(),
                                                 " action rows, expected ", spec_.possible_agents.size())),
      EnvRule::kActions);
}

absl::Status EnvWrapper::Step(ActionRows actions, StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(CheckSize(actions));
  ++step_;
  const ActionRows mapped = MapActions(actions);
  TROUPE_RETURN_IF_ERROR(inner_->Step(mapped, BeginCall(out)));
  return EndCall(out);
}

absl::Status EnvWrapper::StartReset(const EpisodeSeed& seed) {
  Begin(seed);
  return inner_->StartReset(seed);
}

absl::Status EnvWrapper::StartStep(ActionRows actions) {
  TROUPE_RETURN_IF_ERROR(CheckSize(actions));
  ++step_;
  return inner_->StartStep(MapActions(actions));
}

absl::Status EnvWrapper::Finish(StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(inner_->Finish(BeginCall(out)));
  return EndCall(out);
}

absl::Status EnvWrapper::Broken(EnvRule rule, const std::string& what) const {
  return WithEnvRule(absl::InternalError(absl::StrCat("environment ", spec_.name, " (env ", seed_.env_id.value(),
                                                      ", episode ", seed_.episode, "), step ", step_, ": ", what)),
                     rule);
}

}  // namespace troupe::env
