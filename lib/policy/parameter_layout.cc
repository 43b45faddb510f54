#include "lib/policy/parameter_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

// 64 bytes: every tensor starts on a cache line, as vector kernels like it.
constexpr int64_t kEntryAlignment = 16;

int64_t AlignUp(int64_t elements) { return (elements + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment; }

/// Numbers that the encoder of a network, and its core where it has one, make of a row.
int64_t EncodedSize(const PolicySpec& spec, const NetworkSpec& network) {
  if (network.core.remembers()) return network.core.size;
  if (!network.hidden_sizes.empty()) return network.hidden_sizes.back();
  return spec.InputSize(network) + EncodedObservationSize(spec, network) - spec.observation_size();
}

/// The entries of a network. The switches have no default, so that a kind without entries does not compile.
void AddNetwork(const PolicySpec& spec, const NetworkSpec& network, ParameterLayout::Builder* builder) {
  if (network.encoder == EncoderKind::kTorchScript) {
    for (const ModuleTensor& tensor : network.module.tensors) {
      if (!tensor.is_buffer) builder->Entry(tensor.name, tensor.shape);
    }
    return;
  }
  int64_t width = spec.InputSize(network);
  switch (network.encoder) {
    case EncoderKind::kMlp:
    case EncoderKind::kTorchScript:  // not here any more
      break;
    case EncoderKind::kCnn:
      width +=
          spec.ImagesOf(network) * (builder->Convolutions(spec.image(), network.conv_layers) - spec.image().size());
      break;
    case EncoderKind::kLeaves:
      for (const ObservationPart& part : ObservationParts(spec, network)) {
        if (part.encoder == nullptr) continue;
        const int64_t seen = part.image.size() == 0
                                 ? part.size
                                 : builder->Convolutions(part.image, part.encoder->conv_layers, part.stem);
        width += builder->Layers(0, seen, part.encoder->hidden_sizes, network.layer_norm, part.stem) - part.size;
      }
      break;
    case EncoderKind::kAttention:
      width += builder->Attention(network.attention) - spec.joint_observation_size;
      break;
    case EncoderKind::kShared:
      width = EncodedSize(spec, spec.EncodingNetwork(network));
      break;
  }
  width = builder->Layers(0, width, network.hidden_sizes, network.layer_norm);
  switch (network.core.kind) {
    case CoreKind::kNone:
      break;
    case CoreKind::kGru:
    case CoreKind::kLstm:
      width = builder->Core(width, network.core);
      break;
  }
  width = builder->Layers(network.hidden_sizes.size(), width, network.head_hidden_sizes, network.layer_norm);
  builder->Layers(network.num_layers() - 1, width, {spec.OutputSize(network)});
}

void AddActor(const PolicySpec& spec, ParameterLayout::Builder* builder) {
  AddNetwork(spec, spec.actor, builder);
  if (spec.log_std_size() > 0) builder->Entry("log_std", {spec.log_std_size()});
}

/// The section of a module's buffers, where it has some, behind that of its parameters.
void AddBuffers(const NetworkSpec& network, bool acting, ParameterLayout::Builder* builder) {
  bool begun = false;
  for (const ModuleTensor& tensor : network.module.tensors) {
    if (!tensor.is_buffer) continue;
    if (!begun) builder->Section(network.role + kBuffersOf, /*trained=*/false, acting);
    begun = true;
    builder->Entry(tensor.name, tensor.shape);
  }
}

}  // namespace

ParameterLayout::Builder& ParameterLayout::Builder::Section(std::string role, bool trained, bool acting) {
  for (const ParameterSection& section : sections_) TROUPE_CHECK(section.role != role);
  TROUPE_CHECK(!acting || sections_.empty() || sections_.back().acting);
  // Layouts are made for each snapshot that is checked: those of two small networks ask for memory once.
  if (sections_.empty()) {
    sections_.reserve(2);
    entries_.reserve(16);
  }
  sections_.push_back({std::move(role), trained, acting, end_, 0});
  return *this;
}

ParameterLayout::Builder& ParameterLayout::Builder::Entry(std::string_view name, std::vector<int64_t> shape) {
  TROUPE_CHECK(!sections_.empty());
  ParameterSection& section = sections_.back();
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  entries_.push_back({absl::StrCat(section.role, ".", absl::string_view(name.data(), name.size())), std::move(shape),
                      end_, count, sections_.size() - 1});
  end_ = AlignUp(end_ + count);
  section.size = end_ - section.offset;
  return *this;
}

ParameterLayout::Builder& ParameterLayout::Builder::Mlp(int64_t input, const std::vector<int64_t>& hidden,
                                                        int64_t output) {
  Layers(hidden.size(), Layers(0, input, hidden), {output});
  return *this;
}

int64_t ParameterLayout::Builder::Convolutions(ImageShape image, const std::vector<ConvLayer>& layers,
                                               const std::string& stem) {
  for (size_t i = 0; i < layers.size(); ++i) {
    Entry(absl::StrCat(stem, "conv.", i, ".weight"),
          {layers[i].channels, image.channels, layers[i].kernel, layers[i].kernel});
    Entry(absl::StrCat(stem, "conv.", i, ".bias"), {layers[i].channels});
    image = layers[i].OutputOf(image);
  }
  return image.size();
}

int64_t ParameterLayout::Builder::Attention(const AttentionSpec& attention) {
  const int64_t size = attention.size;
  for (size_t i = 0; i < attention.observation_sizes.size(); ++i) {
    Entry(absl::StrCat("embedding.", i, ".weight"), {size, attention.observation_sizes[i]});
    Entry(absl::StrCat("embedding.", i, ".bias"), {size});
  }
  Entry("attention.in_proj_weight", {3 * size, size});
  Entry("attention.in_proj_bias", {3 * size});
  Entry("attention.out_proj.weight", {size, size});
  Entry("attention.out_proj.bias", {size});
  return size;
}

int64_t ParameterLayout::Builder::Layers(size_t first, int64_t input, const std::vector<int64_t>& sizes, bool normed,
                                         const std::string& stem) {
  for (const int64_t size : sizes) {
    Entry(absl::StrCat(stem, first, ".weight"), {size, input});
    Entry(absl::StrCat(stem, first, ".bias"), {size});
    if (normed) {
      Entry(absl::StrCat(stem, "norm.", first, ".weight"), {size});
      Entry(absl::StrCat(stem, "norm.", first, ".bias"), {size});
    }
    input = size;
    ++first;
  }
  return input;
}

int64_t ParameterLayout::Builder::Core(int64_t input, const CoreSpec& core) {
  const int64_t rows = core.gates() * core.size;
  for (int64_t layer = 0; layer < core.layers; ++layer) {
    Entry(absl::StrCat("core.weight_ih_l", layer), {rows, layer == 0 ? input : core.size});
    Entry(absl::StrCat("core.weight_hh_l", layer), {rows, core.size});
    Entry(absl::StrCat("core.bias_ih_l", layer), {rows});
    Entry(absl::StrCat("core.bias_hh_l", layer), {rows});
  }
  return core.size;
}

ParameterLayout ParameterLayout::Builder::Build() {
  ParameterLayout layout;
  layout.entries_ = std::move(entries_);
  layout.sections_ = std::move(sections_);
  layout.size_ = end_;
  for (const ParameterSection& section : layout.sections_) layout.acting_size_ += section.acting ? section.size : 0;
  return layout;
}

ParameterLayout ParameterLayout::For(const PolicySpec& spec) {
  Builder builder;
  if (!spec.policy_class.has_weights()) return builder.Build();
  builder.Section(kActorRole, /*trained=*/true, /*acting=*/true);
  AddActor(spec, &builder);
  AddBuffers(spec.actor, /*acting=*/true, &builder);
  for (const NetworkSpec& network : spec.learner_networks) {
    builder.Section(network.role, /*trained=*/true, /*acting=*/false);
    AddNetwork(spec, network, &builder);
    AddBuffers(network, /*acting=*/false, &builder);
  }
  for (const LearnerNumber& number : spec.learner_numbers) {
    builder.Section(number.name, /*trained=*/true, /*acting=*/false).Entry("value", {1});
  }
  const auto add_target = [&](const NetworkSpec& network) -> ParameterLayout::Builder& {
    return builder.Section(network.role + kTargetOf, /*trained=*/false, /*acting=*/false);
  };
  if (spec.actor.has_target) AddActor(spec, &add_target(spec.actor));
  for (const NetworkSpec& network : spec.learner_networks) {
    if (network.has_target) AddNetwork(spec, network, &add_target(network));
  }
  return builder.Build();
}

const ParameterSection* ParameterLayout::FindSection(std::string_view role) const {
  for (const ParameterSection& section : sections_) {
    if (section.role == role) return &section;
  }
  return nullptr;
}

std::vector<float> ParameterLayout::ActingPart(absl::Span<const float> parameters) const {
  return std::vector<float>(parameters.begin(), parameters.begin() + acting_size_);
}

const ParameterEntry* ParameterLayout::Find(std::string_view name) const {
  for (const ParameterEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string FirstShapeDifference(const PolicySpec& got, const PolicySpec& expected) {
  const ParameterLayout ours = ParameterLayout::For(got);
  const ParameterLayout theirs = ParameterLayout::For(expected);
  const auto shape = [](const ParameterEntry* entry) {
    return entry == nullptr ? "none" : absl::StrCat("[", absl::StrJoin(entry->shape, ", "), "]");
  };
  for (const auto& [one, other] : {std::pair(&ours, &theirs), std::pair(&theirs, &ours)}) {
    for (const ParameterEntry& entry : one->entries()) {
      const ParameterEntry* const match = other->Find(entry.name);
      if (match != nullptr && match->shape == entry.shape) continue;
      return absl::StrCat("tensor \"", got.id.value(), "/", entry.name, "\" has shape ", shape(ours.Find(entry.name)),
                          ", expected ", shape(theirs.Find(entry.name)));
    }
  }
  // A layer before a core and one behind it may be alike in both.
  for (size_t i = 0; i < ours.entries().size(); ++i) {
    if (ours.entries()[i].name == theirs.entries()[i].name) continue;
    return absl::StrCat("tensor \"", got.id.value(), "/", ours.entries()[i].name, "\" stands where ",
                        theirs.entries()[i].name, " is expected");
  }
  return "";
}

}  // namespace troupe::policy
