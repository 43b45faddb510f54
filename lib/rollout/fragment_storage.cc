#include "lib/rollout/fragment_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::rollout {
namespace {

using tensor::DType;

constexpr int64_t kFirstCapacity = 64;

size_t FlatBytes(const space::Space& space) {
  return static_cast<size_t>(space.flat_size()) * tensor::ElementBytes(space.flat_dtype());
}

}  // namespace

tensor::Buffer Column::Grow(int64_t used, int64_t capacity) {
  if (row_bytes_ == 0) return {};
  tensor::Buffer larger(static_cast<size_t>(capacity) * row_bytes_);
  if (used > 0) std::memcpy(larger.data(), buffer_.data(), static_cast<size_t>(used) * row_bytes_);
  std::swap(larger, buffer_);
  return larger;
}

sample::ColumnView Column::View(DType dtype, int64_t rows, int64_t row_elements) const {
  if (row_bytes_ == 0) return {};
  return {rows == 0 ? nullptr : buffer_.data(), dtype, rows, row_elements};
}

PolicyWidths::PolicyWidths(const RolloutSchema& schema, const policy::PolicySpec& spec)
    : obs(FlatBytes(spec.observation_space)),
      actions(static_cast<size_t>(spec.action_words()) * 4),
      action_mask(static_cast<size_t>(spec.mask_size())),
      agent_mask(schema.env.has_agent_mask ? 1 : 0),
      state(schema.has_agent_state() ? static_cast<size_t>(schema.state_size()) * 4 : 0) {}

PolicyColumns::PolicyColumns(const PolicyWidths& widths)
    : obs(widths.obs),
      actions(widths.actions),
      action_logp(4),
      rewards(4),
      terminated(1),
      truncated(1),
      action_mask(widths.action_mask),
      agent_mask(widths.agent_mask),
      env_row(4),
      segment(4),
      state(widths.state),
      final_obs(widths.obs),
      final_action_mask(widths.action_mask),
      final_state(widths.state),
      widths_(widths) {
  for (const Column* column : {&obs, &actions, &action_logp, &rewards, &terminated, &truncated, &action_mask,
                               &agent_mask, &env_row, &segment, &state}) {
    row_bytes_ += static_cast<int64_t>(column->row_bytes());
  }
  final_bytes_ =
      4 + static_cast<int64_t>(final_obs.row_bytes() + final_action_mask.row_bytes() + final_state.row_bytes());
}

void PolicyColumns::Clear() {
  policy = -1;
  keys.clear();
  rows = 0;
  first_open = 0;
  final_rows = 0;
  segments.clear();
  segment_rows.clear();
  holes.clear();
  final_env_row.clear();
  retired_.clear();
}

void PolicyColumns::GrowRows() {
  capacity_ = std::max(kFirstCapacity, capacity_ * 2);
  // An environment, or the actions' reader, may hold pointers into these until its call returns.
  for (Column* column : {&obs, &action_mask, &state, &actions}) {
    if (column->present()) retired_.push_back({column, column->Grow(rows, capacity_), rows});
  }
  for (Column* column : {&action_logp, &rewards, &terminated, &truncated, &agent_mask, &env_row, &segment}) {
    column->Grow(rows, capacity_);
  }
}

void PolicyColumns::CopyRetired() {
  // The oldest last: each allocation is the truth for the rows that it was made for.
  for (auto it = retired_.rbegin(); it != retired_.rend(); ++it) {
    if (it->rows > 0)
      std::memcpy(it->column->Row(0), it->memory.data(), static_cast<size_t>(it->rows) * it->column->row_bytes());
  }
  retired_.clear();
}

int32_t PolicyColumns::AddSegment(int32_t episode, int32_t slot, int32_t version_lag) {
  const auto index = static_cast<int32_t>(segment_rows.size());
  const int32_t words[sample::kSegmentFields] = {episode, slot, static_cast<int32_t>(sample::SegmentEnd::kCut), -1,
                                                 version_lag};
  segments.insert(segments.end(), words, words + sample::kSegmentFields);
  segment_rows.push_back(0);
  return index;
}

void PolicyColumns::GrowFinals() {
  final_capacity_ = std::max(kFirstCapacity, final_capacity_ * 2);
  for (Column* column : {&final_obs, &final_action_mask, &final_state}) column->Grow(final_rows, final_capacity_);
}

int32_t PolicyColumns::AddFinalRow(int64_t from, int32_t env_row_index) {
  if (final_rows == final_capacity_) GrowFinals();
  final_obs.CopyRow(final_rows, obs.Row(from));
  if (action_mask.present()) final_action_mask.CopyRow(final_rows, action_mask.Row(from));
  if (state.present()) final_state.CopyRow(final_rows, state.Row(from));
  final_env_row.push_back(env_row_index);
  return static_cast<int32_t>(final_rows++);
}

void PolicyColumns::MoveObservation(int64_t from, int64_t to) {
  for (Column* column : {&obs, &action_mask, &state}) {
    if (column->present()) column->CopyRow(to, column->Row(from));
  }
}

void PolicyColumns::Compact() {
  if (!holes.empty()) {
    std::sort(holes.begin(), holes.end());
    for (Column* column : {&obs, &actions, &action_logp, &rewards, &terminated, &truncated, &action_mask, &agent_mask,
                           &env_row, &segment, &state}) {
      if (!column->present()) continue;
      int64_t to = holes.front();
      for (size_t h = 0; h < holes.size(); ++h) {
        const int64_t first = holes[h] + 1;
        const int64_t last = h + 1 < holes.size() ? holes[h + 1] : rows;
        std::memmove(column->Row(to), column->Row(first), static_cast<size_t>(last - first) * column->row_bytes());
        to += last - first;
      }
    }
    rows -= static_cast<int64_t>(holes.size());
    holes.clear();
  }
  if (std::find(segment_rows.begin(), segment_rows.end(), 0) == segment_rows.end()) return;
  // segment_rows turns into the new index of each segment.
  int64_t kept = 0;
  for (size_t s = 0; s < segment_rows.size(); ++s) {
    if (segment_rows[s] == 0) continue;
    std::copy_n(segments.begin() + static_cast<int64_t>(s) * sample::kSegmentFields, sample::kSegmentFields,
                segments.begin() + kept * sample::kSegmentFields);
    segment_rows[s] = kept++;
  }
  auto* segment_of_row = segment.As<int32_t>();
  for (int64_t r = 0; r < rows; ++r) {
    segment_of_row[r] = static_cast<int32_t>(segment_rows[static_cast<size_t>(segment_of_row[r])]);
  }
  segments.resize(static_cast<size_t>(kept) * sample::kSegmentFields);
  segment_rows.resize(static_cast<size_t>(kept));
}

FragmentStorage::FragmentStorage(const RolloutSchema& schema)
    : state(schema.has_env_state() ? static_cast<size_t>(schema.state_size()) * 4 : 0),
      final_state(state.row_bytes()) {}

void FragmentStorage::Clear() {
  // The first one is taken first again: it finds memory that is as large as it was.
  for (auto columns = policies.rbegin(); columns != policies.rend(); ++columns) {
    place_[static_cast<size_t>((*columns)->policy)] = -1;
    (*columns)->Clear();
    spare_.push_back(std::move(*columns));
  }
  policies.clear();
  step_episode.clear();
  step_index.clear();
  final_step_episode.clear();
  final_step_index.clear();
}

PolicyColumns& FragmentStorage::AddColumns(int32_t slot, const PolicyWidths& widths) {
  if (static_cast<size_t>(slot) >= place_.size()) place_.resize(static_cast<size_t>(slot) + 1, -1);
  place_[static_cast<size_t>(slot)] = static_cast<int32_t>(policies.size());
  const auto fits = std::find_if(spare_.rbegin(), spare_.rend(),
                                 [&widths](const auto& columns) { return columns->widths() == widths; });
  if (fits == spare_.rend()) {
    policies.push_back(std::make_unique<PolicyColumns>(widths));
  } else {
    std::swap(*fits, spare_.back());
    policies.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  policies.back()->policy = slot;
  return *policies.back();
}

int32_t FragmentStorage::AddEnvRow(int32_t episode, int32_t step) {
  const auto row = static_cast<int32_t>(step_episode.size());
  if (state.present() && row == state_capacity) {
    state_capacity = std::max(kFirstCapacity, state_capacity * 2);
    state.Grow(row, state_capacity);
  }
  step_episode.push_back(episode);
  step_index.push_back(step);
  return row;
}

int32_t FragmentStorage::AddFinalEnvRow(int32_t episode, int32_t step) {
  const auto row = static_cast<int32_t>(final_step_episode.size());
  if (state.present() && row == final_state_capacity) {
    final_state_capacity = std::max(kFirstCapacity, final_state_capacity * 2);
    final_state.Grow(row, final_state_capacity);
  }
  final_step_episode.push_back(episode);
  final_step_index.push_back(step);
  return row;
}

FragmentPool::FragmentPool(const RolloutSchema& schema) : schema_(schema), shelf_(std::make_shared<Shelf>()) {}

std::unique_ptr<FragmentStorage> FragmentPool::TakeStorage() {
  std::unique_ptr<FragmentStorage> storage;
  {
    base::MutexLock lock(&shelf_->mutex);
    if (!shelf_->storages.empty()) {
      storage = std::move(shelf_->storages.back());
      shelf_->storages.pop_back();
    }
  }
  if (storage == nullptr) storage = std::make_unique<FragmentStorage>(schema_);
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
