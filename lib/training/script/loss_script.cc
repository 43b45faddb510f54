#include "lib/training/script/loss_script.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/training/script/script_file.h"
#include "lib/training/torch/torch_status.h"
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr char kColumns[] = "columns";
constexpr char kSignature[] =
    "forward(self, outputs: Dict[str, Tensor], columns: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, Tensor]]";

bool IsTensor(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

bool IsNamedTensors(const c10::TypePtr& type) {
  const auto dict = type->cast<c10::DictType>();
  return dict != nullptr && dict->getKeyType()->kind() == c10::TypeKind::StringType && IsTensor(dict->getValueType());
}

/// Empty where forward is what it should be.
std::string SignatureGot(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method.has_value()) return "no method forward";
  const c10::FunctionSchema& schema = method->function().getSchema();
  bool fits = schema.arguments().size() == 3 && schema.returns().size() == 1;
  for (size_t i = 1; fits && i < schema.arguments().size(); ++i) fits = IsNamedTensors(schema.arguments()[i].type());
  const auto tuple = fits ? schema.returns()[0].type()->cast<c10::TupleType>() : nullptr;
  fits = tuple != nullptr && tuple->elements().size() == 2 && IsTensor(tuple->elements()[0]) &&
         IsNamedTensors(tuple->elements()[1]);
  if (fits) return "";
  std::ostringstream text;
  text << schema;
  return text.str();
}

/// The names in the module's attribute; INVALID_ARGUMENT, to stand behind the file's name.
absl::StatusOr<std::vector<std::string>> ColumnsOf(const torch::jit::Module& module) {
  const torch::IValue named = module.hasattr(kColumns) ? module.attr(kColumns) : torch::IValue();
  if (!named.isList() || named.toListRef().empty() || !named.toListRef()[0].isString()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", named.isNone() ? "no attribute columns" : "an attribute columns that is no list of names",
                     ", expected a List[str] of what forward reads of: ", absl::StrJoin(LossColumnNames(), ", ")));
  }
  std::vector<std::string> columns;
  for (const torch::IValue& name : named.toListRef()) {
    columns.push_back(name.toStringRef());
    const std::vector<std::string>& known = LossColumnNames();
    if (std::find(known.begin(), known.end(), columns.back()) != known.end()) continue;
    const std::string nearest = base::NearestName(columns.back(), known);
    return absl::InvalidArgumentError(absl::StrCat("names the column \"", base::LogSafe(columns.back(), 64),
                                                   "\", expected one of ", absl::StrJoin(known, ", "),
                                                   nearest.empty() ? "" : "; the nearest is " + nearest));
  }
  return columns;
}

bool IsScalar(const Tensor& tensor) { return tensor.numel() == 1 && tensor.is_floating_point(); }

void CheckMetricName(const std::string& name) {
  const bool is_plain = !name.empty() && name.size() <= 64 && name != kOwnMetric &&
                        std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isprint(c); });
  TORCH_CHECK(is_plain, "the TorchScript module gives a metric \"", base::LogSafe(name, 64),
              "\", expected a name of 1 to 64 printable characters; ", kOwnMetric, " is the loss itself");
}

}  // namespace

LossScript::LossScript(torch::jit::Module module, std::vector<std::string> columns)
    : module_(std::move(module)), forward_(module_.get_method("forward")), columns_(std::move(columns)) {}

absl::StatusOr<std::unique_ptr<LossScript>> LossScript::Load(const policy::ModuleFile& file,
                                                             const torch::Device& device) {
  std::unique_ptr<LossScript> script;
  const absl::Status read = CatchTorch("reading a TorchScript file", [&]() -> absl::Status {
    torch::jit::Module module = ReadScript(file, device);
    if (const std::string got = SignatureGot(module); !got.empty()) {
      return ScriptError(file, absl::StrCat("has ", base::LogSafe(got, kMaxScriptWords), ", expected ", kSignature));
    }
    absl::StatusOr<std::vector<std::string>> columns = ColumnsOf(module);
    if (!columns.ok()) return ScriptError(file, std::string(columns.status().message()));
    for (const auto& parameter : module.named_parameters()) {
      return ScriptError(file, absl::StrCat("has the parameter ", base::LogSafe(parameter.name, 64),
                                            ", expected a loss without: nobody would train or keep it; a buffer "
                                            "(register_buffer) holds a constant"));
    }
    script.reset(new LossScript(std::move(module), *std::move(columns)));
    return absl::OkStatus();
  });
  if (absl::IsInvalidArgument(read) || absl::IsResourceExhausted(read)) return read;
  if (!read.ok()) return UnreadableScript(file, read);
  return script;
}

absl::StatusOr<std::unique_ptr<LossScript>> LossScript::Find(const std::string& sha256, const torch::Device& device) {
  TROUPE_ASSIGN_OR_RETURN(const policy::ModuleFilePtr file, policy::ModuleFiles::OfProcess().Find(sha256));
  return Load(*file, device);
}

ModuleLoss LossScript::Run(const NamedTensors& outputs, const NamedTensors& columns) const {
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  const auto dict = [](const NamedTensors& tensors) {
    c10::Dict<std::string, Tensor> named;
    for (const auto& [name, tensor] : tensors) named.insert(name, tensor);
    return named;
  };
  const torch::IValue result = CallScript(forward_, {dict(outputs), dict(columns)});
  const auto& given = result.toTupleRef().elements();
  ModuleLoss made{.loss = given[0].toTensor(), .metrics = {}};
  TORCH_CHECK(IsScalar(made.loss) && made.loss.dim() == 0, "the TorchScript module gives a loss ", made.loss.sizes(),
              " of ", c10::toString(made.loss.scalar_type()), ", expected a scalar, as a mean over rows is");
  TORCH_CHECK(made.loss.requires_grad(),
              "the TorchScript module gives a loss that does not depend on the outputs of "
              "networks (no_grad, detach?), expected one with a gradient");
  const auto metrics = given[1].toGenericDict();
  TORCH_CHECK(metrics.size() <= kMaxLossMetrics, "the TorchScript module gives ", metrics.size(),
              " metrics, expected at most ", kMaxLossMetrics);
  made.metrics.emplace_back(kOwnMetric, made.loss.detach());
  for (const auto& metric : metrics) {
    const std::string& name = metric.key().toStringRef();
    CheckMetricName(name);
    const Tensor value = metric.value().toTensor();
    TORCH_CHECK(value.numel() == 1, "the TorchScript module gives a metric \"", name, "\" of sizes ", value.sizes(),
                ", expected a scalar");
    made.metrics.emplace_back(name, value.detach().reshape({}).to(made.loss.options().requires_grad(false)));
  }
  return made;
}

}  // namespace troupe::training
