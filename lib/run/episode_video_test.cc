#include "lib/run/episode_video.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/storage/testing/scratch_directory.h"

namespace troupe::run {
namespace {

rollout::EvaluationResult WithReturns(const std::vector<double>& returns) {
  rollout::EvaluationResult result;
  result.episodes = static_cast<int64_t>(returns.size());
  for (const double value : returns) result.each.push_back({.length = 1, .returns = {value}, .policies = {}});
  return result;
}

TEST(EpisodeVideoTest, AnEpisodeIsNamedByItsReturnOrItsNumber) {
  const rollout::EvaluationResult result = WithReturns({2, 5, -1, 5, -1});
  EXPECT_EQ(*EpisodeToFilm(result, "best"), 1);
  EXPECT_EQ(*EpisodeToFilm(result, "worst"), 2);
  EXPECT_EQ(*EpisodeToFilm(result, "first"), 0);
  EXPECT_EQ(*EpisodeToFilm(result, "4"), 4);
  for (const char* const bad : {"5", "-1", "bets", ""}) {
    const absl::Status refused = EpisodeToFilm(result, bad).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(refused.message().find("expected best, worst, first, or a number from 0 to 4"), std::string::npos);
  }
}

TEST(EpisodeVideoTest, AFileIsWrittenWholeAndReplacedOnlyWhereThatIsSaid) {
  const storage::ScratchDirectory folder;
  const std::string path = folder.path() + "/a.gif";
  EXPECT_EQ(CheckVideoPath(folder.path() + "/a.avi", false).status().message(),
            "--video: got \"" + folder.path() + "/a.avi\", expected a file that ends in .gif, .mp4 or .png");
  EXPECT_EQ(*CheckVideoPath(path, false), VideoFormat::kGif);
  EXPECT_EQ(*CheckVideoPath(folder.path() + "/a.PNG", false), VideoFormat::kPng);
  EXPECT_TRUE(CheckVideoPath(path, false).ok());
  ASSERT_TRUE(WriteVideo(path, "one", false).ok());
  EXPECT_EQ(CheckVideoPath(path, false).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(CheckVideoPath(path, true).ok());
  EXPECT_EQ(WriteVideo(path, "two", false).code(), absl::StatusCode::kAlreadyExists) << "it came meanwhile";
  ASSERT_TRUE(WriteVideo(path, "three", true).ok());
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "three");
}

TEST(EpisodeVideoTest, AnMp4WithoutFfmpegIsRefusedInWords) {
  const storage::ScratchDirectory folder;
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  const auto refused = CheckVideoPath(folder.path() + "/a.mp4", false);
  std::ofstream(folder.path() + "/ffmpeg") << "#!/bin/sh\n";
  chmod((folder.path() + "/ffmpeg").c_str(), 0700);
  const auto taken = CheckVideoPath(folder.path() + "/a.mp4", false);
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.status().message().find("apt-get install ffmpeg, or take a name that ends in .gif"),
            std::string::npos);
  EXPECT_EQ(*taken, VideoFormat::kMp4);
}

}  // namespace
}  // namespace troupe::run
