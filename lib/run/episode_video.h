#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/evaluation.h"

namespace troupe::run {

/// What a video's file is, by its ending: an animated GIF; a PNG with eight pictures of the episode; an MP4, by ffmpeg.
enum class VideoFormat {
  kGif,  ///< .gif
  kPng,  ///< .png
  kMp4,  ///< .mp4
};

/// How an episode is filmed.
struct VideoOptions {
  static constexpr int kSmallestSize = 64, kLargestSize = 2048;
  static constexpr int kMostFramesPerSecond = 50;

  int frames_per_second = 10;
  int size = 480;  ///< pixels: width, and height without the captions
  VideoFormat format = VideoFormat::kGif;
  int64_t most_frames = 1000;               ///< of longer episodes every second step, or every third, ...
  int64_t most_bytes = int64_t{512} << 20;  ///< of a GIF
  /// Where it is not null and true, nobody wants the video any more: CANCELLED at the next env step.
  const std::atomic<bool>* cancelled = nullptr;
};

/// An episode as a file.
struct EpisodeVideo {
  int64_t episode = 0;  ///< its number
  int64_t frames = 0;
  int64_t length = 0;  ///< env steps
  double return_sum = 0;
  int width = 0, height = 0;  ///< pixels of a picture
  std::string file;           ///< its bytes
};

/// INVALID_ARGUMENT for what names no episode of so many: neither "best", "worst" or "first" nor a number below that.
absl::Status CheckEpisode(const std::string& which, int64_t episodes);
/// The number of the episode that `which` names: "best" and "worst" by the sum of returns (of equals the first),
/// "first", or a number. Errors as CheckEpisode.
absl::StatusOr<int64_t> EpisodeToFilm(const rollout::EvaluationResult& result, const std::string& which);

/// What the path's ending says. INVALID_ARGUMENT for another ending or what is no regular file, ALREADY_EXISTS where
/// something stands there and is not to be overwritten, PERMISSION_DENIED where its folder is none that can be written
/// in, FAILED_PRECONDITION for an MP4 without ffmpeg.
absl::StatusOr<VideoFormat> CheckVideoPath(const std::string& path, bool overwrite);

/// Whether the environment can draw itself, asked of one that has just begun an episode: UNIMPLEMENTED where it cannot.
absl::Status CheckDraws(const rollout::RolloutConfig& config);

/// Plays episode `number` of the evaluation that `request` describes once more, alone, and films it: the world, and
/// below it step, returns and who plays whom. `length` env steps are expected (they say how many frames are left out).
/// Errors as Evaluator::Run, or of the environment's Draw.
absl::StatusOr<EpisodeVideo> FilmEpisode(const rollout::RolloutConfig& config, rollout::EvaluationRequest request,
                                         int64_t number, int64_t length,
                                         absl::Span<const policy::WeightSnapshotPtr> weights, const EpisodeNames& names,
                                         const VideoOptions& options);

/// Writes the file whole or not at all. ALREADY_EXISTS where something has come meanwhile that is not to be
/// overwritten, else what the disk says.
absl::Status WriteVideo(const std::string& path, const std::string& file, bool overwrite);

}  // namespace troupe::run
