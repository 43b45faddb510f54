#pragma once

#include <cstdint>

#include "lib/policy/policy_spec.h"
#include <torch/torch.h>

namespace troupe::training {

/// What a network reads of a batch, where the network computes: floats, and before them images that stay bytes until
/// the rows of a pass are taken. Plain value.
struct NetworkInputs {
  torch::Tensor floats;      ///< [rows, columns]
  torch::Tensor images;      ///< [at least as many, elements], uint8; undefined: the floats are all
  torch::Tensor image_rows;  ///< [rows], int64, the row of images that stands before each; undefined: the same row's
  torch::Tensor mask;        ///< [rows, mask_size], uint8, of an actor that is a user's module; undefined: none is read

  int64_t rows() const { return floats.size(0); }
  /// The rows of `index` (int64), as networks read them: [n, elements + columns + mask_size], bytes of images divided
  /// by 255.
  torch::Tensor Take(const torch::Tensor& index) const;
  torch::Tensor Range(int64_t first, int64_t count) const;
};

/// Rows of one pass without gradients over `network`, at most `most`: what it reads and what its convolutions or its
/// attention make are no more than 64 MiB (a row at least). `most` where it has neither and reads no images.
int64_t RowsOfPass(const policy::PolicySpec& spec, const policy::NetworkSpec& network, int64_t most);

}  // namespace troupe::training
