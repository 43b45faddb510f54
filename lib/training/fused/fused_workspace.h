#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/fused/fused_network.h"
#include "lib/training/fused/fused_sequences.h"

namespace troupe::training::fused {

/// Activations of so many bytes are kept at a time: they stay in a core's second-level cache from forward to backward.
constexpr int64_t kBlockBytes = 768 << 10;

/// The activations of a block of panels through one network, allocated once.
class Activations {
 public:
  Activations(const Network& network, int panel_rows) {
    const int64_t panel_bytes = network.total_width() * panel_rows * static_cast<int64_t>(sizeof(float));
    panels_ = static_cast<int>(std::clamp<int64_t>(kBlockBytes / panel_bytes, 1, 64));
    Add(network.inputs(), panel_rows);
    for (const Network::Layer& layer : network.layers) Add(layer.out, panel_rows);
    for (const Network::Layer& layer : network.layers) Add(layer.kept, panel_rows);
    buffer_ = tensor::Buffer(static_cast<size_t>(elements_) * sizeof(float));
    std::memset(buffer_.data(), 0, buffer_.size());
  }

  int panels() const { return panels_; }
  /// What layer `layer` keeps for FinishBackward.
  float* kept(size_t layer, int64_t panel) { return at((offsets_.size() + 1) / 2 + layer, panel); }
  /// Elements from one panel to the next in the input of layer `level` (the output of the last at level = layers).
  int64_t stride(size_t level) const { return strides_[level]; }
  float* at(size_t level, int64_t panel = 0) {
    return reinterpret_cast<float*>(buffer_.data()) + offsets_[level] + panel * strides_[level];
  }

 private:
  void Add(int width, int panel_rows) {
    offsets_.push_back(elements_);
    // A cache line more than needed: panels at multiples of 4 KiB would all fall into the same cache sets.
    strides_.push_back(width == 0 ? 0 : int64_t{width} * panel_rows + kGrain);
    elements_ += strides_.back() * panels_;
  }

  int panels_ = 0;
  int64_t elements_ = 0;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> strides_;
  tensor::Buffer buffer_;
};

/// What one thread works with. Aligned so that threads do not share cache lines.
struct alignas(64) Worker {
  Worker(const Network& actor_network, const Network& critic_network, int panel_rows, int threads, int64_t parameters,
         int64_t words, int64_t mask_size)
      : actor(actor_network, panel_rows),
        critic(critic_network, panel_rows),
        pointers(static_cast<size_t>(panel_rows)),
        rows(static_cast<size_t>(panel_rows)),
        actions(static_cast<size_t>(panel_rows * words)),
        allowed(static_cast<size_t>(panel_rows * mask_size)),
        weight(static_cast<size_t>(panel_rows)),
        scratch(static_cast<size_t>(2 * panel_rows * actor_network.outputs())),
        gradients(static_cast<size_t>(parameters) * sizeof(float)),
        parts(static_cast<size_t>(threads)) {
    for (std::vector<float>* of_rows : {&spoken, &slopes}) of_rows->resize(static_cast<size_t>(panel_rows));
    for (std::vector<float>& column : columns) column.resize(static_cast<size_t>(panel_rows));
  }

  void PointAtColumns(const float** at) const {
    for (int i = 0; i < kMaxLossColumns; ++i) at[i] = columns[i].data();
  }
  /// The numbers of `count` rows of a batch, of each column of a loss.
  void GatherColumns(absl::Span<const float* const> from, const int32_t* index, int count) {
    for (size_t i = 0; i < from.size(); ++i) {
      const float* const column = from[i];
      float* const to = columns[i].data();
      for (int r = 0; r < count; ++r) to[r] = column[index[r]];
    }
  }
  void SetWeights(int count, int padded) {
    for (int r = 0; r < padded; ++r) weight[r] = r < count ? 1.0f : 0.0f;
  }

  Activations actor;
  Activations critic;
  std::unique_ptr<SequencePanel> actor_sequences;  // where it has a core
  std::unique_ptr<SequencePanel> critic_sequences;
  std::vector<Piece> pieces;
  std::vector<const float*> pointers;
  std::vector<int32_t> rows;
  std::vector<int32_t> actions;
  std::vector<float> allowed;
  std::vector<float> columns[kMaxLossColumns];  // of the loss
  std::vector<float> weight;
  std::vector<float> spoken, slopes;  // of CriticRuns
  std::vector<float> scratch;
  tensor::Buffer gradients;         // this thread's part where the team shares a minibatch
  float* gradient = nullptr;        // where it adds to: the above, or the policy's own
  std::vector<const float*> parts;  // every thread's gradients
  LossSums sums{};
  double actor_squares = 0;
  double critic_squares = 0;
};

/// A network that a call uses: which of the workers' activations are its, and where its parameters lie.
struct NetworkInUse {
  const Network* network = nullptr;
  Activations Worker::*activations = nullptr;
  int64_t first = 0;
  int64_t end = 0;
};

/// What policies of one shape compute in, one after another or each on a thread of its own: nothing of a policy stays
/// in it, so a thousand policies need one.
struct Workspace {
  Workspace(const policy::PolicySpec& spec, const Kernels& kernels, int threads);

  Network actor;
  Network critic;
  int64_t parameters = 0;  // elements of the layout
  int64_t words = 0;
  int64_t mask_size = 0;
  int64_t target = 0;        // from a number of the actor to its target's; 0: it has none
  int64_t log_std = 0;       // offset; without a Gaussian part nothing is written there
  int64_t log_std_size = 0;  // elements
  float min_log_std = 0, max_log_std = 0;
  std::vector<HeadPart> parts;
  bool plain_parts = true;  // LossKernels::actor knows them all
  std::vector<float> zero_row;
  std::vector<std::unique_ptr<Worker>> workers;  // by thread
  std::vector<Worker*> crew;                     // all of them
};

inline Workspace::Workspace(const policy::PolicySpec& spec, const Kernels& kernels, int threads)
    : words(spec.action_words()), mask_size(spec.mask_size()) {
  const int panel_rows = kPanelVectors * kernels.lanes;
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  parameters = layout.size();
  actor = Network::Find(layout, spec.actor, static_cast<int>(spec.actor_input_size()));
  critic = Network::Find(layout, spec.critic(), static_cast<int>(spec.critic_input_size()));
  if (const policy::ParameterEntry* entry = layout.Find("actor.log_std")) {
    log_std = entry->offset;
    log_std_size = entry->count;
  }
  if (const policy::ParameterSection* target =
          layout.FindSection(std::string(policy::kActorRole) + policy::kTargetOf)) {
    this->target = target->offset - layout.FindSection(policy::kActorRole)->offset;
  }
  min_log_std = static_cast<float>(spec.min_log_std);
  max_log_std = static_cast<float>(spec.max_log_std);
  const ActionHead head = ActionHead::For(spec);
  for (const CategoricalPart& part : head.categorical) {
    parts.push_back({static_cast<int>(part.output), static_cast<int>(part.categories), 1, static_cast<int>(part.word),
                     part.start, static_cast<int>(part.mask_offset), 0, Density::kGaussian});
  }
  for (const ContinuousPart& part : head.continuous) {
    parts.push_back({static_cast<int>(part.output), 0, static_cast<int>(part.words), static_cast<int>(part.word), 0, 0,
                     static_cast<int>(part.log_std), static_cast<Density>(head.distribution)});
  }
  plain_parts = head.is_plain();
  zero_row.assign(static_cast<size_t>(std::max(actor.inputs(), critic.inputs())) + kGrain, 0.0f);
  for (int thread = 0; thread < threads; ++thread) {
    workers.push_back(std::make_unique<Worker>(actor, critic, panel_rows, threads, layout.size(), words, mask_size));
    const auto panel_of = [&](const Network& network) -> std::unique_ptr<SequencePanel> {
      if (!network.remembers()) return nullptr;
      return std::make_unique<SequencePanel>(network, kernels, static_cast<int>(spec.sequence_length));
    };
    workers.back()->actor_sequences = panel_of(actor);
    workers.back()->critic_sequences = panel_of(critic);
    crew.push_back(workers.back().get());
  }
}

}  // namespace troupe::training::fused
