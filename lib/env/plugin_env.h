#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/plugin_abi.h"

namespace troupe::env {

/// A shared library with environments (plugin_abi.h), loaded. The library stays in the process until it ends, because
/// its code may still be needed by what it started. Shared by the environments made from it. Thread-safe.
///
/// What comes out of Make is a MultiAgentEnv like any other. It refuses slots and info columns that do not exist (as
/// INTERNAL, with an EnvRule); everything else of the contract is CheckedEnv's to check. It runs in this process: code
/// that writes where it may not, or crashes, takes the process along (`troupe envs check` looks for the first).
class EnvPlugin : public std::enable_shared_from_this<EnvPlugin> {
 public:
  struct Entry {
    std::string name;
    std::string description;
  };

  /// troupe_env_draw; nullptr: the library has none, and its environments no picture.
  using DrawFunction = int32_t (*)(TroupeEnv* env, const TroupeCanvas* canvas, TroupeEnvError* error);

  /// Loads the library at `path` (see FindEnvPlugin). NOT_FOUND: no file there. INVALID_ARGUMENT: not a
  /// shared library for this machine, something it needs is missing, or not a Troupe plug-in. FAILED_PRECONDITION:
  /// another ABI version.
  static absl::StatusOr<std::shared_ptr<const EnvPlugin>> Load(const std::string& path);
  /// The same of a table that is in this process already; `path` stands in errors.
  static absl::StatusOr<std::shared_ptr<const EnvPlugin>> FromTable(const TroupeEnvPlugin* table,
                                                                    const std::string& path,
                                                                    DrawFunction draw = nullptr);

  /// NOT_FOUND (with the nearest name) or what the library answered; INVALID_ARGUMENT for a spec that cannot be read
  /// or does not hold (EnvSpec::Validate). The environment's spec is named `name`.
  absl::StatusOr<std::unique_ptr<MultiAgentEnv>> Make(std::string_view name, const EnvArgs& args) const;

  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& path() const { return path_; }

 private:
  EnvPlugin(std::string path, const TroupeEnvPlugin* table, DrawFunction draw)
      : path_(std::move(path)), table_(table), draw_(draw) {}

  const std::string path_;
  const TroupeEnvPlugin* const table_;
  const DrawFunction draw_;
  std::vector<Entry> entries_;
};

}  // namespace troupe::env
