#include "lib/env/frame_stack.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"
#include "lib/space/image.h"

namespace troupe::env {
namespace {

/// Numbers of a frame that stay together: the channels of an image's pixel, else all.
size_t RunOf(const space::Space& frame) {
  const int64_t run = space::IsByteImage(frame) ? space::ImageOf(frame).channels : frame.flat_size();
  return static_cast<size_t>(run);
}

absl::StatusOr<space::Space> Stacked(const space::Space& frame, size_t frames) {
  if (frame.kind() != space::SpaceKind::kBox) return space::Space::Tuple(std::vector<space::Space>(frames, frame));
  std::vector<int64_t> shape = {static_cast<int64_t>(frames)};
  shape.insert(shape.end(), frame.shape().begin(), frame.shape().end());
  if (space::IsByteImage(frame)) {
    const space::ImageExtent image = space::ImageOf(frame);
    shape = {image.height, image.width, static_cast<int64_t>(frames) * image.channels};
  }
  if (frame.flat_size() > space::Space::kMaxElements / static_cast<int64_t>(frames)) {
    return absl::InvalidArgumentError(absl::StrCat(frames, " frames of ", frame.ToString(), " are more than ",
                                                   space::Space::kMaxElements, " elements"));
  }
  std::vector<double> low;
  std::vector<double> high;
  const size_t run = RunOf(frame);
  for (size_t first = 0; first < frame.low().size(); first += run) {
    for (size_t i = 0; i < frames; ++i) {
      low.insert(low.end(), frame.low().begin() + first, frame.low().begin() + first + run);
      high.insert(high.end(), frame.high().begin() + first, frame.high().begin() + first + run);
    }
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
      const bool image = space::IsByteImage(agent.observation_space);
      stack.past.resize((image ? frames_ : frames_ - 1) * stack.frame_bytes);
      if (image) {
        stack.run_bytes = RunOf(agent.observation_space);
        stack.newest.resize(stack.frame_bytes);
      }
    }
  }

 private:
  struct Agent {
    size_t frame_bytes = 0;
    std::vector<std::byte> past;  ///< the frames before the next one, oldest first; of images the last row
    bool seen = false;            ///< in this trajectory
    bool ended = false;           ///< in the call
    // Of images, whose frames become channels:
    size_t run_bytes = 0;           ///< of a pixel; 0: no image
    std::vector<std::byte> newest;  ///< where the environment writes
    std::byte* row = nullptr;       ///< of the call; nullptr: observes nothing
  };

  /// Lets the environment write the newest frame where it belongs.
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(FrameStackEnv& owner) : owner_(owner) {}
    void* Observe(AgentSlot slot) override {
      Agent& agent = owner_.agents_[static_cast<size_t>(slot.value())];
      agent.row = static_cast<std::byte*>(out().Observe(slot));
      return agent.run_bytes > 0 ? agent.newest.data() : agent.row + agent.past.size();
    }
    void TerminateAgent(AgentSlot slot) override {
      owner_.agents_[static_cast<size_t>(slot.value())].ended = true;
      out().TerminateAgent(slot);
    }
    void TruncateAgent(AgentSlot slot) override {
      owner_.agents_[static_cast<size_t>(slot.value())].ended = true;
      out().TruncateAgent(slot);
    }

   private:
    FrameStackEnv& owner_;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    for (Agent& agent : agents_) {
      agent.row = nullptr;
      if (std::exchange(agent.ended, false) || is_reset()) agent.seen = false;
    }
    writer_.Begin(out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& /*out*/) override {
    for (Agent& agent : agents_) {
      if (agent.row == nullptr || agent.past.empty()) continue;
      if (agent.run_bytes > 0) {
        Interleave(&agent);
        continue;
      }
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

  /// Writes the row of an image, by pixel the channels of all frames: the last row moved on by a frame. What that takes
  /// over from the next pixel is where the newest frame belongs.
  void Interleave(Agent* agent) const {
    const size_t run = agent->run_bytes;
    const size_t pixel_bytes = frames_ * run;
    const size_t kept = agent->seen ? pixel_bytes - run : 0;  // of a pixel
    if (agent->seen) std::memcpy(agent->row, agent->past.data() + run, agent->past.size() - run);
    const std::byte* newest = agent->newest.data();
    for (std::byte* pixel = agent->row; pixel != agent->row + agent->past.size(); pixel += pixel_bytes, newest += run) {
      for (size_t at = kept; at < pixel_bytes; at += run) {
        for (size_t i = 0; i < run; ++i) pixel[at + i] = newest[i];
      }
    }
    agent->seen = true;
    std::memcpy(agent->past.data(), agent->row, agent->past.size());
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
