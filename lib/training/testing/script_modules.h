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
#include "absl/strings/str_join.h"
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

/// A module in the making: parameters in the order of the built-in networks', and the body of forward.
struct TestModuleParts {
  std::vector<std::pair<std::string, torch::Tensor>> parameters = {};
  std::string body = "    x = torch.cat([obs, agent_id], 1)\n";
  std::vector<std::string> after = {};  ///< parts of the state that is given back

  /// w<i>, b<i>.
  void Layer(size_t i, int64_t from, int64_t to, bool activated) {
    parameters.emplace_back(absl::StrCat("w", i), torch::randn({to, from}) * 0.3);
    parameters.emplace_back(absl::StrCat("b", i), torch::randn({to}) * 0.1);
    const std::string layer = absl::StrCat("torch.linear(x, self.w", i, ", self.b", i, ")");
    absl::StrAppend(&body, "    x = ", activated ? absl::StrCat("torch.tanh(", layer, ")") : layer, "\n");
  }
  /// wi<i>, wh<i>, bi<i>, bh<i> of a layer of the core.
  void CoreLayer(int64_t i, int64_t from, const policy::CoreSpec& core) {
    const bool is_gru = core.kind == policy::CoreKind::kGru;
    const int64_t rows = core.gates() * core.size;
    parameters.emplace_back(absl::StrCat("wi", i), torch::randn({rows, from}) * 0.3);
    parameters.emplace_back(absl::StrCat("wh", i), torch::randn({rows, core.size}) * 0.3);
    parameters.emplace_back(absl::StrCat("bi", i), torch::randn({rows}) * 0.1);
    parameters.emplace_back(absl::StrCat("bh", i), torch::randn({rows}) * 0.1);
    const auto before = [&](int64_t part) {
      const int64_t first = (i * (is_gru ? 1 : 2) + part) * core.size;
      return absl::StrCat("state[:, ", first, ":", first + core.size, "]");
    };
    const std::string weights = absl::StrCat("self.wi", i, ", self.wh", i, ", self.bi", i, ", self.bh", i);
    const std::string given = is_gru
                                  ? absl::StrCat("x = torch.gru_cell(x, ", before(0))
                                  : absl::StrCat("x, c", i, " = torch.lstm_cell(x, [", before(0), ", ", before(1), "]");
    absl::StrAppend(&body, "    ", given, ", ", weights, ")\n    h", i, " = x\n");
    after.push_back(absl::StrCat("h", i));
    if (!is_gru) after.push_back(absl::StrCat("c", i));
  }
};

/// A network of the built-in one's shape, core included, and activation tanh, with weights w0, b0, w1, ... of `seed`.
/// The actor's forbids, as the policy's head does, what its mask forbids: with another mask its outputs are others.
inline torch::jit::Module BuiltInTestModule(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                                            uint64_t seed) {
  torch::manual_seed(seed);
  TestModuleParts parts;
  int64_t width = spec.InputSize(network);
  size_t number = 0;
  const auto layer = [&](int64_t size, bool activated) {
    parts.Layer(number++, width, size, activated);
    width = size;
  };
  for (const int64_t size : network.hidden_sizes) layer(size, true);
  for (int64_t i = 0; i < network.core.layers; ++i) {
    parts.CoreLayer(i, width, network.core);
    width = network.core.size;
  }
  for (const int64_t size : network.head_hidden_sizes) layer(size, true);
  layer(spec.OutputSize(network), false);
  std::string body = parts.body;
  if (network.role == policy::kActorRole && spec.has_action_mask) {
    absl::StrAppend(&body, "    x = torch.where(mask, x, torch.full_like(x, -100.0))\n");
  }
  if (!parts.after.empty()) {
    absl::StrAppend(&body, "    state = torch.cat([", absl::StrJoin(parts.after, ", "), "], 1)\n");
  }
  torch::jit::Module module = MakeTestModule(parts.parameters, ForwardSource(body + "    return x, state\n"));
  if (network.remembers()) module.register_attribute("state_size", c10::IntType::get(), network.core.state_size());
  return module;
}

/// Makes the network of `spec` the module of these bytes, as configurations do. Of one that remembers sequence_length
/// is set already.
inline absl::Status SetTestModule(const std::string& bytes, policy::PolicySpec* spec, policy::NetworkSpec* network) {
  InstallScriptModules();
  network->encoder = policy::EncoderKind::kTorchScript;
  network->hidden_sizes = network->head_hidden_sizes = {};
  network->core = {};
  network->layer_norm = false;
  network->module = {.sha256 = PutTestModule(bytes)};
  absl::StatusOr<policy::ModuleSpec> module = policy::FindModuleReader()->Describe(*spec, *network);
  if (!module.ok()) return module.status();
  network->module = *std::move(module);
  return spec->Validate();
}

/// `spec` with modules of its networks' shapes instead of them, both of `seed`.
inline policy::PolicySpec WithTestModules(policy::PolicySpec spec, uint64_t seed) {
  const std::string actor = BytesOfModule(BuiltInTestModule(spec, spec.actor, seed));
  const std::string critic = BytesOfModule(BuiltInTestModule(spec, spec.critic(), seed + 1));
  TROUPE_CHECK(SetTestModule(actor, &spec, &spec.actor).ok());
  TROUPE_CHECK(SetTestModule(critic, &spec, spec.mutable_critic()).ok());
  return spec;
}

}  // namespace troupe::training
