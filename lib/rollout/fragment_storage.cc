#include "lib/rollout/fragment_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/check.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {
namespace {

using sample::Extent;

constexpr int64_t kFirstCapacity = 64;

using ColumnSet = sample::PolicyColumnSet<Column>;

/// Whether an environment writes into the column, or reads its actions from it, through pointers that it may hold until
/// its call returns. Nobody else writes its rows meanwhile.
bool IsHeldByEnvironments(Column ColumnSet::*column) {
  return column == &ColumnSet::obs || column == &ColumnSet::action_mask || column == &ColumnSet::state ||
         column == &ColumnSet::actions;
}

sample::ColumnForm FormOfActions(const sample::PolicyForms& forms) {
  for (size_t c = 0; c < forms.size(); ++c) {
    if (sample::PolicyColumns<Column>()[c].member == &ColumnSet::actions) return forms[c];
  }
  return {};
}

}  // namespace

bool RolloutSchema::sends_env_state() const {
  return has_env_state() && (always_sends_state || sample::AnyReadsState(policies.values()));
}

int64_t PolicyBytes(const sample::PolicyForms& forms) {
  constexpr int64_t kColumnBytes = 96;
  int64_t bytes = 0;
  for (size_t c = 0; c < forms.size(); ++c) {
    if (sample::PolicyColumns()[c].extent != Extent::kMemory || forms[c].present()) bytes += kColumnBytes;
  }
  return bytes;
}

tensor::Buffer Column::Grow(int64_t used, int64_t capacity) {
  if (row_bytes_ == 0) return {};
  tensor::Buffer larger(static_cast<size_t>(capacity) * row_bytes_);
  if (used > 0) std::memcpy(larger.data(), buffer_.data(), static_cast<size_t>(used) * row_bytes_);
  std::swap(larger, buffer_);
  return larger;
}

sample::ColumnView Column::View(const sample::ColumnForm& form, int64_t rows) const {
  if (row_bytes_ == 0) return {};
  return {rows == 0 ? nullptr : buffer_.data(), form.dtype, rows, form.row_elements};
}

PolicyColumns::PolicyColumns(const sample::PolicyForms& forms)
    : policy_bytes_(PolicyBytes(forms)),
      row_bytes_(sample::RowBytes(forms, Extent::kRow)),
      segment_bytes_(sample::RowBytes(forms, Extent::kSegment)),
      final_bytes_(sample::RowBytes(forms, Extent::kFinalRow)),
      memory_bytes_(sample::RowBytes(forms, Extent::kMemory)),
      forms_(forms),
      has_byte_actions_(FormOfActions(forms).dtype == tensor::DType::kUint8) {
  for (size_t c = 0; c < forms.size(); ++c) {
    this->*sample::PolicyColumns<Column>()[c].member = Column(static_cast<size_t>(forms[c].row_bytes()));
  }
}

void PolicyColumns::Clear() {
  policy = policy::kNoPolicy;
  keys.clear();
  rows = 0;
  first_open = 0;
  final_rows = 0;
  final_steps.clear();
  num_memories = 0;
  open_decisions.clear();
  segment_rows.clear();
  holes.clear();
  retired_.clear();
}

void PolicyColumns::Grow(Extent extent, int64_t used, int64_t capacity) {
  for (const auto& column : sample::PolicyColumns<Column>()) {
    if (column.extent == extent) (this->*column.member).Grow(used, capacity);
  }
}

void PolicyColumns::GrowRows() {
  const int64_t capacity = std::max(kFirstCapacity, capacity_ * 2);
  for (const auto& entry : sample::PolicyColumns<Column>()) {
    Column& column = this->*entry.member;
    if (entry.extent != Extent::kRow || !column.present()) continue;
    tensor::Buffer replaced = column.Grow(rows, capacity);
    if (IsHeldByEnvironments(entry.member)) retired_.push_back({&column, std::move(replaced), rows});
  }
  capacity_ = capacity;
}

void PolicyColumns::CopyRetired() {
  // The oldest last: each allocation is the truth for the rows that it was made for.
  for (auto it = retired_.rbegin(); it != retired_.rend(); ++it) {
    if (it->rows > 0)
      std::memcpy(it->column->Row(0), it->memory.data(), static_cast<size_t>(it->rows) * it->column->row_bytes());
  }
  retired_.clear();
}

int32_t PolicyColumns::AddSegment(int32_t episode, base::AgentSlot slot, int32_t version_lag, bool waited) {
  const auto index = static_cast<int64_t>(segment_rows.size());
  TROUPE_CHECK(index < sample::kMaxIndexed);
  if (index == segment_capacity_) {
    segment_capacity_ = std::max(kFirstCapacity, segment_capacity_ * 2);
    Grow(Extent::kSegment, index, segment_capacity_);
  }
  const int32_t words[sample::kSegmentFields] = {episode, slot.value(), static_cast<int32_t>(sample::SegmentEnd::kCut),
                                                 -1,      version_lag,  waited ? 1 : 0};
  std::copy_n(words, sample::kSegmentFields, Segment(index));
  segment_rows.push_back(0);
  return static_cast<int32_t>(index);
}

int32_t PolicyColumns::AddFinalRow(int64_t from, int32_t final_env_row_index) {
  if (final_rows == final_capacity_) {
    final_capacity_ = std::max(kFirstCapacity, final_capacity_ * 2);
    Grow(Extent::kFinalRow, final_rows, final_capacity_);
  }
  final_obs.CopyRow(final_rows, obs.Row(from));
  if (action_mask.present()) final_action_mask.CopyRow(final_rows, action_mask.Row(from));
  if (state.present()) final_state.CopyRow(final_rows, state.Row(from));
  final_steps.push_back(final_env_row_index);
  return static_cast<int32_t>(final_rows++);
}

space::ActionWord* PolicyColumns::OpenActions() {
  if (!has_byte_actions_) return reinterpret_cast<space::ActionWord*>(actions.Row(first_open));
  open_actions_.resize(static_cast<size_t>(rows - first_open) * actions.row_bytes());
  return open_actions_.data();
}

void PolicyColumns::CloseActions() {
  if (!has_byte_actions_ || rows == first_open) return;
  const auto words = static_cast<size_t>(rows - first_open) * actions.row_bytes();
  std::byte* const to = actions.Row(first_open);
  for (size_t i = 0; i < words; ++i) to[i] = static_cast<std::byte>(open_actions_[i].i32);
}

void PolicyColumns::AddMemory(int64_t row, int32_t decision, const float* before) {
  if (num_memories == memory_capacity_) {
    memory_capacity_ = std::max(kFirstCapacity, memory_capacity_ * 2);
    Grow(Extent::kMemory, num_memories, memory_capacity_);
  }
  int32_t* const at = memory_at.As<int32_t>() + num_memories * sample::kMemoryFields;
  at[sample::kMemoryRow] = static_cast<int32_t>(row);
  at[sample::kMemoryDecision] = decision;
  if (memory.present()) memory.CopyRow(num_memories, before);
  ++num_memories;
}

void PolicyColumns::GatherMemory() {
  const size_t size = memory.row_bytes() / sizeof(float);
  if (open_memory.size() < open_decisions.size() * size) open_memory.resize(open_decisions.size() * size);
  for (size_t i = 0; i < open_decisions.size(); ++i) {
    const OpenDecision& open = open_decisions[i];
    if (size > 0) std::memcpy(&open_memory[i * size], open.before, memory.row_bytes());
    if (open.is_sent) AddMemory(first_open + static_cast<int64_t>(i), open.number, open.before);
  }
}

void PolicyColumns::ScatterMemory() {
  const size_t size = memory.row_bytes() / sizeof(float);
  for (size_t i = 0; size > 0 && i < open_decisions.size(); ++i) {
    std::memcpy(open_decisions[i].after, &open_memory[i * size], memory.row_bytes());
  }
}

void PolicyColumns::MoveObservation(int64_t from, int64_t to) {
  for (Column* column : {&obs, &action_mask, &state}) {
    if (column->present()) column->CopyRow(to, column->Row(from));
  }
}

void PolicyColumns::CompactRows() {
  for (const auto& entry : sample::PolicyColumns<Column>()) {
    Column& column = this->*entry.member;
    if (entry.extent != Extent::kRow || !column.present()) continue;
    int64_t to = holes.front();
    for (size_t h = 0; h < holes.size(); ++h) {
      const int64_t first = holes[h] + 1;
      const int64_t last = h + 1 < holes.size() ? holes[h + 1] : rows;
      std::memmove(column.Row(to), column.Row(first), static_cast<size_t>(last - first) * column.row_bytes());
      to += last - first;
    }
  }
  rows -= static_cast<int64_t>(holes.size());
}

void PolicyColumns::CompactMemories() {
  int32_t* const at = memory_at.As<int32_t>();
  int64_t kept = 0;
  size_t hole = 0;  // so many are below the memory's row
  for (int64_t m = 0; m < num_memories; ++m) {
    const int32_t row = at[m * sample::kMemoryFields + sample::kMemoryRow];
    while (hole < holes.size() && holes[hole] < row) ++hole;
    if (hole < holes.size() && holes[hole] == row) continue;
    at[kept * sample::kMemoryFields + sample::kMemoryRow] = row - static_cast<int32_t>(hole);
    at[kept * sample::kMemoryFields + sample::kMemoryDecision] =
        at[m * sample::kMemoryFields + sample::kMemoryDecision];
    if (memory.present() && kept < m) memory.CopyRow(kept, memory.Row(m));
    ++kept;
  }
  num_memories = kept;
}

void PolicyColumns::Compact() {
  if (!holes.empty()) {
    std::sort(holes.begin(), holes.end());
    CompactRows();
    if (remembers()) CompactMemories();
    holes.clear();
  }
  if (std::find(segment_rows.begin(), segment_rows.end(), 0) == segment_rows.end()) return;
  // segment_rows turns into the new index of each segment.
  int64_t kept = 0;
  for (size_t s = 0; s < segment_rows.size(); ++s) {
    if (segment_rows[s] == 0) continue;
    std::copy_n(Segment(static_cast<int64_t>(s)), sample::kSegmentFields, Segment(kept));
    segment_rows[s] = kept++;
  }
  auto* segment_of_row = segment.As<sample::Index>();
  for (int64_t r = 0; r < rows; ++r) segment_of_row[r] = static_cast<sample::Index>(segment_rows[segment_of_row[r]]);
  segment_rows.resize(static_cast<size_t>(kept));
}

void PolicyColumns::View(int64_t env_rows, sample::PolicyRows& out) {
  for (int64_t r = 0; r < final_rows; ++r) {
    const int32_t step = final_steps[static_cast<size_t>(r)];
    final_env_row.As<sample::Index>()[r] = static_cast<sample::Index>(step >= 0 ? step : env_rows + ~step);
  }
  out.rows = rows;
  out.num_segments = static_cast<int64_t>(segment_rows.size());
  out.final_rows = final_rows;
  out.num_memories = num_memories;
  for (size_t c = 0; c < forms_.size(); ++c) {
    const auto& entry = sample::PolicyColumns<Column>()[c];
    out.*sample::PolicyColumns()[c].member = (this->*entry.member).View(forms_[c], sample::NumRows(out, entry.extent));
  }
}

StepTable::StepTable(const sample::StepForms& forms) : row_bytes_(sample::RowBytes(forms)), forms_(forms) {
  for (size_t c = 0; c < forms.size(); ++c) {
    this->*sample::StepColumns<Column>()[c].member = Column(static_cast<size_t>(forms[c].row_bytes()));
  }
}

void StepTable::Grow(int64_t capacity) {
  capacity_ = capacity;
  for (const auto& column : sample::StepColumns<Column>()) (this->*column.member).Grow(rows, capacity);
}

int32_t StepTable::Add(int32_t episode, int32_t step) {
  if (rows == capacity_) Grow(std::max(kFirstCapacity, capacity_ * 2));
  TROUPE_CHECK(rows < sample::kMaxIndexed && episode < sample::kMaxIndexed);
  step_episode.As<sample::Index>()[rows] = static_cast<sample::Index>(episode);
  step_index.As<int32_t>()[rows] = step;
  return static_cast<int32_t>(rows++);
}

void StepTable::Append(const StepTable& other) {
  if (other.rows == 0) return;
  const int64_t sum = rows + other.rows;
  TROUPE_CHECK(sum <= sample::kMaxIndexed);
  if (sum > capacity_) Grow(sum + sum / 2);
  for (const auto& column : sample::StepColumns<Column>()) {
    Column& to = this->*column.member;
    if (!to.present()) continue;
    std::memcpy(to.Row(rows), (other.*column.member).Row(0), static_cast<size_t>(other.rows) * to.row_bytes());
  }
  rows = sum;
}

void StepTable::View(sample::MultiAgentBatch& out) const {
  for (size_t c = 0; c < forms_.size(); ++c) {
    out.*sample::StepColumns()[c].member = (this->*sample::StepColumns<Column>()[c].member).View(forms_[c], rows);
  }
}

FragmentStorage::FragmentStorage(const sample::StepForms& forms) : steps(forms), final_steps(forms) {}

void FragmentStorage::Clear() {
  // The first one is taken first again: it finds memory that is as large as it was.
  for (auto columns = policies.rbegin(); columns != policies.rend(); ++columns) {
    place_[(*columns)->policy] = -1;
    (*columns)->Clear();
    spare_.push_back(std::move(*columns));
  }
  policies.clear();
  steps.rows = 0;
  final_steps.rows = 0;
}

PolicyColumns& FragmentStorage::AddColumns(policy::PolicySlot slot, const sample::PolicyForms& forms) {
  place_.GrowTo(slot, -1);
  place_[slot] = static_cast<int32_t>(policies.size());
  const auto fits =
      std::find_if(spare_.rbegin(), spare_.rend(), [&forms](const auto& columns) { return columns->forms() == forms; });
  if (fits == spare_.rend()) {
    policies.push_back(std::make_unique<PolicyColumns>(forms));
  } else {
    std::swap(*fits, spare_.back());
    policies.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  policies.back()->policy = slot;
  return *policies.back();
}

FragmentPool::FragmentPool() : shelf_(std::make_shared<Shelf>()) {}

std::unique_ptr<FragmentStorage> FragmentPool::TakeStorage(const sample::StepForms& forms) {
  std::unique_ptr<FragmentStorage> storage;
  {
    base::MutexLock lock(&shelf_->mutex);
    if (!shelf_->storages.empty()) {
      storage = std::move(shelf_->storages.back());
      shelf_->storages.pop_back();
    }
  }
  // Of before a change of policies that the state's columns follow: it dies here, outside the lock.
  if (storage != nullptr && storage->steps.forms() != forms) storage = nullptr;
  if (storage == nullptr) storage = std::make_unique<FragmentStorage>(forms);
  storage->Clear();
  return storage;
}

std::unique_ptr<sample::MultiAgentBatch> FragmentPool::TakeBatch() {
  base::MutexLock lock(&shelf_->mutex);
  if (shelf_->batches.empty()) return std::make_unique<sample::MultiAgentBatch>();
  std::unique_ptr<sample::MultiAgentBatch> batch = std::move(shelf_->batches.back());
  shelf_->batches.pop_back();
  return batch;
}

void FragmentPool::PutBack(Shelf& shelf, std::unique_ptr<sample::MultiAgentBatch> batch,
                           std::unique_ptr<FragmentStorage> storage) {
  // The entries' own vectors keep their memory beside the columns.
  for (sample::EpisodeEntry& entry : batch->episodes) storage->spare_episodes.push_back(std::move(entry));
  for (sample::FinishedEpisode& entry : batch->finished) storage->spare_finished.push_back(std::move(entry));
  batch->episodes.clear();
  batch->finished.clear();
  batch->policies.clear();
  base::MutexLock lock(&shelf.mutex);  // destroyed before the arguments: what is not kept dies outside the lock
  if (shelf.storages.size() < kMaxIdle) {
    shelf.storages.reserve(kMaxIdle);
    shelf.storages.push_back(std::move(storage));
  }
  if (shelf.batches.size() < kMaxIdle) {
    shelf.batches.reserve(kMaxIdle);
    shelf.batches.push_back(std::move(batch));
  }
}

void FragmentPool::Return(std::unique_ptr<sample::MultiAgentBatch> batch, std::unique_ptr<FragmentStorage> storage) {
  PutBack(*shelf_, std::move(batch), std::move(storage));
}

sample::MultiAgentBatchPtr FragmentPool::Share(std::unique_ptr<sample::MultiAgentBatch> batch,
                                               std::unique_ptr<FragmentStorage> storage) {
  // Two owners, so that a copy of the batch by value still keeps the columns alive: the storage goes back when both the
  // batch and every copy are gone.
  struct Lender {
    std::shared_ptr<Shelf> shelf;
    std::unique_ptr<FragmentStorage> storage;
    std::unique_ptr<sample::MultiAgentBatch> batch;

    ~Lender() {
      PutBack(*shelf, batch == nullptr ? std::make_unique<sample::MultiAgentBatch>() : std::move(batch),
              std::move(storage));
    }
  };
  auto lender = std::make_shared<Lender>();
  lender->shelf = shelf_;
  lender->storage = std::move(storage);
  sample::MultiAgentBatch* raw = batch.release();
  raw->storage = lender;
  return sample::MultiAgentBatchPtr(raw, [](sample::MultiAgentBatch* dying) {
    std::shared_ptr<const void> owner = std::move(dying->storage);
    auto* const back = const_cast<Lender*>(static_cast<const Lender*>(owner.get()));
    back->batch.reset(dying);
  });
}

}  // namespace troupe::rollout
