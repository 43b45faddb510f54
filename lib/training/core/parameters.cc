#include "lib/training/core/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "lib/base/philox.h"
#include <Eigen/QR>

namespace troupe::training {
namespace {

double ActivationGain(policy::Activation activation) {
  switch (activation) {
    case policy::Activation::kTanh:
      return 5.0 / 3.0;
    case policy::Activation::kRelu:
    case policy::Activation::kElu:
    case policy::Activation::kGelu:
    case policy::Activation::kSilu:
      return std::sqrt(2.0);
    case policy::Activation::kSigmoid:
    case policy::Activation::kIdentity:
      return 1.0;
  }
  return 1.0;
}

/// 32-bit FNV-1a: std::hash may differ between builds.
uint32_t StableHash(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Writes `gain` times a random [rows, columns] matrix with orthonormal rows or columns, whichever are fewer.
void FillOrthogonal(int64_t rows, int64_t columns, double gain, base::PhiloxSequence* random, float* out) {
  const int64_t tall = std::max(rows, columns);
  const int64_t narrow = std::min(rows, columns);
  Eigen::MatrixXd gaussian(tall, narrow);
  for (int64_t r = 0; r < tall; ++r) {
    for (int64_t c = 0; c < narrow; ++c) gaussian(r, c) = random->Normal();
  }
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(gaussian);
  Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(tall, narrow);
  // With the signs of R's diagonal taken out, Q is uniform among the orthogonal matrices (Mezzadri 2007).
  for (int64_t c = 0; c < narrow; ++c) {
    if (qr.matrixQR()(c, c) < 0) q.col(c) = -q.col(c);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      out[r * columns + c] = static_cast<float>(gain * (rows >= columns ? q(r, c) : q(c, r)));
  }
}

}  // namespace

FlatParameters::FlatParameters(policy::ParameterLayout layout)
    : layout_(std::move(layout)),
      row_bytes_(tensor::AlignUp(static_cast<size_t>(layout_.size()) * sizeof(float))),
      buffer_(4 * row_bytes_) {
  if (row_bytes_ > 0) std::memset(buffer_.data(), 0, 4 * row_bytes_);
}

absl::Span<float> FlatParameters::Row(int row) {
  return buffer_.As<float>(static_cast<size_t>(row) * row_bytes_, static_cast<size_t>(layout_.size()));
}

absl::Span<const float> FlatParameters::Row(int row) const {
  return buffer_.As<float>(static_cast<size_t>(row) * row_bytes_, static_cast<size_t>(layout_.size()));
}

std::vector<ParameterBlock> FlatParameters::blocks() {
  std::vector<ParameterBlock> blocks;
  for (const policy::ParameterSection& section : layout_.sections()) {
    if (!section.trained) continue;
    const auto part = [&section](absl::Span<float> all) {
      return all.subspan(static_cast<size_t>(section.offset), static_cast<size_t>(section.size));
    };
    blocks.push_back({section.role, part(values()), part(gradients()), part(exp_avg()), part(exp_avg_sq())});
  }
  return blocks;
}

FlatParameters InitialParameters(const policy::PolicySpec& spec, uint64_t seed) {
  FlatParameters parameters(policy::ParameterLayout::For(spec));
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kInit);
  const uint32_t policy_hash = StableHash(spec.id.value());
  uint32_t number = 0;
  const policy::ParameterLayout& layout = parameters.layout();
  for (const policy::ParameterEntry& entry : layout.entries()) {
    base::PhiloxSequence random(key, {.env_id = policy_hash, .episode = number++});
    float* out = parameters.values().data() + entry.offset;
    if (absl::StrContains(entry.name, ".core.weight_")) {
      FillOrthogonal(entry.shape[0], entry.shape[1], 1.0, &random, out);
    } else if (absl::EndsWith(entry.name, ".weight")) {
      const std::string& role = layout.sections()[entry.section].role;
      const policy::NetworkSpec& network = role == spec.actor.role ? spec.actor : *spec.FindLearnerNetwork(role);
      const std::string last = role + "." + std::to_string(network.num_layers() - 1) + ".weight";
      const double gain = entry.name == last ? network.output_gain : ActivationGain(network.activation);
      FillOrthogonal(entry.shape[0], entry.shape[1], gain, &random, out);
    } else if (absl::EndsWith(entry.name, ".log_std")) {
      std::fill_n(out, entry.count, static_cast<float>(spec.initial_log_std));
    }
  }
  return parameters;
}

}  // namespace troupe::training
