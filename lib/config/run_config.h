#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::v1 {
class RunConfig;
}

namespace troupe::config {

/// Of a configuration as text: a file, an override, or what a learner tells its workers.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

/// An override that sets `key` to the text `text`, whatever it holds.
std::string TextOverride(std::string_view key, std::string_view text);

/// A run's configuration: every key of proto/troupe/v1/config.proto with a value that has been checked for type and
/// range, and where that value was written. Not yet checked against an environment: ResolveRun does that. Immutable
/// value with cheap copies; thread-safe.
///
/// Every error is INVALID_ARGUMENT (a file that cannot be read: NOT_FOUND) and reads `file:line:column: key: got,
/// expected`, with the nearest key for an unknown one. A value from `overrides` has the place `--set key=value`.
class RunConfig {
 public:
  /// The defaults alone.
  RunConfig();

  /// The file at `path`, then `overrides` ("algorithm.lr=1e-3", the value in YAML) in order. An empty file is an error.
  /// A relative env.plugin, and paths to TorchScript files, become absolute: in the file it is relative to the file's
  /// folder, in an override to the working directory. So are names of Python that name a file; they stay as they are
  /// written, and env.python.folder says where they lie, unless the file names some as well as an override, whose names
  /// become absolute then.
  static absl::StatusOr<RunConfig> FromFile(const std::string& path, const std::vector<std::string>& overrides = {});
  /// The config.yaml of a run or checkpoint at `path`. One of before there was model.scaling goes on by_255, as it
  /// began.
  static absl::StatusOr<RunConfig> FromRun(const std::string& path, const std::vector<std::string>& overrides = {});
  /// The same from text; `source` stands for the file's name in errors.
  static absl::StatusOr<RunConfig> FromYaml(std::string_view text, std::string_view source,
                                            const std::vector<std::string>& overrides = {});

  /// The changes of `evaluation.env`, as overrides of a command line; empty: none.
  std::vector<std::string> EvaluationOverrides() const;
  /// Canonical YAML of every key, in the schema's order: FromYaml gives an equal RunConfig, equal configurations give
  /// equal text. This is what runs/<name>/config.yaml holds.
  std::string ToYaml() const;

  const v1::RunConfig& proto() const { return *proto_; }
  /// experiment.directory: where a run's name is looked up before anything else of the run is known.
  std::string experiment_directory() const;
  /// num_workers: what starts a run's processes knows before its environment is made.
  int32_t num_workers() const;
  /// True if the file, an override or a preset gives `key` a value.
  bool IsWritten(std::string_view key) const;
  /// "file:line:column" of the value of `key` ("algorithm.gamma"), or of the innermost section that was written;
  /// "default" when it was not.
  std::string Where(std::string_view key) const;
  /// INVALID_ARGUMENT "Where(key): key: text". As all errors of a configuration it has base::ExitCode::kRefused.
  absl::Status KeyError(std::string_view key, std::string_view text) const;

  /// The same with `num_envs` set, which must be in its range.
  RunConfig WithNumEnvs(int32_t num_envs) const;
  /// The same with what `own` says of where things are on this machine: env.python.interpreter, env.python.path,
  /// env.python.folder and, where there is a plug-in, env.plugin.
  RunConfig WithPlacesOf(const RunConfig& own) const;
  /// The same with other values at the places of these.
  RunConfig With(std::shared_ptr<const v1::RunConfig> proto) const;
  /// The same with this env.external.address.
  RunConfig WithExternalAddress(const std::string& address) const;
  /// The same without what others sign in with: experiment.wandb_kwargs.
  RunConfig WithoutSecrets() const;

  friend bool operator==(const RunConfig& a, const RunConfig& b) { return a.ToYaml() == b.ToYaml(); }
  friend bool operator!=(const RunConfig& a, const RunConfig& b) { return !(a == b); }

 private:
  struct Places;

  static absl::StatusOr<RunConfig> ReadFile(const std::string& path, const std::vector<std::string>& overrides);
  void AnchorPaths(const std::string& file);

  std::shared_ptr<const v1::RunConfig> proto_;
  std::shared_ptr<const Places> places_;
};

/// Every key with its default, unit, range and meaning as comments: a file that FromYaml accepts (`troupe config
/// defaults`).
std::string DefaultsYaml();
/// The same as Markdown tables (docs/configuration.md holds it).
std::string DefaultsMarkdown();

}  // namespace troupe::config
