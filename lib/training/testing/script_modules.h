#pragma once

// Users' modules for tests, made with LibTorch instead of Python.

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/script/script_modules.h"
#include <torch/script.h>

namespace troupe::training {

/// `body` of a module's forward, whose last line may be the return of `x` and `state`.
inline std::string ForwardSource(const std::string& body) {
  return "def forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:\n" +
         body;
}

inline torch::jit::Module MakeTestModule(const std::vector<std::pair<std::string, torch::Tensor>>& parameters,
                                         const std::string& source) {
  torch::jit::Module module("test.Module");
  for (const auto& [name, value] : parameters) module.register_parameter(name, value, /*is_buffer=*/false);
  module.define(source);
  return module;
}

inline std::string BytesOfModule(const torch::jit::Module& module) {
  std::ostringstream out;
  module.save(out);
  return out.str();
}

/// Makes the bytes a file of this process; what stands for its hash here.
inline std::string PutTestModule(const std::string& bytes, const std::string& path = "test.pt") {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a: these programs link no libcrypto
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  const std::string sha256 = absl::StrCat(digits, digits, digits, digits);
  policy::ModuleFiles::OfProcess().Put(sha256, {path, bytes});
  return sha256;
}

/// A multi-layer perceptron of the network's shape and activation tanh, with weights w0, b0, w1, ... of `seed`. The
/// actor's forbids, as the policy's head does, what its mask forbids: with another mask its outputs are others.
inline torch::jit::Module MlpTestModule(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                                        uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::string body = "    x = torch.cat([obs, agent_id], 1)\n";
  int64_t width = spec.InputSize(network);
  std::vector<int64_t> sizes = network.hidden_sizes;
  sizes.push_back(spec.OutputSize(network));
  for (size_t i = 0; i < sizes.size(); ++i) {
    parameters.emplace_back(absl::StrCat("w", i), torch::randn({sizes[i], width}) * 0.3);
    parameters.emplace_back(absl::StrCat("b", i), torch::randn({sizes[i]}) * 0.1);
    const std::string layer = absl::StrCat("torch.linear(x, self.w", i, ", self.b", i, ")");
    absl::StrAppend(&body, "    x = ", i + 1 < sizes.size() ? absl::StrCat("torch.tanh(", layer, ")") : layer, "\n");
    width = sizes[i];
  }
  if (network.role == policy::kActorRole && spec.has_action_mask) {
    absl::StrAppend(&body, "    x = torch.where(mask, x, torch.full_like(x, -100.0))\n");
  }
  return MakeTestModule(parameters, ForwardSource(body + "    return x, state\n"));
}

/// Makes the network of `spec` the module of these bytes, as configurations do.
inline absl::Status SetTestModule(const std::string& bytes, policy::PolicySpec* spec, policy::NetworkSpec* network) {
  InstallScriptModules();
  network->encoder = policy::EncoderKind::kTorchScript;
  network->hidden_sizes = {};
  network->layer_norm = false;
  network->module = {PutTestModule(bytes), {}};
  auto tensors = policy::FindModuleReader()->Describe(*spec, *network);
  if (!tensors.ok()) return tensors.status();
  network->module.tensors = *std::move(tensors);
  return spec->Validate();
}

/// `spec` with modules of its networks' shapes instead of them, both of `seed`.
inline policy::PolicySpec WithTestModules(policy::PolicySpec spec, uint64_t seed) {
  const std::string actor = BytesOfModule(MlpTestModule(spec, spec.actor, seed));
  const std::string critic = BytesOfModule(MlpTestModule(spec, spec.critic(), seed + 1));
  TROUPE_CHECK(SetTestModule(actor, &spec, &spec.actor).ok());
  TROUPE_CHECK(SetTestModule(critic, &spec, spec.mutable_critic()).ok());
  return spec;
}

}  // namespace troupe::training
