#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/inference/kernels.h"
#include "lib/inference/packed_convolutions.h"
#include "lib/inference/packed_network.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_fwd.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// The encoders of a policy's leaves: makes of observations what the actor's first layer reads. None where the actor's
/// encoder is of another kind. Made and owned by an Actor; not thread-safe, never blocks, allocates in its constructor
/// alone.
///
/// Memory: what stands for the observations of kMlpChunkRows rows, the widest leaf of as many that is scaled, images of
/// kConvChunkImages, and what layers of kMlpChunkRows rows hand on.
class PackedLeaves {
 public:
  /// `spec` is valid and has weights. `network`, which has the encoders' fully connected layers, and `kernels` outlive
  /// it.
  PackedLeaves(const policy::PolicySpec& spec, const PackedNetwork& network, const KernelTable* kernels);

  bool empty() const { return parts_.empty(); }
  /// Packs the convolutions among the flat parameters of the acting section; `network` packs its own.
  void Pack(absl::Span<const float> parameters);
  /// [rows], output_stride() apart, valid until the next call. `observations` [rows, observation size]; at most
  /// kMlpChunkRows.
  const float* Run(const float* observations, int64_t rows);
  int64_t output_stride() const { return output_stride_; }

 private:
  struct Part {
    policy::ObservationPart place;
    int64_t output = 0;  // first column of what stands for it
    // Of its encoder; none and none where the leaves go on as they are.
    std::unique_ptr<PackedConvolutions> convolutions;
    absl::Span<const DenseLayer> layers;
  };

  /// The leaf of `rows` rows side by side, divided where it is of bytes.
  const float* Gather(const policy::ObservationPart& place, const float* observations, int64_t rows);
  void RunPart(const Part& part, const float* observations, int64_t rows);
  /// Writes [rows, made], rows `stride` apart, into the part's columns.
  void Put(const Part& part, const float* made, int64_t stride, int64_t rows);

  const KernelTable* const kernels_;
  const int activation_;
  const bool normed_;
  int64_t observation_size_ = 0;
  int64_t output_stride_ = 0;
  std::vector<Part> parts_;
  tensor::Buffer gathered_, scratch_[2], made_, output_;
};

}  // namespace troupe::inference
