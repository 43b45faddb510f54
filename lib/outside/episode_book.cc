#include "lib/outside/episode_book.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::outside {
namespace {

bool IsPlainId(const std::string& id) {
  return !id.empty() && id.size() <= kMaxEpisodeIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

/// Nobody's to guess: whoever knows an episode's id may play in it.
std::string DrawId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(device(), absl::kZeroPad8));
  return id;
}

std::string Shown(const std::string& id) { return base::LogSafe(id, kMaxEpisodeIdBytes); }

constexpr char kRunEndedPayload[] = "troupe.run_ended";

absl::Status Closed(Closing why) {
  if (why == Closing::kWorkerEnds) {
    return absl::UnavailableError("the worker is ending; begin another episode when it is back");
  }
  absl::Status ended = absl::UnavailableError("the run has ended");
  ended.SetPayload(kRunEndedPayload, absl::Cord());
  return ended;
}

}  // namespace

struct EpisodeBook::Episode {
  std::string id;
  std::string host;
  Phase phase = Phase::kClient;
  absl::Duration idle_since;
  int64_t steps = 0;
  std::vector<AgentPhase> agents;
  std::vector<float> rewards;   ///< by agent slot, not written yet
  std::vector<double> returns;  ///< by agent slot, of all that was reported
  End end = End::kNone;         ///< of the step that waits
  CheckedStep step;             ///< that waits
  std::vector<rollout::LoggedAction> logged;
  std::vector<float> logp;  ///< of the actions about to be sent, by agent slot
  uint64_t call = 0;
  Answer answer;
};

EpisodeBook::EpisodeBook(env::EnvSpec spec, const EpisodeLimits& limits, const base::Clock* clock)
    : spec_(std::move(spec)), limits_(limits), clock_(clock), acting_(spec_) {}

bool SaysRunEnded(const absl::Status& status) { return status.GetPayload(kRunEndedPayload).has_value(); }

EpisodeBook::~EpisodeBook() { Close(); }

void EpisodeBook::Call(Answers answers) {
  // Moved: who is answered has the status for itself.
  for (auto& [answer, status] : answers) answer(std::move(status));
}

void EpisodeBook::ChangedLocked() {
  has_news_ = true;
  changed_.NotifyAll();
}

size_t EpisodeBook::NumOfLocked(const std::string& host) const {
  return static_cast<size_t>(std::count_if(episodes_.begin(), episodes_.end(),
                                           [&host](const auto& each) { return each.second->host == host; }));
}

absl::StatusOr<std::string> EpisodeBook::Start(const base::Caller& caller, const std::string& wanted) {
  if (!wanted.empty() && !IsPlainId(wanted)) {
    return absl::InvalidArgumentError(absl::StrCat("got episode_id \"", Shown(wanted), "\", expected at most ",
                                                   kMaxEpisodeIdBytes, " characters of [A-Za-z0-9_.-]"));
  }
  auto episode = std::make_shared<Episode>();
  episode->id = wanted.empty() ? DrawId() : wanted;
  episode->host = caller.Host();
  episode->agents.resize(spec_.possible_agents.size());
  episode->rewards.resize(spec_.possible_agents.size());
  episode->returns.resize(spec_.possible_agents.size());
  episode->logp.resize(spec_.possible_agents.size());
  base::MutexLock lock(&mutex_);
  if (closed_) return closing_;
  if (episodes_.count(episode->id) > 0 || over_.count(episode->id) > 0) {
    return absl::AlreadyExistsError(absl::StrCat("episode \"", Shown(wanted), "\" ",
                                                 over_.count(wanted) > 0 ? over_.at(wanted) : "is in progress",
                                                 "; expected an id of its own"));
  }
  if (episodes_.size() >= limits_.episodes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the worker has ", episodes_.size(), " episodes open, all that env.external.max_episodes allows"));
  }
  const size_t most = std::max<size_t>(1, limits_.episodes / 2);
  if (!episode->host.empty() && NumOfLocked(episode->host) >= most) {
    return absl::ResourceExhaustedError(absl::StrCat("the worker has ", most,
                                                     " episodes open of this network address, half of what "
                                                     "env.external.max_episodes allows"));
  }
  episode->idle_since = clock_->SteadyNow();
  episodes_[episode->id] = episode;
  ++counters_.begun;
  return episode->id;
}

absl::StatusOr<EpisodeBook::EpisodePtr> EpisodeBook::FindLocked(const std::string& id) {
  if (closed_) {
    if (untold_.erase(id) > 0) changed_.NotifyAll();
    return closing_;
  }
  const auto found = episodes_.find(id);
  if (found != episodes_.end()) return found->second;
  const auto over = over_.find(id);
  if (over == over_.end()) return absl::NotFoundError(absl::StrCat("there is no episode \"", Shown(id), "\""));
  return absl::FailedPreconditionError(absl::StrCat("episode \"", Shown(id), "\" ", over->second));
}

absl::StatusOr<EpisodeBook::EpisodePtr> EpisodeBook::FindIdleLocked(const std::string& id) {
  TROUPE_ASSIGN_OR_RETURN(EpisodePtr episode, FindLocked(id));
  if (episode->phase == Phase::kClient || episode->phase == Phase::kActed) return episode;
  return absl::FailedPreconditionError(absl::StrCat("episode \"", Shown(id), "\": another call of it is in progress"));
}

EpisodeBook::Episode* EpisodeBook::OfLaneLocked(base::EnvId env_id) const {
  const auto found = lanes_.find(env_id);
  return found == lanes_.end() ? nullptr : found->second.get();
}

absl::Status EpisodeBook::CheckReturn(const std::string& agent, double value) const {
  if (std::abs(value) <= limits_.max_abs_return) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(agent, "has a return of ", value,
                                                 " in this episode, expected at most ", limits_.max_abs_return,
                                                 " either way (env.max_abs_return)"));
}

absl::Status EpisodeBook::CheckTurnsLocked(const Episode& episode, const CheckedStep& step) const {
  for (const AgentStep& agent : step.agents) {
    const auto slot = static_cast<size_t>(agent.slot.value());
    const AgentPhase phase = episode.agents[slot];
    const char* what = nullptr;
    if (phase == AgentPhase::kDone && !agent.acts()) {
      what = "is done in this episode";
    } else if (phase == AgentPhase::kDone && agent.reward != 0) {
      what = "is done in this episode, expected no reward with the observation with which it returns";
    } else if (phase == AgentPhase::kUnseen && !agent.acts()) {
      what = "has never acted in this episode, expected its first observation";
    } else if (phase == AgentPhase::kUnseen && agent.reward != 0) {
      what = "has never acted in this episode, expected no reward with its first observation";
    }
    const std::string name = absl::StrCat("agent \"", base::LogSafe(spec_.possible_agents[slot].id.value(), 64), "\" ");
    if (what != nullptr) return absl::FailedPreconditionError(absl::StrCat(name, std::string(what)));
    if (!IsReward(double{episode.rewards[slot]} + agent.reward)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "has more reward in this step than it may, expected at most ", kMaxAbsReward));
    }
    TROUPE_RETURN_IF_ERROR(CheckReturn(name, episode.returns[slot] + agent.reward));
  }
  return absl::OkStatus();
}

void EpisodeBook::PostLocked(Episode& episode, CheckedStep step) {
  episode.logged.assign(episode.agents.size(), {});
  for (AgentStep& agent : step.agents) {
    const auto slot = static_cast<size_t>(agent.slot.value());
    episode.rewards[slot] += agent.reward;
    episode.returns[slot] += agent.reward;
    if (agent.end != End::kNone) {
      episode.agents[slot] = AgentPhase::kDone;
    } else if (agent.observed()) {
      episode.agents[slot] = AgentPhase::kActed;
    }
  }
  episode.step = std::move(step);
  for (const AgentStep& agent : episode.step.agents) {
    if (agent.logged.empty()) continue;
    episode.logged[static_cast<size_t>(agent.slot.value())] = {agent.logged.data(), agent.logged_logp,
                                                               episode.step.weights};
  }
  ChangedLocked();
}

absl::Status EpisodeBook::TryActLocked(const std::string& id, CheckedStep step, Answer& answer, uint64_t& call) {
  TROUPE_ASSIGN_OR_RETURN(const EpisodePtr episode, FindIdleLocked(id));
  TROUPE_RETURN_IF_ERROR(CheckTurnsLocked(*episode, step));
  if (episode->steps >= limits_.steps) {
    return absl::ResourceExhaustedError(absl::StrCat("episode \"", Shown(id), "\" has had ", episode->steps,
                                                     " steps, all that it may; EndEpisode ends it"));
  }
  const bool is_first = episode->phase == Phase::kClient;
  PostLocked(*episode, std::move(step));
  episode->phase = is_first ? Phase::kWaits : Phase::kLane;
  if (is_first) waiting_.push_back(episode);
  call = episode->call = next_call_++;
  episode->answer = std::move(answer);
  return absl::OkStatus();
}

uint64_t EpisodeBook::Act(const std::string& id, StepKind kind, const StepReport& report, Answer answer) {
  absl::StatusOr<CheckedStep> step = CheckStep(spec_, kind, report);
  absl::Status status = step.status();
  if (status.ok()) status = acting_.CheckNumber(step->weights);
  uint64_t call = 0;
  {
    base::MutexLock lock(&mutex_);
    // Whose episode is over hears of that first.
    const absl::Status found = FindIdleLocked(id).status();
    if (!found.ok()) {
      status = found;
    } else if (status.ok()) {
      status = TryActLocked(id, *std::move(step), answer, call);
    }
  }
  if (!status.ok()) answer(std::move(status));
  return call;
}

void EpisodeBook::GiveUp(const std::string& id, uint64_t call) {
  Answers answers;
  {
    base::MutexLock lock(&mutex_);
    const auto found = episodes_.find(id);
    if (call == 0 || found == episodes_.end() || found->second->call != call || !found->second->answer) return;
    ++counters_.lost;
    LoseLocked(EpisodePtr(found->second), absl::CancelledError("was lost: its client went away during a call"),
               answers);
  }
  Call(std::move(answers));
}

void EpisodeBook::ForgetLocked(const Episode& episode, const std::string& why) {
  if (episodes_.erase(episode.id) == 0) return;
  over_[episode.id] = why;
  over_ids_.push_back(episode.id);
  if (over_ids_.size() <= limits_.ids_kept) return;
  over_.erase(over_ids_.front());
  over_ids_.pop_front();
}

void EpisodeBook::LoseLocked(const EpisodePtr& episode, const absl::Status& reason, Answers& answers) {
  ForgetLocked(*episode, std::string(reason.message()));
  if (episode->answer) {
    answers.emplace_back(std::exchange(episode->answer, nullptr),
                         absl::Status(reason.code(), absl::StrCat("episode \"", Shown(episode->id), "\" ",
                                                                  std::string(reason.message()))));
  }
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), episode), waiting_.end());
  episode->phase = Phase::kLost;
  ChangedLocked();
}

absl::Status EpisodeBook::LogReturns(const std::string& id,
                                     const std::vector<std::pair<std::string, double>>& returns) {
  base::MutexLock lock(&mutex_);
  TROUPE_ASSIGN_OR_RETURN(const EpisodePtr episode, FindIdleLocked(id));
  std::vector<float> rewards = episode->rewards;
  std::vector<double> all = episode->returns;
  for (const auto& [agent, reward] : returns) {
    const std::string name = absl::StrCat("agent \"", base::LogSafe(agent, 64), "\"");
    const absl::StatusOr<base::AgentSlot> slot = spec_.FindAgent(base::AgentId(agent));
    if (!slot.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": there is no such agent"));
    const AgentPhase phase = episode->agents[static_cast<size_t>(slot->value())];
    if (phase != AgentPhase::kActed) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, phase == AgentPhase::kDone ? " is done in this episode"
                                                        : " has never acted in this episode: nothing to reward"));
    }
    float& sum = rewards[static_cast<size_t>(slot->value())];
    if (!IsReward(sum + reward)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": its reward is ", reward, " after ", sum,
                                                     " in this step, expected at most ", kMaxAbsReward,
                                                     " in all, either way"));
    }
    sum += static_cast<float>(reward);
    all[static_cast<size_t>(slot->value())] += reward;
    TROUPE_RETURN_IF_ERROR(CheckReturn(absl::StrCat(name, " "), all[static_cast<size_t>(slot->value())]));
  }
  episode->rewards = std::move(rewards);
  episode->returns = std::move(all);
  // A call that says nothing keeps nothing alive.
  const bool says_something =
      std::any_of(returns.begin(), returns.end(), [](const auto& each) { return each.second != 0; });
  if (says_something) episode->idle_since = clock_->SteadyNow();
  return absl::OkStatus();
}

absl::Status EpisodeBook::EndEpisode(const std::string& id, End end, const StepReport& report) {
  absl::StatusOr<CheckedStep> step = CheckStep(spec_, StepKind::kEnd, report);
  base::MutexLock lock(&mutex_);
  TROUPE_ASSIGN_OR_RETURN(const EpisodePtr episode, FindIdleLocked(id));
  if (end == End::kNone) {
    return absl::InvalidArgumentError("end is EPISODE_END_NONE, expected how the episode ends");
  }
  if (episode->phase == Phase::kClient) {
    // It had no step, and so no agent.
    if (!report.agents.empty()) {
      return absl::FailedPreconditionError("the episode had no step, expected no agents at its end");
    }
  } else {
    TROUPE_RETURN_IF_ERROR(step.status());
    for (AgentStep& agent : step->agents) {
      // Everybody ends now.
      if (agent.end == End::kNone) agent.end = end;
    }
    TROUPE_RETURN_IF_ERROR(CheckTurnsLocked(*episode, *step));
    PostLocked(*episode, *std::move(step));
    episode->end = end;
    episode->phase = Phase::kEnded;
  }
  ++counters_.ended;
  ForgetLocked(*episode, "has ended");
  return absl::OkStatus();
}

void EpisodeBook::Tick() {
  Answers answers;
  {
    base::MutexLock lock(&mutex_);
    const absl::Duration oldest = clock_->SteadyNow() - limits_.idle;
    std::vector<EpisodePtr> idle;
    for (const auto& [id, episode] : episodes_) {
      const bool is_idle = episode->phase == Phase::kClient || episode->phase == Phase::kActed;
      if (is_idle && episode->idle_since < oldest) idle.push_back(episode);
    }
    for (const EpisodePtr& episode : idle) {
      ++counters_.lost;
      LoseLocked(
          episode,
          absl::FailedPreconditionError(absl::StrCat("was lost: no call for ", absl::FormatDuration(limits_.idle))),
          answers);
    }
  }
  Call(std::move(answers));
}

void EpisodeBook::Close(Closing why) {
  Answers answers;
  {
    base::MutexLock lock(&mutex_);
    if (!closed_) closing_ = Closed(why);
    closed_ = true;
    for (auto& [id, episode] : episodes_) {
      if (episode->answer) {
        answers.emplace_back(std::exchange(episode->answer, nullptr), closing_);
      } else if (SaysRunEnded(closing_)) {
        untold_.insert(id);
      }
      episode->phase = Phase::kLost;
    }
    episodes_.clear();
    waiting_.clear();
    ChangedLocked();
  }
  Call(std::move(answers));
}

absl::Status EpisodeBook::closing() const {
  base::MutexLock lock(&mutex_);
  return closing_;
}

void EpisodeBook::AwaitTold(absl::Duration timeout) {
  base::MutexLock lock(&mutex_);
  base::Await(changed_, &mutex_, base::Deadline::After(timeout),
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return untold_.empty(); });
  untold_.clear();
}

EpisodeBook::Counters EpisodeBook::counters() const {
  base::MutexLock lock(&mutex_);
  return counters_;
}

size_t EpisodeBook::num_open() const {
  base::MutexLock lock(&mutex_);
  return episodes_.size();
}

bool EpisodeBook::HasEpisode() const {
  base::MutexLock lock(&mutex_);
  return !waiting_.empty();
}

bool EpisodeBook::Answered(base::EnvId env_id) const {
  base::MutexLock lock(&mutex_);
  const Episode* const episode = OfLaneLocked(env_id);
  return episode == nullptr || episode->phase != Phase::kActed;
}

bool EpisodeBook::closed() const {
  base::MutexLock lock(&mutex_);
  return closed_;
}

void EpisodeBook::Await(absl::Duration timeout) {
  base::MutexLock lock(&mutex_);
  base::Await(changed_, &mutex_, base::Deadline::After(timeout),
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_news_; });
  has_news_ = false;
}

const rollout::LoggedAction* EpisodeBook::Logged(base::EnvId env_id, base::AgentSlot agent) const {
  base::MutexLock lock(&mutex_);
  const Episode* const episode = OfLaneLocked(env_id);
  if (episode == nullptr || episode->logged.empty()) return nullptr;
  const rollout::LoggedAction& logged = episode->logged[static_cast<size_t>(agent.value())];
  return logged.words == nullptr ? nullptr : &logged;
}

void EpisodeBook::SetLogp(base::EnvId env_id, base::AgentSlot agent, float logp) {
  base::MutexLock lock(&mutex_);
  Episode* const episode = OfLaneLocked(env_id);
  if (episode != nullptr) episode->logp[static_cast<size_t>(agent.value())] = logp;
}

void EpisodeBook::Drop(base::EnvId env_id, const absl::Status& reason) {
  Answers answers;
  {
    base::MutexLock lock(&mutex_);
    const auto found = lanes_.find(env_id);
    if (found == lanes_.end()) return;
    const EpisodePtr episode = found->second;
    lanes_.erase(found);
    if (episode->phase == Phase::kLost || episode->phase == Phase::kEnded) return;
    ++counters_.dropped;
    LoseLocked(episode, absl::Status(reason.code(), absl::StrCat("is over: ", std::string(reason.message()))), answers);
  }
  Call(std::move(answers));
}

std::deque<EpisodeBook::EpisodePtr>::iterator EpisodeBook::NextLocked() {
  std::map<std::string, int> lanes_of_host;
  for (const auto& [lane, episode] : lanes_) ++lanes_of_host[episode->host];
  return std::min_element(waiting_.begin(), waiting_.end(), [&](const EpisodePtr& a, const EpisodePtr& b) {
    return lanes_of_host[a->host] < lanes_of_host[b->host];
  });
}

absl::Status EpisodeBook::Take(base::EnvId env_id) {
  Drop(env_id, absl::AbortedError("a limit of the configuration ended it; begin another"));
  base::MutexLock lock(&mutex_);
  if (waiting_.empty()) return absl::CancelledError("no client has an episode");
  const auto next = NextLocked();
  const EpisodePtr episode = *next;
  waiting_.erase(next);
  episode->phase = Phase::kLane;
  lanes_[env_id] = episode;
  return absl::OkStatus();
}

void EpisodeBook::Play(base::EnvId env_id, env::ActionRows actions) {
  Answer answer;
  std::vector<AgentAction> answers;
  {
    base::MutexLock lock(&mutex_);
    Episode* const episode = OfLaneLocked(env_id);
    if (episode == nullptr || episode->phase != Phase::kLane) return;  // lost meanwhile: nobody hears it
    for (const AgentStep& agent : episode->step.agents) {
      const auto slot = static_cast<size_t>(agent.slot.value());
      if (!agent.acts() || actions[slot] == nullptr) continue;
      const env::AgentSpec& spec = spec_.possible_agents[slot];
      AgentAction& action = answers.emplace_back();
      action.agent = spec.id.value();
      action.action = ToClient(spec.action_space, actions[slot]);
      action.action.logp = episode->logp[slot];
    }
    ++episode->steps;
    episode->phase = Phase::kActed;
    episode->idle_since = clock_->SteadyNow();
    episode->step = {};
    episode->logged.clear();
    answer = std::exchange(episode->answer, nullptr);
  }
  if (answer) answer(std::move(answers));
}

absl::Status EpisodeBook::Write(base::EnvId env_id, env::StepWriter& out) {
  base::MutexLock lock(&mutex_);
  Episode* const episode = OfLaneLocked(env_id);
  if (episode == nullptr || (episode->phase != Phase::kLane && episode->phase != Phase::kEnded)) {
    return absl::CancelledError("the episode's client has reported nothing");
  }
  if (spec_.state_kind == env::StateKind::kPerEnv) {
    std::copy(episode->step.state.begin(), episode->step.state.end(), out.State(base::AgentSlot(0)));
  }
  for (size_t slot = 0; slot < episode->rewards.size(); ++slot) {
    const float reward = std::exchange(episode->rewards[slot], 0.0f);
    if (reward != 0) out.AddReward(base::AgentSlot(static_cast<int32_t>(slot)), reward);
  }
  for (const AgentStep& agent : episode->step.agents) {
    if (agent.observed()) std::memcpy(out.Observe(agent.slot), agent.observation.data(), agent.observation.size());
    if (!agent.action_mask.empty()) {
      std::copy(agent.action_mask.begin(), agent.action_mask.end(), out.ActionMask(agent.slot));
    }
    if (agent.end == End::kTerminated) out.TerminateAgent(agent.slot);
    if (agent.end == End::kTruncated) out.TruncateAgent(agent.slot);
  }
  if (episode->end == End::kNone) return absl::OkStatus();
  if (episode->end == End::kTerminated) {
    out.TerminateAll();
  } else {
    out.TruncateAll();
  }
  lanes_.erase(env_id);
  return absl::OkStatus();
}

}  // namespace troupe::outside
