// troupe evaluate

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/output.h"
#include "services/cli/run_path.h"
#include "services/common/evaluation.h"
#include "services/common/rollout_setup.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

struct EvaluateFlags {
  std::string run;
  std::string checkpoint = "latest";
  std::string directory = "runs";
  int64_t episodes = 0;  // 0: as the run's configuration says
  int64_t seed = -1;     // -1: as above
  bool deterministic = false;
  bool json = false;
};

/// The weights of every policy, nullptr for a class without; the checkpoint is verified while it is read and not
/// written to.
absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> LoadWeights(const config::ResolvedRun& run,
                                                                   const std::string& checkpoint) {
  std::vector<policy::WeightSnapshotPtr> weights;
  for (const policy::PolicySpec& spec : run.policies) {
    if (!spec.policy_class.has_weights()) {
      weights.push_back(nullptr);
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state,
                            storage::ReadPolicyWeights(storage::FileSystem::Posix(), checkpoint, spec));
    TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, policy::SnapshotOf(state, spec));
    weights.push_back(std::move(snapshot));
  }
  return weights;
}

void PrintResult(const rollout::EvaluationResult& result, const std::string& checkpoint, bool deterministic) {
  std::printf("%s: %s episodes, %s actions\n", checkpoint.c_str(), WithThousands(result.episodes).c_str(),
              deterministic ? "deterministic" : "sampled");
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
  PrintTable(rows);
  std::printf("episode length, mean: %.1f env steps\n", result.episode_length_mean);
}

absl::StatusOr<int> Evaluate(const EvaluateFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, FindRunFolder(flags.run, flags.directory));
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(folder + "/config.yaml"));
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun run, config::ResolveRun(config, registry));
  TROUPE_ASSIGN_OR_RETURN(const std::string checkpoint,
                          storage::FindCheckpoint(storage::FileSystem::Posix(), folder, flags.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::WeightSnapshotPtr> weights, LoadWeights(run, checkpoint));

  rollout::EvaluationRequest request;
  request.episodes = flags.episodes > 0 ? flags.episodes : run.evaluation.episodes;
  request.deterministic = flags.deterministic;
  request.seed = flags.seed >= 0 ? static_cast<uint64_t>(flags.seed) : run.evaluation.seed;
  TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig rollout_config, MakeRolloutConfig(run, registry));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<EvaluationPool> pool,
                          EvaluationPool::Create(rollout_config, run.evaluation.num_workers));
  TROUPE_ASSIGN_OR_RETURN(const rollout::EvaluationResult result, pool->Run(request, weights));
  if (flags.json) {
    std::printf("%s\n", EvaluationJson(result).c_str());
  } else {
    PrintResult(result, checkpoint, request.deterministic);
  }
  return 0;
}

}  // namespace

void AddEvaluateCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<EvaluateFlags>();
  CLI::App* evaluate =
      app.add_subcommand("evaluate", "Play whole episodes with a run's policies; nothing is trained or written.");
  evaluate->add_option("run", flags->run, "run folder, or a run's name inside --directory")->required();
  evaluate->add_option("--episodes", flags->episodes, "exactly so many episodes (default: evaluation.episodes)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  evaluate->add_flag("--deterministic", flags->deterministic,
                     "the most probable action instead of a sampled one, whatever evaluation.deterministic says");
  evaluate->add_option("--seed", flags->seed, "seed of the episodes (default: evaluation.seed)")
      ->check(CLI::NonNegativeNumber);
  evaluate->add_option("--checkpoint", flags->checkpoint, "latest, best, or its env steps")->capture_default_str();
  evaluate->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  evaluate->add_flag(
      "--json", flags->json,
      "one line: {\"episodes\", \"return_sum\": {\"mean\", \"std\"}, \"return_mean\": {...}, \"agents\": {ID: {...}}, "
      "\"episode_length\": {\"mean\"}}");
  evaluate->footer("Example: troupe evaluate runs/my_run --episodes 500 --deterministic --json");
  evaluate->callback([=] { *action = [=] { return Evaluate(*flags); }; });
}

}  // namespace troupe::services
