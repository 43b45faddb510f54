#include "lib/training/script/script_network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/script/script_file.h"
#include "lib/training/torch/torch_status.h"
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace troupe::training {
namespace {

using torch::Tensor;

/// Beginnings of the names of torch.nn's classes that compute something else while they are trained.
constexpr std::array<std::string_view, 7> kTrainingClasses = {
    "Dropout", "AlphaDropout", "FeatureAlphaDropout", "BatchNorm", "SyncBatchNorm", "InstanceNorm", "RReLU"};
constexpr char kStateSize[] = "state_size";
constexpr char kSignature[] =
    "forward(self, obs: Tensor, agent_id: Tensor, state: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]";

std::string ClassOf(const torch::jit::Module& module) {
  return module.type()->name().has_value() ? module.type()->name()->name() : std::string();
}

bool IsTensor(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

/// Empty where forward is what it should be.
std::string SignatureGot(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method.has_value()) return "no method forward";
  const c10::FunctionSchema& schema = method->function().getSchema();
  bool fits = schema.arguments().size() == 5 && schema.returns().size() == 1;
  for (size_t i = 1; fits && i < schema.arguments().size(); ++i) fits = IsTensor(schema.arguments()[i].type());
  const auto tuple = fits ? schema.returns()[0].type()->cast<c10::TupleType>() : nullptr;
  fits = tuple != nullptr && tuple->elements().size() == 2 && IsTensor(tuple->elements()[0]) &&
         IsTensor(tuple->elements()[1]);
  if (fits) return "";
  std::ostringstream text;
  text << schema;
  return text.str();
}

/// What the module says that it remembers of an agent; nullopt: what is no size.
std::optional<int64_t> StateSizeOf(const torch::jit::Module& module) {
  if (!module.hasattr(kStateSize)) return 0;
  const torch::IValue size = module.attr(kStateSize);
  if (!size.isInt() || size.toInt() < 0 || size.toInt() > policy::kMaxModuleState) return std::nullopt;
  return size.toInt();
}

/// What in the module's classes and attributes cannot be served; empty: nothing.
std::string ComplaintAbout(const torch::jit::Module& module) {
  if (const std::string got = SignatureGot(module); !got.empty()) {
    return absl::StrCat("has ", base::LogSafe(got, kMaxScriptWords), ", expected ", kSignature);
  }
  if (!StateSizeOf(module).has_value()) {
    std::ostringstream got;
    got << module.attr(kStateSize);
    return absl::StrCat("has ", kStateSize, " ", base::LogSafe(got.str(), kMaxScriptWords),
                        ", expected an integer from 0 to ", policy::kMaxModuleState);
  }
  for (const auto& each : module.named_modules()) {
    const std::string name = ClassOf(each.value);
    const bool changes = std::any_of(kTrainingClasses.begin(), kTrainingClasses.end(),
                                     [&name](std::string_view begin) { return name.starts_with(begin); });
    if (!changes || !each.value.hasattr("training") || !each.value.attr("training").toBool()) continue;
    return absl::StrCat("has ", each.name.empty() ? "itself" : each.name, ", a ", base::LogSafe(name, 64),
                        ", in training mode, where what it gives depends on more than its row; expected "
                        "module.eval() before torch.jit.script, or none");
  }
  return "";
}

bool SameMemory(const Tensor& a, const Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

}  // namespace

ScriptWidths ScriptWidths::Of(const policy::PolicySpec& spec, const policy::NetworkSpec& network) {
  ScriptWidths widths;
  widths.agent_id = network.Reads(policy::NetworkInput::kAgentId) ? spec.agent_id_size : 0;
  widths.observation = spec.InputSize(network) - widths.agent_id;
  widths.mask = network.role == policy::kActorRole ? spec.mask_size() : 0;
  widths.output = spec.OutputSize(network);
  return widths;
}

ScriptNetwork::ScriptNetwork(torch::jit::Module module, const ScriptWidths& widths, int64_t state_size)
    : module_(std::move(module)), forward_(module_.get_method("forward")), widths_(widths), state_size_(state_size) {}

absl::StatusOr<std::unique_ptr<ScriptNetwork>> ScriptNetwork::Load(const policy::ModuleFile& file,
                                                                   const ScriptWidths& widths,
                                                                   const torch::Device& device) {
  std::unique_ptr<ScriptNetwork> network;
  const absl::Status read = CatchTorch("reading a TorchScript file", [&]() -> absl::Status {
    torch::jit::Module module = ReadScript(file, device);
    if (const std::string complaint = ComplaintAbout(module); !complaint.empty()) return ScriptError(file, complaint);
    const int64_t state_size = *StateSizeOf(module);
    network.reset(new ScriptNetwork(std::move(module), widths, state_size));
    const absl::Status found = network->FindTensors();
    return found.ok() ? found : ScriptError(file, std::string(found.message()));
  });
  if (absl::IsInvalidArgument(read) || absl::IsResourceExhausted(read)) return read;
  if (!read.ok()) return UnreadableScript(file, read);
  return network;
}

absl::Status ScriptNetwork::FindTensors() {
  std::vector<Slot> buffers;
  // Parameters first, so that one under the names of both is trained.
  const auto add = [&](const torch::jit::Module& owner, const std::string& prefix, const std::string& name,
                       const Tensor& tensor, bool is_buffer) -> absl::Status {
    const std::string full = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
    if (is_buffer && tensor.scalar_type() != torch::kFloat32) return absl::OkStatus();
    if (tensor.scalar_type() != torch::kFloat32) {
      return absl::InvalidArgumentError(
          absl::StrCat("has the parameter ", full, " of ", c10::toString(tensor.scalar_type()), ", expected Float"));
    }
    if (!torch::isfinite(tensor).all().item<bool>()) {
      return absl::InvalidArgumentError(absl::StrCat("has ", full, ", which holds NaN or infinity, expected numbers"));
    }
    for (std::vector<Slot>* const known : {&slots_, &buffers}) {
      for (Slot& slot : *known) {
        if (!SameMemory(slot.first, tensor)) continue;
        if (slot.first.storage_offset() == tensor.storage_offset() && slot.first.sizes() == tensor.sizes() &&
            slot.first.strides() == tensor.strides()) {
          slot.places.emplace_back(owner, name);
          return absl::OkStatus();
        }
        return absl::InvalidArgumentError(absl::StrCat("has ", slot.tensor.name, " and ", full,
                                                       ", which are different parts of one memory, expected one "
                                                       "tensor, or two"));
      }
    }
    if (!is_buffer) Tensor(tensor).requires_grad_(true);  // what is not trained, algorithm.frozen_parameters says
    Slot slot = {{full, tensor.sizes().vec(), is_buffer}, tensor, {{owner, name}}};
    (is_buffer ? buffers : slots_).push_back(std::move(slot));
    return absl::OkStatus();
  };
  for (const bool is_buffer : {false, true}) {
    for (const auto& module : module_.named_modules()) {
      if (!is_buffer) {
        for (const auto& each : module.value.named_parameters(/*recurse=*/false)) {
          TROUPE_RETURN_IF_ERROR(add(module.value, module.name, each.name, each.value, false));
        }
        continue;
      }
      for (const auto& each : module.value.named_buffers(/*recurse=*/false)) {
        TROUPE_RETURN_IF_ERROR(add(module.value, module.name, each.name, each.value, true));
      }
    }
  }
  if (slots_.empty()) {
    return absl::InvalidArgumentError("has no parameter, expected some that can be trained");
  }
  slots_.insert(slots_.end(), buffers.begin(), buffers.end());
  return absl::OkStatus();
}

std::vector<std::pair<std::string, Tensor>> ScriptNetwork::AllTensors() const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& each : module_.named_parameters()) tensors.emplace_back(each.name, each.value);
  for (const auto& each : module_.named_buffers()) tensors.emplace_back(each.name, each.value);
  return tensors;
}

std::vector<policy::ModuleTensor> ScriptNetwork::tensors() const {
  std::vector<policy::ModuleTensor> tensors;
  for (const Slot& slot : slots_) tensors.push_back(slot.tensor);
  return tensors;
}

void ScriptNetwork::Bind(const std::function<Tensor(const std::string&)>& find) {
  for (Slot& slot : slots_) {
    const Tensor tensor =
        slot.tensor.is_buffer ? find(absl::StrCat("buffers.", slot.tensor.name)).detach() : find(slot.tensor.name);
    for (auto& [owner, name] : slot.places) owner.setattr(name, tensor);
  }
}

ScriptOutputs ScriptNetwork::Run(const Tensor& observation, const Tensor& agent_id, const Tensor& state,
                                 const Tensor& mask) const {
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  const int64_t rows = observation.size(0);
  const torch::IValue result = CallScript(forward_, {observation, agent_id, state, mask});
  const auto& given = result.toTupleRef().elements();
  const Tensor outputs = given[0].toTensor();
  const Tensor after = given[1].toTensor();
  TORCH_CHECK(outputs.sizes() == torch::IntArrayRef({rows, widths_.output}) && outputs.scalar_type() == torch::kFloat32,
              "the TorchScript module gives outputs ", outputs.sizes(), " of ", c10::toString(outputs.scalar_type()),
              ", expected [", rows, ", ", widths_.output, "] of Float");
  TORCH_CHECK(after.sizes() == torch::IntArrayRef({rows, state_size_}), "the TorchScript module gives a state ",
              after.sizes(), ", expected [", rows, ", ", state_size_, "], as its state_size says (without one 0)");
  TORCH_CHECK(state_size_ == 0 || after.scalar_type() == torch::kFloat32, "the TorchScript module gives a state of ",
              c10::toString(after.scalar_type()), ", expected Float");
  return {outputs, state_size_ == 0 ? state : after};
}

ScriptOutputs ScriptNetwork::Run(const Tensor& inputs, const Tensor& state) const {
  const Tensor mask = inputs.narrow(1, widths_.observation + widths_.agent_id, widths_.mask).to(torch::kBool);
  return Run(inputs.narrow(1, 0, widths_.observation), inputs.narrow(1, widths_.observation, widths_.agent_id), state,
             mask);
}

Tensor ScriptNetwork::FirstState(int64_t rows) const {
  return torch::zeros({rows, state_size_}, slots_[0].first.options());
}

}  // namespace troupe::training
