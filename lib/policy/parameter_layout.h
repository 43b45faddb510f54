#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

/// Behind a network's role: the section of its module's buffers.
inline constexpr char kBuffersOf[] = ".buffers";

/// One named tensor inside a policy's flat parameters. `offset` and `count` are in float32 elements.
struct ParameterEntry {
  std::string name;            ///< "actor.0.weight", "actor.0.bias", ..., "actor.log_std", "critic.0.weight", ...
  std::vector<int64_t> shape;  ///< weights [out, in] row-major as torch.nn.Linear, biases [out]
  int64_t offset = 0;
  int64_t count = 0;
  size_t section = 0;  ///< index into ParameterLayout::sections()
};

/// A range of a policy's flat parameters: one network's.
struct ParameterSection {
  std::string role;     ///< NetworkSpec::role
  bool trained = true;  ///< an optimizer changes it; false: a target network, which only follows another
  bool acting = false;  ///< workers need it
  int64_t offset = 0;   ///< elements
  int64_t size = 0;     ///< elements, gaps included
};

/// How a policy's parameters lie in one contiguous float32 buffer: sections side by side, acting ones first, so that
/// what workers need is a prefix; every entry starts at a multiple of 16 elements (64 bytes), gaps are zero and stay
/// zero. Immutable; thread-safe.
class ParameterLayout {
 public:
  /// Adds sections one after another, and entries to the last of them. An acting section comes before the others, and
  /// roles are different (checked).
  class Builder {
   public:
    Builder& Section(std::string role, bool trained, bool acting);
    /// `name` without the role.
    Builder& Entry(std::string_view name, std::vector<int64_t> shape);
    /// Entries <i>.{weight,bias} of fully connected layers.
    Builder& Mlp(int64_t input, const std::vector<int64_t>& hidden, int64_t output);
    /// The same of some layers, numbered from `first`; `normed`: each followed by norm.<i>.{weight,bias}, the scale and
    /// shift of its layer normalization. Names begin with `stem`. Returns the width of the last one's output, or
    /// `input`.
    int64_t Layers(size_t first, int64_t input, const std::vector<int64_t>& sizes, bool normed = false,
                   const std::string& stem = "");
    /// Entries conv.<i>.{weight,bias}, weights [channels, input channels, kernel, kernel] as torch.nn.Conv2d. Returns
    /// the numbers that the last one makes of an image. Names begin with `stem`.
    int64_t Convolutions(ImageShape image, const std::vector<ConvLayer>& layers, const std::string& stem = "");
    /// Entries embedding.<i>.{weight,bias}, of each observation space a torch.nn.Linear, then attention.* as
    /// torch.nn.MultiheadAttention names and shapes them. Returns the size of an embedding.
    int64_t Attention(const AttentionSpec& attention);
    /// Entries core.{weight_ih,weight_hh,bias_ih,bias_hh}_l<layer>, as torch.nn.GRU and torch.nn.LSTM name and shape
    /// them. Returns the width of its output.
    int64_t Core(int64_t input, const CoreSpec& core);
    ParameterLayout Build();

   private:
    std::vector<ParameterSection> sections_;
    std::vector<ParameterEntry> entries_;
    int64_t end_ = 0;
  };

  /// The section "actor": actor.conv.<i>.{weight,bias} of a CNN, the same and more of leaves' encoders as
  /// actor.leaf.<place of the leaf>.*, actor.<i>.{weight,bias} for each layer, behind each
  /// hidden one actor.norm.<i>.{weight,bias} where layers are normalized, actor.core.* between those of encoder and
  /// head where there is a core, actor.log_std when log_std_size() > 0; then one of each learner network,
  /// critic.<i>.{weight,bias} and so on, with attention first critic.embedding.<i>.* and critic.attention.*; of one
  /// that shares the actor's encoder the layers of its head. Then one of each learner number, NAME.value; then of each
  /// network with a target "ROLE.target", laid out as the network's. Nothing for a class without weights. Of a user's
  /// module actor.<name> for each parameter, and a section "actor.buffers", which is not trained, with
  /// actor.buffers.<name> for each buffer.
  static ParameterLayout For(const PolicySpec& spec);

  const std::vector<ParameterEntry>& entries() const& { return entries_; }
  /// Entries of a temporary would be gone before the loop over them begins.
  const std::vector<ParameterEntry>& entries() && = delete;
  const std::vector<ParameterSection>& sections() const& { return sections_; }
  const std::vector<ParameterSection>& sections() && = delete;
  /// nullptr when there is none.
  const ParameterEntry* Find(std::string_view name) const;
  const ParameterSection* FindSection(std::string_view role) const;
  int64_t acting_size() const { return acting_size_; }  ///< elements of the prefix that workers need
  int64_t size() const { return size_; }                ///< elements in all
  /// The acting prefix of `parameters` [size()].
  std::vector<float> ActingPart(absl::Span<const float> parameters) const;

 private:
  std::vector<ParameterEntry> entries_;
  std::vector<ParameterSection> sections_;
  int64_t acting_size_ = 0;
  int64_t size_ = 0;
};

/// The first tensor that policies of the two specs do not share: `tensor "ID/actor.0.weight" has shape [64, 21],
/// expected [64, 18]`, ID that of `got`, or `... stands where actor.core.weight_ih_l0 is expected`; empty: their
/// weights have the same shapes in the same order.
std::string FirstShapeDifference(const PolicySpec& got, const PolicySpec& expected);

}  // namespace troupe::policy
