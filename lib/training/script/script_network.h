#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_spec.h"
#include "lib/policy/policy_fwd.h"
#include <torch/script.h>

namespace troupe::training {

/// What a user's module reads and gives for each row. Plain value.
struct ScriptWidths {
  int64_t observation = 0;  ///< of an actor the observation; of a critic what it reads before the slot
  int64_t agent_id = 0;     ///< the one-hot of the agent's slot; 0: none
  int64_t mask = 0;         ///< of an actor with an action mask; else 0
  int64_t output = 0;

  static ScriptWidths Of(const policy::PolicySpec& spec, const policy::NetworkSpec& network);
};

/// What a module makes of rows.
struct ScriptOutputs {
  torch::Tensor outputs;  ///< [rows, ScriptWidths::output]
  torch::Tensor state;    ///< [rows, state_size], what it remembers of each row's agent from now on
};

/// A user's TorchScript module as a network of a policy:
///   forward(obs [rows, n] f32, agent_id [rows, k] f32, state [rows, state_size] f32, mask [rows, m] bool)
///     -> (outputs [rows, output] f32, state [rows, state_size] f32)
/// state_size is its attribute or constant of that name, 0 without. Its parameters and f32 buffers are those of the
/// file until Bind; other buffers and constants stay the file's. Runs without the optimizing executor, so that every
/// call computes the same. Made by whoever trains or acts, and used by one thread at a time; throws as LibTorch does.
class ScriptNetwork {
 public:
  /// A tensor of the module, and all places where it stands.
  struct Slot {
    policy::ModuleTensor tensor;
    torch::Tensor first;  ///< the file's
    std::vector<std::pair<torch::jit::Module, std::string>> places;
  };

  /// INVALID_ARGUMENT, naming the file: no TorchScript, another signature, a submodule that behaves otherwise in
  /// training and is in training mode, a state_size that is no integer or out of its bounds, a parameter that is not
  /// f32 or not finite, tensors that overlap without being the same.
  static absl::StatusOr<std::unique_ptr<ScriptNetwork>> Load(const policy::ModuleFile& file, const ScriptWidths& widths,
                                                             const torch::Device& device);

  const std::vector<Slot>& slots() const { return slots_; }
  std::vector<policy::ModuleTensor> tensors() const;
  int64_t state_size() const { return state_size_; }
  /// Each parameter and buffer, of any type, as the module has it now, by its name in it.
  std::vector<std::pair<std::string, torch::Tensor>> AllTensors() const;
  /// Makes `find("NAME")` each parameter, and `find("buffers.NAME")` without gradient each buffer.
  void Bind(const std::function<torch::Tensor(const std::string&)>& find);

  /// Throws where the module gives something else than ScriptOutputs says.
  ScriptOutputs Run(const torch::Tensor& observation, const torch::Tensor& agent_id, const torch::Tensor& state,
                    const torch::Tensor& mask) const;
  /// The same of inputs side by side, [rows, observation + agent_id + mask], the mask as 0 and 1.
  ScriptOutputs Run(const torch::Tensor& inputs, const torch::Tensor& state) const;
  /// Zeros, the state of so many agents before their first decisions.
  torch::Tensor FirstState(int64_t rows) const;
  const ScriptWidths& widths() const { return widths_; }

 private:
  ScriptNetwork(torch::jit::Module module, const ScriptWidths& widths, int64_t state_size);
  absl::Status FindTensors();

  torch::jit::Module module_;
  torch::jit::Method forward_;
  const ScriptWidths widths_;
  const int64_t state_size_;
  std::vector<Slot> slots_;
};

}  // namespace troupe::training
