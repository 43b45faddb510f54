#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/thread_team.h"
#include "lib/training/fused/fused_layers.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training::fused {

/// The threads that compute an update, each with a worker of a workspace, and how they run panels of rows through its
/// networks: all of the team, which share the rows, or one of them alone. Base of FusedBackend; used by the threads
/// that it names.
class Crew {
 protected:
  Crew(std::shared_ptr<Workspace> space, const Kernels& kernels, std::shared_ptr<ThreadTeam> team)
      : kernels_(kernels),
        panel_rows_(kPanelVectors * kernels.lanes),
        team_(std::move(team)),
        space_(std::move(space)) {}

  /// NetworkBackend::Begin's.
  void SetThread(int thread) { alone_ = thread; }
  bool is_alone() const { return alone_ != NetworkBackend::kWholeTeam; }
  Worker& WorkerOf(int thread) const { return *space_->workers[static_cast<size_t>(thread)]; }
  /// The workers of the threads that compute: one, or the team's.
  absl::Span<Worker* const> AtWork() const {
    const absl::Span<Worker* const> all = space_->crew;
    return is_alone() ? all.subspan(static_cast<size_t>(alone_), 1) : all;
  }
  template <typename Task>
  void RunCrew(Task&& task) const {
    if (is_alone()) {
      task(alone_);
    } else {
      team_->Run(task);
    }
  }
  /// (place of the thread in the crew, size of the crew).
  std::pair<int64_t, int64_t> PlaceOf(int thread) const {
    return is_alone() ? std::pair<int64_t, int64_t>(0, 1) : std::pair<int64_t, int64_t>(thread, team_->size());
  }

  int Vectors(int rows) const { return (rows + kernels_.lanes - 1) / kernels_.lanes; }

  /// Thread `thread`'s part of `rows` rows: whole vectors.
  std::pair<int64_t, int64_t> Share(int64_t rows, int thread) const {
    const int64_t vectors = (rows + kernels_.lanes - 1) / kernels_.lanes;
    const auto [place, threads] = PlaceOf(thread);
    return {std::min(rows, vectors * place / threads * kernels_.lanes),
            std::min(rows, vectors * (place + 1) / threads * kernels_.lanes)};
  }
  absl::Span<const int32_t> ShareOf(absl::Span<const int32_t> rows, int thread) const {
    const auto [begin, end] = Share(static_cast<int64_t>(rows.size()), thread);
    return rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  /// Thread `thread`'s part of the flat buffers.
  std::pair<int64_t, int64_t> ParameterShare(int thread) const {
    const int64_t grains = space_->parameters / kGrain;
    const auto [place, threads] = PlaceOf(thread);
    return {grains * place / threads * kGrain, grains * (place + 1) / threads * kGrain};
  }
  /// The rows of vectors beyond the last row read zeros.
  void Pad(int rows, int vectors, Worker* worker) const {
    for (int r = rows; r < vectors * kernels_.lanes; ++r) worker->pointers[r] = space_->zero_row.data();
  }

  void ForwardPanel(const float* values, const Network& network, Activations* activations, int panel,
                    int vectors) const {
    for (size_t i = 0; i < network.layers.size(); ++i) {
      ForwardLayer(kernels_, network.layers[i], values, activations->at(i, panel), vectors,
                   activations->at(i + 1, panel), activations->kept(i, panel));
    }
  }

  /// From the outputs' gradients of a block, which holds `vectors` vectors, to the weights', and with `to_inputs` to
  /// the inputs'. The activations are overwritten.
  void BackwardBlock(const float* values, const Network& network, Activations* activations, int vectors,
                     float* gradient, bool to_inputs = false) const {
    for (size_t i = network.layers.size(); i-- > 0;) {
      const Network::Layer& layer = network.layers[i];
      kernels_.weight_gradient(activations->at(i + 1), activations->stride(i + 1), layer.out, activations->at(i),
                               activations->stride(i), layer.in, vectors, kPanelVectors, gradient + layer.weight,
                               gradient + layer.bias);
      if (i == 0 && !to_inputs) break;
      for (int panel = 0; panel * kPanelVectors < vectors; ++panel) {
        const int here = std::min<int>(kPanelVectors, vectors - panel * kPanelVectors);
        kernels_.backward(values + layer.weight, layer.out, layer.in, activations->at(i + 1, panel), here,
                          i == 0 ? Activation::kIdentity : network.layers[i - 1].activation, activations->at(i, panel));
        if (i == 0) continue;
        FinishBackward(kernels_, network.layers[i - 1], values, here, activations->kept(i - 1, panel),
                       activations->at(i, panel), gradient);
      }
    }
  }

  /// Calls `panel(first row, number of rows, vectors, index of the panel)` for every panel of a block, and
  /// `block(vectors)` after each block.
  template <typename Panel, typename Block>
  void ForBlocks(int64_t rows, int block_panels, Panel&& panel, Block&& block) const {
    for (int64_t first = 0; first < rows; first += int64_t{block_panels} * panel_rows_) {
      const int64_t here = std::min<int64_t>(rows - first, int64_t{block_panels} * panel_rows_);
      int vectors_in_block = 0;
      for (int64_t at = 0; at < here; at += panel_rows_) {
        const int panel_size = static_cast<int>(std::min<int64_t>(panel_rows_, here - at));
        const int vectors = Vectors(panel_size);
        panel(first + at, panel_size, vectors, static_cast<int>(at / panel_rows_));
        vectors_in_block += vectors;
      }
      block(vectors_in_block);
    }
  }

  /// The rows of a minibatch lie anywhere in the batch: those of the next panel are asked for while this one is
  /// computed.
  absl::Span<const int32_t> NextPanel(absl::Span<const int32_t> rows, int64_t first) const {
    return rows.subspan(static_cast<size_t>(first), static_cast<size_t>(panel_rows_));
  }
  static void Prefetch(const void* at) { __builtin_prefetch(at); }
  static void PrefetchRow(const MatrixView& matrix, int64_t row) {
    constexpr int64_t kLine = 64 / sizeof(float);
    const float* const at = matrix.data + row * matrix.stride;
    for (int64_t column = 0; column < matrix.columns; column += kLine) Prefetch(at + column);
  }

  /// Calls `run(pieces)` for each panel of the thread's part of `pieces`: every so-manieth, the longest first.
  template <typename Run>
  void ForSequencePanels(absl::Span<const Piece> pieces, int thread, SequencePanel* panel, Run&& run) const {
    const auto [place, threads] = PlaceOf(thread);
    std::vector<Piece> mine;
    for (auto i = static_cast<size_t>(place); i < pieces.size();) {
      mine.clear();
      for (; i < pieces.size() && static_cast<int>(mine.size()) < panel->lanes(); i += static_cast<size_t>(threads)) {
        mine.push_back(pieces[i]);
      }
      panel->Begin(mine);
      run(absl::MakeConstSpan(mine));
    }
  }

  const Kernels& kernels_;
  const int panel_rows_;
  const std::shared_ptr<ThreadTeam> team_;
  const std::shared_ptr<Workspace> space_;

 private:
  int alone_ = NetworkBackend::kWholeTeam;  // the thread that is
};

}  // namespace troupe::training::fused
