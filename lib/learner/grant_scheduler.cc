#include "lib/learner/grant_scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using sample::Disposition;
using sample::Grant;
using sample::GrantId;
using sample::GrantLane;
using sample::WorkerId;

namespace {

Verdict Stale(std::string reason) { return {Disposition::kStale, std::move(reason)}; }
Verdict Invalid(std::string reason) { return {Disposition::kInvalid, std::move(reason)}; }

}  // namespace

GrantScheduler::GrantScheduler(const Options& options, uint64_t learner_epoch, int64_t first_iteration,
                               const std::vector<LaneState>& lanes)
    : options_(options),
      learner_epoch_(learner_epoch),
      lanes_(static_cast<size_t>(options.num_envs)),
      // Unique over the lives of a run, so that nobody takes an old grant for a new one.
      next_grant_id_((learner_epoch << 32) + 1),
      next_iteration_(first_iteration),
      env_steps_below_{{first_iteration, options.env_steps_before}},
      limit_(options.grant_timeout) {
  for (const LaneState& lane : lanes) {
    if (lane.env_id.value() >= lanes_.size()) continue;
    LaneOf(lane.env_id).next_episode = lane.next_episode;
    LaneOf(lane.env_id).floor = lane.next_episode;
  }
}

void GrantScheduler::AddWorker(WorkerId worker, absl::Duration now) {
  TROUPE_CHECK(worker.value() != 0 && outstanding_.count(worker.value()) == 0);
  outstanding_[worker.value()] = 0;
  standings_.Join(worker.value());
  if (!first_join_.has_value()) first_join_ = now;
}

void GrantScheduler::RemoveWorker(WorkerId worker) {
  if (outstanding_.count(worker.value()) == 0) return;
  std::optional<absl::Duration> undone_since;
  for (const auto& [id, grant] : grants_) {
    if (grant.worker != worker.value()) continue;
    undone_since = std::min(grant.counts_from, undone_since.value_or(grant.counts_from));
  }
  Expire(worker, std::nullopt);
  standings_.Leave(worker.value(), undone_since, age_);
  for (Lane& lane : lanes_) {
    if (lane.owner == worker.value()) TakeAway(lane);
  }
  outstanding_.erase(worker.value());
  if (!started_ && outstanding_.empty()) first_join_.reset();
}

void GrantScheduler::ExcludeWorker(WorkerId worker) {
  if (outstanding_.count(worker.value()) == 0) return;
  standings_.Exclude(worker.value());
  Expire(worker, std::nullopt);
  for (Lane& lane : lanes_) {
    if (lane.owner == worker.value()) TakeAway(lane);
  }
}

void GrantScheduler::TakeAway(Lane& lane) {
  // The owner may be in an episode of which it has not delivered a row yet, or in those that are granted to it.
  if (lane.out > 0) {
    lane.next_episode = std::max(lane.next_episode, lane.limit);
  } else if (!lane.fresh) {
    ++lane.next_episode;
  }
  lane.owner = 0;
  lane.fresh = true;
}

void GrantScheduler::SetPublished(int64_t done, int64_t n) {
  for (int64_t iteration = has_published_ ? done_ + 1 : done; iteration <= done; ++iteration) {
    version_when_done_[iteration] = n;
  }
  version_when_done_.erase(version_when_done_.begin(), version_when_done_.lower_bound(done - options_.max_ahead));
  env_steps_below_.erase(env_steps_below_.begin(), env_steps_below_.lower_bound(done));
  has_published_ = true;
  done_ = done;
  published_ = n;
}

Verdict GrantScheduler::Judge(WorkerId worker, const CheckedFragment& fragment) const {
  const sample::MultiAgentBatch& batch = *fragment.batch;
  for (const sample::PolicyRows& rows : batch.policies) {
    if (rows.version.learner_epoch == learner_epoch_) continue;
    return Stale(
        absl::StrCat("weights of learner epoch ", rows.version.learner_epoch, ", this is epoch ", learner_epoch_));
  }
  const auto found = grants_.find(batch.grant.value());
  if (found == grants_.end() || found->second.worker != worker.value()) {
    return Stale(absl::StrCat("grant ", batch.grant.value(), " is over, or not of worker ", worker.value()));
  }
  const OpenGrant& grant = found->second;
  if (batch.iteration != grant.iteration) {
    return Invalid(
        absl::StrCat("iteration ", batch.iteration, ", but grant ", batch.grant.value(), " is for ", grant.iteration));
  }
  for (const sample::PolicyRows& rows : batch.policies) {
    if (rows.version.n < grant.min_version) {
      return Stale(absl::StrCat("weights version ", rows.version.n, ", iteration ", grant.iteration, " needs ",
                                grant.min_version));
    }
    const int64_t newest = std::max(published_, publishing_);
    if (rows.version.n > newest) {
      return Invalid(absl::StrCat("weights version ", rows.version.n, ", the newest is ", newest));
    }
  }
  for (const LaneCoverage& covered : fragment.lanes) {
    const GrantedLane* lane = FindLane(grant, covered.env_id);
    if (lane == nullptr) {
      return Invalid(absl::StrCat("environment ", covered.env_id.value(), " is not in grant ", batch.grant.value()));
    }
    if (covered.first_episode < lane->floor || covered.last_episode >= lane->limit) {
      return Invalid(absl::StrCat("environment ", covered.env_id.value(), " has episodes ", covered.first_episode,
                                  " to ", covered.last_episode, ", granted were ", lane->floor, " to ",
                                  int64_t{lane->limit} - 1));
    }
  }
  if (!options_.complete_episodes && grant.delivered + batch.num_env_steps > grant.granted) {
    return Invalid(absl::StrCat(grant.delivered + batch.num_env_steps, " steps for grant ", batch.grant.value(), " of ",
                                grant.granted));
  }
  return {};
}

const GrantScheduler::GrantedLane* GrantScheduler::FindLane(const OpenGrant& grant, base::EnvId env_id) const {
  const auto it = std::lower_bound(grant.lanes.begin(), grant.lanes.end(), env_id,
                                   [](const GrantedLane& lane, base::EnvId id) { return lane.env_id < id; });
  return it != grant.lanes.end() && it->env_id == env_id ? &*it : nullptr;
}

int64_t GrantScheduler::Accept(WorkerId worker, uint64_t sequence, uint64_t watermark,
                               const CheckedFragment& fragment) {
  OpenGrant& grant = grants_.at(fragment.batch->grant.value());
  const int64_t before = std::max<int64_t>(0, grant.granted - grant.delivered);
  grant.delivered += fragment.batch->num_env_steps;
  Round& round = RoundOf(grant);
  const int64_t iteration = round.iteration;
  round.env_steps += fragment.batch->num_env_steps;
  round.agent_steps += fragment.agent_steps;
  for (const auto& [version, agent_steps] : fragment.of_clients) {
    if (version < grant.min_version) round.agent_steps -= agent_steps;  // nobody will train on them
  }
  outstanding_.at(worker.value()) += std::max<int64_t>(0, grant.granted - grant.delivered) - before;
  for (const LaneCoverage& covered : fragment.lanes) {
    const_cast<GrantedLane*>(FindLane(grant, covered.env_id))->seen += covered.env_steps;
    Lane& lane = LaneOf(covered.env_id);
    lane.next_episode = std::max(lane.next_episode, covered.last_episode + 1);
    lane.floor = std::max(lane.floor, covered.last_episode);
    if (covered.last_episode > lane.newest) {
      lane.newest = covered.last_episode;
      lane.revision = std::max(lane.revision, fragment.batch->policies_revision);
    }
  }
  if (fragment.batch->last_of_grant) {
    grant.last_seen = true;
    grant.last_sequence = sequence;
  }
  SettleGrants(worker.value(), watermark);
  return iteration;
}

void GrantScheduler::SettleGrants(uint64_t worker, uint64_t watermark) {
  for (auto it = grants_.begin(); it != grants_.end();) {
    const OpenGrant& grant = it->second;
    const uint64_t id = it->first;
    const bool settled = grant.worker == worker && grant.last_seen && grant.last_sequence <= watermark;
    ++it;
    if (!settled) continue;
    if (grant.delivered < grant.granted) {
      FailGrant(id);  // it said it was done, but was not
    } else {
      const absl::Duration took = age_ - grant.sent;
      limit_.Delivered(took);
      standings_.Delivered(worker, took, limit_.Of(grant.granted));
      if (++delivered_grants_ == 1) ShortenLimits();
      for (const GrantedLane& lane : grant.lanes) EndGrant(LaneOf(lane.env_id));
      grants_.erase(id);
    }
  }
  CompleteRounds();
}

GrantScheduler::Round& GrantScheduler::RoundOf(const OpenGrant& grant) {
  return rounds_[options_.free_running ? 0 : static_cast<size_t>(grant.iteration - rounds_.front().iteration)];
}

void GrantScheduler::EndGrant(Lane& lane) {
  if (--lane.out == 0) lane.limit = 0;
}

void GrantScheduler::CompleteRounds() {
  for (Round& round : rounds_) {
    if (round.complete) continue;
    if (options_.free_running) {
      round.complete = Counted(round) >= options_.train_batch_size;
      continue;
    }
    const bool is_out = std::any_of(grants_.begin(), grants_.end(),
                                    [&round](const auto& grant) { return grant.second.iteration == round.iteration; });
    if (is_out || round.owed > 0) continue;
    if (options_.count_steps_by == CountStepsBy::kAgentSteps && Counted(round) < options_.train_batch_size) {
      FillRound(round);
      continue;
    }
    round.complete = true;
  }
  while (!rounds_.empty() && rounds_.front().complete) {
    const Round& round = rounds_.front();
    env_steps_below_[round.iteration + 1] = env_steps_below_.at(round.iteration) + round.env_steps;
    rounds_.pop_front();
    if (options_.free_running) Begin();
  }
}

void GrantScheduler::Expire(WorkerId worker, std::optional<GrantId> grant) {
  std::vector<uint64_t> over;
  for (const auto& [id, open] : grants_) {
    if (open.worker != worker.value()) continue;
    if (grant.has_value() && grant->value() == id) {
      over = {id};
      break;
    }
    over.push_back(id);
  }
  for (const uint64_t id : over) FailGrant(id);
  CompleteRounds();
}

void GrantScheduler::ExpireIfLive(WorkerId worker, GrantId grant) {
  const auto found = grants_.find(grant.value());
  if (found != grants_.end() && found->second.worker == worker.value()) Expire(worker, grant);
}

void GrantScheduler::FailGrant(uint64_t id) {
  const OpenGrant& grant = grants_.at(id);
  standings_.Failed(grant.worker, grant.counts_from);
  ExpireGrant(id);
}

void GrantScheduler::Advance(absl::Duration now) {
  const absl::Duration gap = now - last_now_.value_or(now);
  age_ += gap > kLongestGap ? kTickOfPause : gap;
  last_now_ = now;
  if (!closed_ && age_ >= next_due_) ExpireOverdue();
}

void GrantScheduler::ExpireOverdue() {
  std::vector<uint64_t> overdue;
  next_due_ = absl::InfiniteDuration();
  for (const auto& [id, grant] : grants_) {
    if (grant.due() <= age_) {
      overdue.push_back(id);
    } else {
      next_due_ = std::min(next_due_, grant.due());
    }
  }
  for (const uint64_t id : overdue) {
    const OpenGrant grant = grants_.at(id);
    ExpireGrant(id);
    for (const GrantedLane& lane : grant.lanes) LaneOf(lane.env_id).owner = 0;
    TakeAwayIdle(grant.worker);
    ExpiredGrant& expired = expired_.emplace_back();
    expired.worker = WorkerId(grant.worker);
    expired.grant = GrantId(id);
    expired.age = age_ - grant.counts_from;
    expired.limit = grant.limit;
    expired.missing_steps = std::max<int64_t>(0, grant.granted - grant.delivered);
    expired.misses = standings_.Expired(grant.worker, id, grant.counts_from, age_);
  }
  CompleteRounds();
}

void GrantScheduler::TakeAwayIdle(uint64_t worker) {
  std::vector<bool> busy(lanes_.size());
  for (const auto& [id, grant] : grants_) {
    if (grant.worker != worker) continue;
    for (const GrantedLane& lane : grant.lanes) busy[lane.env_id.value()] = true;
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].owner == worker && !busy[i]) TakeAway(lanes_[i]);
  }
}

void GrantScheduler::ShortenLimits() {
  next_due_ = absl::InfiniteDuration();
  for (auto& [id, grant] : grants_) {
    grant.limit = std::min(grant.limit, standings_.Allow(grant.worker, limit_.Of(grant.granted)));
    next_due_ = std::min(next_due_, grant.due());
  }
}

void GrantScheduler::ExpireGrant(uint64_t id) {
  const OpenGrant& grant = grants_.at(id);
  const std::vector<int32_t> remaining = RemainingSteps(grant);
  for (size_t i = 0; i < grant.lanes.size(); ++i) {
    const base::EnvId env_id = grant.lanes[i].env_id;
    Lane& lane = LaneOf(env_id);
    if (!options_.free_running) {
      RoundOf(grant).ungranted[env_id.value()] += remaining[i];
      RoundOf(grant).owed += remaining[i];
    }
    lane.fresh = true;
    // The owner may have begun this many episodes: none of them is begun again.
    lane.next_episode = std::max(lane.next_episode, lane.limit);
    lane.floor = lane.next_episode;
    EndGrant(lane);
  }
  outstanding_.at(grant.worker) -= std::max<int64_t>(0, grant.granted - grant.delivered);
  grants_.erase(id);
}

std::vector<int32_t> GrantScheduler::RemainingSteps(const OpenGrant& grant) const {
  std::vector<int32_t> remaining;
  int64_t sum = 0;
  for (const GrantedLane& lane : grant.lanes) {
    remaining.push_back(std::max(0, lane.env_steps - lane.seen));
    sum += remaining.back();
  }
  // `seen` misses steps at which nobody acted or every row is still pending, and counts those twice whose rows were:
  // the sum is exact, its parts need not be. Where episodes are completed, a lane with too much does not pay for
  // another.
  int64_t missing = grant.granted - grant.delivered - sum;
  if (options_.complete_episodes) missing = std::max<int64_t>(0, missing);
  for (size_t i = 0; missing != 0; i = (i + 1) % remaining.size()) {
    if (missing > 0) {
      ++remaining[i];
      --missing;
    } else if (remaining[i] > 0) {
      --remaining[i];
      ++missing;
    }
  }
  return remaining;
}

absl::Duration GrantScheduler::NextDeadline() const {
  if (closed_) return absl::InfiniteDuration();
  if (started_) return last_now_.value_or(absl::ZeroDuration()) + (next_due_ - age_);
  return first_join_.has_value() ? *first_join_ + options_.join_timeout : absl::InfiniteDuration();
}

bool GrantScheduler::MayOpen() const {
  if (!has_published_ || next_iteration_ > done_ + options_.max_ahead) return false;
  if (options_.stop.updates > 0 && next_iteration_ >= options_.stop.updates) return false;
  if (options_.stop.env_steps == 0) return true;
  // An open grant brings its share at least.
  int64_t env_steps = env_steps_below_.rbegin()->second;
  for (const Round& round : rounds_) {
    env_steps += std::max(round.env_steps, round.complete ? 0 : options_.train_batch_size / most_per_env_step());
  }
  return env_steps < options_.stop.env_steps;
}

GrantScheduler::Round& GrantScheduler::Begin() {
  Round& round = rounds_.emplace_back();
  round.iteration = next_iteration_++;
  round.ungranted.resize(lanes_.size());
  return round;
}

void GrantScheduler::Open() {
  Round& round = Begin();
  // At a run's start the first version is the oldest that there is.
  round.min_version = version_when_done_.lower_bound(round.iteration - options_.max_ahead)->second;
  Rebalance();
  FillRound(round);
}

void GrantScheduler::FillRound(Round& round) {
  int64_t env_steps = options_.train_batch_size;
  if (options_.count_steps_by == CountStepsBy::kAgentSteps) {
    env_steps =
        std::max<int64_t>(options_.num_envs, (options_.train_batch_size - round.agent_steps) / options_.num_agents);
  }
  round.owed = env_steps;
  for (size_t i = 0; i < lanes_.size(); ++i) round.ungranted[i] = ShareOf(i, env_steps);
}

int32_t GrantScheduler::ShareOf(size_t i, int64_t env_steps) const {
  const bool has_one_more = static_cast<int64_t>(i) < env_steps % options_.num_envs;
  return static_cast<int32_t>(env_steps / options_.num_envs + (has_one_more ? 1 : 0));
}

void GrantScheduler::Rebalance() {
  struct Share {
    uint64_t worker;
    int32_t misses;
    int64_t has;
    int64_t target;
  };
  std::vector<Share> shares;
  for (const auto& [worker, misses] : standings_.Select(age_)) shares.push_back(Share{worker, misses, 0, 0});
  const auto find = [&shares](uint64_t worker) {
    return std::find_if(shares.begin(), shares.end(), [worker](const Share& s) { return s.worker == worker; });
  };
  for (Lane& lane : lanes_) {
    if (lane.owner == 0) continue;
    if (const auto share = find(lane.owner); share != shares.end()) {
      ++share->has;
    } else {
      TakeAway(lane);
    }
  }
  // Those that have most keep the odd lanes: so the fewest move.
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
    return std::make_tuple(a.misses, -a.has, a.worker) < std::make_tuple(b.misses, -b.has, b.worker);
  });
  const auto num_lanes = static_cast<int64_t>(lanes_.size());
  const auto num_workers = static_cast<int64_t>(shares.size());
  for (int64_t i = 0; i < num_workers; ++i) {
    shares[i].target = num_lanes / num_workers + (i < num_lanes % num_workers ? 1 : 0);
    shares[i].has = 0;
  }
  for (Lane& lane : lanes_) {
    if (lane.owner == 0) continue;
    Share& share = *find(lane.owner);
    if (share.has < share.target) {
      ++share.has;
    } else {
      TakeAway(lane);
    }
  }
  auto share = shares.begin();
  for (Lane& lane : lanes_) {
    if (lane.owner != 0) continue;
    while (share->has == share->target) ++share;
    ++share->has;
    lane.owner = share->worker;
    lane.fresh = true;
  }
}

void GrantScheduler::AdoptOrphans() {
  if (std::none_of(rounds_.begin(), rounds_.end(), [](const Round& round) { return round.owed > 0; })) return;
  std::vector<int64_t> owed(lanes_.size());
  for (const Round& round : rounds_) {
    for (size_t i = 0; i < lanes_.size(); ++i) owed[i] += round.ungranted[i];
  }
  bool any = false;
  std::map<uint64_t, int64_t> load = outstanding_;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    any = any || (owed[i] > 0 && lanes_[i].owner == 0);
    if (lanes_[i].owner != 0) load[lanes_[i].owner] += owed[i];
  }
  if (!any) return;
  const std::vector<WorkerStandings::Choice> choices = standings_.Select(age_);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (owed[i] == 0 || lanes_[i].owner != 0) continue;
    const auto least = std::min_element(choices.begin(), choices.end(), [&load](const auto& a, const auto& b) {
      return std::make_pair(a.misses, load.at(a.worker)) < std::make_pair(b.misses, load.at(b.worker));
    });
    lanes_[i].owner = least->worker;
    lanes_[i].fresh = true;
    load.at(least->worker) += owed[i];
  }
}

std::vector<GrantOrder> GrantScheduler::Schedule(absl::Duration now) {
  std::vector<GrantOrder> orders;
  Advance(now);
  if (closed_ || !standings_.anybody()) return orders;
  if (!started_) {
    const bool all_here = static_cast<int64_t>(outstanding_.size()) >= std::max(1, options_.num_workers);
    if (!all_here && now - *first_join_ < options_.join_timeout) return orders;
    started_ = true;
  }
  if (options_.free_running) {
    GrantFreely(&orders);
    return orders;
  }
  while (MayOpen()) Open();
  AdoptOrphans();
  for (Round& round : rounds_) {
    if (round.owed > 0) GrantRound(round, &orders);
  }
  return orders;
}

void GrantScheduler::GrantRound(Round& round, std::vector<GrantOrder>* orders) {
  std::map<uint64_t, GrantOrder> by_worker;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (round.ungranted[i] == 0) continue;
    const Lane& lane = lanes_[i];
    by_worker[lane.owner].grant.lanes.push_back(GrantLane{base::EnvId(static_cast<uint32_t>(i)),
                                                          std::max(lane.next_episode, lane.limit), lane.fresh,
                                                          round.ungranted[i]});
  }
  for (auto& [worker, order] : by_worker) {
    order.worker = WorkerId(worker);
    Grant& grant = order.grant;
    grant.id = GrantId(next_grant_id_++);
    grant.iteration = round.iteration;
    grant.min_version = policy::WeightVersion{learner_epoch_, round.min_version};
    grant.complete_episodes = options_.complete_episodes;
    OpenGrant& open = grants_[grant.id.value()];
    open.worker = worker;
    open.iteration = round.iteration;
    open.min_version = round.min_version;
    for (const GrantLane& granted : grant.lanes) {
      Lane& lane = LaneOf(granted.env_id);
      lane.next_episode = granted.next_episode;
      if (lane.fresh) {
        lane.floor = lane.newest = granted.next_episode;
        lane.revision = revision_;
      }
      lane.limit = granted.next_episode + static_cast<uint32_t>(granted.env_steps) + kSpareEpisodes;
      ++lane.out;
      open.lanes.push_back(GrantedLane{granted.env_id, granted.env_steps, 0, lane.floor, lane.limit});
      open.granted += granted.env_steps;
      round.ungranted[granted.env_id.value()] = 0;
      round.owed -= granted.env_steps;
      lane.fresh = false;
    }
    outstanding_[worker] += open.granted;
    open.sent = age_;
    open.counts_from = standings_.CountFrom(worker, age_);
    // Its earlier grants come first.
    open.limit = standings_.Allow(worker, limit_.Of(outstanding_[worker]));
    next_due_ = std::min(next_due_, open.due());
    orders->push_back(std::move(order));
  }
}

std::vector<LaneState> GrantScheduler::Lanes() const {
  std::vector<LaneState> lanes;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes.push_back(LaneState{base::EnvId(static_cast<uint32_t>(i)), lanes_[i].next_episode});
  }
  for (const auto& [id, grant] : grants_) {
    for (const GrantedLane& lane : grant.lanes) {
      uint32_t& next_episode = lanes[lane.env_id.value()].next_episode;
      next_episode = std::max(next_episode, lane.limit);
    }
  }
  return lanes;
}

std::vector<WorkerId> GrantScheduler::OwnersOfOlderEpisodes(int64_t revision) const {
  std::vector<WorkerId> owners;
  for (const Lane& lane : lanes_) {
    if (lane.owner != 0 && !lane.fresh && lane.revision < revision) owners.emplace_back(lane.owner);
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  return owners;
}

int32_t GrantScheduler::num_lanes_of(WorkerId worker) const {
  return static_cast<int32_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [worker](const Lane& lane) { return lane.owner == worker.value(); }));
}

int64_t GrantScheduler::outstanding_steps_of(WorkerId worker) const {
  const auto it = outstanding_.find(worker.value());
  return it == outstanding_.end() ? 0 : it->second;
}

}  // namespace troupe::learner
