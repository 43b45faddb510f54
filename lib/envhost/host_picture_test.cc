// Pictures that Python environments make of themselves: what render() answers, and what it must not.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/canvas.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/testing/player.h"

namespace troupe::envhost {
namespace {

using ::testing::HasSubstr;

/// Keeps the picture that is drawn on it.
class Album final : public env::Canvas {
 public:
  void View(double left, double bottom, double right, double top) override { view = {left, bottom, right, top}; }
  void Circle(env::Point, double, env::Color) override {}
  void Line(env::Point, env::Point, double, env::Color) override {}
  void Polygon(absl::Span<const env::Point>, env::Color) override {}
  void Text(env::Point, std::string_view, env::Color) override {}
  void Image(env::Point, env::Point, int width, int height, absl::Span<const uint8_t> rgb) override {
    size = {height, width};
    pixels.assign(rgb.begin(), rgb.end());
  }

  std::vector<double> view;
  std::vector<int> size;
  std::vector<uint8_t> pixels;
};

/// An environment that has begun an episode, to be drawn.
class Drawn {
 public:
  explicit Drawn(const std::string& what, env::ArgMap args = {}, bool draws = true) {
    HostOptions options = Options(1);
    options.draws = draws;
    pool_ = *MakePool(what, options, std::move(args));
    env_ = MakeOrDie(*pool_);
    buffers_ = std::make_unique<env::SlotBuffers>(env_->spec(), 1);
    Reset();
  }
  void Reset() { EXPECT_EQ(env_->Reset({1, base::EnvId(0), episode_++}, buffers_->BeginStep(0)), absl::OkStatus()); }
  void Step() {
    space::ActionWord word;
    word.i32 = 1;
    const std::vector<const space::ActionWord*> rows(env_->spec().possible_agents.size(), &word);
    EXPECT_EQ(env_->Step(rows, buffers_->BeginStep(0)), absl::OkStatus());
  }
  absl::Status Draw(Album* album) const { return env_->Draw(*album); }
  std::string Error() const {
    Album album;
    const absl::Status status = Draw(&album);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(album.pixels.empty());
    return std::string(status.message());
  }

 private:
  std::shared_ptr<HostPool> pool_;
  std::unique_ptr<env::MultiAgentEnv> env_;
  std::unique_ptr<env::SlotBuffers> buffers_;
  uint32_t episode_ = 0;
};

TEST(HostPictureTest, ItIsWhatRenderAnswersOfTheStateThatIs) {
  for (const char* const how : {"picture", "rgba", "list"}) {
    SCOPED_TRACE(how);
    Drawn drawn("Painter", {{"how", std::string(how)}});
    drawn.Step();
    drawn.Step();
    for (int again = 0; again < 2; ++again) {
      Album album;
      ASSERT_EQ(drawn.Draw(&album), absl::OkStatus());
      EXPECT_EQ(album.view, (std::vector<double>{0, 0, 6, 4}));
      EXPECT_EQ(album.size, (std::vector<int>{4, 6}));
      ASSERT_EQ(album.pixels.size(), 4u * 6 * 3);
      for (int row = 0; row < 4; ++row) {
        for (int column = 0; column < 6; ++column) {
          const uint8_t* const pixel = album.pixels.data() + (row * 6 + column) * 3;
          ASSERT_EQ(std::vector<int>(pixel, pixel + 3), (std::vector<int>{2, row, column}));
        }
      }
    }
    // It goes on as if nobody had looked.
    drawn.Step();
    Album album;
    ASSERT_EQ(drawn.Draw(&album), absl::OkStatus());
    EXPECT_EQ(album.pixels[0], 3);
    drawn.Reset();
    ASSERT_EQ(drawn.Draw(&album), absl::OkStatus());
    EXPECT_EQ(album.pixels[0], 0);
  }
}

TEST(HostPictureTest, OneThatTakesNoRenderModeMayDrawItselfAllTheSame) {
  // `asks` false: it draws itself whatever it was made with.
  Drawn drawn("plain_painter");
  Album album;
  EXPECT_EQ(drawn.Draw(&album), absl::OkStatus());
  EXPECT_EQ(album.size, (std::vector<int>{4, 6}));
}

TEST(HostPictureTest, OneThatIsNotMadeForItIsNotAsked) {
  Drawn drawn("Painter", {}, /*draws=*/false);
  Album album;
  const absl::Status status = drawn.Draw(&album);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "python:host_test_envs:Painter was made without what it takes to draw it");
}

TEST(HostPictureTest, SaysWhatIsNoPicture) {
  const auto error = [](const std::string& how) { return Drawn("Painter", {{"how", how}}).Error(); };
  EXPECT_THAT(error("none"), HasSubstr("render() answered None, expected one of [height, width, 3] bytes, as "
                                       "render_mode 'rgb_array' gives it"));
  EXPECT_THAT(error("floats"), HasSubstr("render() answered an array of shape [4, 6, 3] and type float64"));
  EXPECT_THAT(error("gray"), HasSubstr("render() answered an array of shape [4, 6] and type uint8"));
  EXPECT_THAT(error("raises"), HasSubstr("render: RuntimeError: no display"));
  EXPECT_THAT(Drawn("Blind").Error(), HasSubstr("it has no render(), expected one that answers an array"));
  EXPECT_THAT(Drawn("Painter", {{"height", int64_t{0}}}).Error(), HasSubstr("a picture of 0 x 6 pixels"));
  const auto sized = [](int64_t height) { return env::ArgMap{{"height", height}, {"width", int64_t{2048}}}; };
  Album album;
  EXPECT_EQ(Drawn("Painter", sized(2048)).Draw(&album), absl::OkStatus()) << "as large as it may be";
  EXPECT_THAT(Drawn("Painter", sized(2049)).Error(),
              HasSubstr("a picture of shape (2049, 2048, 3), expected at most 12582912 bytes"));
}

TEST(HostPictureTest, AnErrorCostsTheEpisodeAndADeathTheProcess) {
  Drawn raises("Painter", {{"how", std::string("raises")}});
  EXPECT_THAT(raises.Error(), HasSubstr("no display"));
  EXPECT_THAT(raises.Error(), HasSubstr("render() before a reset")) << "it was closed";
  raises.Reset();
  raises.Step();
  Drawn dies("Painter", {{"how", std::string("dies")}});
  Album album;
  EXPECT_EQ(dies.Draw(&album).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(dies.Draw(&album).code(), absl::StatusCode::kUnavailable) << "it is dead";
  dies.Reset();
  dies.Step();
}

}  // namespace
}  // namespace troupe::envhost
