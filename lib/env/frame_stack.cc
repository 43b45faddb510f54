#include "lib/env/frame_stack.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"

namespace troupe::env {
namespace {

absl::StatusOr<space::Space> Stacked(const space::Space& frame, size_t frames) {
  if (frame.kind() != space::SpaceKind::kBox) return space::Space::Tuple(std::vector<space::Space>(frames, frame));
  std::vector<int64_t> shape = {static_cast<int64_t>(frames)};
  shape.insert(shape.end(), frame.shape().begin(), frame.shape().end());
  if (frame.flat_size() > space::Space::kMaxElements / static_cast<int64_t>(frames)) {
    return absl::InvalidArgumentError(absl::StrCat(frames, " frames of ", frame.ToString(), " are more than ",
                                                   space::Space::kMaxElements, " elements"));
  }
  std::vector<double> low;
  std::vector<double> high;
  for (size_t i = 0; i < frames; ++i) {
    low.insert(low.end(), frame.low().begin(), frame.low().end());
    high.insert(high.end(), frame.high().begin(), frame.high().end());
  }
  return space::Space::Box(std::move(low), std::move(high), std::move(shape), frame.dtype());
}

class FrameStackEnv final : public EnvWrapper {
 public:
  FrameStackEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, size_t frames)
      : EnvWrapper(std::move(env), std::move(spec)), frames_(frames), writer_(*this) {
    for (const AgentSpec& agent : inner_spec().possible_agents) {
      Agent& stack = agents_.emplace_back();
      stack.frame_bytes = static_cast<size_t>(agent.observation_space.flat_size()) *
                          tensor::ElementBytes(agent.observation_space.flat_dtype());
      stack.past.resize((frames_ - 1) * stack.frame_bytes);
    }
  }

 private:
  struct Agent {
    size_t frame_bytes = 0;
    std::vector<std::byte> past;  ///< the frames before the next one, oldest first
    bool seen = false;            ///< in this episode
    std::byte* row = nullptr;     ///< of the call; nullptr: observes nothing
  };

  /// Lets the environment write the newest frame where it belongs.
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(FrameStackEnv& owner) : owner_(owner) {}
    void* Observe(AgentSlot slot) override {
      Agent& agent = owner_.agents_[static_cast<size_t>(slot.value())];
      agent.row = static_cast<std::byte*>(out().Observe(slot));
      return agent.row + agent.past.size();
    }

   private:
    FrameStackEnv& owner_;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    for (Agent& agent : agents_) {
      agent.row = nullptr;
      if (is_reset()) agent.seen = false;
    }
    writer_.Begin(out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& /*out*/) override {
    for (Agent& agent : agents_) {
      if (agent.row == nullptr || agent.past.empty()) continue;
      const std::byte* const newest = agent.row + agent.past.size();
      if (agent.seen) {
        std::memcpy(agent.row, agent.past.data(), agent.past.size());
      } else {
        for (size_t frame = 0; frame + 1 < frames_; ++frame)
          std::memcpy(agent.row + frame * agent.frame_bytes, newest, agent.frame_bytes);
      }
      agent.seen = true;
      std::memcpy(agent.past.data(), agent.row + agent.frame_bytes, agent.past.size());
    }
    return absl::OkStatus();
  }

  const size_t frames_;
  std::vector<Agent> agents_;
  Writer writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithFrameStack(std::unique_ptr<MultiAgentEnv> env, int64_t frames) {
  if (frames < 1 || frames > kMaxFrames) {
    return absl::InvalidArgumentError(absl::StrCat("got ", frames, " frames, expected 1 to ", kMaxFrames));
  }
  if (frames == 1) return env;
  EnvSpec spec = env->spec();
  for (AgentSpec& agent : spec.possible_agents) {
    TROUPE_ASSIGN_OR_RETURN(agent.observation_space, Stacked(agent.observation_space, static_cast<size_t>(frames)));
  }
  return std::make_unique<FrameStackEnv>(std::move(env), std::move(spec), static_cast<size_t>(frames));
}

}  // namespace troupe::env
