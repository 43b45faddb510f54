// Steps of a Python environment through lib/envhost: what a worker gets, with random actions that cost next to nothing.
//
//   env_host_bench ENV ARGS [--interpreter PYTHON] [--path FOLDER] [--processes N] [--envs N]
//
// ENV is python:module:attribute, ARGS a JSON object. Every line that it reads, "rounds SECONDS" or "pipelined
// SECONDS", is a turn: in rounds all environments are sent off, then all are finished; pipelined one half of them is
// finished and sent off again while the other half steps, as a worker does it. It answers with a line of JSON: steps,
// seconds, CPU seconds of the processes and bytes of observations that crossed. bench/env_host_bench.py has others take
// turns with it.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
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
      return envs[i]->StartReset({1, base::EnvId(static_cast<uint32_t>(i)), episodes[i]++});
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

absl::Status StartAll(Bench& loop, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) TROUPE_RETURN_IF_ERROR(loop.Start(i));
  return absl::OkStatus();
}

absl::Status FinishAll(Bench& loop, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) TROUPE_RETURN_IF_ERROR(loop.Finish(i));
  return absl::OkStatus();
}

absl::Status Rounds(Bench& loop, absl::Duration time) {
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < time) {
    TROUPE_RETURN_IF_ERROR(StartAll(loop, 0, loop.envs.size()));
    TROUPE_RETURN_IF_ERROR(FinishAll(loop, 0, loop.envs.size()));
  }
  return absl::OkStatus();
}

absl::Status Pipelined(Bench& loop, absl::Duration time) {
  const size_t middle = (loop.envs.size() + 1) / 2;
  TROUPE_RETURN_IF_ERROR(StartAll(loop, 0, loop.envs.size()));
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < time) {
    TROUPE_RETURN_IF_ERROR(FinishAll(loop, 0, middle));
    TROUPE_RETURN_IF_ERROR(StartAll(loop, 0, middle));
    TROUPE_RETURN_IF_ERROR(FinishAll(loop, middle, loop.envs.size()));
    TROUPE_RETURN_IF_ERROR(StartAll(loop, middle, loop.envs.size()));
  }
  return FinishAll(loop, 0, loop.envs.size());
}

absl::Status Run(const std::vector<std::string>& words) {
  envhost::HostOptions options;
  options.processes = 1;
  options.global_state = false;  // the loops it is compared with do not ask for it either
  int num_envs = 16;
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
    } else {
      return wrong(words[i]);
    }
  }
  env::ArgMap args;
  const Json given = Json::parse(words[1], nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return wrong(words[1]);
  for (const auto& [key, value] : given.items()) {
    if (value.is_boolean()) {
      args.emplace_back(key, value.get<bool>());
    } else if (value.is_number_integer()) {
      args.emplace_back(key, value.get<int64_t>());
    } else if (value.is_number()) {
      args.emplace_back(key, value.get<double>());
    } else if (value.is_string()) {
      args.emplace_back(key, value.get<std::string>());
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
  TROUPE_RETURN_IF_ERROR(Rounds(loop, absl::Seconds(0.3)));  // warm
  for (std::string line; std::getline(std::cin, line);) {
    const std::pair<std::string, std::string> turn = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    double seconds = 0;
    if ((turn.first != "rounds" && turn.first != "pipelined") || !absl::SimpleAtod(turn.second, &seconds)) {
      return wrong(line);
    }
    const double cpu = bench::CpuSeconds(pool->PidsForTesting());
    const int64_t steps = loop.steps;
    const absl::Time begin = absl::Now();
    TROUPE_RETURN_IF_ERROR((turn.first == "rounds" ? Rounds : Pipelined)(loop, absl::Seconds(seconds)));
    const Json answer = {{"steps", loop.steps - steps},
                         {"seconds", absl::ToDoubleSeconds(absl::Now() - begin)},
                         {"cpu_seconds", bench::CpuSeconds(pool->PidsForTesting()) - cpu},
                         {"bytes", (loop.steps - steps) * bytes}};
    std::printf("%s\n", answer.dump().c_str());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::base::InitLogging("env_host_bench", "warn");
  const absl::Status status = troupe::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
