// Queries of policies in other processes: they wait for their policies' turns, and for the owner's threads.

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/serving/query_engine.h"

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
  HostedQuery(QueryEngine* engine, const ActionQuery& query, Policies policies, Done done)
      : engine_(*engine),
        deterministic_(query.deterministic),
        request_(engine->NextRequest(query.deterministic)),
        policies_(std::move(policies)),
        done_(std::move(done)) {
    for (const QueryRows& rows : query.policies) {
      rows_.emplace_back(rows);
      bytes_ += rows_.back().Bytes();
    }
  }

  int64_t bytes() const { return bytes_; }
  const ServedPolicy& first_hosted() const {
    return **std::find_if(policies_.begin(), policies_.end(), [](const auto& it) { return it->runs_elsewhere(); });
  }

  std::optional<TurnQueue::Key> Run() override {
    for (bool had_turn = false; next_ < policies_.size(); ++next_) {
      const ServedPolicy& policy = *policies_[next_];
      if (policy.runs_elsewhere() && std::exchange(had_turn, true)) return policy.slot().value();
      if (answered()) break;
      const QueryRows rows = rows_[next_].Borrow();
      absl::StatusOr<PolicyActions> actions = engine_.Act(policy, rows, request_, first_row_, deterministic_);
      if (!actions.ok()) {
        Answer(actions.status());
        break;
      }
      answer_.push_back(*std::move(actions));
      first_row_ += rows.rows;
    }
    Answer(std::move(answer_));  // unless it is answered
    policies_.clear();           // what was removed meanwhile may go
    return std::nullopt;
  }

  void Refuse(const absl::Status& why) override { Answer(Named(why)); }
  /// With the id of the policy that it needs next.
  absl::Status Named(const absl::Status& why) const {
    const ServedPolicy& policy = next_ == 0 ? first_hosted() : *policies_[next_];
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

  /// A QueryRows with memory of its own.
  struct Rows {
    explicit Rows(const QueryRows& rows)
        : policy_id(rows.policy_id),
          rows(rows.rows),
          obs_dtype(rows.obs_dtype),
          obs(rows.obs.begin(), rows.obs.end()),
          action_mask(rows.action_mask.begin(), rows.action_mask.end()),
          agent_slots(rows.agent_slots.begin(), rows.agent_slots.end()),
          state_in(rows.state_in.begin(), rows.state_in.end()) {}
    QueryRows Borrow() const { return {policy_id, rows, obs_dtype, obs, action_mask, agent_slots, state_in}; }
    int64_t Bytes() const {
      return kBytesAPolicy +
             static_cast<int64_t>(obs.size() + action_mask.size() + 4 * agent_slots.size() + state_in.size());
    }

    policy::PolicyId policy_id;
    int64_t rows;
    tensor::DType obs_dtype;
    std::vector<std::byte> obs;
    std::vector<uint8_t> action_mask;
    std::vector<int32_t> agent_slots;
    std::vector<std::byte> state_in;
  };

  QueryEngine& engine_;
  const bool deterministic_;
  const uint64_t request_;
  std::vector<Rows> rows_;
  int64_t bytes_ = 0;
  // Of the thread that runs it, one after the other.
  Policies policies_;
  size_t next_ = 0;
  int64_t first_row_ = 0;
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

ActionQueries::GiveUp QueryEngine::Enqueue(const ActionQuery& query, Policies policies, Done done) {
  auto hosted = std::make_shared<HostedQuery>(this, query, std::move(policies), std::move(done));
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
