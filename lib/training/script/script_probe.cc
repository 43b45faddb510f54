#include "lib/training/script/script_probe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/space.h"
#include "lib/training/torch/torch_status.h"
#include <torch/csrc/autograd/autograd.h>

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr int64_t kRows = 4;
constexpr double kSame = 1e-3;     // of a row's outputs, alone and among others, against 1 and their size
constexpr double kMove = 1e-2;     // of parameters, to see what depends on them
constexpr size_t kMostTold = 300;  // characters of what LibTorch says

/// A flat row of the space, as networks read it: within its bounds and not far from zero.
void WriteRow(const space::Space& space, base::PhiloxSequence* random, std::vector<float>* row) {
  switch (space.kind()) {
    case space::SpaceKind::kBox: {
      const bool bytes = space.flat_dtype() == tensor::DType::kUint8;
      const bool integers = space.dtype() != tensor::DType::kFloat32 && space.dtype() != tensor::DType::kFloat64;
      for (size_t i = 0; i < space.low().size(); ++i) {
        double value = std::clamp(random->Uniform(-1.0, 1.0), space.low()[i], space.high()[i]);
        if (bytes) value = random->Uniform(0.0, 1.0);
        row->push_back(static_cast<float>(integers && !bytes ? std::round(value) : value));
      }
      return;
    }
    case space::SpaceKind::kDict:
    case space::SpaceKind::kTuple:
      for (const space::Space& child : space.children()) WriteRow(child, random, row);
      return;
    case space::SpaceKind::kDiscrete:
    case space::SpaceKind::kMultiDiscrete: {
      const std::vector<int64_t> counts = space.kind() == space::SpaceKind::kDiscrete
                                              ? std::vector<int64_t>{space.n()}
                                              : std::vector<int64_t>(space.nvec().begin(), space.nvec().end());
      for (const int64_t count : counts) {
        const auto chosen = static_cast<int64_t>(random->Below(static_cast<uint32_t>(count)));
        for (int64_t i = 0; i < count; ++i) row->push_back(i == chosen ? 1.0f : 0.0f);
      }
      return;
    }
    case space::SpaceKind::kMultiBinary:
      for (int64_t i = 0; i < space.n(); ++i) row->push_back(static_cast<float>(random->Below(2)));
      return;
    case space::SpaceKind::kNone:
      return;
  }
}

struct Rows {
  Tensor observation, agent_id, state, mask;

  Rows Only(int64_t row) const {
    return {observation.narrow(0, row, 1), agent_id.narrow(0, row, 1), state.narrow(0, row, 1), mask.narrow(0, row, 1)};
  }
  Rows WithState(const Tensor& other) const { return {observation, agent_id, other, mask}; }
  ScriptOutputs RunWith(const ScriptNetwork& script) const { return script.Run(observation, agent_id, state, mask); }
};

/// Of agents before their first decisions.
Rows MakeRows(const policy::PolicySpec& spec, const policy::NetworkSpec& network, const ScriptNetwork& script) {
  const ScriptWidths& widths = script.widths();
  base::PhiloxSequence random(base::PhiloxKey::Make(0, base::RandomStream::kInit), {});
  Rows rows;
  const bool observes =
      network.inputs[0] == policy::NetworkInput::kObservation && widths.observation == spec.observation_size();
  rows.observation = torch::empty({kRows, widths.observation});
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<float> row;
    if (observes) WriteRow(spec.observation_space, &random, &row);
    // Of what stands together of all agents, or of a state, the parts are not known here.
    while (static_cast<int64_t>(row.size()) < widths.observation) {
      row.push_back(static_cast<float>(random.Uniform(0.0, 1.0)));
    }
    std::copy_n(row.data(), widths.observation, rows.observation.data_ptr<float>() + r * widths.observation);
  }
  rows.agent_id = torch::zeros({kRows, widths.agent_id});
  for (int64_t r = 0; r < kRows && widths.agent_id > 0; ++r) rows.agent_id[r][r % widths.agent_id] = 1.0f;
  rows.state = script.FirstState(kRows);
  rows.mask = torch::ones({kRows, widths.mask}, torch::kBool);
  return rows;
}

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

/// What a module may not write to: its own tensors, and its inputs, which are the memory of whoever calls.
class OnlyRead {
 public:
  OnlyRead(const ScriptNetwork& script, const Rows& rows) : script_(script), inputs_(rows) {
    for (const auto& [name, tensor] : Tensors()) before_.push_back({tensor, tensor._version()});
  }
  absl::Status Check() const {
    size_t i = 0;
    for (const auto& [name, tensor] : Tensors()) {
      const auto& [was, version] = before_[i++];
      if (tensor.is_same(was) && tensor._version() == version) continue;
      return Wrong(absl::StrCat("changes ", name, " in forward, expected a module that only reads"));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<std::string, Tensor>> Tensors() const {
    std::vector<std::pair<std::string, Tensor>> tensors = script_.AllTensors();
    tensors.emplace_back("obs", inputs_.observation);
    tensors.emplace_back("agent_id", inputs_.agent_id);
    tensors.emplace_back("state", inputs_.state);
    tensors.emplace_back("mask", inputs_.mask);
    return tensors;
  }

  const ScriptNetwork& script_;
  const Rows& inputs_;
  std::vector<std::pair<Tensor, int64_t>> before_;
};

bool Near(const Tensor& alone, const Tensor& among) {
  return ((alone - among).abs() <= kSame * (1.0 + among.abs())).all().item<bool>();
}

/// A decision of each row; what it gives, without a graph.
absl::StatusOr<ScriptOutputs> TryRows(const ScriptNetwork& script, const Rows& rows) {
  const OnlyRead only_read(script, rows);
  ScriptOutputs made = rows.RunWith(script);
  TROUPE_RETURN_IF_ERROR(only_read.Check());
  if (!made.outputs.requires_grad()) {
    return Wrong("gives outputs that do not depend on its parameters (no_grad, detach?), expected some that do");
  }
  made = {made.outputs.detach().clone(), made.state.detach().clone()};
  for (const Tensor& part : {made.outputs, made.state}) {
    if (!torch::isfinite(part).all().item<bool>()) return Wrong("gives NaN or infinity, expected numbers");
  }
  const torch::NoGradGuard no_grad;
  const ScriptOutputs again = rows.RunWith(script);
  const bool same_outputs = torch::equal(made.outputs, again.outputs);
  if (!same_outputs || !torch::equal(made.state, again.state)) {
    return Wrong(
        absl::StrCat("gives ", same_outputs ? "another state" : "other outputs",
                     " at a second try, expected the same for the same rows: no dropout and no random numbers"));
  }
  for (int64_t r = 0; r < kRows; ++r) {
    const ScriptOutputs alone = rows.Only(r).RunWith(script);
    const bool near_outputs = Near(alone.outputs[0], made.outputs[r]);
    if (near_outputs && Near(alone.state[0], made.state[r])) continue;
    return Wrong(absl::StrCat("gives a row ", near_outputs ? "another state" : "other outputs",
                              " alone than among others, expected rows that do not depend on each other"));
  }
  return made;
}

/// Where parameters change what is remembered, and that the outputs of the next decision, gradients have to reach the
/// parameters through it.
absl::Status TryGradients(const ScriptNetwork& script, const Rows& rows) {
  const Tensor remembered = rows.RunWith(script).state;
  const Tensor state = remembered.detach().requires_grad_(true);
  const Tensor outputs = rows.WithState(state).RunWith(script).outputs;
  if (remembered.requires_grad() &&
      torch::autograd::grad({outputs.sum()}, {state}, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                            /*allow_unused=*/true)[0]
          .defined()) {
    return absl::OkStatus();
  }
  const torch::NoGradGuard no_grad;
  std::vector<std::pair<Tensor, Tensor>> parameters;  // with their values
  for (const ScriptNetwork::Slot& slot : script.slots()) {
    if (slot.tensor.is_buffer) continue;
    parameters.emplace_back(slot.first, slot.first.clone());
    slot.first.mul_(1.0 + kMove).add_(kMove);
  }
  const Tensor other = rows.RunWith(script).state;
  for (auto& [parameter, value] : parameters) parameter.copy_(value);
  if (torch::equal(rows.WithState(other).RunWith(script).outputs, outputs)) return absl::OkStatus();
  return Wrong(
      "remembers what depends on its parameters, but gradients do not go through its state (no_grad, detach?), "
      "expected a state that is trained through time");
}

absl::Status Try(const ScriptNetwork& script, const Rows& rows) {
  TROUPE_ASSIGN_OR_RETURN(const ScriptOutputs made, TryRows(script, rows));
  if (script.state_size() == 0) return absl::OkStatus();
  // The next decisions, and the first one of another episode among them.
  Rows next = rows.WithState(made.state);
  next.state[0].zero_();
  TROUPE_RETURN_IF_ERROR(TryRows(script, next).status());
  return TryGradients(script, rows);
}

}  // namespace

absl::Status TryScript(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                       const ScriptNetwork& script) {
  absl::Status tried;
  const absl::Status ran = CatchTorch("trying it", [&] {
    tried = Try(script, MakeRows(spec, network, script));
    return absl::OkStatus();
  });
  if (ran.ok()) return tried;
  const ScriptWidths& widths = script.widths();
  return Wrong(absl::StrCat("fails on ", kRows, " rows of obs ", widths.observation, ", agent_id ", widths.agent_id,
                            ", state ", script.state_size(), " and mask ", widths.mask,
                            " numbers: ", base::LogSafe(std::string(ran.message()), kMostTold)));
}

}  // namespace troupe::training
