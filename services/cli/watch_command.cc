// troupe watch RUN: a run's policies at play, in the terminal.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/shortened.h"
#include "lib/base/status_macros.h"
#include "lib/base/terminal_abilities.h"
#include "lib/base/terminal_block.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/programs.h"
#include "lib/cli/run_path.h"
#include "lib/cli/watch_layout.h"
#include "lib/envs/register_all.h"
#include "lib/render/half_blocks.h"
#include "lib/render/text_canvas.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/changed_run.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/common/signals.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

constexpr int kScale = 4;  // pixels that are drawn for one that is shown: edges are smooth
constexpr int kMostColumns = 160;

struct WatchFlags {
  std::string run;
  std::string checkpoint = "latest";
  std::string directory = "runs";
  int64_t episodes = 0;  // 0: until it is stopped; without a terminal 1
  double fps = 10;
  int64_t seed = 0;
  bool deterministic = false;
  run::RunChanges changes;
};

/// What stdout is.
struct Screen {
  bool is_terminal = false;
  base::TerminalAbilities abilities;
  int columns = 80, rows = 24;

  bool shows_pixels() const { return is_terminal && abilities.unicode && abilities.colors > 0; }
};

Screen LookAtStdout() {
  Screen screen;
  screen.is_terminal = isatty(STDOUT_FILENO) == 1;
  screen.abilities = base::TerminalAbilities::OfProcess();
  winsize size{};
  if (screen.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  return screen;
}

/// Shows what it watches, a picture over the one before, and waits until it is time for the next. CANCELLED when a
/// signal asks for the end.
class LiveShow final : public rollout::EpisodeWatcher {
 public:
  explicit LiveShow(double fps) : interval_(absl::Seconds(1) / fps) {}

  /// What is played from here on. `env_steps`: of its weights.
  void Use(const env::EnvSpec* spec, run::EpisodeNames names, int64_t env_steps) {
    spec_ = spec;
    names_ = std::move(names);
    env_steps_ = env_steps;
    standing_ = 0;  // somebody may have written below
  }

  absl::Status OnState(const rollout::WatchedState& state) override {
    const base::Deadline next = base::Deadline::After(interval_);
    const Screen screen = LookAtStdout();
    const cli::WatchLayout layout = cli::LayOutWatch(screen.rows, spec_->possible_agents.size());
    std::vector<std::string> lines;
    TROUPE_RETURN_IF_ERROR(Draw(state, screen, layout.picture_rows, &lines));
    AddCaptions(state, screen, layout, &lines);
    std::string text =
        screen.is_terminal && standing_ > 0 ? base::UpOver(std::vector<std::string>(standing_), screen.columns) : "";
    for (const std::string& line : lines) absl::StrAppend(&text, line, screen.is_terminal ? "\x1b[K" : "", "\n");
    text += screen.is_terminal ? "\x1b[J" : "\n";
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      return absl::CancelledError("nobody reads what is shown");
    }
    standing_ = lines.size();
    if (screen.is_terminal ? AwaitDrainSignal(next) : DrainSignals::Received()) return absl::CancelledError("a signal");
    return absl::OkStatus();
  }

 private:
  static absl::Status Draw(const rollout::WatchedState& state, const Screen& screen, int rows,
                           std::vector<std::string>* lines) {
    const int columns = std::clamp(std::min(screen.columns - 1, 2 * rows), 1, kMostColumns);
    if (screen.shows_pixels()) {
      const int height = 2 * std::min(rows, columns / 2 + 1);
      render::RasterCanvas canvas(columns * kScale, height * kScale, height * kScale);
      canvas.Clear();
      TROUPE_RETURN_IF_ERROR(state.env.Draw(canvas));
      *lines = render::HalfBlocks(canvas.picture(), kScale, screen.abilities.colors);
    } else {
      render::TextCanvas canvas(columns, std::min(rows, columns / 2 + 1));
      TROUPE_RETURN_IF_ERROR(state.env.Draw(canvas));
      *lines = canvas.Lines();
    }
    return absl::OkStatus();
  }

  void AddCaptions(const rollout::WatchedState& state, const Screen& screen, const cli::WatchLayout& layout,
                   std::vector<std::string>* lines) const {
    constexpr int kEllipsis = 3;  // columns of what Shortened appends
    const auto most = static_cast<size_t>(std::max(0, screen.columns - 1 - kEllipsis));
    const auto add = [&](const std::string& line) {
      lines->push_back(base::Shortened(base::TerminalSafe(line), most));
    };
    if (layout.has_title) {
      add(absl::StrCat(spec_->name, "  weights of ", env_steps_, " env steps  episode ", state.episode, "  step ",
                       state.step, state.over ? "  the end" : ""));
    }
    for (size_t slot = 0; slot < layout.agents_told; ++slot) {
      const policy::PolicySlot policy = state.policies[slot];
      add(absl::StrFormat("%s%s  return %.2f", spec_->possible_agents[slot].id.value(),
                          policy == policy::kNoPolicy ? "" : "  " + names_.policies[policy], state.returns[slot]));
    }
    const size_t rest = spec_->possible_agents.size() - layout.agents_told;
    if (layout.tells_rest) {
      add(absl::StrCat(layout.agents_told > 0 ? "and " : "", rest, layout.agents_told > 0 ? " more" : " agents"));
    }
  }

  const absl::Duration interval_;
  const env::EnvSpec* spec_ = nullptr;
  run::EpisodeNames names_;
  int64_t env_steps_ = 0;
  size_t standing_ = 0;  ///< lines, none of which is wrapped
};

/// What plays one checkpoint.
struct Player {
  run::RunPolicies loaded;
  rollout::RolloutConfig config;
  std::unique_ptr<rollout::Evaluator> evaluator;
};

absl::StatusOr<std::unique_ptr<Player>> Load(const std::string& folder, const std::string& checkpoint,
                                             const WatchFlags& flags, const env::EnvRegistry& registry) {
  auto player = std::make_unique<Player>();
  TROUPE_ASSIGN_OR_RETURN(player->loaded, run::LoadChangedRun(folder, checkpoint, flags.changes, registry));
  player->loaded.run.env.python.draws = true;
  TROUPE_ASSIGN_OR_RETURN(player->config, run::MakeRolloutConfig(player->loaded.run, registry));
  TROUPE_ASSIGN_OR_RETURN(player->evaluator, rollout::Evaluator::Create(player->config, /*num_envs=*/1));
  return player;
}

absl::StatusOr<int> Watch(const WatchFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.run, flags.directory));
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs([&] { return NamesModules(folder + "/config.yaml"); }));
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const int64_t episodes = flags.episodes > 0 ? flags.episodes : (isatty(STDOUT_FILENO) == 1 ? -1 : 1);
  LiveShow show(flags.fps);
  std::unique_ptr<Player> player;
  std::string playing;  // its checkpoint
  for (int64_t episode = 0; episode != episodes; ++episode) {
    const auto newest = storage::FindCheckpoint(storage::FileSystem::Posix(), folder, flags.checkpoint);
    std::error_code error;
    const std::string path = newest.ok() ? std::filesystem::canonical(*newest, error).string() : "";
    if (player == nullptr || (!path.empty() && path != playing)) {
      absl::StatusOr<std::unique_ptr<Player>> loaded = Load(folder, flags.checkpoint, flags, registry);
      // While a run trains its oldest checkpoints go: what is played plays on.
      if (!loaded.ok() && player == nullptr) return loaded.status();
      if (loaded.ok()) {
        // Until now a signal ends the process by itself, also in a module's trial.
        DrainSignals::Install(kMostSecondsToEnd);
        if (player == nullptr) TROUPE_RETURN_IF_ERROR(run::CheckDraws((*loaded)->config));
        player = *std::move(loaded);
        playing = path;
        run::EpisodeNames names{.agents = player->loaded.run.agent_ids(), .policies = {}};
        for (const policy::PolicyId& id : player->loaded.run.policy_ids()) names.policies.push_back(id.value());
        show.Use(&player->config.env_spec, std::move(names), player->loaded.env_steps);
      }
    }
    rollout::EvaluationRequest request;
    request.episodes = 1;
    request.first_episode = episode;
    request.deterministic = flags.deterministic;
    request.seed = static_cast<uint64_t>(flags.seed);
    request.watcher = &show;
    const absl::Status played = player->evaluator->Run(request, player->loaded.weights).status();
    if (DrainSignals::Received()) return static_cast<int>(DrainSignals::CodeInOrder());
    if (absl::IsCancelled(played)) return 0;
    TROUPE_RETURN_IF_ERROR(played);
  }
  return 0;
}

}  // namespace

void AddWatchCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<WatchFlags>();
  CLI::App* watch = app.add_subcommand(
      "watch", "Watch a run's policies play, in the terminal: with its newest checkpoint, also while it trains.");
  watch->add_option("run", flags->run, "run folder, or a run's name inside --directory")->required();
  watch->add_option("--episodes", flags->episodes, "so many (default: until Ctrl-C; without a terminal one)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  watch->add_option("--fps", flags->fps, "pictures a second, an env step each; without a terminal as fast as they come")
      ->check(CLI::Range(0.1, 100.0))
      ->capture_default_str();
  watch->add_option("--checkpoint", flags->checkpoint, "latest, best, or its env steps")->capture_default_str();
  watch->add_flag("--deterministic", flags->deterministic, "the most probable action instead of a sampled one");
  watch->add_option("--seed", flags->seed, "seed of the episodes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  watch->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  watch->add_option("--set", flags->changes.overrides, "play it otherwise, as evaluate does (repeat)")
      ->allow_extra_args(false);
  watch->footer("Example: troupe watch my_run --fps 5");
  watch->callback([=] { *action = [=] { return Watch(*flags); }; });
}

}  // namespace troupe::services
