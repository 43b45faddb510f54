#include "lib/training/script/script_modules.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/inference/module_actors.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/script/loss_probe.h"
#include "lib/training/script/loss_script.h"
#include "lib/training/script/script_actor.h"
#include "lib/training/script/script_file.h"
#include "lib/training/script/script_network.h"
#include "lib/training/script/script_probe.h"
#include "lib/training/torch/torch_device.h"
#include "lib/training/torch/torch_status.h"

namespace troupe::training {
namespace {

policy::ModuleSpec SpecOf(const std::string& sha256, const ScriptNetwork& script) {
  return {.sha256 = sha256, .tensors = script.tensors(), .state_size = script.state_size()};
}

class Reader final : public policy::ModuleReader {
 public:
  absl::StatusOr<policy::ModuleSpec> Describe(const policy::PolicySpec& spec,
                                              const policy::NetworkSpec& network) override {
    // Policies that share a module are many, and each is asked for more than once.
    const std::string key = absl::StrCat(network.role, " ", policy::ShapeOf(spec));
    const std::lock_guard lock(mutex_);
    if (const auto known = described_.find(key); known != described_.end()) return known->second;
    TROUPE_ASSIGN_OR_RETURN(policy::ModuleSpec module, Read(spec, network));
    return described_.emplace(key, std::move(module)).first->second;
  }

  absl::Status WriteFirstValues(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                                const policy::ParameterLayout& layout, absl::Span<float> values) override {
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ScriptNetwork> script, LoadScript(spec, network, Device{}));
    return CatchTorch("reading a module's first values", [&] {
      for (const ScriptNetwork::Slot& slot : script->slots()) {
        const std::string name =
            absl::StrCat(network.role, slot.tensor.is_buffer ? policy::kBuffersOf : "", ".", slot.tensor.name);
        const policy::ParameterEntry* const entry = layout.Find(name);
        const torch::Tensor first = slot.first.detach().contiguous();
        std::copy_n(first.data_ptr<float>(), first.numel(), values.begin() + entry->offset);
      }
      return absl::OkStatus();
    });
  }

  absl::Status CheckLoss(const policy::PolicySpec& spec, const std::string& sha256) override {
    const std::string key = absl::StrCat(sha256, " ", policy::ShapeOf(spec));
    const std::lock_guard lock(mutex_);
    if (tried_.count(key) > 0) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(const policy::ModuleFilePtr file, policy::ModuleFiles::OfProcess().Find(sha256));
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<LossScript> script, LossScript::Load(*file, torch::kCPU));
    const absl::StatusOr<std::vector<std::string>> unused = TryLoss(spec, *script);
    if (!unused.ok()) return ScriptError(*file, std::string(unused.status().message()));
    for (const std::string& column : *unused) {
      TROUPE_WARN("a loss names a column that it seems to ignore file={} column={}", base::LogSafe(file->path), column);
    }
    tried_.insert(key);
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<policy::ModuleSpec> Read(const policy::PolicySpec& spec, const policy::NetworkSpec& network) {
    TROUPE_ASSIGN_OR_RETURN(const policy::ModuleFilePtr file,
                            policy::ModuleFiles::OfProcess().Find(network.module.sha256));
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ScriptNetwork> script,
                            ScriptNetwork::Load(*file, ScriptWidths::Of(spec, network), torch::kCPU));
    if (const absl::Status tried = TryScript(spec, network, *script); !tried.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("TorchScript file ", base::LogSafe(file->path), " ", std::string(tried.message())));
    }
    return SpecOf(network.module.sha256, *script);
  }

  std::mutex mutex_;
  std::map<std::string, policy::ModuleSpec> described_;  // by role and shape, which has the file's hash
  std::set<std::string> tried_;                          // hashes of losses, and shapes
};

class Actors final : public inference::ModuleActors {
 public:
  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t seed) override {
    return ScriptActor::Create(spec, seed);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ScriptNetwork>> LoadScript(const policy::PolicySpec& spec,
                                                          const policy::NetworkSpec& network, const Device& device) {
  TROUPE_ASSIGN_OR_RETURN(const policy::ModuleFilePtr file,
                          policy::ModuleFiles::OfProcess().Find(network.module.sha256));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ScriptNetwork> script,
                          ScriptNetwork::Load(*file, ScriptWidths::Of(spec, network), ToTorch(device)));
  const policy::ModuleSpec got = SpecOf(network.module.sha256, *script);
  if (got == network.module) return script;
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", spec.id.value(), "\": the ", network.role, " is said to be ",
                   base::LogSafe(policy::CanonicalModuleText(network.module), 400), ", but TorchScript file ",
                   base::LogSafe(file->path), " is ", base::LogSafe(policy::CanonicalModuleText(got), 400)));
}

void InstallScriptModules() {
  static auto* const kReader = new Reader;
  static auto* const kActors = new Actors;
  policy::SetModuleReader(kReader);
  inference::SetModuleActors(kActors);
}

void ActWithOneThread() { torch::set_num_threads(1); }

}  // namespace troupe::training
