#include "lib/env/image_wrappers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/conformance.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using ::testing::ElementsAre;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// One agent that observes an image whose element i is values(i) + t.
std::unique_ptr<MultiAgentEnv> Pictures(std::vector<int64_t> shape, std::function<int(int64_t)> values) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, std::move(shape), tensor::DType::kUint8);
  spec.max_episode_steps = 3;
  const int64_t size = spec.possible_agents[0].observation_space.flat_size();
  return std::make_unique<ScriptedEnv>(spec, [size, values](int64_t t, ActionRows, StepWriter& out) {
    auto* const row = static_cast<uint8_t*>(out.Observe(AgentSlot(0)));
    for (int64_t i = 0; i < size; ++i) row[i] = static_cast<uint8_t>(values(i) + t);
    if (t == 3) out.TruncateAll();
    return absl::OkStatus();
  });
}
std::unique_ptr<MultiAgentEnv> Counting(std::vector<int64_t> shape) {
  return Pictures(std::move(shape), [](int64_t i) { return static_cast<int>(i); });
}

std::vector<int> First(absl::StatusOr<std::unique_ptr<MultiAgentEnv>> env) {
  Called called(*std::move(env));
  EXPECT_TRUE(called.Reset().ok());
  const absl::Span<const uint8_t> row = called.got().observation_uint8(0, 0);
  return {row.begin(), row.end()};
}
std::string SpaceOf(const absl::StatusOr<std::unique_ptr<MultiAgentEnv>>& env) {
  return (*env)->spec().possible_agents[0].observation_space.ToString();
}

TEST(ImageWrappersTest, CropTakesAPartOfTheImage) {
  EXPECT_EQ(SpaceOf(WithCrop(Counting({3, 4, 2}), {1, 2, 2, 1})), "Box(0, 255, [2, 1, 2], uint8)");
  EXPECT_THAT(First(WithCrop(Counting({3, 4, 2}), {1, 2, 2, 1})), ElementsAre(12, 13, 20, 21));
  EXPECT_THAT(First(WithCrop(Counting({3, 4}), {0, 1, 2, 2})), ElementsAre(1, 2, 5, 6));
  EXPECT_EQ(SpaceOf(WithCrop(Counting({3, 4}), {0, 0, 3, 4})), "Box(0, 255, [3, 4], uint8)");
}

TEST(ImageWrappersTest, GrayscaleIsTheLumaRounded) {
  // 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15; 0.299 * 200 + 0.587 * 7 + 0.114 * 255 = 92.979; white and black.
  const std::vector<int> colors = {10, 20, 30, 200, 7, 255, 255, 255, 255, 0, 0, 0};
  const auto picture = [&] {
    return Pictures({2, 2, 3}, [colors](int64_t i) { return colors[static_cast<size_t>(i)]; });
  };
  EXPECT_EQ(SpaceOf(WithGrayscale(picture())), "Box(0, 255, [2, 2, 1], uint8)");
  EXPECT_THAT(First(WithGrayscale(picture())), ElementsAre(18, 93, 255, 0));
  EXPECT_THAT(First(WithGrayscale(Counting({1, 2, 1}))), ElementsAre(0, 1)) << "gray already";
}

TEST(ImageWrappersTest, ResizeAveragesAreas) {
  // Halves: means of 2 x 2 pixels, by channel. Elements are 0 to 31.
  EXPECT_EQ(SpaceOf(WithResize(Counting({4, 4, 2}), {2, 2})), "Box(0, 255, [2, 2, 2], uint8)");
  EXPECT_THAT(First(WithResize(Counting({4, 4, 2}), {2, 2})), ElementsAre(5, 6, 9, 10, 21, 22, 25, 26));
  // Three pixels to two: the one in the middle counts half in each. (2 * 0 + 90) / 3 = 30, (90 + 2 * 200) / 3 = 163.3.
  const auto row = [](std::vector<int> values) {
    const auto width = static_cast<int64_t>(values.size());
    return Pictures({1, width}, [values](int64_t i) { return values[static_cast<size_t>(i)]; });
  };
  EXPECT_THAT(First(WithResize(row({0, 90, 200}), {1, 2})), ElementsAre(30, 163));
  // Two to three: (10), (10 + 200) / 2, (200); a pixel half rounds up.
  EXPECT_THAT(First(WithResize(row({10, 201}), {1, 3})), ElementsAre(10, 106, 201));
  EXPECT_THAT(First(WithResize(row({7, 8}), {2, 2})), ElementsAre(7, 8, 7, 8)) << "a line more of the same";
  EXPECT_THAT(First(WithResize(Counting({2, 2}), {2, 2})), ElementsAre(0, 1, 2, 3));
  // The largest: sums of a picture of 255 stay 255.
  for (const int value : First(WithResize(Pictures({210, 160, 3}, [](int64_t) { return 255; }), {84, 84}))) {
    ASSERT_EQ(value, 255);
  }
}

TEST(ImageWrappersTest, KeepTheContractOverEpisodes) {
  const auto make = [] { return *WithResize(*WithGrayscale(*WithCrop(Counting({5, 5, 3}), {0, 1, 4, 4})), {2, 2}); };
  const ConformanceReport report = CheckConformance(make);
  EXPECT_TRUE(report.ok()) << report.ToString();
  Called env(make());
  ASSERT_TRUE(env.Reset().ok());
  const int first = env.got().observation_uint8(0, 0)[0];
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(env.got().observation_uint8(0, 0)[0], first + 1) << "each image anew";
}

TEST(ImageWrappersTest, BoundsAreThoseOfTheWholeImage) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space =
      *space::Space::Box({0, 3, 0, 0}, {9, 200, 9, 9}, {2, 2}, tensor::DType::kUint8);
  EXPECT_EQ(SpaceOf(WithResize(std::make_unique<ScriptedEnv>(spec, nullptr), {1, 1})), "Box(0, 200, [1, 1], uint8)");
}

TEST(ImageWrappersTest, SayWhatDoesNotFit) {
  const auto error = [](const absl::StatusOr<std::unique_ptr<MultiAgentEnv>>& env) {
    EXPECT_EQ(env.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(env.status().message());
  };
  EXPECT_EQ(error(WithCrop(Counting({3, 4}), {1, 2, 3, 1})),
            "agent \"agent_0\" observes Box(0, 255, [3, 4], uint8); got the part [1, 2, 3, 1], [top, left, height, "
            "width], expected one inside of 3 x 4 pixels");
  EXPECT_THAT(error(WithCrop(Counting({3, 4}), {-1, 0, 2, 2})), ::testing::HasSubstr("got the part [-1, 0, 2, 2]"));
  EXPECT_THAT(error(WithCrop(Counting({3, 4}), {0, 0, 0, 2})), ::testing::HasSubstr("expected one inside"));
  EXPECT_EQ(error(WithCrop(Counting({3, 4}), {1, 2})), "got [1, 2], expected four numbers, [top, left, height, width]");
  EXPECT_EQ(error(WithResize(Counting({3, 4}), {84})),
            "got [84], expected two numbers from 1 to 4096, [height, width]");
  EXPECT_THAT(error(WithResize(Counting({3, 4}), {0, 84})), ::testing::HasSubstr("got [0, 84]"));
  EXPECT_THAT(error(WithResize(Counting({3, 4}), {4097, 1})), ::testing::HasSubstr("got [4097, 1]"));
  EXPECT_THAT(error(WithResize(Counting({5000, 1}), {1, 1})), ::testing::HasSubstr("expected at most 4096 pixels"));
  EXPECT_EQ(
      error(WithGrayscale(Counting({3, 4, 2}))),
      "agent \"agent_0\" observes Box(0, 255, [3, 4, 2], uint8); got 2 channels, expected 3 (red, green, blue) or "
      "1");
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, {2, 2}, tensor::DType::kUint8);
  spec.possible_agents[1].observation_space = *space::Space::Box(0, 1, {2, 2});
  EXPECT_EQ(error(WithResize(std::make_unique<ScriptedEnv>(spec, nullptr), {1, 1})),
            "agent \"agent_1\" observes Box(0, 1, [2, 2]); expected an image, a uint8 Box of [height, width, channels] "
            "or [height, width]");
}

}  // namespace
}  // namespace troupe::env
