// troupe checkpoint ls|save|prune|verify|convert

#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/output.h"
#include "lib/cli/run_path.h"
#include "lib/config/foreign_code.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/rpc/transport/limits.h"
#include "lib/run/run_checkpoint.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/run_lock.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointFlags {
  std::string target;
  std::string checkpoint;  // of verify: empty: all
  std::string directory = "runs";
  double timeout_s = 60;  // of save and prune
  std::string to;         // of save: empty: into the run
  int64_t keep = 0;       // of prune; 0: as the run's configuration has it
  bool json = false;
};

absl::StatusOr<std::vector<storage::CheckpointEntry>> List(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.target, flags.directory));
  return storage::ListCheckpoints(storage::FileSystem::Posix(), folder);
}

absl::StatusOr<int> Ls(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<storage::CheckpointEntry> entries, List(flags));
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"env steps", "", "path"}};
  for (const storage::CheckpointEntry& entry : entries) {
    list.push_back(
        {{"env_steps", entry.env_steps}, {"path", entry.path}, {"latest", entry.is_latest}, {"best", entry.is_best}});
    const char* mark = entry.is_latest ? (entry.is_best ? "latest, best" : "latest") : (entry.is_best ? "best" : "");
    rows.push_back({cli::WithThousands(entry.env_steps), mark, entry.path});
  }
  if (flags.json) {
    cli::PrintJson(list);
  } else {
    cli::PrintTable(rows);
  }
  return 0;
}

/// The checkpoint directories that the command line means.
absl::StatusOr<std::vector<std::string>> Targets(const CheckpointFlags& flags) {
  std::error_code error;
  const bool is_checkpoint = std::filesystem::exists(flags.target + "/manifest.json", error);
  if (is_checkpoint) return std::vector<std::string>{flags.target};
  if (!flags.checkpoint.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.target, flags.directory));
    TROUPE_ASSIGN_OR_RETURN(std::string path,
                            storage::FindCheckpoint(storage::FileSystem::Posix(), folder, flags.checkpoint));
    return std::vector<std::string>{std::move(path)};
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<storage::CheckpointEntry> entries, List(flags));
  if (entries.empty()) return absl::NotFoundError(absl::StrCat("run \"", flags.target, "\" has no checkpoint"));
  std::vector<std::string> paths;
  for (const storage::CheckpointEntry& entry : entries) paths.push_back(entry.path);
  return paths;
}

absl::StatusOr<int> Verify(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Targets(flags));
  Json list = Json::array();
  int damaged = 0;
  for (const std::string& path : paths) {
    // It may be anybody's: what only a run that goes on needs is not read into memory. Its text has a checksum.
    const absl::StatusOr<storage::CheckpointManifest> manifest =
        storage::VerifyCheckpoint(storage::FileSystem::Posix(), path, storage::ManifestPart::kPolicies);
    if (manifest.ok()) {
      list.push_back({{"path", path},
                      {"ok", true},
                      {"env_steps", manifest->state.env_steps},
                      {"updates", manifest->state.iteration}});
      if (!flags.json) {
        std::printf("ok       %s: %s env steps, %s updates, %zu files\n", path.c_str(),
                    cli::WithThousands(manifest->state.env_steps).c_str(),
                    cli::WithThousands(manifest->state.iteration).c_str(), manifest->files.size());
      }
    } else {
      ++damaged;
      list.push_back({{"path", path}, {"ok", false}, {"error", std::string(manifest.status().message())}});
      std::fprintf(stderr, "DAMAGED  %s: %s\n", path.c_str(), std::string(manifest.status().message()).c_str());
    }
  }
  if (flags.json) cli::PrintJson(list);
  return damaged == 0 ? 0 : 1;
}

/// `to` as the learner is told it, whose working folder is another.
absl::StatusOr<std::string> CheckPathOf(const std::string& to) {
  if (base::IsUrl(to)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--to: got the URL \"", base::LogSafe(to), "\", expected a path of this machine"));
  }
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(to, error).lexically_normal();
  if (error) return absl::NotFoundError("--to: the working folder is gone");
  return path.has_filename() ? path.string() : path.parent_path().string();
}

absl::StatusOr<int> Save(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::ControlClient> client,
                          cli::OpenControl(target, "checkpoint save"));
  std::string path;
  if (!flags.to.empty()) {
    TROUPE_ASSIGN_OR_RETURN(path, CheckPathOf(flags.to));
  }
  TROUPE_ASSIGN_OR_RETURN(const int64_t env_steps, client->Checkpoint(path, absl::Seconds(flags.timeout_s)));
  if (path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(
        path, storage::FindCheckpoint(storage::FileSystem::Posix(), target.folder, absl::StrCat(env_steps)));
  } else if (!storage::ReadManifest(storage::FileSystem::Posix(), path, storage::ManifestPart::kPolicies).ok()) {
    return absl::UnimplementedError(absl::StrCat("the learner has saved a checkpoint of ", env_steps,
                                                 " env steps, but not at \"", base::LogSafe(path),
                                                 "\": its build is older than --to, or it sees another file system"));
  }
  if (flags.json) {
    cli::PrintJson({{"env_steps", env_steps}, {"path", path}});
  } else {
    std::printf("%s\n", path.c_str());
  }
  return 0;
}

/// How many checkpoints of the run stay by its own configuration.
absl::StatusOr<int64_t> KeepOf(const std::string& folder) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(folder + "/config.yaml"));
  return config.proto().experiment().keep_checkpoints();
}

absl::StatusOr<int> Prune(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  int64_t keep = flags.keep;
  if (keep == 0 && !target.folder.empty()) {
    TROUPE_ASSIGN_OR_RETURN(keep, KeepOf(target.folder));
  }
  int64_t removed = 0;
  // The learner writes and removes checkpoints while it has the run; where there is none we take its place.
  const absl::StatusOr<std::unique_ptr<rpc::ControlClient>> client = cli::OpenControl(target, "checkpoint prune");
  if (client.ok()) {
    TROUPE_ASSIGN_OR_RETURN(removed, (*client)->PruneCheckpoints(keep, absl::Seconds(flags.timeout_s)));
  } else if (absl::IsUnavailable(client.status())) {
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::RunLock> lock, storage::RunLock::Take(target.folder));
    TROUPE_ASSIGN_OR_RETURN(
        removed, storage::PruneCheckpoints(storage::FileSystem::Posix(), target.folder, static_cast<int>(keep)));
  } else {
    return client.status();
  }
  if (flags.json) {
    cli::PrintJson({{"removed", removed}});
  } else {
    std::printf("%lld checkpoints removed\n", static_cast<long long>(removed));
  }
  return 0;
}

/// The policies of a checkpoint that does not say what they are, from the configuration beside it. Makes its
/// environment.
absl::StatusOr<policy::PolicyTablePtr> TableOf(const std::string& path, const storage::CheckpointManifest& manifest,
                                               const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromRun(path + "/config.yaml"));
  run::SayForeignCode(config::ForeignCodeOf(config));
  TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun run, config::ResolveRun(config, registry));
  if (run.schema.Hash() != manifest.spec_hash) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": the environment, policies or networks of its config.yaml are not those it was trained with"));
  }
  return run.FirstTable(run.learner.trains);
}

absl::StatusOr<int> Convert(const CheckpointFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Targets(flags));
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  storage::FileSystem& fs = storage::FileSystem::Posix();
  for (const std::string& path : paths) {
    // Whole: what is damaged must not get a checksum that fits.
    TROUPE_ASSIGN_OR_RETURN(const storage::CheckpointManifest manifest, storage::VerifyCheckpoint(fs, path));
    if (manifest.state.table != nullptr) {
      std::printf("as it should be  %s\n", path.c_str());
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, TableOf(path, manifest, registry));
    TROUPE_RETURN_IF_ERROR(storage::AddPolicyTable(fs, path, *table));
    std::printf("converted        %s\n", path.c_str());
  }
  return 0;
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, Action* action) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "List, save, prune, verify and convert a run's checkpoints.");
  checkpoint->require_subcommand(1);
  checkpoint->footer("Example: troupe checkpoint ls runs/my_run");

  const auto ls_flags = std::make_shared<CheckpointFlags>();
  CLI::App* ls = checkpoint->add_subcommand("ls", "The checkpoints of a run.");
  ls->add_option("run", ls_flags->target, "run folder, or a run's name inside --directory")->required();
  ls->add_option("--directory", ls_flags->directory, "where runs are looked for by name")->capture_default_str();
  ls->add_flag("--json", ls_flags->json, "one line: [{\"env_steps\", \"path\", \"latest\", \"best\"}]");
  ls->footer("Example: troupe checkpoint ls runs/my_run");
  ls->callback([=] { *action = [=] { return Ls(*ls_flags); }; });

  const auto save_flags = std::make_shared<CheckpointFlags>();
  CLI::App* save = checkpoint->add_subcommand("save", "Have a run that trains write a checkpoint now.");
  save->add_option("run", save_flags->target, "run folder, or a run's name inside --directory")->required();
  save->add_option("--directory", save_flags->directory, "where runs are looked for by name")->capture_default_str();
  save->add_option("--timeout", save_flags->timeout_s, "seconds to wait until it is durable")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  save->add_flag("--json", save_flags->json, "one line: {\"env_steps\", \"path\"}");
  save->add_option("--to", save_flags->to,
                   "write it there instead of into the run: a new folder, or a checkpoint to replace; the learner "
                   "writes it");
  save->footer(
      "Example: troupe checkpoint save runs/my_run\n"
      "         troupe checkpoint save runs/my_run --to backup/before_the_change");
  save->callback([=] { *action = [=] { return Save(*save_flags); }; });

  const auto prune_flags = std::make_shared<CheckpointFlags>();
  CLI::App* prune = checkpoint->add_subcommand(
      "prune", "Remove a run's older checkpoints, whether it trains or not; the newest and the best stay.");
  prune->add_option("run", prune_flags->target, "run folder, or a run's name inside --directory")->required();
  prune->add_option("--keep", prune_flags->keep, "newest ones that stay, too (default: experiment.keep_checkpoints)")
      ->check(CLI::Range(int64_t{1}, rpc::kMaxKeptCheckpoints));
  prune->add_option("--directory", prune_flags->directory, "where runs are looked for by name")->capture_default_str();
  prune->add_option("--timeout", prune_flags->timeout_s, "seconds to wait for the learner")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  prune->add_flag("--json", prune_flags->json, "one line: {\"removed\"}");
  prune->footer("Example: troupe checkpoint prune runs/my_run --keep 1");
  prune->callback([=] { *action = [=] { return Prune(*prune_flags); }; });

  const auto verify_flags = std::make_shared<CheckpointFlags>();
  CLI::App* verify =
      checkpoint->add_subcommand("verify", "Compare sizes and checksums of every file with the manifest.");
  verify
      ->add_option("target", verify_flags->target,
                   "run folder, a run's name inside --directory, or a checkpoint's folder")
      ->required();
  verify->add_option("--checkpoint", verify_flags->checkpoint, "only this one: latest, best, or its env steps");
  verify->add_option("--directory", verify_flags->directory, "where runs are looked for by name")
      ->capture_default_str();
  verify->add_flag("--json", verify_flags->json,
                   "one line: [{\"path\", \"ok\", \"env_steps\", \"updates\"}], with \"error\" for a damaged one");
  verify->footer("Example: troupe checkpoint verify runs/my_run --checkpoint latest");
  verify->callback([=] { *action = [=] { return Verify(*verify_flags); }; });

  const auto convert_flags = std::make_shared<CheckpointFlags>();
  CLI::App* convert = checkpoint->add_subcommand(
      "convert", "Note in older checkpoints what their policies are. Makes the run's environment, once each.");
  convert
      ->add_option("target", convert_flags->target,
                   "run folder, a run's name inside --directory, or a checkpoint's folder")
      ->required();
  convert->add_option("--checkpoint", convert_flags->checkpoint, "only this one: latest, best, or its env steps");
  convert->add_option("--directory", convert_flags->directory, "where runs are looked for by name")
      ->capture_default_str();
  convert->footer("Example: troupe checkpoint convert runs/my_run");
  convert->callback([=] { *action = [=] { return Convert(*convert_flags); }; });
}

}  // namespace troupe::services
