#include "lib/run/learner/film_loop.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/file_system.h"

namespace troupe::run {
namespace {

constexpr int kNiceness = 10;
constexpr int64_t kFewestFrames = 10;
constexpr char kUnfinished[] = ".unfinished";
constexpr char kEnding[] = ".gif";

}  // namespace

bool FilmLoop::Order(FilmOrder order) {
  std::optional<FilmOrder> replaced = std::move(order);  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  if (stopped_) return false;
  order_.swap(replaced);
  changed_.NotifyAll();
  return true;
}

std::vector<Film> FilmLoop::TakeFilms() {
  base::MutexLock lock(&mutex_);
  return std::exchange(films_, {});
}

bool FilmLoop::AwaitIdle(absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout);
  base::MutexLock lock(&mutex_);
  while ((order_.has_value() || filming_) && !deadline.passed()) changed_.WaitFor(&mutex_, deadline.left());
  return !order_.has_value() && !filming_;
}

bool FilmLoop::Step() {
  std::optional<FilmOrder> order;
  {
    base::MutexLock lock(&mutex_);
    while (!order_.has_value() && !stopped_) changed_.Wait(&mutex_);
    if (stopped_) return false;
    order = std::exchange(order_, std::nullopt);
    order->cancelled = &cancelled_;
    filming_ = true;
  }
  absl::StatusOr<Film> film = Make(*order);
  const bool cancelled = absl::IsCancelled(film.status());  // the run ends: nothing is wrong
  if (!film.ok() && !cancelled) {
    TROUPE_WARN("no film of an evaluation env_steps={} error=\"{}\"", order->env_steps,
                base::LogSafe(std::string(film.status().message())));
  }
  if (!cancelled) {
    degradations_->Set("films", film.ok() ? "" : "evaluations are not filmed (evaluation.video_interval): see the log");
  }
  order.reset();  // what it holds is destroyed without the lock
  base::MutexLock lock(&mutex_);
  filming_ = false;
  if (film.ok()) {
    if (films_.size() == kMostUntaken) films_.erase(films_.begin());
    films_.push_back(*std::move(film));
  }
  changed_.NotifyAll();
  return true;
}

absl::StatusOr<Film> FilmLoop::Make(const FilmOrder& order) {
  TROUPE_ASSIGN_OR_RETURN(EpisodeVideo video, shoot_(order));
  Film film{order.env_steps, video.width, video.height, std::move(video.file)};
  TROUPE_RETURN_IF_ERROR(Write(film));
  RemoveOldest();
  return film;
}

absl::Status FilmLoop::Write(const Film& film) {
  storage::FileSystem& files = storage::FileSystem::Posix();
  const std::string beside = absl::StrCat(folder_, "/", kUnfinished);
  TROUPE_RETURN_IF_ERROR(files.MakeDirectories(folder_));
  TROUPE_RETURN_IF_ERROR(files.RemoveTree(beside));  // what a learner that was killed left
  TROUPE_RETURN_IF_ERROR(files.WriteNewFile(beside, {storage::AsPiece(film.gif)}));
  return files.Rename(beside, absl::StrCat(folder_, "/", film.env_steps, kEnding));
}

void FilmLoop::RemoveOldest() {
  storage::FileSystem& files = storage::FileSystem::Posix();
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder_);
  if (!names.ok()) return;
  std::vector<int64_t> films;
  for (const std::string& name : *names) {
    int64_t env_steps = 0;
    absl::string_view stem = name;
    if (absl::ConsumeSuffix(&stem, kEnding) && absl::SimpleAtoi(stem, &env_steps)) films.push_back(env_steps);
  }
  std::sort(films.begin(), films.end());
  for (size_t i = 0; i + kMostKept < films.size(); ++i) {
    files.RemoveTree(absl::StrCat(folder_, "/", films[i], kEnding)).IgnoreError();
  }
}

void FilmLoop::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);  // of this thread; without it all works as well
  while (Step()) {
  }
}

void FilmLoop::Stop() {
  std::optional<FilmOrder> dropped;  // destroyed without the lock
  cancelled_ = true;
  base::MutexLock lock(&mutex_);
  stopped_ = true;
  dropped.swap(order_);
  changed_.NotifyAll();
}

FilmLoop::Shoot ShootWith(const env::EnvRegistry* registry) {
  return [registry](const FilmOrder& order) -> absl::StatusOr<EpisodeVideo> {
    config::ResolvedRun drawn = order.run;
    drawn.env.python.draws = true;
    TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config, MakeRolloutConfig(drawn, *registry));
    VideoOptions options;
    options.size = FilmLoop::kSize;
    options.most_bytes = FilmLoop::kMostBytes;
    options.cancelled = order.cancelled;
    absl::StatusOr<EpisodeVideo> video = absl::InternalError("not filmed");
    for (options.most_frames = FilmLoop::kMostFrames; options.most_frames >= kFewestFrames; options.most_frames /= 4) {
      video = FilmEpisode(config, order.request, order.episode, order.length, order.weights, order.names, options);
      if (!absl::IsResourceExhausted(video.status())) break;
    }
    return video;
  };
}

}  // namespace troupe::run
