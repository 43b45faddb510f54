#include "lib/run/episode_video.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/render/contact_sheet.h"
#include "lib/render/ffmpeg_writer.h"
#include "lib/render/gif_writer.h"
#include "lib/render/raster_canvas.h"
#include "lib/storage/file_system.h"

namespace troupe::run {
namespace {

using render::RasterCanvas;

namespace fs = std::filesystem;

constexpr size_t kMostAgentsTold = 6;
constexpr int kMargin = 6;  // pixels
constexpr char kFfmpeg[] = "ffmpeg";

absl::StatusOr<std::unique_ptr<render::FrameWriter>> WriterFor(const VideoOptions& options, int width, int height) {
  switch (options.format) {
    case VideoFormat::kGif:
      return render::GifWriter::Create(width, height, 1000 / options.frames_per_second, options.most_bytes);
    case VideoFormat::kPng:
      return std::make_unique<render::ContactSheet>(width, height);
    case VideoFormat::kMp4:
      break;
  }
  TROUPE_ASSIGN_OR_RETURN(const std::string program, render::FindOnPath(kFfmpeg));
  return render::FfmpegWriter::Start(
      program, {.width = width, .height = height, .frames_per_second = options.frames_per_second});
}

/// Draws what it watches, picture by picture.
class Film final : public rollout::EpisodeWatcher {
 public:
  Film(const env::EnvSpec& spec, int64_t length, const EpisodeNames& names, const VideoOptions& options)
      : spec_(spec),
        length_(length),
        names_(names),
        options_(options),
        stride_((length + options.most_frames - 1) / options.most_frames),
        canvas_(options.size, options.size + CaptionHeight(spec), options.size) {}

  absl::Status OnState(const rollout::WatchedState& state) override {
    if (options_.cancelled != nullptr && *options_.cancelled) return absl::CancelledError("nobody wants the video now");
    if (state.step == 0) TROUPE_RETURN_IF_ERROR(Begin());
    if (!state.over && stride_ > 1 && state.step % stride_ != 0) return absl::OkStatus();
    canvas_.Clear();
    TROUPE_RETURN_IF_ERROR(state.env.Draw(canvas_));
    WriteCaptions(state);
    // The end stays for a second.
    TROUPE_RETURN_IF_ERROR(writer_->Add(canvas_.picture(), state.over ? options_.frames_per_second : 1));
    ++frames_;
    return absl::OkStatus();
  }

  int64_t frames() const { return frames_; }
  render::Picture picture() const { return canvas_.picture(); }
  absl::StatusOr<std::string> Finish() { return writer_->Finish(); }

 private:
  static int CaptionHeight(const env::EnvSpec& spec) {
    const size_t agents = spec.possible_agents.size();
    const size_t lines = 1 + std::min(agents, kMostAgentsTold) + (agents > kMostAgentsTold ? 1 : 0);
    return static_cast<int>(lines) * RasterCanvas::kLineHeight + 2 * kMargin;
  }

  /// Also where an episode that failed begins again.
  absl::Status Begin() {
    frames_ = 0;
    const render::Picture picture = canvas_.picture();
    TROUPE_ASSIGN_OR_RETURN(writer_, WriterFor(options_, picture.width, picture.height));
    return absl::OkStatus();
  }

  void WriteCaptions(const rollout::WatchedState& state) {
    int top = options_.size + kMargin;
    const auto write = [&](const std::string& text) {
      canvas_.Caption(kMargin, top, text, env::colors::kInk);
      top += RasterCanvas::kLineHeight;
    };
    write(absl::StrCat(spec_.name, "  episode ", state.episode, "  step ", state.step, " of ", length_));
    const size_t agents = spec_.possible_agents.size();
    for (size_t slot = 0; slot < std::min(agents, kMostAgentsTold); ++slot) {
      const policy::PolicySlot policy = state.policies[slot];
      const std::string player = policy == policy::kNoPolicy ? "" : absl::StrCat("  ", names_.policies[policy]);
      write(absl::StrFormat("%s%s  return %.2f", spec_.possible_agents[slot].id.value(), player, state.returns[slot]));
    }
    if (agents > kMostAgentsTold) write(absl::StrCat("and ", agents - kMostAgentsTold, " more"));
  }

  const env::EnvSpec& spec_;
  const int64_t length_;
  const EpisodeNames& names_;
  const VideoOptions options_;
  const int64_t stride_;
  RasterCanvas canvas_;
  std::unique_ptr<render::FrameWriter> writer_;
  int64_t frames_ = 0;
};

}  // namespace

absl::Status CheckEpisode(const std::string& which, int64_t episodes) {
  int64_t number = 0;
  if (which == "best" || which == "worst" || which == "first") return absl::OkStatus();
  if (absl::SimpleAtoi(which, &number) && number >= 0 && number < episodes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--video-episode: got \"", base::LogSafe(which, 80),
                                                 "\", expected best, worst, first, or a number from 0 to ",
                                                 episodes - 1));
}

absl::StatusOr<int64_t> EpisodeToFilm(const rollout::EvaluationResult& result, const std::string& which) {
  TROUPE_RETURN_IF_ERROR(CheckEpisode(which, result.episodes));
  const auto by_return = [](const rollout::EvaluatedEpisode& a, const rollout::EvaluatedEpisode& b) {
    return a.return_sum() < b.return_sum();
  };
  const auto& each = result.each;
  if (which == "first") return 0;
  if (which == "worst") return std::min_element(each.begin(), each.end(), by_return) - each.begin();
  if (which == "best") return std::max_element(each.begin(), each.end(), by_return) - each.begin();
  int64_t number = 0;
  return absl::SimpleAtoi(which, &number) ? number : 0;
}

absl::StatusOr<VideoFormat> CheckVideoPath(const std::string& path, bool overwrite) {
  VideoFormat format = VideoFormat::kGif;
  if (absl::EndsWithIgnoreCase(path, ".mp4")) {
    format = VideoFormat::kMp4;
  } else if (absl::EndsWithIgnoreCase(path, ".png")) {
    format = VideoFormat::kPng;
  } else if (!absl::EndsWithIgnoreCase(path, ".gif")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--video: got \"", base::LogSafe(path), "\", expected a file that ends in .gif, .mp4 or .png"));
  }
  if (format == VideoFormat::kMp4 && !render::FindOnPath(kFfmpeg).ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--video: \"", base::LogSafe(path), "\" is made by ffmpeg, which is not on the PATH, expected the program: ",
        "apt-get install ffmpeg, or take a name that ends in .gif"));
  }
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (fs::exists(there) && !overwrite) {
    return absl::AlreadyExistsError(absl::StrCat("--video: \"", base::LogSafe(path),
                                                 "\" is there, expected none; choose another name, or --overwrite"));
  }
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--video: \"", base::LogSafe(path), "\" is no regular file, expected one or none"));
  }
  const std::string folder = storage::FolderOf(path);
  if (access(folder.c_str(), W_OK | X_OK) == 0 && fs::is_directory(folder, error)) return format;
  return absl::PermissionDeniedError(
      absl::StrCat("--video: \"", base::LogSafe(folder), "\" is no folder that can be written in"));
}

absl::Status CheckDraws(const rollout::RolloutConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> made, config.env_factory());
  env::CheckedEnv env(std::move(made));
  env::SlotBuffers buffers(config.env_spec, 1);
  TROUPE_RETURN_IF_ERROR(env.Reset({}, buffers.BeginStep(0)));
  RasterCanvas canvas(VideoOptions::kSmallestSize, VideoOptions::kSmallestSize, VideoOptions::kSmallestSize);
  return env.Draw(canvas);
}

absl::StatusOr<EpisodeVideo> FilmEpisode(const rollout::RolloutConfig& config, rollout::EvaluationRequest request,
                                         int64_t number, int64_t length,
                                         absl::Span<const policy::WeightSnapshotPtr> weights, const EpisodeNames& names,
                                         const VideoOptions& options) {
  Film film(config.env_spec, length, names, options);
  request.first_episode += number;
  request.episodes = 1;
  request.watcher = &film;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rollout::Evaluator> evaluator,
                          rollout::Evaluator::Create(config, /*num_envs=*/1));
  TROUPE_ASSIGN_OR_RETURN(const rollout::EvaluationResult played, evaluator->Run(request, weights));
  EpisodeVideo video;
  video.episode = number;
  video.frames = film.frames();
  video.width = film.picture().width;
  video.height = film.picture().height;
  video.length = played.each[0].length;
  video.return_sum = played.each[0].return_sum();
  TROUPE_ASSIGN_OR_RETURN(video.file, film.Finish());
  return video;
}

absl::Status WriteVideo(const std::string& path, const std::string& file, bool overwrite) {
  storage::FileSystem& files = storage::FileSystem::Posix();
  if (!overwrite) return files.WriteNewFile(path, {storage::AsPiece(file)});
  // Not storage::ReplaceFile: beside a run's files a `.new` is ours to remove, here it may be anybody's.
  const std::string next = absl::StrCat(path, ".", getpid(), ".new");
  TROUPE_RETURN_IF_ERROR(files.WriteNewFile(next, {storage::AsPiece(file)}));
  const absl::Status renamed = files.Rename(next, path);
  if (!renamed.ok()) files.RemoveTree(next).IgnoreError();
  return renamed;
}

}  // namespace troupe::run
