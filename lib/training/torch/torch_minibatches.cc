#include "lib/training/torch/torch_minibatches.h"

#include <algorithm>
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

constexpr Tensor Minibatch::*kNumbers[] = {&Minibatch::rows,      &Minibatch::run,    &Minibatch::kept,
                                           &Minibatch::sequences, &Minibatch::inputs, &Minibatch::places};

/// Where `tensor` stands among them, behind the last one if it is none of them.
size_t PlaceOf(const Tensor& tensor, const std::vector<Tensor>& tensors) {
  const auto same = [&](const Tensor& other) { return other.is_same(tensor); };
  return static_cast<size_t>(std::find_if(tensors.begin(), tensors.end(), same) - tensors.begin());
}

/// Each tensor of a minibatch that is defined, once.
std::vector<Tensor> NumbersOf(const Minibatches& minibatches) {
  std::vector<Tensor> numbers;
  for (const Minibatch* const minibatch : {&minibatches.actor, &minibatches.critic}) {
    for (const auto number : kNumbers) {
      const Tensor& tensor = minibatch->*number;
      if (tensor.defined() && PlaceOf(tensor, numbers) == numbers.size()) numbers.push_back(tensor);
    }
  }
  return numbers;
}

/// The minibatch with `instead` in the places of `numbers`.
Minibatches WithNumbers(Minibatches minibatches, const std::vector<Tensor>& numbers,
                        const std::vector<Tensor>& instead) {
  for (Minibatch* const minibatch : {&minibatches.actor, &minibatches.critic}) {
    for (const auto number : kNumbers) {
      Tensor& tensor = minibatch->*number;
      if (tensor.defined()) tensor = instead[PlaceOf(tensor, numbers)];
    }
  }
  return minibatches;
}

MinibatchKey KeyOf(const Minibatches& minibatches, const std::vector<Tensor>& numbers, const StepSettings& settings) {
  MinibatchKey key{.settings = settings, .frozen = {settings.frozen.begin(), settings.frozen.end()}};
  key.settings.frozen = {};  // the caller's
  for (const Minibatch* const minibatch : {&minibatches.actor, &minibatches.critic}) {
    for (const auto number : kNumbers) {
      const Tensor& tensor = minibatch->*number;
      key.places.push_back(tensor.defined() ? static_cast<int64_t>(PlaceOf(tensor, numbers)) : -1);
    }
    key.places.push_back(minibatch->width);
    if (!minibatch->batch_sizes.defined()) continue;
    const int64_t* const lengths = minibatch->batch_sizes.data_ptr<int64_t>();
    key.places.insert(key.places.end(), lengths, lengths + minibatch->batch_sizes.size(0));
  }
  return key;
}

}  // namespace

double ShareOf(const Minibatch& one, const Minibatch& other) {
  const auto rows = static_cast<double>(one.rows.size(0));
  return rows == 0 ? 0 : rows / (rows + static_cast<double>(other.rows.size(0)));
}

void RunCaptured(const Minibatches& minibatches, const StepSettings& settings, CapturedSteps<MinibatchKey>* steps,
                 const std::function<void(const Minibatches&)>& work) {
  const std::vector<Tensor> numbers = NumbersOf(minibatches);
  steps->Run(numbers, KeyOf(minibatches, numbers, settings),
             [&](const std::vector<Tensor>& kept) { work(WithNumbers(minibatches, numbers, kept)); });
}

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
