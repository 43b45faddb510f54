#include "lib/outside/lane_env.h"

#include <utility>

#include "lib/base/status_macros.h"

namespace troupe::outside {
namespace {

class SpecEnv final : public env::MultiAgentEnv {
 public:
  explicit SpecEnv(std::shared_ptr<const env::EnvSpec> spec) : spec_(std::move(spec)) {}

  const env::EnvSpec& spec() const override { return *spec_; }
  absl::Status Reset(const env::EpisodeSeed& /*seed*/, env::StepWriter& /*out*/) override { return NotHere(); }
  absl::Status Step(env::ActionRows /*actions*/, env::StepWriter& /*out*/) override { return NotHere(); }

 private:
  static absl::Status NotHere() {
    return absl::FailedPreconditionError(
        "the world is outside (env.external): its clients play it where the run trains, nobody else can; `troupe "
        "serve` "
        "answers them from a checkpoint");
  }
  const std::shared_ptr<const env::EnvSpec> spec_;
};

}  // namespace

absl::Status LaneEnv::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(StartReset(seed));
  return Finish(out);
}

absl::Status LaneEnv::Step(env::ActionRows actions, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(StartStep(actions));
  return Finish(out);
}

absl::Status LaneEnv::StartReset(const env::EpisodeSeed& seed) {
  env_id_ = seed.env_id;
  return book_->Take(env_id_);
}

absl::Status LaneEnv::StartStep(env::ActionRows actions) {
  book_->Play(env_id_, actions);
  return absl::OkStatus();
}

absl::Status LaneEnv::Finish(env::StepWriter& out) {
  absl::Status status = book_->Write(env_id_, out);
  if (!status.ok()) book_->Drop(env_id_, absl::AbortedError("the worker gave it up; begin another"));
  return status;
}

std::unique_ptr<env::MultiAgentEnv> MakeSpecEnv(std::shared_ptr<const env::EnvSpec> spec) {
  return std::make_unique<SpecEnv>(std::move(spec));
}

}  // namespace troupe::outside
