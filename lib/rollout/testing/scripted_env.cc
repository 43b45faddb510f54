#include "lib/rollout/testing/scripted_env.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "lib/base/traceback.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using env::AgentSlot;
using Kind = ScriptedLog::Event::Kind;

/// Writes calls and the log; what happens is a subclass's matter.
class LoggingEnv : public env::MultiAgentEnv {
 public:
  LoggingEnv(const ScriptedOptions& options, ScriptedLog* log)
      : options_(options), spec_(ScriptedSpec(options)), log_(log) {}

  const env::EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
    seed_ = seed;
    step_ = 0;
    return Play(Next(), out);
  }

  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override {
    for (size_t slot = 0; slot < actions.size(); ++slot) {
      if (actions[slot] == nullptr) continue;
      Log(Kind::kAction, static_cast<int>(slot),
          options_.continuous ? actions[slot][0].f32 : static_cast<float>(actions[slot][0].i32));
    }
    ++step_;
    return Play(Next(), out);
  }

 protected:
  virtual ScriptedCall Next() = 0;

  absl::Status Play(const ScriptedCall& call, env::StepWriter& out) {
    for (const auto& [slot, reward] : call.rewards) {
      Log(Kind::kReward, slot, reward);
      out.AddReward(AgentSlot(slot), reward);
    }
    // The rows are filled at the end of the call, as the contract allows, so that columns may have grown in between.
    std::vector<std::pair<int, void*>> rows;
    std::vector<std::pair<int, float*>> states;
    std::vector<std::pair<int, uint8_t*>> masks;
    for (const int slot : call.observe) {
      Log(Kind::kObserve, slot, 0);
      rows.emplace_back(slot, out.Observe(AgentSlot(slot)));
      if (options_.action_mask) masks.emplace_back(slot, out.ActionMask(AgentSlot(slot)));
      if (options_.state_kind == env::StateKind::kPerAgent) states.emplace_back(slot, out.State(AgentSlot(slot)));
      if (options_.agent_mask) {
        const bool active = std::find(call.inactive.begin(), call.inactive.end(), slot) == call.inactive.end();
        out.SetAgentMask(AgentSlot(slot), active);
      }
    }
    if (options_.state_kind == env::StateKind::kPerEnv) states.emplace_back(-1, out.State(AgentSlot(0)));
    for (const auto& [slot, value] : call.infos) out.SetInfo(AgentSlot(slot), 0, value);
    for (const int slot : call.terminate) {
      Log(Kind::kTerminate, slot, 0);
      out.TerminateAgent(AgentSlot(slot));
    }
    for (const int slot : call.truncate) {
      Log(Kind::kTruncate, slot, 0);
      out.TruncateAgent(AgentSlot(slot));
    }
    if (call.terminate_all) {
      Log(Kind::kTerminateAll, -1, 0);
      out.TerminateAll();
    }
    if (call.truncate_all) {
      Log(Kind::kTruncateAll, -1, 0);
      out.TruncateAll();
    }
    for (const auto& [slot, row] : rows) {
      const float values[4] = {static_cast<float>(seed_.env_id.value()), static_cast<float>(seed_.episode),
                               static_cast<float>(step_), static_cast<float>(slot)};
      for (int i = 0; i < 4; ++i) {
        if (options_.uint8_obs) {
          static_cast<uint8_t*>(row)[i] = static_cast<uint8_t>(values[i]);
        } else {
          static_cast<float*>(row)[i] = values[i];
        }
      }
    }
    for (const auto& [slot, mask] : masks) {
      for (int i = 0; i < 3; ++i) mask[i] = i == (step_ + slot) % 3 ? 0 : 1;
    }
    for (const auto& [slot, state] : states) {
      state[0] = static_cast<float>(step_);
      state[1] = static_cast<float>(slot);
    }
    if (!call.fail) return absl::OkStatus();
    Log(Kind::kFail, -1, 0);
    return base::WithCallbackBlamed(absl::Status(options_.failure, "scripted failure"), options_.by_callback);
  }

  void Log(Kind kind, int slot, float value) {
    if (log_ != nullptr) log_->events.push_back({kind, seed_.env_id.value(), seed_.episode, step_, slot, value});
  }

  const ScriptedOptions options_;
  const env::EnvSpec spec_;
  ScriptedLog* const log_;
  env::EpisodeSeed seed_;
  int step_ = 0;
};

class ScriptedEnv final : public LoggingEnv {
 public:
  ScriptedEnv(const ScriptedOptions& options, Script script, ScriptedLog* log)
      : LoggingEnv(options, log), script_(std::move(script)) {}

 private:
  ScriptedCall Next() override { return script_.at(static_cast<size_t>(step_)); }
  const Script script_;
};

class RandomEnv final : public LoggingEnv {
 public:
  RandomEnv(const ScriptedOptions& options, ScriptedLog* log, double fail_probability)
      : LoggingEnv(options, log), fail_probability_(fail_probability) {}

 private:
  ScriptedCall Next() override {
    base::PhiloxSequence random(base::PhiloxKey::Make(seed_.seed, base::RandomStream::kDynamics),
                                {seed_.env_id.value(), seed_.episode, 0, static_cast<uint32_t>(step_) * 1000});
    if (step_ == 0) {
      ready_.clear();
      acted_.clear();
      done_.clear();
    }
    for (const int slot : ready_) acted_.insert(slot);
    ready_.clear();
    ScriptedCall call;
    const bool end = step_ > 0 && (step_ == 12 || random.Uniform() < 0.12);
    for (int slot = 0; slot < options_.agents; ++slot) {
      if (done_.count(slot) > 0) continue;
      if (acted_.count(slot) > 0 && random.Uniform() < 0.6)
        call.rewards[slot] = static_cast<float>(random.Below(64)) / 8.0f;
      const bool observed = random.Uniform() < 0.6;
      if (observed) call.observe.push_back(slot);
      if (observed && random.Uniform() < 0.3) call.inactive.push_back(slot);
      const double fate = random.Uniform();
      // Only agents that have acted leave, and never the last one that may act.
      if (end || acted_.count(slot) == 0 || fate > 0.12) {
        if (observed && !end) ready_.push_back(slot);
        continue;
      }
      (fate < 0.06 ? call.terminate : call.truncate).push_back(slot);
      done_.insert(slot);
    }
    if (end) {
      (random.Uniform() < 0.5 ? call.terminate_all : call.truncate_all) = true;
    } else if (ready_.empty()) {
      // Somebody must act next.
      for (int slot = 0; slot < options_.agents && ready_.empty(); ++slot) {
        if (done_.count(slot) > 0 || std::count(call.observe.begin(), call.observe.end(), slot) > 0) continue;
        call.observe.push_back(slot);
        ready_.push_back(slot);
      }
      if (ready_.empty()) call.truncate_all = true;
    }
    call.fail = step_ > 0 && random.Uniform() < fail_probability_;
    return call;
  }

  const double fail_probability_;
  std::vector<int> ready_;
  std::set<int> acted_, done_;
};

class AllToOne final : public policy::PolicyMapping {
 public:
  explicit AllToOne(int policies) : policies_(policies) {}
  absl::StatusOr<policy::PolicySlot> Map(const base::AgentId&, base::AgentSlot slot,
                                         const policy::EpisodeInfo&) const override {
    return policy::PolicySlot(slot.value() % policies_);
  }

 private:
  const int policies_;
};

template <typename T>
std::vector<T> RowOf(const sample::ColumnView& column, int64_t row) {
  if (!column.present()) return {};
  const auto all = column.As<T>();
  return std::vector<T>(all.begin() + row * column.row_elements, all.begin() + (row + 1) * column.row_elements);
}

std::vector<float> ObsOf(const sample::ColumnView& column, int64_t row) {
  if (column.dtype == tensor::DType::kFloat32) return RowOf<float>(column, row);
  const std::vector<uint8_t> bytes = RowOf<uint8_t>(column, row);
  return std::vector<float>(bytes.begin(), bytes.end());
}

}  // namespace

env::EnvSpec ScriptedSpec(const ScriptedOptions& options) {
  env::EnvSpec spec;
  spec.name = "test/scripted";
  for (int i = 0; i < options.agents; ++i) {
    env::AgentSpec agent;
    agent.id = env::AgentId(absl::StrCat("agent_", i));
    agent.observation_space =
        options.uint8_obs ? *space::Space::Box(0, 255, {4}, tensor::DType::kUint8) : *space::Space::Box(0, 1000, {4});
    agent.action_space = options.continuous ? *space::Space::Box(-0.1, 0.1, {2}) : *space::Space::Discrete(3);
    agent.has_action_mask = options.action_mask;
    spec.possible_agents.push_back(agent);
  }
  spec.state_kind = options.state_kind;
  if (options.state_kind != env::StateKind::kNone) spec.state_space = *space::Space::Box(-1000, 1000, {2});
  spec.has_agent_mask = options.agent_mask;
  for (int i = 0; i < options.info_columns; ++i) spec.info_columns.push_back(absl::StrCat("info_", i));
  return spec;
}

std::unique_ptr<env::MultiAgentEnv> MakeScriptedEnv(const ScriptedOptions& options, Script script, ScriptedLog* log) {
  return std::make_unique<ScriptedEnv>(options, std::move(script), log);
}
std::unique_ptr<env::MultiAgentEnv> MakeRandomEnv(const ScriptedOptions& options, ScriptedLog* log,
                                                  double fail_probability) {
  return std::make_unique<RandomEnv>(options, log, fail_probability);
}

RolloutConfig ScriptedConfig(const ScriptedOptions& options, EnvFactory factory, int policies) {
  RolloutConfig config;
  config.env_spec = ScriptedSpec(options);
  for (int i = 0; i < policies; ++i) {
    policy::PolicySpec policy;
    policy.id = policy::PolicyId(absl::StrCat("policy_", i));
    policy.observation_space = config.env_spec.possible_agents[0].observation_space;
    policy.action_space = config.env_spec.possible_agents[0].action_space;
    policy.has_action_mask = options.action_mask;
    policy.actor.hidden_sizes = {8};
    if (options.state_kind != env::StateKind::kNone) {
      policy.SetCriticInput(policy::NetworkInput::kState, config.env_spec.state_space.flat_size());
    }
    config.policies.push_back(policy);
  }
  config.mapping = std::make_shared<AllToOne>(policies);
  config.env_factory = std::move(factory);
  config.options.seed = 42;
  return config;
}

sample::BatchSchema ScriptedSchema(const RolloutConfig& config) {
  sample::BatchSchema schema;
  for (const env::AgentSpec& agent : config.env_spec.possible_agents) {
    schema.agent_ids.push_back(agent.id.value());
    schema.agent_observation_sizes.push_back(agent.observation_space.flat_size());
  }
  schema.policies = config.policies;
  if (config.env_spec.state_kind == env::StateKind::kPerEnv)
    schema.env_state_size = config.env_spec.state_space.flat_size();
  if (config.env_spec.state_kind == env::StateKind::kPerAgent)
    schema.agent_state_size = config.env_spec.state_space.flat_size();
  schema.has_agent_mask = config.env_spec.has_agent_mask;
  schema.num_info_columns = static_cast<int64_t>(config.env_spec.info_columns.size());
  schema.always_sends_state = config.options.always_sends_state;
  schema.num_envs = 4096;
  return schema;
}

std::vector<policy::WeightSnapshotPtr> ScriptedWeights(const RolloutConfig& config, int64_t n, uint64_t learner_epoch,
                                                       uint32_t salt) {
  std::vector<policy::WeightSnapshotPtr> all;
  for (const policy::PolicySpec& spec : config.policies) {
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->version = {learner_epoch, n};
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
    base::PhiloxSequence random(base::PhiloxKey::Make(5, base::RandomStream::kTest),
                                {salt, static_cast<uint32_t>(n), 0, 0});
    for (float& w : weights->actor) w = static_cast<float>(random.Uniform(-0.2, 0.2));
    all.push_back(std::move(weights));
  }
  return all;
}

sample::Grant ScriptedGrant(uint32_t envs, int32_t env_steps, uint32_t first) {
  sample::Grant grant;
  grant.id = sample::GrantId(7);
  grant.iteration = 3;
  for (uint32_t e = first; e < first + envs; ++e) grant.lanes.push_back({base::EnvId(e), 0, false, env_steps});
  return grant;
}

absl::Status CollectingSink::Submit(sample::MultiAgentBatchPtr fragment) {
  const absl::Status valid = sample::ValidateBatch(*fragment, schema_, {});
  EXPECT_TRUE(valid.ok()) << valid;
  if (!next_status.ok()) return std::exchange(next_status, absl::OkStatus());
  fragments.push_back(std::move(fragment));
  return absl::OkStatus();
}

bool SeenRow::operator<(const SeenRow& other) const {
  return std::tie(env_id, episode, slot, step) < std::tie(other.env_id, other.episode, other.slot, other.step);
}
bool SeenRow::operator==(const SeenRow& o) const {
  return std::tie(env_id, episode, slot, step, obs, state, mask, action, logp, reward, terminated, truncated, active,
                  version, policy) == std::tie(o.env_id, o.episode, o.slot, o.step, o.obs, o.state, o.mask, o.action,
                                               o.logp, o.reward, o.terminated, o.truncated, o.active, o.version,
                                               o.policy);
}

std::vector<SeenRow> RowsOf(const std::vector<sample::MultiAgentBatchPtr>& fragments) {
  std::vector<SeenRow> seen;
  for (const sample::MultiAgentBatchPtr& batch : fragments) {
    const auto step_index = batch->step_index.As<int32_t>();
    const auto step_episode = batch->step_episode.As<sample::Index>();
    for (const sample::PolicyRows& rows : batch->policies) {
      const auto segments = rows.segments.As<int32_t>();
      std::vector<int64_t> last_row(static_cast<size_t>(rows.num_segments));
      for (int64_t r = 0; r < rows.rows; ++r) last_row[rows.segment.As<sample::Index>()[r]] = r;
      for (int64_t r = 0; r < rows.rows; ++r) {
        const int32_t segment = rows.segment.As<sample::Index>()[r];
        const int32_t env_row = rows.env_row.As<sample::Index>()[r];
        const int32_t* words = &segments[segment * sample::kSegmentFields];
        const sample::EpisodeEntry& episode = batch->episodes[words[sample::kSegmentEpisode]];
        SeenRow row;
        row.env_id = episode.env_id.value();
        row.episode = episode.episode;
        row.slot = words[sample::kSegmentSlot];
        row.step = step_index[env_row];
        EXPECT_EQ(step_episode[env_row], words[sample::kSegmentEpisode]);
        EXPECT_GE(row.step, episode.first_step);
        row.obs = ObsOf(rows.obs, r);
        const std::vector<float> want = {static_cast<float>(row.env_id), static_cast<float>(row.episode),
                                         static_cast<float>(row.step), static_cast<float>(row.slot)};
        EXPECT_EQ(row.obs, want);
        row.state = RowOf<float>(rows.state, r);
        if (batch->state.present()) row.state = RowOf<float>(batch->state, env_row);
        if (!row.state.empty()) {
          EXPECT_EQ(row.state[0], row.step);
          EXPECT_EQ(row.state[1], batch->state.present() ? -1 : row.slot);
        }
        row.mask = RowOf<uint8_t>(rows.action_mask, r);
        for (size_t i = 0; i < row.mask.size(); ++i)
          EXPECT_EQ(row.mask[i], static_cast<int>(i) == (row.step + row.slot) % 3 ? 0 : 1);
        for (int64_t w = 0; w < rows.actions.row_elements; ++w) {
          row.action.push_back(sample::ActionAt(rows.actions, r, w).i32);
        }
        row.logp = rows.action_logp.As<float>()[r];
        row.reward = rows.rewards.As<float>()[r];
        const auto end = static_cast<sample::SegmentEnd>(words[sample::kSegmentEnd]);
        const bool is_last = last_row[static_cast<size_t>(segment)] == r;
        row.terminated = is_last && end == sample::SegmentEnd::kTerminated;
        row.truncated = is_last && end == sample::SegmentEnd::kTruncated;
        row.active = !rows.agent_mask.present() || rows.agent_mask.As<uint8_t>()[r] != 0;
        row.version = rows.version.n - words[sample::kSegmentVersionLag];
        row.policy = rows.policy.value();
        seen.push_back(row);
      }
      for (int64_t s = 0; s < rows.num_segments; ++s) {
        const int32_t* words = &segments[s * sample::kSegmentFields];
        const int32_t f = words[sample::kSegmentFinalRow];
        if (f < 0) continue;
        const sample::EpisodeEntry& episode = batch->episodes[words[sample::kSegmentEpisode]];
        const std::vector<float> obs = ObsOf(rows.final_obs, f);
        EXPECT_EQ(obs[0], episode.env_id.value());
        EXPECT_EQ(obs[1], episode.episode);
        EXPECT_EQ(obs[3], words[sample::kSegmentSlot]);
        const int32_t env_row = rows.final_env_row.As<sample::Index>()[f];
        EXPECT_LE(obs[2], step_index[env_row]) << "equal, but for agents cut off without a last look";
        if (batch->state.present()) {
          EXPECT_EQ(RowOf<float>(batch->state, env_row)[0], step_index[env_row]);
        }
        if (rows.final_state.present()) {
          EXPECT_EQ(RowOf<float>(rows.final_state, f)[0], obs[2]);
        }
        if (rows.final_action_mask.present()) {
          EXPECT_EQ(
              RowOf<uint8_t>(rows.final_action_mask, f)[static_cast<size_t>(static_cast<int>(obs[2] + obs[3]) % 3)], 0);
        }
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  return seen;
}

std::vector<std::string> SegmentsOf(const sample::MultiAgentBatch& batch) {
  std::vector<std::string> texts;
  for (const sample::PolicyRows& rows : batch.policies) {
    for (int64_t s = 0; s < rows.num_segments; ++s) {
      const int32_t* words = &rows.segments.As<int32_t>()[s * sample::kSegmentFields];
      const sample::EpisodeEntry& episode = batch.episodes[words[sample::kSegmentEpisode]];
      std::string text = absl::StrCat("env ", episode.env_id.value(), " ep ", episode.episode, " agent ",
                                      words[sample::kSegmentSlot], ":");
      for (int64_t r = 0; r < rows.rows; ++r) {
        if (rows.segment.As<sample::Index>()[r] != s) continue;
        absl::StrAppend(&text, " ", batch.step_index.As<int32_t>()[rows.env_row.As<sample::Index>()[r]], "(+",
                        rows.rewards.As<float>()[r], ")");
      }
      const char* const ends[] = {" cut", " terminated", " truncated"};
      absl::StrAppend(&text, ends[words[sample::kSegmentEnd]]);
      if (words[sample::kSegmentFinalRow] >= 0) {
        const int32_t f = words[sample::kSegmentFinalRow];
        const int32_t env_row = rows.final_env_row.As<sample::Index>()[f];
        absl::StrAppend(&text, "@", ObsOf(rows.final_obs, f)[2], env_row < batch.env_rows ? " at row" : "");
      }
      absl::StrAppend(&text, " lag ", words[sample::kSegmentVersionLag]);
      texts.push_back(text);
    }
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace troupe::rollout
