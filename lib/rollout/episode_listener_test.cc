// Who watches the episodes of a worker.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Notes what it hears.
class Listener final : public EpisodeListener {
 public:
  explicit Listener(bool tells_envs) : tells_envs_(tells_envs) {}
  bool TellsEnvs() const override { return tells_envs_; }
  void OnEnded(absl::Span<const sample::FinishedEpisode> episodes,
               const policy::BySlot<policy::PolicySpec>& policies) override {
    for (const sample::FinishedEpisode& episode : episodes) {
      std::string players;
      for (const policy::PolicySlot slot : episode.policies) {
        absl::StrAppend(&players, " ", slot == policy::kNoPolicy ? "-" : policies[slot].id.value());
      }
      ended.push_back(absl::StrCat("env ", episode.env_id.value(), " episode ", episode.episode, players));
    }
  }
  void AddTo(sample::EnvReport* report) const override {
    report->tracked = {{"episodes", static_cast<double>(ended.size()), static_cast<int64_t>(ended.size())}};
  }

  std::vector<std::string> ended;

 private:
  const bool tells_envs_;
};

/// Passes on, and notes what environments are told.
class Told final : public env::MultiAgentEnv {
 public:
  Told(std::unique_ptr<env::MultiAgentEnv> inner, std::vector<std::string>* notes, std::vector<float>* log_probs)
      : inner_(std::move(inner)), notes_(*notes), log_probs_(*log_probs) {}
  const env::EnvSpec& spec() const override { return inner_->spec(); }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
    notes_.push_back("reset");
    return inner_->Reset(seed, out);
  }
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override {
    notes_.push_back("step");
    return inner_->Step(actions, out);
  }
  void NoteDecision(env::AgentSlot slot, std::string_view policy, float log_prob) override {
    notes_.push_back(absl::StrCat(slot.value(), " is ", std::string(policy)));
    log_probs_.push_back(log_prob);
  }
  void NoteEnd() override { notes_.push_back("end"); }

 private:
  const std::unique_ptr<env::MultiAgentEnv> inner_;
  std::vector<std::string>& notes_;
  std::vector<float>& log_probs_;
};

/// Agent 1 comes late; the third step is the limit.
const Script kLate = {
    {.observe = {0}}, {.observe = {0, 1}}, {.observe = {0, 1}}, {.observe = {0, 1}, .truncate_all = true}};

class EpisodeListenerTest : public testing::Test {
 protected:
  std::unique_ptr<Rig> MakeRig(std::shared_ptr<Listener> listener, const Script& script) {
    RolloutConfig config = ScriptedConfig(
        {}, [this, script] { return std::make_unique<Told>(MakeScriptedEnv({}, script), &notes_, &log_probs_); }, 2);
    config.listener = std::move(listener);
    return std::make_unique<Rig>(std::move(config));
  }
  std::vector<std::string> notes_;
  std::vector<float> log_probs_;
};

TEST_F(EpisodeListenerTest, EnvironmentsAreToldWhoPlaysBeforeTheyActAndOfTheEndBeforeTheNextReset) {
  const auto listener = std::make_shared<Listener>(/*tells_envs=*/true);
  const auto rig = MakeRig(listener, kLate);
  const std::string first = rig->collector->config().policies[policy::PolicySlot(0)].id.value();
  const std::string second = rig->collector->config().policies[policy::PolicySlot(1)].id.value();
  for (const int32_t steps : {2, 2}) ASSERT_TRUE(rig->Run(ScriptedGrant(1, steps)).ok());
  const std::string zero = "0 is " + first;
  const std::string one = "1 is " + second;
  EXPECT_THAT(notes_,
              ElementsAre("reset", zero, "step", zero, one, "step", zero, one, "step", "end", "reset", zero, "step"));
  std::vector<float> sent;
  for (const SeenRow& row : RowsOf(rig->sink.fragments)) sent.push_back(row.logp);
  EXPECT_THAT(log_probs_, testing::UnorderedElementsAreArray(sent));
  EXPECT_THAT(listener->ended, ElementsAre(absl::StrCat("env 0 episode 0 ", first, " ", second)));
  EXPECT_EQ(rig->collector->TakeReport().tracked, (std::vector<base::TrackedTotal>{{"episodes", 1, 1}}));
}

TEST_F(EpisodeListenerTest, AnEpisodeThatFailsHasNoEnd) {
  const auto listener = std::make_shared<Listener>(/*tells_envs=*/true);
  const auto rig = MakeRig(listener, {{.observe = {0}}, {.observe = {0}}, {.observe = {0}, .fail = true}});
  ASSERT_TRUE(rig->Run(ScriptedGrant(1, 4)).ok());
  EXPECT_THAT(notes_, testing::Not(testing::Contains("end")));
  EXPECT_THAT(listener->ended, IsEmpty());
}

TEST_F(EpisodeListenerTest, WithoutOneEnvironmentsAreToldNothing) {
  for (const bool listens : {true, false}) {
    notes_.clear();
    const auto listener = listens ? std::make_shared<Listener>(/*tells_envs=*/false) : nullptr;
    const auto rig = MakeRig(listener, kLate);
    ASSERT_TRUE(rig->Run(ScriptedGrant(1, 3)).ok());
    EXPECT_THAT(notes_, ElementsAre("reset", "step", "step", "step"));
    EXPECT_EQ(listens ? listener->ended.size() : 1u, 1u);
    EXPECT_EQ(rig->collector->TakeReport().tracked.size(), listens ? 1u : 0u);
  }
}

}  // namespace
}  // namespace troupe::rollout
