#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// The native environments by name. Filled explicitly at start-up (no static initializers): each family has a
/// `void Register<Family>(EnvRegistry&)`. Read-only and thread-safe after that.
class EnvRegistry {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnv>>(EnvArgs args)>;

  struct Entry {
    std::string name;         ///< "mpe/simple_spread"
    std::string description;  ///< one line for `troupe envs ls`
    Factory factory;
    bool draws = false;  ///< MultiAgentEnv::Draw makes a picture of it
  };

  /// A name registered twice is our own bug (CHECK).
  void Register(Entry entry);
  /// NOT_FOUND (with the nearest name) or INVALID_ARGUMENT (a bad argument); the environment's spec has been validated.
  absl::StatusOr<std::unique_ptr<MultiAgentEnv>> Make(std::string_view name, const EnvArgs& args) const;
  /// Whether there is such an environment, and it draws itself.
  bool Draws(std::string_view name) const;
  /// Sorted by name.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  /// NOT_FOUND, with what the name may have meant.
  absl::Status NoSuchEnv(std::string_view name) const;

  std::vector<Entry> entries_;
};

}  // namespace troupe::env
