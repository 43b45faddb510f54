#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_table.h"

namespace troupe::config {

/// Code of somebody's that a run wants run: what no build of Troupe holds. Plain value.
struct Statement {
  enum class Kind : uint8_t {
    kEnv = 1,          ///< `env.name`: python:…
    kPlugin = 2,       ///< file name of `env.plugin`, a colon, and the environment in it
    kMapping = 3,      ///< a mapping function: python:…
    kPolicy = 4,       ///< the class of a policy: python:…
    kModule = 5,       ///< a TorchScript file: sha256:HEX
    kCallback = 6,     ///< a class whose methods are called for episodes: python:…
    kObservation = 7,  ///< an observation function: python:…
    kExternal = 8,     ///< a door for clients whose world is outside (`env.external`); no name
  };
  Kind kind;
  std::string name;

  /// 64-bit FNV-1a of kind and name: says which statement is meant, to who knows it, and no name to others.
  uint64_t Digest() const;
  friend bool operator<(const Statement& a, const Statement& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
  }
};

/// What the configuration, or the policies of a table, want run.
std::set<Statement> StatementsOf(const RunConfig& config);
std::set<Statement> StatementsOf(const policy::PolicyTable& table);

/// The digest of a list of digests in ascending order (Hello.permits_digest); 0 for none is never given.
uint64_t CombineDigests(absl::Span<const uint64_t> digests);

/// What a worker runs for whoever answers at its learner's address: native environments and policies, and the
/// statements of its own side, each exactly as it stands there. Where Python, its modules and a plug-in are found is
/// its own side's to say alone. Immutable value; thread-safe.
///
/// Decides on texts and plain values: nothing is imported, opened or started to find out.
class Permits {
 public:
  static constexpr size_t kMaxStatements = 256;  ///< in Digests

  /// Nothing but what is native.
  Permits() : Permits(RunConfig()) {}
  /// `own`: the worker's file. `python_names`: names besides, each of which may be any of these that is in
  /// Python. `module_hashes`: of TorchScript files, besides those of `own`, which is pinned. INVALID_ARGUMENT a name
  /// that does not begin with python:, or holds * or ?; more than kMaxStatements.
  static absl::StatusOr<Permits> Make(const RunConfig& own, const std::vector<std::string>& python_names,
                                      const std::vector<std::string>& module_hashes = {});

  /// What the worker resolves and runs where the learner says `asked`: that, with its own env.python.interpreter,
  /// env.python.path, env.python.folder, env.plugin, and the door of env.external. PERMISSION_DENIED (exit code
  /// kRefused) says what was asked and what to add.
  ///
  /// The arguments of an environment in Python, or in a plug-in, may differ from the worker's file in numbers, booleans
  /// and null; text may not, neither values nor names inside values (gymnasium.make imports what an id says). Those of
  /// a native environment name no file, module or program, and are free.
  absl::StatusOr<RunConfig> Admit(const RunConfig& asked) const;
  /// The policies and their mapping after a change. PERMISSION_DENIED as Admit.
  absl::Status Check(const policy::PolicyTable& table) const;

  /// Whether this one is among the statements of its own side.
  bool Permit(const Statement& asked) const { return statements_.count(asked) > 0; }

  /// Of everything that is permitted and that a change of a run may ask for later, ascending: no callbacks and
  /// observation functions.
  std::vector<uint64_t> Digests() const;

 private:
  explicit Permits(RunConfig own);
  absl::Status Check(const std::set<Statement>& asked) const;

  RunConfig own_;
  std::set<Statement> statements_;
};

}  // namespace troupe::config
