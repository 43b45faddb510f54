// Steps of a Python environment through lib/envhost: what a worker gets, with random actions that cost next to nothing.
//
//   env_host_bench ENV ARGS [--interpreter PYTHON] [--path FOLDER] [--processes N] [--envs N] [--seconds S]
//
// ENV is python:module:attribute, ARGS a JSON object. Prints one line of JSON: env steps a second in rounds (all
// environments are sent off, then all are finished, as a worker does) and pipelined (an environment is sent off as soon
// as it is finished), and the bytes of observations that crossed a second. bench/env_host_bench.py compares this with
// bare loops and with other vector environments.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/cpu_seconds.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_pool.h"
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using Json = nlohmann::json;

struct Bench {
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs;
  std::unique_ptr<env::SlotBuffers> buffers;
  std::vector<uint32_t> episodes;
  uint32_t random = 1;
  int64_t steps = 0;

  /// Counts steps; an episode's reset is none.
  absl::Status Start(size_t i) {
    const env::EnvSpec& spec = envs[i]->spec();
    const int env = static_cast<int>(i);
    const bool reset = episodes[i] == 0 || buffers->all_done(env);
    steps += reset ? 0 : 1;
    if (reset) {
      return envs[i]->StartReset({1, static_cast<uint32_t>(i), episodes[i]++});
    }
    std::vector<space::ActionWord>& words = words_;
    words.resize(spec.possible_agents.size());
    rows_.assign(words.size(), nullptr);
    for (size_t a = 0; a < words.size(); ++a) {
      if (!buffers->ready(env, static_cast<int32_t>(a))) continue;
      const space::Space& space = spec.possible_agents[a].action_space;
      random = random * 1664525u + 1013904223u;
      words[a].i32 = static_cast<int32_t>(space.start() + static_cast<int64_t>(random >> 8) % space.n());
      rows_[a] = &words[a];
    }
    return envs[i]->StartStep(rows_);
  }
  absl::Status Finish(size_t i) { return envs[i]->Finish(buffers->BeginStep(static_cast<int>(i))); }

 private:
  std::vector<space::ActionWord> words_;
  std::vector<const space::ActionWord*> rows_;
};

struct Rate {
  double per_s = 0;
  double per_cpu_s = 0;
};

absl::StatusOr<double> Rounds(Bench& loop, absl::Duration time) {
  const absl::Time begin = absl::Now();
  const int64_t before = loop.steps;
  while (absl::Now() - begin < time) {
    for (size_t i = 0; i < loop.envs.size(); ++i) TROUPE_RETURN_IF_ERROR(loop.Start(i));
    for (size_t i = 0; i < loop.envs.size(); ++i) TROUPE_RETURN_IF_ERROR(loop.Finish(i));
  }
  return static_cast<double>(loop.steps - before) / absl::ToDoubleSeconds(absl::Now() - begin);
}

absl::StatusOr<double> Pipelined(Bench& loop, absl::Duration time) {
  for (size_t i = 0; i < loop.envs.size(); ++i) TROUPE_RETURN_IF_ERROR(loop.Start(i));
  const absl::Time begin = absl::Now();
  const int64_t before = loop.steps;
  while (absl::Now() - begin < time) {
    for (size_t i = 0; i < loop.envs.size(); ++i) {
      TROUPE_RETURN_IF_ERROR(loop.Finish(i));
      TROUPE_RETURN_IF_ERROR(loop.Start(i));
    }
  }
  const double rate = static_cast<double>(loop.steps - before) / absl::ToDoubleSeconds(absl::Now() - begin);
  for (size_t i = 0; i < loop.envs.size(); ++i) TROUPE_RETURN_IF_ERROR(loop.Finish(i));
  return rate;
}

absl::StatusOr<Json> Run(const std::vector<std::string>& words) {
  envhost::HostOptions options;
  options.processes = 1;
  options.global_state = false;  // the loops it is compared with do not ask for it either
  int num_envs = 16;
  double seconds = 3;
  const auto wrong = [&](const std::string& word) { return absl::InvalidArgumentError("did not understand " + word); };
  if (words.size() < 2) return absl::InvalidArgumentError("expected an environment and its arguments as JSON");
  for (size_t i = 2; i + 1 < words.size(); i += 2) {
    const std::string& value = words[i + 1];
    if (words[i] == "--interpreter") {
      options.interpreter = value;
    } else if (words[i] == "--path") {
      options.path.push_back(value);
    } else if (words[i] == "--processes") {
      if (!absl::SimpleAtoi(value, &options.processes)) return wrong(value);
    } else if (words[i] == "--envs") {
      if (!absl::SimpleAtoi(value, &num_envs)) return wrong(value);
    } else if (words[i] == "--seconds") {
      if (!absl::SimpleAtod(value, &seconds)) return wrong(value);
    } else {
      return wrong(words[i]);
    }
  }
  std::map<std::string, env::ArgValue> args;
  const Json given = Json::parse(words[1], nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return wrong(words[1]);
  for (const auto& [key, value] : given.items()) {
    if (value.is_boolean()) {
      args[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      args[key] = value.get<int64_t>();
    } else if (value.is_number()) {
      args[key] = value.get<double>();
    } else if (value.is_string()) {
      args[key] = value.get<std::string>();
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<envhost::HostPool> pool,
                          envhost::HostPool::Create(options, words[0], env::EnvArgs(args)));
  Bench loop;
  for (int i = 0; i < num_envs; ++i) {
    TROUPE_ASSIGN_OR_RETURN(loop.envs.emplace_back(), pool->MakeEnv());
  }
  loop.buffers = std::make_unique<env::SlotBuffers>(loop.envs[0]->spec(), num_envs);
  loop.episodes.assign(static_cast<size_t>(num_envs), 0);
  int64_t bytes = 0;
  for (const env::AgentSpec& agent : loop.envs[0]->spec().possible_agents) {
    if (agent.action_space.kind() != space::SpaceKind::kDiscrete) {
      return absl::InvalidArgumentError("expected Discrete actions");
    }
    bytes += agent.observation_space.flat_size() *
             static_cast<int64_t>(tensor::ElementBytes(agent.observation_space.flat_dtype()));
  }
  TROUPE_RETURN_IF_ERROR(Rounds(loop, absl::Seconds(0.3)).status());  // warm
  const auto measure = [&](auto&& run) -> absl::StatusOr<Rate> {
    const double cpu = bench::CpuSeconds(pool->PidsForTesting());
    const absl::Time begin = absl::Now();
    TROUPE_ASSIGN_OR_RETURN(const double per_s, run(loop, absl::Seconds(seconds)));
    const double steps = per_s * absl::ToDoubleSeconds(absl::Now() - begin);
    return Rate{per_s, steps / (bench::CpuSeconds(pool->PidsForTesting()) - cpu)};
  };
  TROUPE_ASSIGN_OR_RETURN(const Rate rounds, measure(Rounds));
  TROUPE_ASSIGN_OR_RETURN(const Rate pipelined, measure(Pipelined));
  return Json{{"env", words[0]},
              {"processes", options.processes},
              {"envs", num_envs},
              {"env_steps_per_s_rounds", rounds.per_s},
              {"env_steps_per_cpu_s_rounds", rounds.per_cpu_s},
              {"env_steps_per_s_pipelined", pipelined.per_s},
              {"env_steps_per_cpu_s_pipelined", pipelined.per_cpu_s},
              {"observation_bytes_per_step", bytes},
              {"observation_gb_per_s_pipelined", pipelined.per_s * static_cast<double>(bytes) / 1e9}};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::base::InitLogging("env_host_bench", "warn");
  const absl::StatusOr<nlohmann::json> result = troupe::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", result->dump().c_str());
  return 0;
}
