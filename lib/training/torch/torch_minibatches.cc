#include "lib/training/torch/torch_minibatches.h"

#include <vector>

#include "lib/training/torch/torch_networks.h"

namespace troupe::training {

using torch::Tensor;

namespace {

/// The numbers where `like` is; nothing is waited for.
Tensor IndicesAt(const Tensor& like, const std::vector<int64_t>& numbers) {
  const Tensor host = torch::tensor(numbers, torch::kInt64);
  return like.is_cpu() ? host : host.pin_memory().to(like.device(), /*non_blocking=*/true);
}

}  // namespace

void EpochMinibatches::Begin(const PreparedBatch& batch, absl::Span<const int32_t> order) {
  batch_ = &batch;
  units_ = order;
  if (batch.units().empty()) {
    order_ = load_(order);
    return;
  }
  actor_ = LoadUnits(&RowUses::IsInPolicy);
  if (batch.uses().differ()) critic_ = LoadUnits(&RowUses::IsInValue);
}

Minibatches EpochMinibatches::Take(int64_t first, int64_t count) const {
  const bool differ = batch_->uses().differ();
  if (!batch_->units().empty()) {
    const Minibatch actor = TakeUnits(first, count, actor_);
    return {actor, differ ? TakeUnits(first, count, critic_) : actor};
  }
  const Minibatch actor = TakeRows(first, count, &RowUses::IsInPolicy);
  return {actor, differ ? TakeRows(first, count, &RowUses::IsInValue) : actor};
}

void EpochMinibatches::Release() {
  batch_ = nullptr;
  units_ = {};
  order_.reset();
  actor_ = {};
  critic_ = {};
}

/// An epoch's rows at once: a minibatch is then a piece of what the device has, for which nothing is copied there.
EpochMinibatches::LoadedRows EpochMinibatches::LoadUnits(Counts counts) const {
  LoadedRows loaded;
  loaded.host = RowsOfEpoch(*batch_, units_, counts);
  loaded.rows = load_(loaded.host.rows);
  loaded.inputs = load_(loaded.host.inputs);
  loaded.places = load_(loaded.host.places);
  return loaded;
}

Minibatch EpochMinibatches::TakeUnits(int64_t first, int64_t count, const LoadedRows& epoch) {
  const auto begin = static_cast<size_t>(first);
  const auto end = static_cast<size_t>(first + count);
  const auto piece = [&](const Tensor& all, const std::vector<int32_t>& ends) {
    return all.narrow(0, ends[begin], ends[end] - ends[begin]);
  };
  Minibatch minibatch;
  minibatch.rows = piece(epoch.rows, epoch.host.first_row);
  minibatch.inputs = piece(epoch.inputs, epoch.host.first_input);
  minibatch.width = epoch.host.width;
  minibatch.places = piece(epoch.places, epoch.host.first_row) - epoch.host.first_input[begin] * minibatch.width;
  return minibatch;
}

Minibatch EpochMinibatches::TakeRows(int64_t first, int64_t count, Counts counts) const {
  Minibatch minibatch;
  const RowUses& uses = batch_->uses();
  const absl::Span<const int32_t> units = units_.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  std::vector<int64_t> kept;
  if (batch_->sequences().empty()) {
    minibatch.rows = minibatch.run = order_.narrow(0, first, count);
    if (!uses.differ()) return minibatch;
    for (size_t i = 0; i < units.size(); ++i) {
      if ((uses.*counts)(units[i])) kept.push_back(static_cast<int64_t>(i));
    }
    minibatch.kept = IndicesAt(order_, kept);
    minibatch.rows = minibatch.run.index_select(0, minibatch.kept);
    return minibatch;
  }
  std::vector<std::pair<int64_t, int64_t>> pieces;
  for (const int32_t unit : units) {
    const learner::TrainSequence& sequence = batch_->sequences()[static_cast<size_t>(unit)];
    pieces.emplace_back(sequence.first_row, sequence.rows);
  }
  const Packed packed = Pack(pieces);
  for (size_t i = 0; i < packed.rows.size(); ++i) {
    if ((uses.*counts)(packed.rows[i])) kept.push_back(static_cast<int64_t>(i));
  }
  minibatch.run = IndicesAt(order_, packed.rows);
  minibatch.sequences = order_.narrow(0, first, count).index_select(0, IndicesAt(order_, packed.sequences));
  minibatch.batch_sizes = packed.batch_sizes;
  minibatch.rows = minibatch.run;
  if (kept.size() < packed.rows.size()) {
    minibatch.kept = IndicesAt(order_, kept);
    minibatch.rows = minibatch.run.index_select(0, minibatch.kept);
  }
  return minibatch;
}

}  // namespace troupe::training
