#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// How many adversaries (the first agents) chase how many good agents around how many obstacles (the first landmarks).
struct PursuitSize {
  size_t adversaries = 0;
  size_t good = 0;
  size_t obstacles = 0;

  size_t agents() const { return adversaries + good; }
  bool is_good(size_t agent) const { return agent >= adversaries; }
  /// Good agents other than `agent`.
  size_t good_others(size_t agent) const { return good - (is_good(agent) ? 1 : 0); }

  /// Reads num_good, num_adversaries and num_obstacles; the values here are the defaults. INVALID_ARGUMENT outside of
  /// [least_good, 512], [0, 512] and [0, 512], and for no agent or more than 512.
  static absl::StatusOr<PursuitSize> Read(env::EnvArgs& args, const PursuitSize& defaults, int least_good);
};

/// What a good agent pays for its distance from the middle along one axis, so that it does not run to infinity: nothing
/// below 0.9, then 10 (x - 0.9) below 1, then min(exp(2 x - 2), 10).
double BorderPenalty(double coordinate);

/// Who touches whom of the other side. No allocation after construction.
class Catches {
 public:
  explicit Catches(const PursuitSize& size) : size_(size), of_(size.agents()) {}

  void Count(const World& world);
  int of(size_t agent) const { return of_[agent]; }
  int total() const { return total_; }
  /// Whether each good agent is touched; true when there is none.
  bool all_caught() const;

 private:
  const PursuitSize size_;
  std::vector<int> of_;  ///< of every agent: how many of the other side touch it
  int total_ = 0;        ///< pairs
};

}  // namespace troupe::envs
