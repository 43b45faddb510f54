#pragma once

#include <cstdint>

#include "lib/policy/policy_spec.h"
#include <torch/torch.h>

namespace troupe::training {

/// Images of bytes as networks read them (space::RowScaling), where the network computes.
class ImageScaling {
 public:
  ImageScaling() = default;
  /// Of rows of so many of the policy's images each; without effect where none stay bytes.
  ImageScaling(const policy::PolicySpec& spec, int64_t images, const torch::Device& device);

  /// [rows, elements], uint8 to float32.
  torch::Tensor Apply(const torch::Tensor& bytes) const;

 private:
  float offset_ = 0;
  float scale_ = 1;
  torch::Tensor offsets_, scales_;  ///< [elements]; undefined where all are scaled alike
};

/// What a network reads of a batch, where the network computes: floats, and before them images that stay bytes until
/// the rows of a pass are taken. Plain value.
struct NetworkInputs {
  torch::Tensor floats;      ///< [rows, columns]
  torch::Tensor images;      ///< [at least as many, elements], uint8; undefined: the floats are all
  torch::Tensor image_rows;  ///< [rows], int64, the row of images that stands before each; undefined: the same row's
  torch::Tensor mask;        ///< [rows, mask_size], uint8, of an actor that is a user's module; undefined: none is read
  ImageScaling scaling = {};  ///< of images

  int64_t rows() const { return floats.size(0); }
  /// The rows of `index` (int64), as networks read them: [n, elements + columns + mask_size], bytes of images scaled.
  torch::Tensor Take(const torch::Tensor& index) const;
  torch::Tensor Range(int64_t first, int64_t count) const;
};

/// Rows of one pass without gradients over `network`, at most `most`: what it reads and what its convolutions or its
/// attention make are no more than 64 MiB (a row at least). `most` where it has neither and reads no images.
int64_t RowsOfPass(const policy::PolicySpec& spec, const policy::NetworkSpec& network, int64_t most);

}  // namespace troupe::training
