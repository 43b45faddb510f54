// Queries of policies in other processes: they wait for their policies' turns, and for the owner's threads.

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/served_policy.h"

namespace troupe::serving {
namespace {

/// No slot's: actors end one after the other.
constexpr TurnQueue::Key kFarewell = -1;
/// What a QueryRows takes beside its arrays, roughly.
constexpr int64_t kBytesAPolicy = 512;

}  // namespace

/// A query on its way through its policies, in the order in which it names them. Those in this process are asked in
/// passing. Its caller may go at any time, so it borrows nothing of the caller's.
class QueryEngine::HostedQuery final : public TurnQueue::Work {
 public:
  HostedQuery(QueryEngine* engine, std::vector<Part> parts, Done done)
      : engine_(*engine), parts_(std::move(parts)), done_(std::move(done)) {
    rows_.reserve(parts_.size());
    for (Part& part : parts_) {
      rows_.emplace_back(part.rows);
      rows_.back().LendTo(&part.rows);
      bytes_ += rows_.back().Bytes();
    }
  }

  int64_t bytes() const { return bytes_; }
  const ServedPolicy& first_hosted() const {
    return *std::find_if(parts_.begin(), parts_.end(), [](const Part& part) {
              return part.policy->runs_elsewhere();
            })->policy;
  }

  std::optional<TurnQueue::Key> Run() override {
    for (bool had_turn = false; next_ < parts_.size(); ++next_) {
      Part* const part = &parts_[next_];
      if (part->policy->runs_elsewhere() && std::exchange(had_turn, true)) return part->policy->slot().value();
      if (answered()) break;
      const absl::Status acted = engine_.Act(*part->policy, {&part, 1});
      if (!acted.ok()) {
        Answer(acted);
        break;
      }
      answer_.push_back(std::move(part->actions));
    }
    Answer(std::move(answer_));  // unless it is answered
    parts_.clear();              // what was removed meanwhile may go
    return std::nullopt;
  }

  void Refuse(const absl::Status& why) override { Answer(Named(why)); }
  /// With the id of the policy that it needs next.
  absl::Status Named(const absl::Status& why) const {
    const ServedPolicy& policy = next_ == 0 ? first_hosted() : *parts_[next_].policy;
    return absl::Status(why.code(),
                        absl::StrCat("policy \"", policy.spec().id.value(), "\": ", std::string(why.message())));
  }

  /// The first answer counts. False for others.
  bool Answer(absl::StatusOr<ActionAnswer> answer) {
    Done done;
    {
      base::MutexLock lock(&mutex_);
      done.swap(done_);
    }
    if (done == nullptr) return false;
    done(std::move(answer));
    return true;
  }

 private:
  bool answered() const {
    base::MutexLock lock(&mutex_);
    return done_ == nullptr;
  }

  /// The arrays of a QueryRows in memory of its own.
  struct Rows {
    explicit Rows(const QueryRows& rows)
        : obs(rows.obs.begin(), rows.obs.end()),
          action_mask(rows.action_mask.begin(), rows.action_mask.end()),
          agent_slots(rows.agent_slots.begin(), rows.agent_slots.end()),
          state_in(rows.state_in.begin(), rows.state_in.end()) {}
    void LendTo(QueryRows* rows) const {
      rows->obs = obs;
      rows->action_mask = action_mask;
      rows->agent_slots = agent_slots;
      rows->state_in = state_in;
    }
    int64_t Bytes() const {
      return kBytesAPolicy +
             static_cast<int64_t>(obs.size() + action_mask.size() + 4 * agent_slots.size() + state_in.size());
    }

    std::vector<std::byte> obs;
    std::vector<uint8_t> action_mask;
    std::vector<int32_t> agent_slots;
    std::vector<std::byte> state_in;
  };

  QueryEngine& engine_;
  std::vector<Rows> rows_;  ///< what parts_ borrow
  int64_t bytes_ = 0;
  // Of the thread that runs it, one after the other.
  std::vector<Part> parts_;
  size_t next_ = 0;
  ActionAnswer answer_;

  mutable base::Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);  ///< nullptr: answered
};

/// Ends an actor in another process.
class QueryEngine::HostedFarewell final : public TurnQueue::Work {
 public:
  explicit HostedFarewell(Gone gone) : gone_(std::move(gone)) {}
  std::optional<TurnQueue::Key> Run() override {
    gone_ = {};
    return std::nullopt;
  }
  void Refuse(const absl::Status& /*why*/) override {}

 private:
  Gone gone_;
};

ActionQueries::GiveUp QueryEngine::Enqueue(std::vector<Part> parts, Done done) {
  auto hosted = std::make_shared<HostedQuery>(this, std::move(parts), std::move(done));
  const absl::Status pushed = turns_.Push(hosted, hosted->first_hosted().slot().value(), hosted->bytes());
  if (!pushed.ok()) {
    hosted->Refuse(pushed);
    return nullptr;
  }
  return [this, hosted = std::move(hosted)] {
    if (hosted->Answer(absl::CancelledError("the query was given up"))) turns_.Remove(hosted.get());
  };
}

void QueryEngine::BidFarewell(std::vector<Gone> gone) {
  for (Gone& each : gone) {
    if (!each.policy->runs_elsewhere() || each.actor == nullptr) continue;
    // Closed: there is nobody who would do it, and nothing that hangs.
    turns_.PushUncounted(std::make_shared<HostedFarewell>(std::move(each)), kFarewell).IgnoreError();
  }
}

void QueryEngine::StepHosted() {
  turns_.Step();
  FreeRetired();
}

void QueryEngine::CloseHosted() {
  turns_.Close();
  if (options_.actor_host != nullptr) options_.actor_host->Stop();
}

}  // namespace troupe::serving
