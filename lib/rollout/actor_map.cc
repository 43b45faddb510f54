#include "lib/rollout/actor_map.h"

#include <algorithm>
#include <iterator>

#include "lib/base/check.h"
#include "lib/policy/policy_spec.h"

namespace troupe::rollout {

ResidentActor& ActorMap::Insert(policy::PolicySlot slot, std::unique_ptr<ResidentActor> actor) {
  actors_.GrowTo(slot);
  TROUPE_CHECK(actors_[slot] == nullptr);
  actor->held_by = holding_;  // what is made is about to be used
  actors_[slot] = std::move(actor);
  resident_.push_back(slot);
  return *actors_[slot];
}

void ActorMap::Erase(policy::PolicySlot slot) {
  if (Find(slot) == nullptr) return;
  actors_[slot].reset();
  resident_.erase(std::find(resident_.begin(), resident_.end(), slot));
}

std::unique_ptr<ResidentActor> ActorMap::TakeSpare(int32_t shape, const policy::PolicySpec& spec) {
  // The one that was dropped last is the likeliest to be in the cache.
  for (auto it = spares_.rbegin(); it != spares_.rend(); ++it) {
    if ((*it)->shape != shape || !(*it)->actor->TakeOver(spec)) continue;
    std::unique_ptr<ResidentActor> spare = std::move(*it);
    spares_.erase(std::next(it).base());
    spare->last_used = 0;
    spare->adopted_in = 0;
    return spare;
  }
  return nullptr;
}

void ActorMap::Trim(std::vector<policy::PolicySlot>& dropped) {
  if (resident_.size() <= capacity_) return;
  idle_.clear();
  for (const policy::PolicySlot slot : resident_) {
    const ResidentActor& actor = *Find(slot);
    if (actor.held_by != holding_) idle_.emplace_back(actor.last_used, slot);
  }
  if (idle_.size() <= capacity_) return;
  const auto leaving = static_cast<std::ptrdiff_t>(idle_.size() - capacity_);
  std::partial_sort(idle_.begin(), idle_.begin() + leaving, idle_.end());
  for (auto it = idle_.begin(); it != idle_.begin() + leaving; ++it) {
    std::unique_ptr<ResidentActor> leaver = std::move(actors_[it->second]);
    resident_.erase(std::find(resident_.begin(), resident_.end(), it->second));
    if (leaver->shape >= 0 && spares_.size() < kMaxSpares) spares_.push_back(std::move(leaver));
    dropped.push_back(it->second);
  }
}

}  // namespace troupe::rollout
