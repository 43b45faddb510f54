// troupe demo: the first minute. Trains, films and says what comes next; all by what `train` and `evaluate` are.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/cli/next_commands.h"
#include "lib/cli/socket_folder.h"
#include "lib/run/episode_video.h"
#include "lib/storage/file_system.h"
#include "services/cli/cli_command.h"
#include "services/cli/evaluate_flags.h"
#include "services/cli/run_command_line.h"
#include "services/cli/train_flags.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

// examples/simple_spread_mappo.yaml without its end, which is the time here.
constexpr char kConfig[] = R"(env: {name: mpe/simple_spread}
multi_agent: {policies: [shared], policy_mapping: {"*": shared}}
algorithm:
  name: mappo
  train_batch_size: 4000
  minibatch_size: 1000
  num_epochs: 10
  max_policy_lag: 0
  lr: 7.0e-4
  adam_epsilon: 1.0e-5
  gamma: 0.95
  gae_lambda: 0.95
  clip_param: 0.2
  use_value_clip: true
  value_clip_param: 0.2
  use_value_norm: true
  use_advnorm: true
  value_loss_coeff: 1.0
  huber_delta: 10.0
  entropy_coeff: 0.01
  max_grad_norm: 10.0
  common_reward: mean
  use_agent_id: false
model: {actor_hidden_sizes: [64, 64], critic_hidden_sizes: [64, 64], activation: tanh, actor_output_gain: 0.01}
num_workers: 2
num_envs_per_worker: 80
evaluation: {episodes: 100, at_end: false}
)";
constexpr int kMostSeconds = 3600;
constexpr int kMostNames = 1000;

struct DemoFlags {
  int seconds = 15;
  std::string out;  ///< the video; empty: spread.gif, or spread_2.gif, …
  std::string directory = "runs";
};

struct DemoNames {
  std::string run, video;
};

/// demo and spread.gif, or the first of demo_2 and spread_2.gif, … of which there is neither a run nor, where --out
/// does not say otherwise, a file. ALREADY_EXISTS where there are a thousand.
absl::StatusOr<DemoNames> FreeNames(const DemoFlags& flags) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  for (int number = 1; number <= kMostNames; ++number) {
    const std::string suffix = number == 1 ? "" : absl::StrCat("_", number);
    DemoNames names{"demo" + suffix, "spread" + suffix + ".gif"};
    if (!flags.out.empty()) names.video = flags.out;
    if (fs.Exists(absl::StrCat(flags.directory, "/", names.run))) continue;
    if (!flags.out.empty() || !fs.Exists(names.video)) return names;
  }
  return absl::AlreadyExistsError(absl::StrCat("there are ", kMostNames, " runs or videos of demos in ",
                                               flags.directory,
                                               " or here; remove some, or name --directory and --out"));
}

absl::StatusOr<int> Demo(const DemoFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const DemoNames names, FreeNames(flags));
  // Before the training: nobody waits for a refusal.
  TROUPE_RETURN_IF_ERROR(run::CheckVideoPath(names.video, /*overwrite=*/false).status());
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<cli::SocketFolder> folder, cli::SocketFolder::Make());
  TrainFlags train;
  train.config = folder->path() + "/spread.yaml";
  train.overrides = {absl::StrCat("stop.wall_clock=", flags.seconds)};
  train.name = names.run;
  train.directory = flags.directory;
  train.says_next = false;
  TROUPE_RETURN_IF_ERROR(cli::SocketFolder::Write(train.config, kConfig));
  std::printf("three agents learn to cover three landmarks, for %d s\n", flags.seconds);
  std::fflush(stdout);
  TROUPE_ASSIGN_OR_RETURN(const int code, Train(train));
  if (code != 0) return code;
  EvaluateFlags evaluate;
  evaluate.run = absl::StrCat(flags.directory, "/", names.run);
  if (!cli::ReadEndedRun(evaluate.run).finished) return code;  // a signal ended the training
  evaluate.video = names.video;
  evaluate.tables = false;
  TROUPE_ASSIGN_OR_RETURN(const int evaluated, Evaluate(evaluate));
  if (evaluated != 0) return evaluated;
  cli::EndedRun run = cli::ReadEndedRun(evaluate.run);
  run.draws = run.has_events = false;  // three lines are enough: there is a video
  std::fputs(cli::NextCommandsText(OwnSpelling(), run).c_str(), stdout);
  return 0;
}

}  // namespace

void AddDemoCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<DemoFlags>();
  CLI::App* demo = app.add_subcommand(
      "demo", "Train three agents for 15 s and film their best episode. Needs no file, and replaces none.");
  demo->add_option("--seconds", flags->seconds, "how long it trains")
      ->check(CLI::Range(1, kMostSeconds))
      ->capture_default_str();
  demo->add_option("--out", flags->out,
                   "the video, a file that ends in .gif, .mp4 or .png (default: spread.gif, here)");
  demo->add_option("--directory", flags->directory, "where the run goes")->capture_default_str();
  demo->footer("Example: troupe demo");
  demo->callback([=] { *action = [=] { return Demo(*flags); }; });
}

}  // namespace troupe::services
