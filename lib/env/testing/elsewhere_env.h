#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env::testing {

/// An environment that is called in two halves, as one in another process: what is started happens at Finish, with a
/// copy of the actions. Counts the calls in flight of all that share a counter, and what breaks the order of calls. For
/// tests.
class ElsewhereEnv final : public MultiAgentEnv {
 public:
  struct Calls {
    int in_flight = 0;
    int most_in_flight = 0;
    int out_of_order = 0;
  };

  ElsewhereEnv(std::unique_ptr<MultiAgentEnv> env, Calls& calls) : env_(std::move(env)), calls_(calls) {}

  const EnvSpec& spec() const override { return env_->spec(); }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override {
    const absl::Status started = StartReset(seed);
    return started.ok() ? Finish(out) : started;
  }
  absl::Status Step(ActionRows actions, StepWriter& out) override {
    const absl::Status started = StartStep(actions);
    return started.ok() ? Finish(out) : started;
  }
  bool runs_elsewhere() const override { return true; }
  absl::Status StartReset(const EpisodeSeed& seed) override {
    Start();
    seed_ = seed;
    return absl::OkStatus();
  }
  absl::Status StartStep(ActionRows actions) override {
    Start();
    words_.clear();
    for (size_t slot = 0; slot < actions.size(); ++slot) {
      const auto size = static_cast<size_t>(spec().possible_agents[slot].action_space.action_words());
      words_.emplace_back();
      if (actions[slot] != nullptr) words_.back().assign(actions[slot], actions[slot] + size);
    }
    return absl::OkStatus();
  }
  absl::Status Finish(StepWriter& out) override {
    if (!started_) ++calls_.out_of_order;
    started_ = false;
    --calls_.in_flight;
    if (seed_.has_value()) return env_->Reset(*std::exchange(seed_, std::nullopt), out);
    std::vector<const space::ActionWord*> rows;
    for (const std::vector<space::ActionWord>& words : words_) rows.push_back(words.empty() ? nullptr : words.data());
    return env_->Step(rows, out);
  }

 private:
  void Start() {
    if (started_) ++calls_.out_of_order;
    started_ = true;
    calls_.most_in_flight = std::max(calls_.most_in_flight, ++calls_.in_flight);
  }

  const std::unique_ptr<MultiAgentEnv> env_;
  Calls& calls_;
  bool started_ = false;
  std::optional<EpisodeSeed> seed_;
  std::vector<std::vector<space::ActionWord>> words_;
};

}  // namespace troupe::env::testing
