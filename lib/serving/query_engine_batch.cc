// Queries of policies in this process: their parts wait in the policies' lanes, and who leads a lane computes them.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/inference/actor.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/served_policy.h"

namespace troupe::serving {
namespace {

template <typename T>
void Append(absl::Span<const T> from, std::vector<T>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

/// A reader of the map for one query, from those that no query uses.
class QueryEngine::ReaderLease {
 public:
  explicit ReaderLease(Actors* actors) : actors_(*actors) {
    {
      base::MutexLock lock(&actors_.mutex);
      if (!actors_.idle_readers.empty()) {
        reader_ = std::move(actors_.idle_readers.back());
        actors_.idle_readers.pop_back();
      }
    }
    if (reader_ == nullptr) reader_ = std::make_unique<ActorMap::Reader>(actors_.map.get());
  }
  ~ReaderLease() {
    base::MutexLock lock(&actors_.mutex);
    actors_.idle_readers.push_back(std::move(reader_));
  }
  ReaderLease(const ReaderLease&) = delete;
  ReaderLease& operator=(const ReaderLease&) = delete;
  ActorMap::Reader* operator->() { return reader_.get(); }

 private:
  Actors& actors_;
  std::unique_ptr<ActorMap::Reader> reader_;
};

/// The arrays of one forward: a single part's own, or those of several in one.
class QueryEngine::Forward {
 public:
  Forward(const ServedPolicy& policy, absl::Span<Part* const> parts)
      : policy_(policy), spec_(policy.spec()), parts_(parts) {
    for (const Part* const part : parts) rows_ += part->rows.rows;
    words_ = static_cast<size_t>(spec_.action_words());
    state_size_ = static_cast<size_t>(spec_.actor_state_size());
    actions_.resize(static_cast<size_t>(rows_) * words_);
    logp_.resize(static_cast<size_t>(rows_));
    MakeKeys();
    input_.rows = rows_;
    input_.keys = keys_.data();
    input_.deterministic = parts[0]->deterministic;
    if (parts[0]->seed.has_value()) input_.seed = &*parts[0]->seed;
    input_.obs = parts[0]->rows.obs.data();
    if (parts.size() > 1) {
      for (const Part* const part : parts) Append(part->rows.obs, &obs_);
      input_.obs = obs_.data();
    }
    if (spec_.mask_size() > 0) MakeMask();
    if (state_size_ > 0) MakeState();
    if (Wants(QueryOutput::kLogits)) {
      outputs_.resize(static_cast<size_t>(rows_ * spec_.actor_output_size()));
      input_.outputs = outputs_.data();
    }
  }

  absl::Status Run(inference::PolicyActor* actor) {
    if (Wants(QueryOutput::kMean) && !input_.deterministic) {
      // What is remembered is overwritten by the decision itself, which therefore comes last.
      inference::ActInput mode = input_;
      mode.deterministic = true;
      std::vector<float> state(state_.size());
      if (state_size_ > 0) mode.state_out = state.data();
      modes_.resize(actions_.size());
      TROUPE_RETURN_IF_ERROR(actor->Act(mode, modes_.data(), logp_.data()));
    }
    return actor->Act(input_, actions_.data(), logp_.data());
  }

  bool WantsValues() const { return Wants(QueryOutput::kValue); }
  absl::Status RunValues(inference::Actor* network) {
    values_.resize(static_cast<size_t>(rows_));
    inference::ActInput input = input_;
    input.action_mask = nullptr;
    input.outputs = nullptr;
    return network->Forward(input, absl::MakeSpan(values_));
  }

  /// Gives each part its rows.
  void HandOut(policy::WeightVersion version) {
    if (input_.deterministic && Wants(QueryOutput::kMean)) modes_ = actions_;
    int64_t first = 0;
    for (Part* const part : parts_) {
      PolicyActions& answer = part->actions;
      answer.policy_id = spec_.id;
      answer.version = version;
      answer.rows = part->rows.rows;
      answer.word_dtypes = policy_.word_dtypes();
      const auto begin = static_cast<size_t>(first);
      const auto rows = static_cast<size_t>(answer.rows);
      if (parts_.size() == 1) {
        answer.sampled_actions = std::move(actions_);
        answer.logp = std::move(logp_);
        answer.state_out = std::move(state_);
      } else {
        Copy(begin, rows, &answer);
      }
      answer.state_tag = policy_.state_tag();
      answer.actions = answer.sampled_actions;
      for (size_t row = 0; !policy_.bounds().identity() && row < rows; ++row) {
        const absl::Span<space::ActionWord> action = absl::MakeSpan(answer.actions).subspan(row * words_, words_);
        policy_.bounds().Apply(action, action);
      }
      if (part->outputs.Has(QueryOutput::kLogits)) HandOutLogits(first, &answer);
      if (part->outputs.Has(QueryOutput::kMean)) HandOutMean(first, &answer);
      if (part->outputs.Has(QueryOutput::kValue)) {
        answer.values.assign(values_.begin() + first, values_.begin() + first + answer.rows);
      }
      DropUnasked(part->outputs, &answer);
      first += answer.rows;
    }
  }

 private:
  bool Wants(QueryOutput output) const {
    return std::any_of(parts_.begin(), parts_.end(), [output](const Part* part) { return part->outputs.Has(output); });
  }

  void MakeKeys() {
    keys_.reserve(static_cast<size_t>(rows_));
    for (const Part* const part : parts_) {
      const absl::Span<const int32_t> slots = part->rows.agent_slots;
      for (size_t row = 0; row < static_cast<size_t>(part->rows.rows); ++row) {
        keys_.push_back({base::EnvId(static_cast<uint32_t>(part->request >> 32)), static_cast<uint32_t>(part->request),
                         base::AgentSlot(slots.empty() ? 0 : slots[row]),
                         static_cast<uint32_t>(part->first_row) + static_cast<uint32_t>(row)});
      }
    }
  }

  void MakeMask() {
    if (parts_.size() == 1 && !parts_[0]->rows.action_mask.empty()) {
      input_.action_mask = parts_[0]->rows.action_mask.data();
      return;
    }
    for (const Part* const part : parts_) {
      if (part->rows.action_mask.empty()) {
        mask_.resize(mask_.size() + static_cast<size_t>(part->rows.rows * spec_.mask_size()), 1);
      } else {
        Append(part->rows.action_mask, &mask_);
      }
    }
    input_.action_mask = mask_.data();
  }

  void MakeState() {
    state_.resize(static_cast<size_t>(rows_) * state_size_);
    float* to = state_.data();
    for (const Part* const part : parts_) {
      if (!part->rows.state_in.empty()) std::memcpy(to, part->rows.state_in.data(), part->rows.state_in.size());
      to += static_cast<size_t>(part->rows.rows) * state_size_;
    }
    input_.state_in = input_.state_out = state_.data();
  }

  /// The part's rows of what was computed together.
  void Copy(size_t begin, size_t rows, PolicyActions* answer) const {
    const auto part_of = [begin, rows](const auto& all, size_t columns) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin * columns);
      return std::vector(first, first + static_cast<std::ptrdiff_t>(rows * columns));
    };
    answer->sampled_actions = part_of(actions_, words_);
    answer->logp = part_of(logp_, 1);
    answer->state_out = part_of(state_, state_size_);
  }

  /// The last layer's first columns.
  void HandOutLogits(int64_t first, PolicyActions* answer) const {
    const int64_t size = LogitsSize(spec_);
    for (int64_t row = first; row < first + answer->rows; ++row) {
      const float* const from = outputs_.data() + row * spec_.actor_output_size();
      answer->logits.insert(answer->logits.end(), from, from + size);
    }
  }

  void HandOutMean(int64_t first, PolicyActions* answer) const {
    for (int64_t row = first; row < first + answer->rows; ++row) {
      for (size_t word = 0; word < words_; ++word) {
        if (policy_.word_dtypes()[word] != tensor::DType::kFloat32) continue;
        answer->mean.push_back(modes_[static_cast<size_t>(row) * words_ + word].f32);
      }
    }
  }

  static void DropUnasked(const QueryOutputs& outputs, PolicyActions* answer) {
    if (!outputs.Has(QueryOutput::kAction)) answer->actions.clear();
    if (!outputs.Has(QueryOutput::kSampledAction)) answer->sampled_actions.clear();
    if (!outputs.Has(QueryOutput::kLogProb)) answer->logp.clear();
    if (outputs.Has(QueryOutput::kStateOut)) return;
    answer->state_out.clear();
    answer->state_tag = 0;
  }

  const ServedPolicy& policy_;
  const policy::PolicySpec& spec_;
  const absl::Span<Part* const> parts_;
  int64_t rows_ = 0;
  size_t words_ = 0, state_size_ = 0;
  inference::ActInput input_;
  std::vector<inference::RowKey> keys_;
  std::vector<std::byte> obs_;
  std::vector<uint8_t> mask_;
  std::vector<float> state_, outputs_, logp_, values_;
  std::vector<space::ActionWord> actions_, modes_;
};

absl::Status QueryEngine::PrepareValues(const ServedPolicy& policy, const OfferedWeights& newest,
                                        ServingActor* resident) const {
  if (resident->values == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(resident->values,
                            inference::Actor::Create(*policy.value_network(), options_.seed, options_.backend));
  }
  const policy::WeightSnapshotPtr& there = resident->values->weights();
  if (there != nullptr && there->version == resident->acting->version) return absl::OkStatus();
  TROUPE_CHECK(newest.source != nullptr);
  TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr weights, newest.source->LoadValues(policy.spec()));
  return resident->values->SetWeights(std::move(weights));
}

absl::Status QueryEngine::Act(const ServedPolicy& policy, absl::Span<Part* const> parts) {
  OfferedWeights newest = policy.newest();
  const bool has_weights = policy.spec().policy_class.has_weights();
  // Said before the map makes room for what cannot come.
  if (has_weights && newest.empty() && options_.source == nullptr) return ActorTier::NoWeights(policy.spec());
  Forward forward(policy, parts);
  ReaderLease reader(&ActorsOf(policy));
  TROUPE_ASSIGN_OR_RETURN(const ActorMap::Batch batch,
                          reader->Acquire({policy.slot()}, policy::PolicyMapCore::Access::kRead));
  ServingActor& resident = batch[0];
  policy::WeightVersion version;
  {
    policy::WeightSnapshotPtr replaced;  // maybe its last owner: destroyed after the lock
    base::MutexLock lock(&resident.mutex);
    newest = policy.newest();
    if (has_weights && !newest.empty() && resident.acting->version < newest.version) {
      TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr weights, newest.Get(policy.spec()));
      TROUPE_RETURN_IF_ERROR(resident.actor->SetWeights(weights));
      replaced = std::exchange(resident.acting, std::move(weights));
    }
    if (has_weights) version = resident.acting->version;
    for (const Part* const part : parts) {
      if (part->exact_version < 0 || part->exact_version == version.n) continue;
      return absl::NotFoundError(absl::StrCat("policy \"", policy.spec().id.value(), "\" has no version ",
                                              part->exact_version, " here any more, but ", version.n));
    }
    if (forward.WantsValues()) {
      TROUPE_RETURN_IF_ERROR(PrepareValues(policy, newest, &resident));
      TROUPE_RETURN_IF_ERROR(forward.RunValues(resident.values.get()));
    }
    TROUPE_RETURN_IF_ERROR(forward.Run(resident.actor.get()));
  }
  batches_.fetch_add(1, std::memory_order_relaxed);
  batched_.fetch_add(static_cast<int64_t>(parts.size()), std::memory_order_relaxed);
  forward.HandOut(version);
  return absl::OkStatus();
}

/// A query on its way through the lanes of its policies. It borrows the caller's arrays: it is answered when all of its
/// parts are through, or were taken back.
class QueryEngine::Query final : public std::enable_shared_from_this<Query> {
 public:
  Query(QueryEngine* engine, std::vector<Part> parts, Done done)
      : engine_(*engine), left_(static_cast<int64_t>(parts.size())), done_(std::move(done)) {
    waiting_.reserve(parts.size());
    for (Part& part : parts) waiting_.push_back(std::make_unique<Waiting>(this, std::move(part)));
  }

  /// Puts the parts into their lanes, then leads those that nobody leads until nothing waits there. Every part of this
  /// query is begun before others' are.
  void Run() {
    const std::shared_ptr<Query> self = self_ = shared_from_this();
    std::vector<std::shared_ptr<ServedPolicy>> led;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      Waiting& each = *waiting_[i];
      const std::shared_ptr<ServedPolicy> policy = each.part.policy;
      const absl::StatusOr<bool> leads = policy->lane().Enter(&each);
      if (!leads.ok()) {
        // It is over with those behind it; those before it may be on their way.
        PartsOver(static_cast<int64_t>(waiting_.size() - i), leads.status());
        break;
      }
      if (*leads) led.push_back(policy);
    }
    std::vector<BatchWork*> batch;
    while (!led.empty()) {
      size_t kept = 0;
      for (std::shared_ptr<ServedPolicy>& policy : led) {
        policy->lane().Next(&batch);
        if (batch.empty()) continue;
        engine_.RunBatch(*policy, batch);
        std::swap(led[kept++], policy);
      }
      led.resize(kept);
    }
  }

  /// Takes back what waits.
  void GiveUp() {
    int64_t removed = 0;
    for (const std::unique_ptr<Waiting>& each : waiting_) {
      if (each->part.policy->lane().Remove(each.get())) ++removed;
    }
    if (removed > 0) PartsOver(removed, absl::CancelledError("the query was given up"));
  }

  /// A part in a lane.
  struct Waiting final : BatchWork {
    Waiting(Query* query_of, Part asked) : query(query_of), part(std::move(asked)) {}
    int64_t rows() const override { return part.rows.rows; }
    int64_t bytes() const override {
      return static_cast<int64_t>(part.rows.obs.size() + part.rows.action_mask.size() +
                                  4 * part.rows.agent_slots.size() + part.rows.state_in.size());
    }
    Query* const query;
    Part part;
  };

  /// So many parts are through with this. The last one answers, and may be the end of the query.
  void PartsOver(int64_t count, const absl::Status& status) {
    if (!status.ok()) {
      base::MutexLock lock(&mutex_);
      status_.Update(status);
    }
    if (left_.fetch_sub(count, std::memory_order_acq_rel) > count) return;
    const std::shared_ptr<Query> last = std::move(self_);
    absl::Status failed;
    {
      base::MutexLock lock(&mutex_);
      failed = status_;
    }
    if (!failed.ok()) return done_(std::move(failed));
    ActionAnswer answer;
    answer.reserve(waiting_.size());
    for (const std::unique_ptr<Waiting>& each : waiting_) answer.push_back(std::move(each->part.actions));
    done_(std::move(answer));
  }
  bool answered() const { return left_.load(std::memory_order_acquire) == 0; }

 private:
  QueryEngine& engine_;
  std::vector<std::unique_ptr<Waiting>> waiting_;
  std::atomic<int64_t> left_;  ///< parts; whoever brings it to 0 has seen what the others wrote
  const Done done_;
  std::shared_ptr<Query> self_;  ///< from Run until it is answered: who asked need not keep it
  base::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  ///< of the first part that failed
};

void QueryEngine::RunBatch(const ServedPolicy& policy, const std::vector<BatchWork*>& batch) {
  std::vector<Query::Waiting*> left;
  for (BatchWork* const work : batch) left.push_back(static_cast<Query::Waiting*>(work));
  std::vector<Part*> parts;
  while (!left.empty()) {
    // Those of the first one's mode.
    const Part& first = left.front()->part;
    const auto rest = std::stable_partition(
        left.begin(), left.end(), [&first](const Query::Waiting* each) { return each->part.SameMode(first); });
    parts.clear();
    for (auto each = left.begin(); each != rest; ++each) parts.push_back(&(*each)->part);
    absl::Status status = Act(policy, parts);
    const bool alone = parts.size() == 1 || status.ok();
    for (auto each = left.begin(); each != rest; ++each) {
      // Which of them it was is not known: the others shall not suffer for it.
      Part* const part = &(*each)->part;
      const absl::Status own = alone ? status : Act(policy, {&part, 1});
      (*each)->query->PartsOver(1, own);
    }
    left.erase(left.begin(), rest);
  }
}

void QueryEngine::AnswerAlone(Part part, const Done& done) {
  Part* const one = &part;
  const absl::Status status = Act(*part.policy, {&one, 1});
  if (status.ok()) {
    ActionAnswer answer;
    answer.push_back(std::move(part.actions));
    done(std::move(answer));
  } else {
    done(status);
  }
  std::vector<BatchWork*> batch;
  for (part.policy->lane().Next(&batch); !batch.empty(); part.policy->lane().Next(&batch)) {
    RunBatch(*part.policy, batch);
  }
}

ActionQueries::GiveUp QueryEngine::ComputeActions(const ActionQuery& query, Done done) {
  absl::StatusOr<std::vector<Part>> parts = Check(*CurrentRoutes(), query);
  if (!parts.ok()) {
    FreeRetired();
    done(parts.status());
    return nullptr;
  }
  if (std::any_of(parts->begin(), parts->end(), [](const Part& part) { return part.policy->runs_elsewhere(); })) {
    return Enqueue(*std::move(parts), std::move(done));
  }
  if (parts->size() == 1 && parts->front().policy->lane().TryLead()) {
    // The usual query: nobody else wants the policy, so that it need not queue.
    AnswerAlone(std::move(parts->front()), done);
    FreeRetired();
    return nullptr;
  }
  auto asked = std::make_shared<Query>(this, *std::move(parts), std::move(done));
  asked->Run();
  if (!asked->answered()) return [asked] { asked->GiveUp(); };
  asked.reset();
  FreeRetired();
  return nullptr;
}

absl::StatusOr<ActionAnswer> QueryEngine::Answer(std::vector<Part> parts) {
  ActionAnswer answer;
  answer.reserve(parts.size());
  for (Part& part : parts) {
    Part* const one = &part;
    TROUPE_RETURN_IF_ERROR(Act(*part.policy, {&one, 1}));
    answer.push_back(std::move(part.actions));
  }
  return answer;
}

absl::StatusOr<ActionAnswer> QueryEngine::Compute(const ActionQuery& query) {
  absl::StatusOr<ActionAnswer> answer;
  {
    absl::StatusOr<std::vector<Part>> parts = Check(*CurrentRoutes(), query);
    answer = parts.ok() ? Answer(*std::move(parts)) : parts.status();
  }
  FreeRetired();
  return answer;
}

}  // namespace troupe::serving
