#include "lib/env/time_limit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/env/env_wrapper.h"

namespace troupe::env {
namespace {

class TimeLimitEnv final : public EnvWrapper {
 public:
  TimeLimitEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, int64_t limit)
      : EnvWrapper(std::move(env), std::move(spec)), limit_(limit) {}

 private:
  /// Sees whether the episode ends by itself.
  class Writer final : public ForwardingWriter {
   public:
    void Begin(StepWriter& out) {
      ForwardingWriter::Begin(out);
      all_ = false;
    }
    bool all() const { return all_; }
    void TerminateAll() override {
      all_ = true;
      out().TerminateAll();
    }
    void TruncateAll() override {
      all_ = true;
      out().TruncateAll();
    }

   private:
    bool all_ = false;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    writer_.Begin(out);
    return writer_;
  }
  absl::Status EndCall(StepWriter& out) override {
    if (step() >= limit_ && !writer_.all()) out.TruncateAll();
    return absl::OkStatus();
  }

  const int64_t limit_;
  Writer writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithTimeLimit(std::unique_ptr<MultiAgentEnv> env,
                                                             int64_t max_episode_steps) {
  if (max_episode_steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat("got ", max_episode_steps, " steps, expected at least 1"));
  }
  EnvSpec spec = env->spec();
  spec.max_episode_steps =
      spec.max_episode_steps > 0 ? std::min(spec.max_episode_steps, max_episode_steps) : max_episode_steps;
  return std::make_unique<TimeLimitEnv>(std::move(env), std::move(spec), max_episode_steps);
}

}  // namespace troupe::env
