#include "lib/run/learner/film_loop.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "lib/base/log.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using ::testing::ElementsAre;

class FilmLoopTest : public testing::Test {
 protected:
  FilmLoopTest()
      : videos_(scratch_.path() + "/videos"),
        loop_(
            videos_,
            [this](const FilmOrder& order) -> absl::StatusOr<EpisodeVideo> {
              if (!fails_.ok()) return fails_;
              return EpisodeVideo{.width = 3, .height = 4, .file = std::to_string(order.env_steps)};
            },
            &degradations_) {}

  bool Order(int64_t env_steps) {
    FilmOrder order;
    order.env_steps = env_steps;
    return loop_.Order(std::move(order));
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(videos_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  const storage::ScratchDirectory scratch_;
  const std::string videos_;
  Degradations degradations_;
  absl::Status fails_;
  FilmLoop loop_;
};

TEST_F(FilmLoopTest, AFilmIsAFileAndIsTakenOnce) {
  ASSERT_TRUE(Order(300));
  ASSERT_TRUE(loop_.Step());
  EXPECT_THAT(Files(), ElementsAre("300.gif"));
  std::stringstream text;
  text << std::ifstream(videos_ + "/300.gif").rdbuf();
  EXPECT_EQ(text.str(), "300");
  const std::vector<Film> films = loop_.TakeFilms();
  ASSERT_EQ(films.size(), 1u);
  EXPECT_EQ(films[0].env_steps, 300);
  EXPECT_EQ(films[0].width, 3);
  EXPECT_EQ(films[0].height, 4);
  EXPECT_TRUE(loop_.TakeFilms().empty());
}

TEST_F(FilmLoopTest, OfOrdersThatWaitTheNewestIsFilmed) {
  EXPECT_TRUE(Order(1));
  EXPECT_TRUE(Order(2)) << "training does not wait, and what is held does not grow";
  EXPECT_FALSE(loop_.AwaitIdle(absl::Milliseconds(1)));
  EXPECT_TRUE(loop_.Step());
  EXPECT_THAT(Files(), ElementsAre("2.gif"));
  EXPECT_TRUE(loop_.AwaitIdle(absl::ZeroDuration()));
}

TEST_F(FilmLoopTest, AnEndWaitsForNoFilm) {
  EXPECT_TRUE(Order(1));
  loop_.Stop();
  EXPECT_TRUE(loop_.AwaitIdle(absl::ZeroDuration())) << "the order is dropped";
  EXPECT_FALSE(loop_.Step());
  EXPECT_FALSE(std::filesystem::exists(videos_));
  EXPECT_FALSE(Order(2));
}

TEST_F(FilmLoopTest, TheNewestAreKept) {
  const auto most = static_cast<int64_t>(FilmLoop::kMostKept);
  for (int64_t i = 1; i <= most + 2; ++i) {
    ASSERT_TRUE(Order(i));
    ASSERT_TRUE(loop_.Step());
  }
  std::ofstream(videos_ + "/mine.gif") << "x";
  ASSERT_TRUE(Order(most + 3));
  ASSERT_TRUE(loop_.Step());
  const std::vector<std::string> files = Files();
  EXPECT_EQ(files.size(), FilmLoop::kMostKept + 1) << "a file of somebody else's stays";
  EXPECT_EQ(std::count(files.begin(), files.end(), "3.gif"), 0);
  EXPECT_EQ(std::count(files.begin(), files.end(), "4.gif"), 1);
  EXPECT_EQ(loop_.TakeFilms().size(), FilmLoop::kMostUntaken);
}

TEST_F(FilmLoopTest, WhatFailsIsSaidUntilItSucceeds) {
  fails_ = absl::UnimplementedError("it does not draw");
  ASSERT_TRUE(Order(1));
  EXPECT_TRUE(loop_.Step());
  EXPECT_THAT(degradations_.List(), ElementsAre(testing::HasSubstr("evaluation.video_interval")));
  EXPECT_TRUE(loop_.TakeFilms().empty());
  fails_ = absl::OkStatus();
  ASSERT_TRUE(Order(2));
  EXPECT_TRUE(loop_.Step());
  EXPECT_TRUE(degradations_.List().empty());
  std::filesystem::remove_all(videos_);
  std::ofstream(videos_) << "no folder";
  ASSERT_TRUE(Order(3));
  EXPECT_TRUE(loop_.Step());
  EXPECT_EQ(degradations_.List().size(), 1u) << "training goes on";
}

TEST_F(FilmLoopTest, AFilmThatTheEndCancelsIsNoFailure) {
  const auto film = [this](absl::Status fails) {
    fails_ = std::move(fails);
    ASSERT_TRUE(Order(1));
    testing::internal::CaptureStderr();
    base::InitLogging("film_loop_test", "warn");
    EXPECT_TRUE(loop_.Step());
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("no film") == std::string::npos, absl::IsCancelled(fails_)) << log;
  };
  film(absl::CancelledError("nobody wants the video now"));
  EXPECT_TRUE(degradations_.List().empty());
  EXPECT_TRUE(loop_.TakeFilms().empty());
  EXPECT_TRUE(loop_.AwaitIdle(absl::ZeroDuration()));
  film(absl::UnimplementedError("it does not draw"));
  film(absl::CancelledError("nobody wants the video now"));
  EXPECT_EQ(degradations_.List().size(), 1u) << "what failed before is not mended by it";
}

TEST_F(FilmLoopTest, AThreadFilmsWhatIsOrdered) {
  std::thread thread([this] { loop_.Run(); });
  EXPECT_TRUE(Order(1));
  EXPECT_TRUE(loop_.AwaitIdle(absl::Seconds(30)));
  EXPECT_EQ(loop_.TakeFilms().size(), 1u);
  loop_.Stop();
  thread.join();
}

}  // namespace
}  // namespace troupe::run
