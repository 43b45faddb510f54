#include "lib/training/fused/fused_support.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training::fused {
namespace {

constexpr int64_t kMaxWidth = 1024;
// Activations of all steps of a panel are kept, for each thread.
constexpr int64_t kMaxPanelBytes = int64_t{64} << 20;

/// Bytes that a thread keeps of a panel of sequences: at most what SequencePanel allocates.
int64_t PanelBytes(const policy::PolicySpec& spec, const policy::NetworkSpec& network, const Kernels& kernels) {
  int64_t width = spec.InputSize(network) + spec.OutputSize(network);
  for (const std::vector<int64_t>& sizes : {network.hidden_sizes, network.head_hidden_sizes}) {
    for (const int64_t size : sizes) width += size + KeptWidth(network, size);
  }
  width += network.core.layers * network.core.size * (2 * network.core.gates() + 3);
  return width * (spec.sequence_length + 1) * kPanelVectors * kernels.lanes * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const Kernels* FindKernels([[maybe_unused]] VectorUnit unit) {
#if defined(TROUPE_KERNEL_X86_64_V4)
  if (unit != VectorUnit::kAvx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Avx512Kernels();
  }
#endif
#if defined(TROUPE_KERNEL_X86_64_V3)
  if (unit != VectorUnit::kAvx512 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return Avx2Kernels();
  }
#endif
  return nullptr;
}

absl::Status CheckServed(const policy::PolicySpec& spec, const Kernels& kernels) {
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    TROUPE_RETURN_IF_ERROR(policy::CheckEncoderIsMlp("the fused back end", *network));
    std::vector<int64_t> sizes = network->hidden_sizes;
    sizes.insert(sizes.end(), network->head_hidden_sizes.begin(), network->head_hidden_sizes.end());
    sizes.push_back(network->core.size);
    const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
    if (widest > kMaxWidth) {
      return absl::UnimplementedError(
          absl::StrCat("fused kernels serve layers up to ", kMaxWidth, " units; got ", widest));
    }
    if (!network->core.remembers()) continue;
    if (const int64_t bytes = PanelBytes(spec, *network, kernels); bytes > kMaxPanelBytes) {
      return absl::UnimplementedError(absl::StrCat("fused kernels keep at most ", kMaxPanelBytes >> 20,
                                                   " MiB of a panel of sequences; the ", network->role,
                                                   " in sequences of ", spec.sequence_length, " needs ", bytes >> 20));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGradients(const NetworkCall& call, const Network& network, size_t outputs, size_t parameters,
                            size_t inputs) {
  const auto check = [&](const char* what, size_t got, size_t expected) {
    if (got == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of the ", std::string(call.network), " are ", got, " numbers; expected ", expected));
  };
  const size_t rows = call.rows.size();
  TROUPE_RETURN_IF_ERROR(check("gradients of outputs", outputs, rows * static_cast<size_t>(network.outputs())));
  TROUPE_RETURN_IF_ERROR(check("gradients of parameters", parameters, call.parameters.size()));
  if (inputs == 0) return absl::OkStatus();
  return check("gradients of inputs", inputs, rows * static_cast<size_t>(network.inputs()));
}

}  // namespace troupe::training::fused
