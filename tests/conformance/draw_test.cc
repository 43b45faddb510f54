// What environments draw of themselves: each either nothing, in words, or a view and then shapes that are finite; and
// an episode that is looked at goes on as one that is not.

#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/canvas.h"
#include "lib/env/checked_env.h"
#include "lib/env/registry.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/wrappers.h"
#include "lib/envs/register_all.h"

namespace troupe {
namespace {

using env::Color;
using env::Point;
using ::testing::HasSubstr;

/// Counts what is drawn.
class Sketch final : public env::Canvas {
 public:
  void View(double left, double bottom, double right, double top) override {
    ++views;
    EXPECT_EQ(shapes, 0) << "the view comes first";
    EXPECT_TRUE(std::isfinite(left) && std::isfinite(bottom) && left < right && bottom < top);
  }
  void Circle(Point center, double radius, Color /*color*/) override {
    Shape({center});
    EXPECT_GT(radius, 0);
  }
  void Line(Point from, Point to, double width, Color /*color*/) override {
    Shape({from, to});
    EXPECT_GT(width, 0);
  }
  void Polygon(absl::Span<const Point> corners, Color /*color*/) override {
    EXPECT_GE(corners.size(), 3u);
    Shape(corners);
  }
  void Image(Point low, Point high, int /*width*/, int /*height*/, absl::Span<const uint8_t> rgb) override {
    Shape({low, high});
    EXPECT_FALSE(rgb.empty());
  }
  void Text(Point at, std::string_view text, Color /*color*/) override {
    Shape({at});
    texts.emplace(text);
  }

  int views = 0;
  int64_t shapes = 0;
  double sum = 0;  ///< of all coordinates: tells states apart
  std::set<std::string> texts;

 private:
  void Shape(absl::Span<const Point> points) {
    EXPECT_EQ(views, 1);
    ++shapes;
    for (const Point& point : points) {
      EXPECT_TRUE(std::isfinite(point.x) && std::isfinite(point.y));
      sum += point.x + 3 * point.y;
    }
  }
};

/// Plays an episode with the first action that each mask allows, and looks at each state where `sketches` is there.
/// Returns the sum of all rewards.
double Play(env::CheckedEnv& env, std::vector<Sketch>* sketches) {
  env::SlotBuffers buffers(env.spec(), 1);
  double rewards = 0;
  EXPECT_TRUE(env.Reset({.seed = 7, .env_id = base::EnvId(0), .episode = 0}, buffers.BeginStep(0)).ok());
  const auto look = [&] {
    if (sketches == nullptr) return;
    sketches->emplace_back();
    const absl::Status drawn = env.Draw(sketches->back());
    EXPECT_TRUE(drawn.ok()) << drawn;
  };
  look();
  const size_t agents = env.spec().possible_agents.size();
  for (int step = 0; step < 600 && !buffers.all_done(0); ++step) {
    std::vector<std::vector<space::ActionWord>> words(agents);
    std::vector<const space::ActionWord*> actions(agents, nullptr);
    for (size_t slot = 0; slot < agents; ++slot) {
      const auto index = static_cast<int32_t>(slot);
      if (!buffers.ready(0, index)) continue;
      const space::Space& space = env.spec().possible_agents[slot].action_space;
      words[slot].resize(static_cast<size_t>(space.action_words()));
      const absl::Span<const uint8_t> mask = buffers.action_mask(0, index);
      for (size_t a = 0; a < mask.size(); ++a) {
        if (mask[a] != 0) {
          words[slot][0].i32 = static_cast<int32_t>(a);
          break;
        }
      }
      if (mask.empty() && space.kind() == space::SpaceKind::kDiscrete && space.n() > 1) words[slot][0].i32 = 1;
      actions[slot] = words[slot].data();
    }
    const absl::Status stepped = env.Step(actions, buffers.BeginStep(0));
    EXPECT_TRUE(stepped.ok()) << stepped;
    if (!stepped.ok()) break;
    for (size_t slot = 0; slot < agents; ++slot) rewards += buffers.reward(0, static_cast<int32_t>(slot));
    look();
  }
  return rewards;
}

std::unique_ptr<env::CheckedEnv> Make(const std::string& name) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  return std::make_unique<env::CheckedEnv>(*registry.Make(name, env::EnvArgs()));
}

TEST(DrawTest, NativeEnvironmentsDrawTheirStatesOrSayThatTheyDoNot) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  for (const char* const drawn : {"cartpole", "catch", "connect_four", "tic_tac_toe", "mpe/simple_tag"}) {
    EXPECT_TRUE(registry.Draws(drawn)) << drawn;
  }
  EXPECT_FALSE(registry.Draws("nobody"));
  for (const env::EnvRegistry::Entry& entry : registry.entries()) {
    SCOPED_TRACE(entry.name);
    if (!entry.draws) {
      const std::unique_ptr<env::CheckedEnv> env = Make(entry.name);
      env::SlotBuffers buffers(env->spec(), 1);
      ASSERT_TRUE(env->Reset({}, buffers.BeginStep(0)).ok());
      Sketch sketch;
      const absl::Status said = env->Draw(sketch);
      EXPECT_EQ(said.code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(said.message()), HasSubstr(entry.name + " has no picture of itself"));
      EXPECT_EQ(sketch.shapes, 0);
      continue;
    }
    std::vector<Sketch> sketches;
    const double watched = Play(*Make(entry.name), &sketches);
    EXPECT_EQ(watched, Play(*Make(entry.name), nullptr)) << "who looks changes nothing";
    ASSERT_GE(sketches.size(), 2u);
    for (const Sketch& sketch : sketches) {
      EXPECT_EQ(sketch.views, 1);
      EXPECT_GE(sketch.shapes, 2);
    }
  }
}

TEST(DrawTest, StatesThatDifferLookDifferent) {
  for (const char* const name : {"mpe/simple_spread", "mpe/simple_tag", "cartpole", "catch"}) {
    std::vector<Sketch> sketches;
    Play(*Make(name), &sketches);
    EXPECT_NE(sketches[0].sum, sketches[3].sum) << name;
  }
}

TEST(DrawTest, AgentsHaveTheirNames) {
  std::vector<Sketch> sketches;
  Play(*Make("mpe/simple_tag"), &sketches);
  EXPECT_EQ(sketches[0].texts.count("adversary_2"), 1u);
  EXPECT_EQ(sketches[0].texts.count("agent_0"), 1u);
}

TEST(DrawTest, WithoutAStateThereIsNothingToDraw) {
  const std::unique_ptr<env::CheckedEnv> env = Make("cartpole");
  Sketch sketch;
  EXPECT_EQ(env->Draw(sketch).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DrawTest, WrappersShowWhatTheyStandBefore) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  env::WrapperOptions options;
  options.frame_stack = 2;
  options.max_episode_steps = 5;
  env::CheckedEnv env(*env::WithWrappers(*registry.Make("cartpole", env::EnvArgs()), options));
  std::vector<Sketch> sketches;
  Play(env, &sketches);
  EXPECT_EQ(sketches.size(), 6u);
  EXPECT_GE(sketches[5].shapes, 2);
}

TEST(DrawTest, ACartThatStandsAtTheLimitOfStepsHasNotFallen) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  for (const int64_t steps : {3, 500}) {
    env::CheckedEnv env(*registry.Make("cartpole", env::EnvArgs({{"max_episode_steps", steps}})));
    std::vector<Sketch> sketches;
    Play(env, &sketches);  // pushed to one side it falls after some ten steps
    EXPECT_EQ(sketches.back().texts.contains("agent_0 fell"), steps == 500);
    EXPECT_EQ(sketches.back().texts.contains("agent_0"), steps == 3);
  }
}

}  // namespace
}  // namespace troupe
