// What faults of Python environments cost the others: one pool whose processes stay well is stepped as fast as it goes,
// beside another one whose environments crash, exit, hang, raise or give garbage once in 1,000 steps, and, in turn
// every half second, beside one whose environments do not.
//
//   env_host_faults_bench [--interpreter PYTHON] [--seconds S] [--repeat N] [--fork-server BOOL]
//
// One thread does both, as a worker: it never waits for the faulty ones, but finishes them when they have something to
// say (HostEnv::Settled). Prints, for each repetition, the healthy pool's env steps a second with and without faults
// beside it, by the clock and by the CPU seconds of its own process, and the ratios' medians; exit 1 when one of them
// is below 0.9.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "bench/cpu_seconds.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_env.h"
#include "lib/envhost/host_pool.h"

namespace troupe {
namespace {

constexpr int kHealthyEnvs = 8;
constexpr int kFaultyEnvs = 8;
constexpr int64_t kOneIn = 1000;
constexpr double kBar = 0.9;
/// Short, so that whatever else the machine does meets both kinds of turns; long beside a restart.
constexpr absl::Duration kTurn = absl::Milliseconds(500);

struct Options {
  std::string interpreter = "python3";
  double seconds = 10;  ///< of either kind of turns
  int repeat = 3;
  bool fork_server = true;  ///< as env.python.fork_server
};

absl::StatusOr<std::shared_ptr<envhost::HostPool>> MakePool(const Options& options, int64_t one_in) {
  envhost::HostOptions host;
  host.interpreter = options.interpreter;
  host.path = {TROUPE_SOURCE_DIR "/lib/envhost/testing"};
  host.processes = 1;
  host.step_timeout = absl::Milliseconds(200);
  host.max_restarts = 1'000'000;
  host.fork_server = options.fork_server;
  env::ArgMap args = {{"length", int64_t{100}}, {"one_in", one_in}};
  if (one_in > 0)
    args.emplace_back("faults", std::string("crash,exit,hang,exception,exception,exception,shape,reward,dtype"));
  return envhost::HostPool::Create(host, "python:host_test_envs:Faulty", env::EnvArgs(args));
}

/// Environments of one pool, each with a call under way.
class Group {
 public:
  static absl::StatusOr<std::unique_ptr<Group>> Create(std::shared_ptr<envhost::HostPool> pool, int count) {
    auto group = std::make_unique<Group>();
    group->pool = std::move(pool);
    for (int i = 0; i < count; ++i) {
      TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> env, group->pool->MakeEnv());
      group->envs_.emplace_back(static_cast<envhost::HostEnv*>(env.release()));
    }
    group->buffers_ = std::make_unique<env::SlotBuffers>(group->envs_[0]->spec(), count);
    group->begin_.assign(group->envs_.size(), true);
    for (size_t i = 0; i < group->envs_.size(); ++i) group->Start(i);
    return group;
  }

  /// Finishes what can be finished (`wait`: everything) and starts it anew.
  void Turn(bool wait) {
    finished_.clear();
    for (size_t i = 0; i < envs_.size(); ++i) {
      if (!wait && !envs_[i]->Settled()) continue;
      const bool was_reset = begin_[i];
      const bool ok = started_[i] && envs_[i]->Finish(buffers_->BeginStep(static_cast<int>(i))).ok();
      begin_[i] = !ok || buffers_->all_done(static_cast<int>(i));
      steps += ok && !was_reset ? 1 : 0;
      errors += ok ? 0 : 1;
      finished_.push_back(i);
    }
    for (const size_t i : finished_) Start(i);
  }

  std::shared_ptr<envhost::HostPool> pool;
  int64_t steps = 0;
  int64_t errors = 0;

 private:
  void Start(size_t i) {
    space::ActionWord word;
    word.i32 = 1;
    const std::vector<const space::ActionWord*> rows(2, &word);
    started_.resize(envs_.size());
    started_[i] = (begin_[i] ? envs_[i]->StartReset({1, base::EnvId(static_cast<uint32_t>(i)), episode_++})
                             : envs_[i]->StartStep(rows))
                      .ok();
  }

  std::vector<std::unique_ptr<envhost::HostEnv>> envs_;
  std::unique_ptr<env::SlotBuffers> buffers_;
  std::vector<bool> begin_, started_;
  std::vector<size_t> finished_;
  uint32_t episode_ = 0;
};

/// What the healthy pool did in one kind of turns.
struct Total {
  double steps = 0, seconds = 0, cpu_seconds = 0;
  double per_s() const { return steps / seconds; }
  double per_cpu_s() const { return steps / cpu_seconds; }
};

/// A turn of kTurn with `healthy` beside `other`.
void Play(Group& healthy, Group& other, Total& total) {
  const int64_t steps = healthy.steps;
  const double cpu = bench::CpuSeconds(healthy.pool->PidsForTesting());
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < kTurn) {
    healthy.Turn(/*wait=*/true);
    other.Turn(/*wait=*/false);
  }
  total.steps += static_cast<double>(healthy.steps - steps);
  total.seconds += absl::ToDoubleSeconds(absl::Now() - begin);
  total.cpu_seconds += bench::CpuSeconds(healthy.pool->PidsForTesting()) - cpu;
}

struct Repetition {
  Total without, with;
  envhost::HostStats faults;
};

absl::StatusOr<Repetition> Measure(const Options& options) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<envhost::HostPool> pool, MakePool(options, 0));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Group> healthy, Group::Create(std::move(pool), kHealthyEnvs));
  TROUPE_ASSIGN_OR_RETURN(pool, MakePool(options, 0));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Group> faultless, Group::Create(std::move(pool), kFaultyEnvs));
  TROUPE_ASSIGN_OR_RETURN(pool, MakePool(options, kOneIn));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Group> faulty, Group::Create(std::move(pool), kFaultyEnvs));
  Total warm_up;
  Play(*healthy, *faultless, warm_up);
  Play(*healthy, *faulty, warm_up);
  Repetition repetition;
  for (absl::Duration played; played < absl::Seconds(options.seconds); played += kTurn) {
    Play(*healthy, *faultless, repetition.without);
    Play(*healthy, *faulty, repetition.with);
  }
  if (healthy->errors > 0) return absl::InternalError("a healthy environment failed");
  repetition.faults = faulty->pool->stats();
  return repetition;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<bool> Run(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const bool known =
        (words[i] == "--interpreter" && !(options.interpreter = words[i + 1]).empty()) ||
        (words[i] == "--seconds" && absl::SimpleAtod(words[i + 1], &options.seconds)) ||
        (words[i] == "--fork-server" && absl::SimpleAtob(words[i + 1], &options.fork_server)) ||
        (words[i] == "--repeat" && absl::SimpleAtoi(words[i + 1], &options.repeat) && options.repeat > 0);
    if (!known) return absl::InvalidArgumentError("did not understand " + words[i]);
  }
  std::printf(
      "| repetition | steps/s beside faults | without | ratio | a CPU second beside faults | without | ratio | faults "
      "(of them deaths, hangs) |\n|---|---|---|---|---|---|---|---|\n");
  std::vector<double> by_clock, by_cpu;
  for (int i = 0; i < options.repeat; ++i) {
    TROUPE_ASSIGN_OR_RETURN(const Repetition repetition, Measure(options));
    const auto& [without, with, faults] = repetition;
    by_clock.push_back(with.per_s() / without.per_s());
    by_cpu.push_back(with.per_cpu_s() / without.per_cpu_s());
    std::printf("| %d | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f | %lld (%lld, %lld) |\n", i + 1, with.per_s(),
                without.per_s(), by_clock.back(), with.per_cpu_s(), without.per_cpu_s(), by_cpu.back(),
                static_cast<long long>(faults.deaths + faults.exceptions + faults.bad_outputs),
                static_cast<long long>(faults.deaths), static_cast<long long>(faults.timeouts));
    std::fflush(stdout);
  }
  std::printf("\nmedian: %.2f by the clock, %.2f by CPU seconds, the bar is %.1f\n", Median(by_clock), Median(by_cpu),
              kBar);
  return std::min(Median(by_clock), Median(by_cpu)) >= kBar;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::base::InitLogging("env_host_faults_bench", "error");
  const absl::StatusOr<bool> met = troupe::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!met.ok()) std::fprintf(stderr, "%s\n", met.status().ToString().c_str());
  return met.ok() && *met ? 0 : 1;
}
