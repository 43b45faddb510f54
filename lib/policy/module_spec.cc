#include "lib/policy/module_spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

constexpr char kLogStd[] = "log_std";

std::string ShapeText(const ModuleTensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.shape, ","), "]"); }

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxModuleNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
}

bool IsShape(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMaxModuleElements || count * extent > kMaxModuleElements) return false;
    count *= extent;
  }
  return shape.size() <= kMaxModuleDimensions;
}

}  // namespace

int64_t ModuleTensor::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<std::string> ModuleHashes(const PolicySpec& spec) {
  std::vector<std::string> hashes;
  if (!spec.actor.module.sha256.empty()) hashes.push_back(spec.actor.module.sha256);
  for (const NetworkSpec& network : spec.learner_networks) {
    if (!network.module.sha256.empty()) hashes.push_back(network.module.sha256);
  }
  return hashes;
}

bool HasUnreadModule(const PolicySpec& spec) {
  const auto unread = [](const NetworkSpec& network) {
    return !network.module.sha256.empty() && network.module.tensors.empty();
  };
  return unread(spec.actor) || std::any_of(spec.learner_networks.begin(), spec.learner_networks.end(), unread);
}

bool IsSha256(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string ModuleText(const ModuleSpec& module) {
  if (module.sha256.empty()) return "none";
  return absl::StrCat("sha256:", module.sha256, " with ", module.tensors.size(), " tensors",
                      module.state_size == 0 ? "" : absl::StrCat(" and a state of ", module.state_size));
}

std::string CanonicalModuleText(const ModuleSpec& module) {
  return absl::StrCat(module.sha256, "(",
                      absl::StrJoin(module.tensors, ";",
                                    [](std::string* out, const ModuleTensor& tensor) {
                                      absl::StrAppend(out, tensor.name, ShapeText(tensor), tensor.is_buffer ? "b" : "");
                                    }),
                      ")", module.state_size == 0 ? "" : absl::StrCat("state[", module.state_size, "]"));
}

absl::Status ValidateModule(const PolicyId& id, const NetworkSpec& network) {
  const auto error = [&](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", base::LogSafe(network.role, 32),
                                                   "'s TorchScript module ", parts...));
  };
  const ModuleSpec& module = network.module;
  if (network.encoder != EncoderKind::kTorchScript) {
    return module == ModuleSpec() ? absl::OkStatus() : error("is there, but its encoder is another; expected none");
  }
  if (!IsSha256(module.sha256)) {
    return error("is \"", base::LogSafe(module.sha256, 80), "\"; expected 64 hexadecimal digits of its SHA-256");
  }
  if (!network.hidden_sizes.empty() || !network.head_hidden_sizes.empty() || network.core.remembers() ||
      network.layer_norm) {
    return error("is the whole network, but has layers or a core beside it; expected none");
  }
  if (module.tensors.size() > kMaxModuleTensors) {
    return error("has ", module.tensors.size(), " tensors; expected at most ", kMaxModuleTensors);
  }
  if (module.state_size < 0 || module.state_size > kMaxModuleState) {
    return error("has a state of ", module.state_size, " numbers; expected 0 to ", kMaxModuleState);
  }
  std::set<std::string> names;  // behind the role
  int64_t elements = 0;
  for (const ModuleTensor& tensor : module.tensors) {
    const std::string name = base::LogSafe(tensor.name, kMaxModuleNameBytes);
    if (!IsName(tensor.name)) {
      return error("has a tensor \"", name, "\"; expected a name of 1 to ", kMaxModuleNameBytes,
                   " letters, digits, _ and dots");
    }
    if (!names.insert(tensor.is_buffer ? absl::StrCat(kBuffersOf + 1, ".", tensor.name) : tensor.name).second) {
      return error("has two tensors \"", name, "\"");
    }
    if (network.role == kActorRole && !tensor.is_buffer && tensor.name == kLogStd) {
      return error("has a parameter \"", kLogStd, "\", which is the name of the policy's own; expected another name");
    }
    if (!IsShape(tensor.shape) || (elements += tensor.count()) > kMaxModuleElements) {
      return error("has \"", name, "\" of shape ", ShapeText(tensor), "; expected at most ", kMaxModuleDimensions,
                   " extents of at least 1, and ", kMaxModuleElements, " elements in all");
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::policy
