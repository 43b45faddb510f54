#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

/// A tensor of a user's TorchScript module. Plain value.
struct ModuleTensor {
  std::string name;            ///< as torch.nn.Module.named_parameters or named_buffers has it: "body.0.weight"
  std::vector<int64_t> shape;  ///< f32
  bool is_buffer = false;      ///< no optimizer changes it

  int64_t count() const;  ///< elements
  bool operator==(const ModuleTensor& other) const = default;
};

/// A user's TorchScript module as a whole network (EncoderKind::kTorchScript). Says which file, by its bytes, and never
/// where one lies. Plain value.
struct ModuleSpec {
  std::string sha256;  ///< of the file: 64 lower-case hexadecimal digits; empty: the network is no module
  /// Parameters, then buffers, each in the module's order; one that several names stand for once, by the first. Empty
  /// where no process with LibTorch has read the file yet: such a spec trains and acts nowhere.
  std::vector<ModuleTensor> tensors = {};
  /// Elements of what the module remembers of an agent from decision to decision, 0 to kMaxModuleState; 0: nothing.
  int64_t state_size = 0;

  bool operator==(const ModuleSpec& other) const = default;
};

inline constexpr size_t kMaxModuleTensors = 1024;
inline constexpr size_t kMaxModuleNameBytes = 256;
inline constexpr size_t kMaxModuleDimensions = 8;
inline constexpr int64_t kMaxModuleElements = int64_t{1} << 28;  ///< of a network: 1 GiB
inline constexpr int64_t kMaxModuleState = 32768;                ///< what the largest core has: an LSTM of 4 x 4096

/// Of the modules of its actor and its learner networks; empty: it has none.
std::vector<std::string> ModuleHashes(const PolicySpec& spec);

/// Whether one of them has no tensors: nobody with LibTorch has read its file.
bool HasUnreadModule(const PolicySpec& spec);

/// Whether `text` is what base::Sha256 gives.
bool IsSha256(std::string_view text);

/// "none", or "sha256:HEX with N tensors", and where it remembers " and a state of N".
std::string ModuleText(const ModuleSpec& module);
/// Name, shape and kind of every tensor, after the hash, and the size of a state: what two equal modules have alike.
std::string CanonicalModuleText(const ModuleSpec& module);

/// INVALID_ARGUMENT for a module of a network that is none, and of one that is: no SHA-256, layers, a core or
/// convolutions beside it, tensors or a state over the limits above, a name that is twice there or none of
/// TorchScript's, and "log_std" of an actor, where the policy's own has its place.
absl::Status ValidateModule(const PolicyId& id, const NetworkSpec& network);

}  // namespace troupe::policy
