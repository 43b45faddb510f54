#include "lib/learner/ingest.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using sample::Disposition;
using sample::FragmentAck;

Ingest::Ingest(int64_t budget_bytes, SamplingPlan* plan, Accounting* accounting, std::vector<Feed> feeds)
    : budget_bytes_(budget_bytes), plan_(plan), accounting_(accounting), feeds_(std::move(feeds)) {
  TROUPE_CHECK(!feeds_.empty());
}

absl::Status Ingest::CheckBudget(const LearnerOptions& options, const sample::BatchSchema& schema,
                                 const sample::BatchLimits& limits, int64_t max_ahead) {
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
      __builtin_mul_overflow(1 + max_ahead, batch_bytes, &batches_bytes) ||
      __builtin_mul_overflow(std::max<int64_t>(1, options.num_workers), limits.max_message_bytes, &fragments_bytes) ||
      __builtin_add_overflow(batches_bytes, fragments_bytes, &needed);
  if (overflow || needed > options.ingest_budget_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("ingest_budget_bytes is ", options.ingest_budget_bytes, ", expected at least ",
                     overflow ? std::string("2^63") : absl::StrCat(needed), ": ", 1 + max_ahead, " batches of ", steps,
                     counted, " steps of up to ", step_bytes, " bytes, and a fragment of ", limits.max_message_bytes,
                     " bytes for each of ", std::max(1, options.num_workers), " workers"));
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
  Verdict verdict;
  if (sequences.Look(sequence) == SequenceTracker::Fate::kDuplicate) {
    verdict = {Disposition::kDuplicate, absl::StrCat("sequence ", sequence, " was received before")};
  } else if (fragment.rows.empty() && !fragment.stale_rows.empty()) {
    verdict = {Disposition::kStale, fragment.stale_reason};
  } else if (!fragment.status.ok()) {
    verdict = {Disposition::kInvalid, std::string(fragment.status.message())};
  } else {
    verdict = plan_->Judge(worker, fragment);
  }

  const bool accepted = verdict.disposition == Disposition::kAccepted;
  if (accepted && held_bytes_ + fragment.bytes > budget_bytes_) {
    const absl::Status full = absl::ResourceExhaustedError(
        absl::StrCat("fragments hold ", held_bytes_, " of ", budget_bytes_, " bytes, this one has ", fragment.bytes));
    const bool only_open = selections_ == 0 && NumReady() <= 0;
    if (only_open && stuck_.ok()) {
      stuck_ = absl::ResourceExhaustedError(absl::StrCat("ingest_budget_bytes is too small for iteration ",
                                                         plan_->first_incomplete(), ": ", full.message()));
    }
    return full;
  }

  accounting_->BookArrival(verdict.disposition, fragment.rows);
  accounting_->BookRows(accepted ? Disposition::kStale : verdict.disposition, fragment.stale_rows);
  if (verdict.disposition != Disposition::kDuplicate) sequences.Mark(sequence);
  FragmentAck ack{sequence, sequences.watermark(), verdict.disposition, std::move(verdict.reason)};
  if (accepted) {
    const int64_t iteration = plan_->Accept(worker, sequence, sequences.watermark(), fragment);
    Keep(std::make_shared<KeptFragment>(std::move(fragment), iteration));
  } else if (verdict.disposition == Disposition::kInvalid) {
    plan_->Expire(worker, fragment.batch->grant);
  } else if (verdict.disposition == Disposition::kStale) {
    // Old weights leave a live grant short; a grant that is over leaves the others alone.
    plan_->ExpireIfLive(worker, fragment.batch->grant);
    if (fragment.status.ok()) plan_->NoteLate(worker, fragment.batch->grant);
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
  plan_->Expire(worker, std::nullopt);
  return FragmentAck{sequence, sequences.watermark(), Disposition::kInvalid, reason};
}

void Ingest::Keep(KeptFragmentPtr fragment) {
  held_bytes_ += fragment->checked().bytes;
  fragment->holders_ = static_cast<int32_t>(feeds_.size());
  for (size_t feed = 0; feed < feeds_.size(); ++feed) {
    for (KeptFragmentPtr& gone : feeds_[feed].source->Accept(fragment)) {
      LetGo(*gone);
      accounting_->BookEvicted(TakeUnused(feed, *gone));
      let_go_.push_back(std::move(gone));
    }
  }
}

void Ingest::LetGo(KeptFragment& fragment) {
  if (--fragment.holders_ == 0) held_bytes_ -= fragment.checked().bytes;
}

bool Ingest::Feeds(size_t feed, policy::PolicySlot policy) const {
  const policy::GroupId* const group = accounting_->FindGroup(policy);
  if (group == nullptr) return false;
  if (!feeds_[feed].groups.empty()) return feeds_[feed].groups.count(*group) > 0;
  return std::none_of(feeds_.begin(), feeds_.end(), [group](const Feed& one) { return one.groups.count(*group) > 0; });
}

std::optional<size_t> Ingest::FindReady(size_t from) const {
  for (size_t i = 0; i < feeds_.size(); ++i) {
    const size_t feed = (from + i) % feeds_.size();
    if (NumReady(feed) > 0) return feed;
  }
  return std::nullopt;
}

int64_t Ingest::NumReady() const {
  int64_t ready = 0;
  for (size_t feed = 0; feed < feeds_.size(); ++feed) ready += std::max<int64_t>(0, NumReady(feed));
  return ready;
}

int64_t Ingest::Done() const {
  const int64_t first_incomplete = plan_->first_incomplete();
  int64_t done = first_incomplete;
  for (const Feed& feed : feeds_) done = std::min(done, feed.source->Done(first_incomplete));
  return done;
}

std::vector<PolicyRowCount> Ingest::TakeUnused(size_t feed, KeptFragment& fragment) {
  std::vector<PolicyRowCount> unused;
  for (size_t place = 0; place < fragment.batch().policies.size(); ++place) {
    const policy::PolicySlot slot = fragment.batch().policies[place].policy;
    const bool groupless = accounting_->FindGroup(slot) == nullptr;
    if (groupless ? fragment.holders_ > 0 : !Feeds(feed, slot)) continue;
    const int64_t rows = fragment.UnusedRows(place);
    if (rows == 0) continue;
    unused.push_back({slot, rows});
    fragment.of_policies_[place].used_rows += rows;
  }
  return unused;
}

Selection Ingest::Select(size_t feed) {
  Selection selection = feeds_[feed].source->Select(plan_->first_incomplete());
  for (Pick& pick : selection.picks) {
    ++pick.fragment->holders_;
    pick.first = !std::exchange(pick.fragment->was_selected_, true);
  }
  ++selections_;
  return selection;
}

std::vector<BatchFate> Ingest::Release(size_t feed, const Selection& selection, absl::Span<const PolicyRowCount> aged,
                                       absl::Span<const PolicyRowCount> replaced,
                                       absl::Span<const PolicyRowCount> waited) {
  std::map<policy::PolicySlot, BatchFate> fates;
  for (const Pick& pick : selection.picks) {
    const auto mark = [&](const SegmentRange& range) {
      const policy::PolicySlot slot = pick.fragment->batch().policies[range.place].policy;
      const bool groupless = accounting_->FindGroup(slot) == nullptr;
      if (!groupless && !Feeds(feed, slot)) return;
      const KeptFragment::Marked marked = pick.fragment->Mark(range);
      BatchFate& fate = fates[slot];
      fate.uses += marked.rows;
      fate.trained += marked.first_time;
    };
    for (const SegmentRange& range : pick.ranges) mark(range);
    if (!pick.ranges.empty()) continue;
    const std::vector<sample::PolicyRows>& policies = pick.fragment->batch().policies;
    for (size_t place = 0; place < policies.size(); ++place) mark({place, 0, policies[place].num_segments});
  }
  const auto drop = [&fates](absl::Span<const PolicyRowCount> counts, int64_t BatchFate::*as) {
    for (const PolicyRowCount& count : counts) {
      const auto found = fates.find(count.policy);
      if (found == fates.end()) continue;
      BatchFate& fate = found->second;
      // Rows of a later use have their fate.
      const int64_t rows = std::min(count.rows, fate.trained);
      fate.*as += rows;
      fate.trained -= rows;
      fate.uses -= std::min(count.rows, fate.uses);
    }
  };
  drop(aged, &BatchFate::aged);
  drop(replaced, &BatchFate::evicted);
  for (const PolicyRowCount& count : waited) {
    const auto found = fates.find(count.policy);
    if (found != fates.end()) found->second.waited = std::min(count.rows, found->second.trained);
  }
  for (const Pick& pick : selection.picks) {
    LetGo(*pick.fragment);
    if (!pick.last) continue;
    LetGo(*pick.fragment);
    for (const PolicyRowCount& unused : TakeUnused(feed, *pick.fragment)) {
      fates[unused.policy].evicted += unused.rows;
    }
  }
  --selections_;
  std::vector<BatchFate> result;
  for (auto& [policy, fate] : fates) {
    fate.policy = policy;
    result.push_back(fate);
  }
  return result;
}

std::vector<KeptFragmentPtr> Ingest::TakeLetGo() { return std::exchange(let_go_, {}); }

bool Ingest::Holds(policy::PolicySlot policy) const {
  const auto names = [policy](const KeptFragment& fragment) {
    for (const PolicyRowCount& rows : fragment.checked().rows) {
      if (rows.policy == policy) return true;
    }
    // Returns are counted by them, and rules ask who played against whom.
    for (const sample::FinishedEpisode& episode : fragment.batch().finished) {
      if (std::count(episode.policies.begin(), episode.policies.end(), policy) > 0) return true;
    }
    for (const sample::EpisodeEntry& episode : fragment.batch().episodes) {
      for (const sample::AgentEntry& agent : episode.agents) {
        if (agent.policy == policy) return true;
      }
    }
    return false;
  };
  return std::any_of(feeds_.begin(), feeds_.end(), [&names](const Feed& feed) { return feed.source->AnyKept(names); });
}

}  // namespace troupe::learner
