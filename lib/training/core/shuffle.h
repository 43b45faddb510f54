#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
#include "lib/learner/trainer.h"
#include "lib/policy/ids.h"

namespace troupe::training {

/// Fisher-Yates over `units` of a policy's minibatches, drawn from (seed, iteration, epoch, policy slot) alone.
inline void Shuffle(const learner::UpdateContext& context, int64_t epoch, policy::PolicySlot slot,
                    std::vector<int32_t>* units) {
  const base::PhiloxKey key = base::PhiloxKey::Make(context.seed, base::RandomStream::kShuffle);
  base::PhiloxSequence random(key, {.env_id = static_cast<uint32_t>(context.iteration),
                                    .episode = static_cast<uint32_t>(epoch),
                                    .slot = static_cast<uint32_t>(slot.value())});
  for (size_t i = units->size(); i > 1; --i) {
    std::swap((*units)[i - 1], (*units)[random.Below(static_cast<uint32_t>(i))]);
  }
}

}  // namespace troupe::training
