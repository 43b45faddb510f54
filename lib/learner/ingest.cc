#include "lib/learner/ingest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::learner {

using sample::Disposition;
using sample::FragmentAck;

Ingest::Ingest(int64_t budget_bytes, GrantScheduler* scheduler, Accounting* accounting)
    : budget_bytes_(budget_bytes), scheduler_(scheduler), accounting_(accounting) {}

absl::Status Ingest::CheckBudget(const LearnerOptions& options, const sample::BatchSchema& schema,
                                 const sample::BatchLimits& limits) {
  const bool by_agent_steps = options.count_steps_by == CountStepsBy::kAgentSteps;
  const int64_t step_bytes = by_agent_steps ? MaxBytesPerAgentStep(schema) : MaxBytesPerEnvStep(schema);
  const char* const counted = by_agent_steps ? " agent" : " env";
  int64_t steps = options.train_batch_size;
  // A batch of agent steps may be larger by almost an env step of every environment.
  if (by_agent_steps) steps += int64_t{options.num_envs} * static_cast<int64_t>(schema.agent_ids.size());
  int64_t batch_bytes = 0;
  int64_t batches_bytes = 0;
  int64_t fragments_bytes = 0;
  int64_t needed = 0;
  const bool overflow =
      __builtin_mul_overflow(steps, step_bytes, &batch_bytes) ||
      __builtin_mul_overflow(1 + options.max_policy_lag, batch_bytes, &batches_bytes) ||
      __builtin_mul_overflow(std::max<int64_t>(1, options.num_workers), limits.max_message_bytes, &fragments_bytes) ||
      __builtin_add_overflow(batches_bytes, fragments_bytes, &needed);
  if (overflow || needed > options.ingest_budget_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("ingest_budget_bytes is ", options.ingest_budget_bytes, ", expected at least ",
                     overflow ? std::string("2^63") : absl::StrCat(needed), ": ", 1 + options.max_policy_lag,
                     " batches of ", steps, counted, " steps of up to ", step_bytes, " bytes, and a fragment of ",
                     limits.max_message_bytes, " bytes for each of ", std::max(1, options.num_workers), " workers"));
  }
  return absl::OkStatus();
}

absl::Status Ingest::CheckSequence(const SequenceTracker& sequences, uint64_t sequence) const {
  if (sequences.Look(sequence) != SequenceTracker::Fate::kTooFar) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, ", expected ", sequences.watermark() + 1,
                                                 " to ", sequences.watermark() + SequenceTracker::kMaxGap));
}

absl::StatusOr<FragmentAck> Ingest::Offer(sample::WorkerId worker, SequenceTracker& sequences, uint64_t sequence,
                                          CheckedFragment fragment) {
  TROUPE_RETURN_IF_ERROR(CheckSequence(sequences, sequence));
  GrantScheduler::Verdict verdict;
  if (sequences.Look(sequence) == SequenceTracker::Fate::kDuplicate) {
    verdict = {Disposition::kDuplicate, absl::StrCat("sequence ", sequence, " was received before")};
  } else if (fragment.rows.empty() && !fragment.stale_rows.empty()) {
    verdict = {Disposition::kStale, fragment.stale_reason};
  } else if (!fragment.status.ok()) {
    verdict = {Disposition::kInvalid, std::string(fragment.status.message())};
  } else {
    verdict = scheduler_->Judge(worker, fragment);
  }

  const bool accepted = verdict.disposition == Disposition::kAccepted;
  if (accepted && held_bytes_ + fragment.bytes > budget_bytes_) {
    const absl::Status full = absl::ResourceExhaustedError(
        absl::StrCat("fragments hold ", held_bytes_, " of ", budget_bytes_, " bytes, this one has ", fragment.bytes));
    const bool only_open =
        taken_bytes_ == 0 && (held_.empty() || held_.begin()->first >= scheduler_->first_incomplete());
    if (only_open && stuck_.ok()) {
      stuck_ = absl::ResourceExhaustedError(absl::StrCat("ingest_budget_bytes is too small for iteration ",
                                                         scheduler_->first_incomplete(), ": ", full.message()));
    }
    return full;
  }

  accounting_->BookArrival(verdict.disposition, fragment.rows);
  accounting_->BookRows(accepted ? Disposition::kStale : verdict.disposition, fragment.stale_rows);
  if (verdict.disposition != Disposition::kDuplicate) sequences.Mark(sequence);
  FragmentAck ack{sequence, sequences.watermark(), verdict.disposition, std::move(verdict.reason)};
  if (accepted) {
    held_bytes_ += fragment.bytes;
    scheduler_->Accept(worker, sequence, sequences.watermark(), fragment);
    const int64_t iteration = fragment.batch->iteration;
    held_[iteration].push_back(std::move(fragment));
  } else if (verdict.disposition == Disposition::kInvalid) {
    scheduler_->Expire(worker, fragment.batch->grant);
  } else if (verdict.disposition == Disposition::kStale) {
    // Old weights leave a live grant short; a grant that is over leaves the others alone.
    scheduler_->ExpireIfLive(worker, fragment.batch->grant);
    if (fragment.status.ok()) scheduler_->NoteLate(worker, fragment.batch->grant);
  }
  return ack;
}

absl::StatusOr<FragmentAck> Ingest::OfferUndecodable(sample::WorkerId worker, SequenceTracker& sequences,
                                                     uint64_t sequence, const std::string& reason) {
  TROUPE_RETURN_IF_ERROR(CheckSequence(sequences, sequence));
  if (sequences.Look(sequence) == SequenceTracker::Fate::kDuplicate) {
    accounting_->BookArrival(Disposition::kDuplicate, {});
    return FragmentAck{sequence, sequences.watermark(), Disposition::kDuplicate,
                       absl::StrCat("sequence ", sequence, " was received before")};
  }
  accounting_->BookUndecodable();
  sequences.Mark(sequence);
  scheduler_->Expire(worker, std::nullopt);
  return FragmentAck{sequence, sequences.watermark(), Disposition::kInvalid, reason};
}

std::vector<CheckedFragment> Ingest::Take(int64_t iteration) {
  std::vector<CheckedFragment> taken;
  const auto found = held_.find(iteration);
  if (found == held_.end()) return taken;
  taken = std::move(found->second);
  held_.erase(found);
  for (const CheckedFragment& fragment : taken) taken_bytes_ += fragment.bytes;
  return taken;
}

bool Ingest::Holds(policy::PolicySlot policy) const {
  const auto names = [policy](const CheckedFragment& fragment) {
    for (const PolicyRowCount& rows : fragment.rows) {
      if (rows.policy == policy.value()) return true;
    }
    // Returns are counted by them, and rules ask who played against whom.
    for (const sample::FinishedEpisode& episode : fragment.batch->finished) {
      if (std::count(episode.policies.begin(), episode.policies.end(), policy.value()) > 0) return true;
    }
    for (const sample::EpisodeEntry& episode : fragment.batch->episodes) {
      for (const sample::AgentEntry& agent : episode.agents) {
        if (agent.policy == policy) return true;
      }
    }
    return false;
  };
  for (const auto& [iteration, fragments] : held_) {
    if (std::any_of(fragments.begin(), fragments.end(), names)) return true;
  }
  return false;
}

void Ingest::Release(const std::vector<CheckedFragment>& taken) {
  for (const CheckedFragment& fragment : taken) {
    taken_bytes_ -= fragment.bytes;
    held_bytes_ -= fragment.bytes;
  }
}

}  // namespace troupe::learner
