#include "lib/training/core/critic_values.h"

#include <algorithm>

#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::training {
namespace {

std::vector<float> Gather(const std::vector<float>& table, absl::Span<const int32_t> index) {
  std::vector<float> values(index.size());
  for (size_t i = 0; i < index.size(); ++i) values[i] = table[static_cast<size_t>(index[i])];
  return values;
}

/// The trajectories of a batch on their way through a critic that remembers: in each round the next sequence of every
/// segment that has one, side by side.
class StreamRun {
 public:
  StreamRun(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch, NetworkBackend* backend,
            PreparedBatch* prepared)
      : batch_(batch),
        backend_(*backend),
        prepared_(*prepared),
        state_size_(static_cast<size_t>(spec.critic().state_size())),
        states_(batch.segments.size() * state_size_) {
    values_.rows.resize(static_cast<size_t>(batch.rows));
    values_.finals.resize(static_cast<size_t>(batch.final_rows));
    prepared->targets.critic_memory.resize(batch.sequences.size() * state_size_);
    size_t sequence = 0;
    for (const learner::TrainSegment& segment : batch.segments) {
      first_sequence_.push_back(sequence);
      const int64_t end = segment.first_row + segment.rows;
      while (sequence < batch.sequences.size() && batch.sequences[sequence].first_row < end) ++sequence;
    }
    first_sequence_.push_back(sequence);
  }

  absl::StatusOr<CriticValues> Run(CriticCarry* carry) {
    for (size_t s = 0; s < batch_.segments.size(); ++s) {
      if (first_sequence_[s] == first_sequence_[s + 1]) continue;
      const learner::TrainSequence& first = batch_.sequences[first_sequence_[s]];
      if (!carry->Load(batch_.segments[s], first.decision, StateOf(s))) ++values_.broken_streams;
    }
    for (size_t round = 0; TakeRound(round); ++round) TROUPE_RETURN_IF_ERROR(RunRound());
    for (size_t s = 0; s < batch_.segments.size(); ++s) {
      if (first_sequence_[s] == first_sequence_[s + 1]) continue;
      const learner::TrainSequence& last = batch_.sequences[first_sequence_[s + 1] - 1];
      if (batch_.segments[s].goes_on()) {
        carry->Store(batch_.segments[s], last.decision + last.rows, StateOf(s));
      } else {
        carry->Store(batch_.segments[s], CriticCarry::kEnded, StateOf(s));
      }
    }
    TakeFinals();
    TROUPE_RETURN_IF_ERROR(RunFinals());
    return std::move(values_);
  }

 private:
  absl::Span<float> StateOf(size_t segment) {
    return absl::MakeSpan(states_).subspan(segment * state_size_, state_size_);
  }
  void Clear() {
    segments_.clear();
    rows_.clear();
    lengths_.clear();
    before_.clear();
  }
  void Add(size_t segment, absl::Span<const int32_t> rows) {
    segments_.push_back(segment);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    lengths_.push_back(static_cast<int32_t>(rows.size()));
    const absl::Span<const float> state = StateOf(segment);
    before_.insert(before_.end(), state.begin(), state.end());
  }

  /// The segments' sequences number `round`; false when no segment has one.
  bool TakeRound(size_t round) {
    Clear();
    sequences_.clear();
    for (size_t s = 0; s < batch_.segments.size(); ++s) {
      const size_t number = first_sequence_[s] + round;
      if (number >= first_sequence_[s + 1]) continue;
      const learner::TrainSequence& sequence = batch_.sequences[number];
      Add(s, prepared_.critic_index().subspan(static_cast<size_t>(sequence.first_row),
                                              static_cast<size_t>(sequence.rows)));
      sequences_.push_back(number);
    }
    return !segments_.empty();
  }

  absl::Status RunRound() {
    TROUPE_ASSIGN_OR_RETURN(const SequenceOutputs outputs, backend_.SequenceValues({rows_, lengths_, before_}));
    const float* value = outputs.values.data();
    for (size_t i = 0; i < segments_.size(); ++i) {
      const learner::TrainSequence& sequence = batch_.sequences[sequences_[i]];
      std::copy_n(value, sequence.rows, values_.rows.data() + sequence.first_row);
      value += sequence.rows;
      std::copy_n(before_.data() + i * state_size_, state_size_,
                  prepared_.targets.critic_memory.data() + sequences_[i] * state_size_);
      std::copy_n(outputs.states.data() + i * state_size_, state_size_, StateOf(segments_[i]).data());
    }
    return absl::OkStatus();
  }

  /// What segments are bootstrapped from: a step more, after which nobody asks for the state.
  void TakeFinals() {
    Clear();
    for (size_t s = 0; s < batch_.segments.size(); ++s) {
      const int64_t final_row = batch_.segments[s].final_row;
      if (final_row >= 0) Add(s, prepared_.final_critic_index().subspan(static_cast<size_t>(final_row), 1));
    }
  }

  absl::Status RunFinals() {
    if (segments_.empty()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(const SequenceOutputs outputs, backend_.SequenceValues({rows_, lengths_, before_}));
    for (size_t i = 0; i < segments_.size(); ++i) {
      values_.finals[static_cast<size_t>(batch_.segments[segments_[i]].final_row)] = outputs.values[i];
    }
    return absl::OkStatus();
  }

  const learner::PolicyTrainBatch& batch_;
  NetworkBackend& backend_;
  PreparedBatch& prepared_;
  const size_t state_size_;
  std::vector<float> states_;           // [segments, state size], where each has come to
  std::vector<size_t> first_sequence_;  // by segment, and the end
  CriticValues values_;
  // Of a round.
  std::vector<size_t> segments_, sequences_;
  std::vector<int32_t> rows_, lengths_;
  std::vector<float> before_;
};

/// The values of a critic behind the actor's core.
class SharedCoreRun {
 public:
  SharedCoreRun(const learner::PolicyTrainBatch& batch, NetworkBackend* backend, const PreparedBatch& prepared)
      : batch_(batch),
        backend_(*backend),
        prepared_(prepared),
        state_size_(static_cast<size_t>(prepared.actor_memory().columns)) {}

  absl::StatusOr<CriticValues> Run() {
    CriticValues values;
    values.finals.resize(static_cast<size_t>(batch_.final_rows));
    if (batch_.sequences.empty()) return values;
    TROUPE_ASSIGN_OR_RETURN(SequenceOutputs outputs, RunSequences());
    values.rows = std::move(outputs.values);  // sequences cover all rows, ascending
    TROUPE_RETURN_IF_ERROR(RunFinals(outputs.states, &values.finals));
    return values;
  }

 private:
  absl::StatusOr<SequenceOutputs> RunSequences() {
    const MatrixView& memory = prepared_.actor_memory();
    std::vector<int32_t> lengths;
    std::vector<float> before;
    for (size_t s = 0; s < batch_.sequences.size(); ++s) {
      lengths.push_back(static_cast<int32_t>(batch_.sequences[s].rows));
      const float* const state = memory.data + static_cast<int64_t>(s) * memory.stride;
      before.insert(before.end(), state, state + memory.columns);
    }
    return backend_.SequenceValues({prepared_.critic_index(), lengths, before});
  }

  /// `after`: what is remembered after each sequence.
  absl::Status RunFinals(const std::vector<float>& after, std::vector<float>* finals) {
    std::vector<int32_t> rows;
    std::vector<float> before;
    std::vector<size_t> places;
    size_t next = 0;  // sequence behind the segment
    for (const learner::TrainSegment& segment : batch_.segments) {
      const int64_t end = segment.first_row + segment.rows;
      while (next < batch_.sequences.size() && batch_.sequences[next].first_row < end) ++next;
      if (segment.final_row < 0 || segment.rows == 0) continue;
      places.push_back(static_cast<size_t>(segment.final_row));
      rows.push_back(prepared_.final_critic_index()[places.back()]);
      const float* const state = after.data() + (next - 1) * state_size_;
      before.insert(before.end(), state, state + state_size_);
    }
    if (rows.empty()) return absl::OkStatus();
    const std::vector<int32_t> lengths(rows.size(), 1);
    TROUPE_ASSIGN_OR_RETURN(const SequenceOutputs outputs, backend_.SequenceValues({rows, lengths, before}));
    for (size_t i = 0; i < places.size(); ++i) (*finals)[places[i]] = outputs.values[i];
    return absl::OkStatus();
  }

  const learner::PolicyTrainBatch& batch_;
  NetworkBackend& backend_;
  const PreparedBatch& prepared_;
  const size_t state_size_;
};

}  // namespace

CriticCarry::Key CriticCarry::KeyOf(const learner::TrainSegment& segment) {
  return static_cast<uint64_t>(segment.env_id.value()) << 32 | static_cast<uint32_t>(segment.slot.value());
}

bool CriticCarry::Load(const learner::TrainSegment& segment, int64_t decision, absl::Span<float> state) const {
  std::fill(state.begin(), state.end(), 0.0f);
  if (decision == 0) return true;
  const auto found = states_.find(KeyOf(segment));
  if (found == states_.end()) return false;
  const Entry& entry = found->second;
  if (entry.episode != segment.episode || entry.decision > decision || entry.state.size() != state.size()) return false;
  std::copy(entry.state.begin(), entry.state.end(), state.begin());
  return entry.decision == decision;
}

void CriticCarry::Store(const learner::TrainSegment& segment, int64_t decision, absl::Span<const float> state) {
  stored_.emplace_back(KeyOf(segment),
                       Entry{segment.episode, decision, std::vector<float>(state.begin(), state.end())});
}

void CriticCarry::Commit() {
  for (auto& [key, entry] : stored_) states_.insert_or_assign(key, std::move(entry));
  stored_.clear();
}

absl::StatusOr<CriticValues> ValuesOf(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                      NetworkBackend* backend, PreparedBatch* prepared, CriticCarry* carry) {
  if (spec.critic().remembers()) return StreamRun(spec, batch, backend, prepared).Run(carry);
  if (spec.EncodingNetwork(spec.critic()).remembers()) return SharedCoreRun(batch, backend, *prepared).Run();
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> table, backend->Values());
  CriticValues values;
  values.rows = Gather(table, prepared->critic_index());
  values.finals = Gather(table, prepared->final_critic_index());
  return values;
}

}  // namespace troupe::training
