#include "lib/training/core/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/action_head.h"
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

/// Writes numbers of the uniform distribution on [-bound, bound].
void FillUniform(int64_t count, double bound, base::PhiloxSequence* random, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(random->Uniform(-bound, bound));
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

/// The first numbers of an entry of `network`; `out` has zeros. Rows of a convolution's weights are its channels.
void FillEntry(const policy::NetworkSpec& network, const policy::ParameterLayout& layout,
               const policy::ParameterEntry& entry, base::PhiloxSequence* random, float* out) {
  const bool of_core = absl::StrContains(entry.name, ".core.");
  const bool projects = absl::StrContains(entry.name, ".attention.");
  const bool projects_in = absl::EndsWith(entry.name, ".in_proj_weight");
  const bool is_weight =
      absl::EndsWith(entry.name, ".weight") || absl::StrContains(entry.name, ".core.weight_") || projects_in;
  if (absl::StrContains(entry.name, ".norm.")) {
    if (is_weight) std::fill_n(out, entry.count, 1.0f);
    return;
  }
  if (projects && !is_weight) return;  // torch.nn.MultiheadAttention's begin with zeros, too
  // Its weights that make queries, keys and values begin as xavier's.
  if (network.initializer == policy::Initializer::kTorch && !projects_in) {
    // Linear and Conv2d: 1 / sqrt(inputs of an output), biases too; GRU and LSTM: 1 / sqrt(units), all of it.
    int64_t fan_in = 0;
    if (of_core) {
      fan_in = network.core.size;
    } else {
      const absl::string_view stem =
          is_weight ? absl::StripSuffix(entry.name, ".weight") : absl::StripSuffix(entry.name, ".bias");
      const policy::ParameterEntry* const weight = layout.Find(absl::StrCat(stem, ".weight"));
      fan_in = weight->count / weight->shape[0];
    }
    FillUniform(entry.count, 1.0 / std::sqrt(static_cast<double>(fan_in)), random, out);
    return;
  }
  if (!is_weight) return;
  const std::string last = absl::StrCat(network.role, ".", network.num_layers() - 1, ".weight");
  double gain = network.hidden_gain > 0 ? network.hidden_gain : ActivationGain(network.activation);
  if (of_core || projects) gain = 1.0;
  if (entry.name == last) gain = network.output_gain;
  const int64_t rows = entry.shape[0];
  const int64_t columns = entry.count / rows;
  if (network.initializer == policy::Initializer::kOrthogonal) {
    FillOrthogonal(rows, columns, gain, random, out);
    return;
  }
  // Of a convolution both counts are times the places of its kernel.
  const int64_t places = entry.shape.size() > 2 ? columns / entry.shape[1] : 1;
  FillUniform(entry.count, gain * std::sqrt(6.0 / static_cast<double>(columns + rows * places)), random, out);
}

/// The network whose first numbers are drawn; nullptr: a user's module, whose first values its file has.
const policy::NetworkSpec* NetworkOf(const policy::PolicySpec& spec, const std::string& role) {
  const policy::NetworkSpec* const network = role == spec.actor.role ? &spec.actor : spec.FindLearnerNetwork(role);
  return network == nullptr || network->encoder == policy::EncoderKind::kTorchScript ? nullptr : network;
}

/// Where the actor's last layer says log standard deviations, its biases of them.
void AddInitialLogStd(const policy::PolicySpec& spec, FlatParameters* parameters) {
  if (spec.free_log_std || spec.continuous == policy::ContinuousDistribution::kBeta) return;
  if (spec.actor.encoder == policy::EncoderKind::kTorchScript) return;  // its first values are the file's
  const policy::ParameterEntry* const bias =
      parameters->layout().Find(absl::StrCat(spec.actor.role, ".", spec.actor.num_layers() - 1, ".bias"));
  for (const ContinuousPart& part : ActionHead::For(spec).continuous) {
    float* const first = parameters->values().data() + bias->offset + part.output + part.words;
    for (int64_t i = 0; i < part.words; ++i) first[i] += static_cast<float>(spec.initial_log_std);
  }
}

/// Targets begin as what they follow.
void FillTargets(const policy::PolicySpec& spec, FlatParameters* parameters) {
  const policy::ParameterLayout& layout = parameters->layout();
  std::vector<const policy::NetworkSpec*> networks = {&spec.actor};
  for (const policy::NetworkSpec& network : spec.learner_networks) networks.push_back(&network);
  for (const policy::NetworkSpec* const network : networks) {
    if (!network->has_target) continue;
    const policy::ParameterSection* const from = layout.FindSection(network->role);
    const policy::ParameterSection* const to = layout.FindSection(network->role + policy::kTargetOf);
    std::copy_n(parameters->values().begin() + from->offset, from->size, parameters->values().begin() + to->offset);
  }
}

}  // namespace

absl::Status AddModuleValues(const policy::PolicySpec& spec, FlatParameters* parameters) {
  std::vector<const policy::NetworkSpec*> networks = {&spec.actor};
  for (const policy::NetworkSpec& network : spec.learner_networks) networks.push_back(&network);
  for (const policy::NetworkSpec* const network : networks) {
    if (network->encoder != policy::EncoderKind::kTorchScript) continue;
    policy::ModuleReader* const reader = policy::FindModuleReader();
    if (reader == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("policy \"", spec.id.value(), "\": the ", network->role,
                                                        " is a TorchScript module, and this program has no LibTorch"));
    }
    TROUPE_RETURN_IF_ERROR(reader->WriteFirstValues(spec, *network, parameters->layout(), parameters->values()));
  }
  FillTargets(spec, parameters);
  return absl::OkStatus();
}

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

ParameterBlock FlatParameters::Part(int64_t first, int64_t end) {
  const auto part = [&](absl::Span<float> all) {
    return all.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
  };
  return {"", part(values()), part(gradients()), part(exp_avg()), part(exp_avg_sq())};
}

FlatParameters InitialParameters(const policy::PolicySpec& spec, uint64_t seed) {
  FlatParameters parameters(policy::ParameterLayout::For(spec));
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kInit);
  const uint32_t policy_hash = StableHash(spec.id.value());
  uint32_t number = 0;
  const std::string log_std = absl::StrCat(spec.actor.role, ".log_std");
  const policy::ParameterLayout& layout = parameters.layout();
  for (const policy::ParameterEntry& entry : layout.entries()) {
    base::PhiloxSequence random(key, {.env_id = policy_hash, .episode = number++});
    float* out = parameters.values().data() + entry.offset;
    if (spec.log_std_size() > 0 && entry.name == log_std) {
      std::fill_n(out, entry.count, static_cast<float>(spec.initial_log_std));
      continue;
    }
    const policy::NetworkSpec* const network = NetworkOf(spec, layout.sections()[entry.section].role);
    if (network != nullptr) FillEntry(*network, layout, entry, &random, out);
  }
  AddInitialLogStd(spec, &parameters);
  for (const policy::LearnerNumber& number : spec.learner_numbers) {
    parameters.values()[static_cast<size_t>(layout.FindSection(number.name)->offset)] =
        static_cast<float>(number.initial);
  }
  FillTargets(spec, &parameters);
  return parameters;
}

}  // namespace troupe::training
