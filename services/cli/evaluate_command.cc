// troupe evaluate

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/output.h"
#include "lib/cli/run_path.h"
#include "lib/envs/register_all.h"
#include "lib/learner/episode_stats.h"
#include "lib/learner/named_values.h"
#include "lib/run/changed_run.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/evaluation_folder.h"
#include "lib/run/evaluation_pool.h"
#include "lib/run/policy_lines.h"
#include "lib/run/rollout_setup.h"
#include "lib/run/watched_evaluation.h"
#include "lib/storage/file_system.h"
#include "services/cli/cli_command.h"
#include "services/cli/evaluate_flags.h"
#include "services/cli/run_command_line.h"
#include "services/common/signals.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

/// The return of each policy, a line each; empty where the agents of an episode share one return, or learned from one
/// reward: their sum says all then.
std::string ByPolicy(const rollout::EvaluationResult& result, const config::ResolvedRun& run,
                     const policy::BySlot<std::string>& policies) {
  const bool differ = std::any_of(result.each.begin(), result.each.end(), [](const rollout::EvaluatedEpisode& episode) {
    return learner::ReturnsDiffer(std::vector<float>(episode.returns.begin(), episode.returns.end()));
  });
  if (!differ || run.learner.common_reward != learner::CommonReward::kNone) return "";
  const learner::EpisodeStats stats = run::StatsOf(result, policies.size());
  learner::ReturnsByName returns;
  for (const policy::PolicySlot slot : policies.ids()) {
    const learner::Spread& played = stats.policies[slot];
    if (played.empty()) continue;
    if (returns.named.size() < run::kFewPolicies) {
      returns.named.push_back({policies[slot], slot.value(), played});
    } else {
      returns.others.push_back(slot.value());
      returns.rest.Add(*played.mean());
    }
  }
  return "return of an agent, by policy (least to largest)\n" + run::PolicyLines(returns);
}

void PrintResult(const rollout::EvaluationResult& result, const std::string& checkpoint, bool deterministic,
                 const std::string& by_policy) {
  std::printf("%s: %s episodes, %s actions\n", checkpoint.c_str(), cli::WithThousands(result.episodes).c_str(),
              deterministic ? "deterministic" : "sampled");
  std::fputs(by_policy.c_str(), stdout);
  const auto row = [](const std::string& name, const rollout::MeanStd& value) {
    char mean[32];
    char std_text[32];
    std::snprintf(mean, sizeof(mean), "%.3f", value.mean);
    std::snprintf(std_text, sizeof(std_text), "%.3f", value.std);
    return std::vector<std::string>{name, mean, std_text};
  };
  std::vector<std::vector<std::string>> rows = {{"", "mean", "std"}};
  rows.push_back(row("return, sum over agents", result.return_sum));
  rows.push_back(row("return, mean over agents", result.return_mean));
  for (const rollout::EvaluatedAgent& agent : result.agents) rows.push_back(row(agent.id, agent.episode_return));
  for (const rollout::EvaluatedInfo& info : result.infos) rows.push_back(row("env/" + info.column, info.value));
  cli::PrintTable(rows);
  std::printf("episode length, mean: %.1f env steps\n", result.episode_length_mean);
}

/// Before anything is played: a name that is one folder inside --directory, and free.
absl::Status CheckExperiment(const std::string& path, const std::string& name) {
  if (name.find('/') != std::string::npos || name == "." || name == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("--experiment: got \"", base::LogSafe(name, 160),
                     "\", expected a folder's name without \"/\"; --directory says where"));
  }
  if (!storage::FileSystem::Posix().Exists(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("--experiment: \"", base::LogSafe(path), "\" is there, expected none; choose another name"));
}

/// summary.json of an evaluation that is an experiment of its own.
std::string Summary(const EvaluateFlags& flags, const std::string& folder, const std::string& checkpoint,
                    const rollout::EvaluationRequest& request, const rollout::EvaluationResult& result) {
  const nlohmann::ordered_json summary = {{"run", flags.experiment},
                                          {"evaluated_run", folder},
                                          {"checkpoint", checkpoint},
                                          {"set", flags.changes.overrides},
                                          {"policies", flags.changes.classes},
                                          {"deterministic", request.deterministic},
                                          {"seed", request.seed},
                                          {"evaluation", nlohmann::ordered_json::parse(run::EvaluationJson(result))}};
  return summary.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// How far it is: on stderr, a line that is written over in a terminal, else one every 10 s.
class ProgressLine {
 public:
  explicit ProgressLine(std::string run) : run_(std::move(run)) {}
  ~ProgressLine() {
    if (is_terminal_ && told_) std::fputs("\r\x1b[K", stderr);
  }
  void Tell(const run::EvaluationProgress& progress) {
    if (progress.since < next_) return;
    next_ = progress.since + (is_terminal_ ? absl::Milliseconds(200) : absl::Seconds(10));
    if (!is_terminal_ && !std::exchange(told_, true)) return;  // most are done by then
    told_ = true;
    std::fprintf(stderr, is_terminal_ ? "\r%s: %s\x1b[K" : "troupe: %s: %s\n", run_.c_str(), progress.Text().c_str());
  }

 private:
  const std::string run_;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  absl::Duration next_ = absl::ZeroDuration();
  bool told_ = false;
};

/// Plays the episodes with `play`, which gets the run to make environments of. CANCELLED after a signal.
absl::StatusOr<rollout::EvaluationResult> Play(config::ResolvedRun run, const rollout::EvaluationRequest& request,
                                               ProgressLine* line,
                                               absl::FunctionRef<absl::StatusOr<rollout::EvaluationResult>(
                                                   const config::ResolvedRun&, const rollout::EvaluationRequest&)>
                                                   play) {
  const auto abandoned = std::make_shared<std::atomic<bool>>(false);
  run.env.python.abandoned = abandoned;
  run::EvaluationWatch watch;
  watch.options = run.evaluation;
  watch.interrupted = &DrainSignals::Received;
  if (line != nullptr) watch.tell = [line](const run::EvaluationProgress& progress) { line->Tell(progress); };
  watch.abandoned = abandoned.get();
  return run::PlayWatched(watch, request,
                          [&](const rollout::EvaluationRequest& watched) { return play(run, watched); });
}

/// Made to be drawn, which may cost an environment time in every step: for a film alone.
config::ResolvedRun Drawn(config::ResolvedRun run) {
  run.env.python.draws = true;
  return run;
}

/// Films the episode that --video-episode names, and says so.
absl::Status WriteVideo(const EvaluateFlags& flags, const env::EnvRegistry& registry,
                        const rollout::EvaluationRequest& request, const rollout::EvaluationResult& result,
                        const run::RunPolicies& loaded, const run::EpisodeNames& names,
                        const run::VideoOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t number, run::EpisodeToFilm(result, flags.video_episode));
  const rollout::EvaluatedEpisode& episode = result.each[static_cast<size_t>(number)];
  run::EpisodeVideo video;
  const auto film = [&](const config::ResolvedRun& run,
                        const rollout::EvaluationRequest& watched) -> absl::StatusOr<rollout::EvaluationResult> {
    TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config, run::MakeRolloutConfig(run, registry));
    TROUPE_ASSIGN_OR_RETURN(video,
                            run::FilmEpisode(config, watched, number, episode.length, loaded.weights, names, options));
    return rollout::EvaluationResult();
  };
  TROUPE_RETURN_IF_ERROR(Play(Drawn(loaded.run), request, nullptr, film).status());
  TROUPE_RETURN_IF_ERROR(run::WriteVideo(flags.video, video.file, flags.overwrite));
  if (video.length != episode.length || video.return_sum != episode.return_sum()) {
    std::fprintf(stderr,
                 "troupe: warning: episode %lld went otherwise when it was played again to be filmed: summed return "
                 "%.3f, %.3f before; the environment does not follow from its seed\n",
                 static_cast<long long>(number), video.return_sum, episode.return_sum());
  }
  if (!flags.json) {
    std::printf("episode %lld (%s) in %s: %lld pictures, summed return %.3f\n", static_cast<long long>(number),
                flags.video_episode.c_str(), flags.video.c_str(), static_cast<long long>(video.frames),
                video.return_sum);
  }
  return absl::OkStatus();
}

/// CANCELLED after a signal.
absl::Status PlayAndTell(const EvaluateFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.run, flags.directory));
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs([&] { return NamesModules(folder + "/config.yaml"); }));
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const std::string results = absl::StrCat(flags.directory, "/", flags.experiment);
  if (!flags.experiment.empty()) TROUPE_RETURN_IF_ERROR(CheckExperiment(results, flags.experiment));
  run::VideoOptions video_options = flags.video_options;
  if (!flags.video.empty()) {
    TROUPE_ASSIGN_OR_RETURN(video_options.format, run::CheckVideoPath(flags.video, flags.overwrite));
  }
  TROUPE_ASSIGN_OR_RETURN(const run::RunPolicies loaded,
                          run::LoadChangedRun(folder, flags.checkpoint, flags.changes, registry));
  const config::ResolvedRun& run = loaded.run;

  rollout::EvaluationRequest request;
  request.episodes = flags.episodes > 0 ? flags.episodes : run.evaluation.episodes;
  if (!flags.video.empty()) TROUPE_RETURN_IF_ERROR(run::CheckEpisode(flags.video_episode, request.episodes));
  request.deterministic = flags.deterministic;
  request.seed = flags.seed >= 0 ? static_cast<uint64_t>(flags.seed) : run.evaluation.seed;
  request.max_episode_steps = run.evaluation.max_episode_steps;
  if (!flags.video.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig film_config, run::MakeRolloutConfig(Drawn(run), registry));
    TROUPE_RETURN_IF_ERROR(run::CheckDraws(film_config));
  }
  // From here on; until now a signal ends the process by itself.
  DrainSignals::Install(kMostSecondsToEnd);
  const auto play = [&](const config::ResolvedRun& played,
                        const rollout::EvaluationRequest& watched) -> absl::StatusOr<rollout::EvaluationResult> {
    TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config, run::MakeRolloutConfig(played, registry));
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<run::EvaluationPool> pool,
                            run::EvaluationPool::Create(config, run.evaluation.num_workers));
    return pool->Run(watched, loaded.weights);
  };
  std::optional<ProgressLine> line(loaded.checkpoint);
  TROUPE_ASSIGN_OR_RETURN(const rollout::EvaluationResult result, Play(run, request, &*line, play));
  line.reset();
  run::EpisodeNames names{.agents = run.agent_ids(), .policies = {}};
  for (const policy::PolicyId& id : run.policy_ids()) names.policies.push_back(id.value());
  if (!flags.experiment.empty()) {
    const run::EvaluationFolder experiment{.path = results,
                                           .config_yaml = run.config.WithoutSecrets().ToYaml(),
                                           .summary_json = Summary(flags, folder, loaded.checkpoint, request, result),
                                           .trained_env_steps = loaded.env_steps};
    TROUPE_RETURN_IF_ERROR(run::WriteEvaluation(experiment, result, names));
  }
  if (flags.json) {
    std::printf("%s\n", run::EvaluationWithEpisodesJson(result, request.seed, names).c_str());
  } else if (flags.tables) {
    PrintResult(result, loaded.checkpoint, request.deterministic, ByPolicy(result, run, names.policies));
    const std::string cut = run::CutText(result, request.max_episode_steps);
    if (!cut.empty()) std::printf("%s\n", cut.c_str());
    if (!flags.experiment.empty()) std::printf("results in %s\n", results.c_str());
  }
  if (!flags.video.empty()) {
    TROUPE_RETURN_IF_ERROR(WriteVideo(flags, registry, request, result, loaded, names, video_options));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> Evaluate(const EvaluateFlags& flags) {
  const absl::Status status = PlayAndTell(flags);
  if (!absl::IsCancelled(status) || !DrainSignals::Received()) {
    TROUPE_RETURN_IF_ERROR(status);
    return 0;
  }
  std::fprintf(stderr, "troupe: the evaluation was %s\n", std::string(status.message()).c_str());
  return DrainSignals::ShellCode();
}

void AddEvaluateCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<EvaluateFlags>();
  CLI::App* evaluate = app.add_subcommand(
      "evaluate",
      "Play whole episodes with a run's policies; nothing is trained, and written only where --experiment says so.");
  evaluate->add_option("run", flags->run, "run folder, or a run's name inside --directory")->required();
  evaluate->add_option("--episodes", flags->episodes, "exactly so many episodes (default: evaluation.episodes)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  evaluate->add_flag("--deterministic", flags->deterministic,
                     "the most probable action instead of a sampled one, whatever evaluation.deterministic says");
  evaluate->add_option("--seed", flags->seed, "seed of the episodes (default: evaluation.seed)")
      ->check(CLI::NonNegativeNumber);
  evaluate->add_option("--checkpoint", flags->checkpoint, "latest, best, or its env steps")->capture_default_str();
  evaluate->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  evaluate
      ->add_option("--set", flags->changes.overrides,
                   "play it otherwise: a key of env (env.args.N=3), evaluation or multi_agent.policy_mapping (repeat); "
                   "what the policies were trained with stays")
      ->allow_extra_args(false);
  evaluate
      ->add_option("--policy", flags->changes.classes,
                   "play a policy by another class: prey=random, prey=scripted:NAME, prey=python:MODULE:NAME, "
                   "prey=checkpoint:PATH#ID (repeat)")
      ->allow_extra_args(false);
  evaluate->add_option(
      "--experiment", flags->experiment,
      "write a run of that name inside --directory: config.yaml, summary.json, a line for each episode "
      "in progress.jsonl, and TensorBoard's events");
  evaluate->add_option("--video", flags->video,
                       "film an episode: a file that ends in .gif, .mp4 (by ffmpeg) or .png (eight pictures of it); of "
                       "environments that draw themselves (docs/cli.md)");
  evaluate
      ->add_option("--video-episode", flags->video_episode,
                   "best or worst by summed return, first, or an episode's number")
      ->capture_default_str();
  evaluate->add_option("--video-fps", flags->video_options.frames_per_second, "pictures a second, an env step each")
      ->check(CLI::Range(1, run::VideoOptions::kMostFramesPerSecond))
      ->capture_default_str();
  evaluate->add_option("--video-size", flags->video_options.size, "pixels of a side, without the captions below")
      ->check(CLI::Range(run::VideoOptions::kSmallestSize, run::VideoOptions::kLargestSize))
      ->capture_default_str();
  evaluate->add_flag("--overwrite", flags->overwrite, "replace the video's file where there is one");
  evaluate->add_flag(
      "--json", flags->json,
      "one line: {\"episodes\", \"return_sum\": {\"mean\", \"std\"}, \"return_mean\": {...}, \"agents\": {ID: {...}}, "
      "\"episode_length\": {\"mean\"}, \"seed\", \"per_episode\": [{\"episode\", \"seed\", \"length\", \"return_sum\", "
      "\"return_mean\", \"agents\": {ID: {\"return\", \"policy\"}}}]}");
  evaluate->footer(
      "Example: troupe evaluate runs/my_run --episodes 500 --deterministic --json\n"
      "         troupe evaluate runs/my_run --policy prey=random --set env.args.max_cycles=50 --experiment "
      "against_random\n"
      "         troupe evaluate runs/my_run --video best.gif");
  evaluate->callback([=] { *action = [=] { return Evaluate(*flags); }; });
}

}  // namespace troupe::services
