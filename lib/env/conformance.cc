#include "lib/env/conformance.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/traceback.h"
#include "lib/env/checked_env.h"
#include "lib/env/guarded_writer.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

constexpr size_t kMaxTracebackChars = 4096;

/// The error's message, and the lines of its traceback where there is one.
std::string WithTracebackBelow(const absl::Status& status) {
  const std::string traceback = base::TracebackOf(status);
  return traceback.empty() ? std::string(status.message())
                           : absl::StrCat(status.message(), "\n", base::LogSafeLines(traceback, kMaxTracebackChars));
}

/// One instance with its memory and what it did last.
class Player {
 public:
  Player(std::unique_ptr<MultiAgentEnv> env, uint8_t fill)
      : env_(std::move(env), CheckedEnv::Options{.check_bounds = true}),
        buffers_(env_.spec(), 1),
        guard_(env_.spec()),
        fill_(fill) {
    for (const AgentSpec& agent : spec().possible_agents)
      actions_.emplace_back(static_cast<size_t>(agent.action_space.action_words()));
    rows_.resize(actions_.size());
  }

  absl::Status Reset(const EpisodeSeed& seed) {
    buffers_.Fill(fill_);
    seed_ = seed;
    step_ = 0;
    return Finish(env_.Reset(seed, guard_.Begin(buffers_.BeginStep(0))));
  }

  /// Draws an action for every ready agent; how many acted.
  int SampleActions(base::PhiloxSequence& random) {
    int acted = 0;
    for (size_t i = 0; i < actions_.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      rows_[i] = nullptr;
      if (!buffers_.ready(0, slot)) continue;
      spec().possible_agents[i].action_space.SampleAction(random, buffers_.action_mask(0, slot),
                                                          absl::MakeSpan(actions_[i]));
      rows_[i] = actions_[i].data();
      ++acted;
    }
    return acted;
  }

  absl::Status Step(ActionRows actions) {
    buffers_.Fill(fill_);
    ++step_;
    return Finish(env_.Step(actions, guard_.Begin(buffers_.BeginStep(0))));
  }

  ActionRows rows() const { return rows_; }
  const SlotBuffers& buffers() const { return buffers_; }
  const EnvSpec& spec() const { return env_.spec(); }
  const CheckedEnv& env() const { return env_; }

 private:
  /// What the rows' guards add to a call's status.
  absl::Status Finish(absl::Status status) {
    const absl::Status guards = guard_.End();
    if (!status.ok() || guards.ok()) return status;
    return WithEnvRule(
        absl::Status(guards.code(), absl::StrCat("env ", seed_.env_id.value(), ", episode ", seed_.episode, ", step ",
                                                 step_, ": ", guards.message())),
        EnvRuleOf(guards).value_or(EnvRule::kNoError));
  }

  CheckedEnv env_;
  SlotBuffers buffers_;
  GuardedWriter guard_;
  EpisodeSeed seed_;
  int64_t step_ = 0;
  const uint8_t fill_;
  std::vector<std::vector<space::ActionWord>> actions_;
  std::vector<const space::ActionWord*> rows_;
};

/// What differs between the last calls of two instances; empty when nothing does.
std::string Difference(const SlotBuffers& a, const SlotBuffers& b) {
  const EnvSpec& spec = a.spec();
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  if (a.all_terminated(0) != b.all_terminated(0) || a.all_truncated(0) != b.all_truncated(0))
    return "the end of the episode";
  for (int32_t slot = 0; slot < spec.num_agents(); ++slot) {
    const std::string agent = absl::StrCat(" of agent ", spec.possible_agents[static_cast<size_t>(slot)].id.value());
    if (a.observed(0, slot) != b.observed(0, slot)) return absl::StrCat("readiness", agent);
    if (a.terminated(0, slot) != b.terminated(0, slot) || a.truncated(0, slot) != b.truncated(0, slot))
      return absl::StrCat("end", agent);
    const absl::Span<const float> rewards_a = a.rewards().subspan(static_cast<size_t>(slot), 1);
    const absl::Span<const float> rewards_b = b.rewards().subspan(static_cast<size_t>(slot), 1);
    if (!same(rewards_a, rewards_b)) {
      return absl::StrCat("reward", agent, " (", rewards_a[0], " and ", rewards_b[0], ")");
    }
    if (!same(a.infos(0, slot), b.infos(0, slot))) return absl::StrCat("infos", agent);
    if (!a.observed(0, slot)) continue;
    if (!same(a.observation_bytes(0, slot), b.observation_bytes(0, slot))) return absl::StrCat("observation", agent);
    if (!same(a.action_mask(0, slot), b.action_mask(0, slot))) return absl::StrCat("action mask", agent);
    if (a.agent_mask(0, slot) != b.agent_mask(0, slot)) return absl::StrCat("agent mask", agent);
    if (spec.state_kind == StateKind::kPerAgent && !same(a.state(0, slot), b.state(0, slot)))
      return absl::StrCat("state", agent);
  }
  if (spec.state_kind == StateKind::kPerEnv && !same(a.state(0, 0), b.state(0, 0))) return "the global state";
  return "";
}

/// True where two agents observed the same bytes in the last call.
bool SawAlike(const SlotBuffers& buffers) {
  std::vector<absl::Span<const std::byte>> seen;
  for (int32_t slot = 0; slot < buffers.spec().num_agents(); ++slot) {
    if (buffers.observed(0, slot)) seen.push_back(buffers.observation_bytes(0, slot));
  }
  const auto before = [](absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
    return a.size() != b.size() ? a.size() < b.size() : std::memcmp(a.data(), b.data(), a.size()) < 0;
  };
  std::sort(seen.begin(), seen.end(), before);
  return std::adjacent_find(seen.begin(), seen.end(),
                            [&before](const auto& a, const auto& b) { return !before(a, b); }) != seen.end();
}

class Checker {
 public:
  explicit Checker(const ConformanceOptions& options) : options_(options) {
    for (const EnvRule rule : kEnvRules) report_.lines.push_back(ConformanceLine{.rule = rule});  // in their order
  }

  ConformanceReport Run(const std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnv>>()>& make) {
    absl::StatusOr<std::unique_ptr<MultiAgentEnv>> first = make();
    absl::StatusOr<std::unique_ptr<MultiAgentEnv>> second = make();
    for (const auto& env : {std::cref(first), std::cref(second)}) {
      if (!env.get().ok()) {
        Break(EnvRule::kSpec, std::string(env.get().status().message()));
        return std::move(report_);
      }
    }
    const absl::Status valid = (*first)->spec().Validate();
    if (!valid.ok()) {
      Break(EnvRule::kSpec, std::string(valid.message()));
      return std::move(report_);
    }
    if ((*first)->spec().ToString() != (*second)->spec().ToString()) {
      Break(EnvRule::kSpec, "two instances have different specs");
      return std::move(report_);
    }
    Tried({EnvRule::kSpec});
    const int64_t limit = (*first)->spec().max_episode_steps;
    max_env_steps_ = limit > 0 ? limit : options_.max_env_steps;
    Player one(*std::move(first), 0xFF);  // floats of all ones are NaN: what is not written is found at once
    Player two(*std::move(second), 0x5A);
    report_.complete = true;
    ends_at_ = options_.clock->SteadyNow() + options_.max_time;
    tells_at_ = options_.clock->SteadyNow() + absl::Seconds(1);
    for (int env = 0; env < options_.num_envs && GoesOn(); ++env) {
      for (int episode = 0; episode < options_.episodes && GoesOn(); ++episode) {
        const EpisodeSeed seed{options_.seed, base::EnvId(static_cast<uint32_t>(env)), static_cast<uint32_t>(episode)};
        report_.complete = PlayEpisode(one, two, seed) && report_.complete;
        if (options_.on_episode) options_.on_episode(report_);
      }
    }
    report_.complete = report_.complete && report_.episodes() == int64_t{options_.num_envs} * options_.episodes;
    for (ConformanceLine& line : report_.lines) {
      if (line.ok && line.tried) {
        line.detail = absl::StrCat(report_.episodes(), " episodes, ", report_.env_steps, " env steps");
      }
    }
    return std::move(report_);
  }

 private:
  bool GoesOn() const {
    const bool holds = options_.may_differ ? report_.first_broken_but(EnvRule::kDeterminism) == nullptr : report_.ok();
    return (holds || options_.keep_going) && options_.clock->SteadyNow() < ends_at_;
  }
  void TellOf(int64_t steps, absl::Duration now) {
    if (!options_.on_episode || now < tells_at_) return;
    tells_at_ = now + absl::Seconds(1);
    ConformanceReport played = report_;
    played.env_steps += steps;
    options_.on_episode(played);
  }

  /// Whether it came to its end with no rule broken.
  bool PlayEpisode(Player& one, Player& two, const EpisodeSeed& seed) {
    base::PhiloxSequence random(base::PhiloxKey::Make(options_.seed, base::RandomStream::kTest),
                                {seed.env_id.value(), seed.episode, 0, 0});
    bool compares = report_.lines[static_cast<size_t>(EnvRule::kDeterminism)].ok || !options_.may_differ;
    // The second instance is first sent some steps into another episode: nothing of it may remain.
    const EpisodeSeed other{seed.seed + 1, base::EnvId(seed.env_id.value() + 7), seed.episode + 3};
    if (!Note(two.Reset(other))) return false;
    for (uint32_t i = random.Below(4); i > 0 && !two.buffers().all_done(0); --i) {
      two.SampleActions(random);
      if (!Note(two.Step(two.rows()))) return false;
    }
    if (!Note(one.Reset(seed)) || !Note(two.Reset(seed))) return false;
    Tried({EnvRule::kReset, EnvRule::kObservedAgents, EnvRule::kObservationValue, EnvRule::kInfo, EnvRule::kNoError});
    if (HasMask(one.spec())) Tried({EnvRule::kActionMask});
    if (one.spec().state_kind != StateKind::kNone) Tried({EnvRule::kState});
    int64_t steps = 0;
    std::vector<double> returns(one.spec().possible_agents.size());
    while (true) {
      const std::string difference = compares ? Difference(one.buffers(), two.buffers()) : "";
      if (!difference.empty()) {
        Break(EnvRule::kDeterminism, absl::StrCat("env ", seed.env_id.value(), ", episode ", seed.episode, ", step ",
                                                  steps, ": two instances differ in ", difference));
        if (!options_.may_differ) return false;
        compares = false;
      }
      report_.saw_alike = report_.saw_alike || SawAlike(one.buffers());
      if (one.buffers().all_done(0)) break;
      if (steps == max_env_steps_) {
        Break(EnvRule::kEpisodeEnd, absl::StrCat("env ", seed.env_id.value(), ", episode ", seed.episode,
                                                 ": has not ended after ", steps, " env steps"));
        return false;
      }
      const absl::Duration now = options_.clock->SteadyNow();
      if (now >= ends_at_) {
        report_.env_steps += steps;
        return false;
      }
      TellOf(steps, now);
      report_.agent_steps += one.SampleActions(random);
      if (!Note(one.Step(one.rows())) || (compares && !Note(two.Step(one.rows())))) return false;
      Tried({EnvRule::kActions, EnvRule::kReward, EnvRule::kDeterminism});
      ++steps;
      for (size_t slot = 0; slot < returns.size(); ++slot) {
        const float reward = one.buffers().rewards()[slot];
        returns[slot] += reward;
        report_.got_reward = report_.got_reward || reward != 0;
      }
    }
    Tried({EnvRule::kDone, EnvRule::kEpisodeEnd});
    report_.env_steps += steps;
    report_.ended.push_back({steps, std::move(returns)});
    if (one.env().missing_all_count() > missing_all_) {
      missing_all_ = one.env().missing_all_count();
      Break(EnvRule::kEpisodeEnd, absl::StrCat("env ", seed.env_id.value(), ", episode ", seed.episode, ", step ",
                                               steps, ": all agents are done without __all__"));
      return false;
    }
    return true;
  }

  static bool HasMask(const EnvSpec& spec) {
    return std::any_of(spec.possible_agents.begin(), spec.possible_agents.end(),
                       [](const AgentSpec& agent) { return agent.has_action_mask; });
  }

  void Tried(std::initializer_list<EnvRule> rules) {
    for (const EnvRule rule : rules) report_.lines[static_cast<size_t>(rule)].tried = true;
  }

  /// True when OK; else the rule that the error is about has failed.
  bool Note(const absl::Status& status) {
    if (!status.ok()) Break(EnvRuleOf(status).value_or(EnvRule::kNoError), WithTracebackBelow(status));
    return status.ok();
  }

  void Break(EnvRule rule, const std::string& detail) {
    ConformanceLine& line = report_.lines[static_cast<size_t>(rule)];
    if (!line.ok) return;  // the first error of a rule is told
    line = {.rule = rule, .ok = false, .tried = true, .detail = detail};
    if (options_.on_broken) options_.on_broken(line);
  }

  const ConformanceOptions options_;
  int64_t max_env_steps_ = 0;
  absl::Duration ends_at_ = absl::InfiniteDuration();
  absl::Duration tells_at_ = absl::ZeroDuration();
  int64_t missing_all_ = 0;  // ends without __all__ that were found
  ConformanceReport report_;
};

}  // namespace

const ConformanceLine* ConformanceReport::first_broken() const {
  const auto broken = std::find_if(lines.begin(), lines.end(), [](const ConformanceLine& line) { return !line.ok; });
  return broken == lines.end() ? nullptr : &*broken;
}

const ConformanceLine* ConformanceReport::first_broken_but(EnvRule rule) const {
  const auto broken = std::find_if(lines.begin(), lines.end(),
                                   [rule](const ConformanceLine& line) { return !line.ok && line.rule != rule; });
  return broken == lines.end() ? nullptr : &*broken;
}

std::string ConformanceReport::ToString() const {
  std::string text;
  for (const ConformanceLine& line : lines) {
    const char* const mark = !line.ok ? "FAIL" : !line.tried ? "untried" : complete ? "ok" : "partly";
    absl::StrAppend(&text,
                    absl::StrFormat("%-7s  %-17s  %s", mark, std::string(EnvRuleName(line.rule)),
                                    std::string(EnvRuleDescription(line.rule))),
                    line.ok ? "" : absl::StrCat(": ", line.detail), "\n");
  }
  absl::StrAppend(&text, "played ", episodes(), " episodes, ", env_steps, " env steps, ", agent_steps,
                  " agent steps\n");
  return text;
}

ConformanceReport CheckConformance(const std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnv>>()>& make,
                                   const ConformanceOptions& options) {
  return Checker(options).Run(make);
}

}  // namespace troupe::env
