#include "lib/training/custom/custom_options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_spec.h"

namespace troupe::training {
namespace {

absl::Status Validate(const CustomOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckOnPolicyOptions(options));
  if (options.num_epochs < 1) return OptionError("num_epochs", static_cast<double>(options.num_epochs), "at least 1");
  if (options.minibatch_size >= 1) return absl::OkStatus();
  return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1");
}

}  // namespace

absl::StatusOr<CustomOptions> ParseCustomOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  CustomOptions options;
  std::string loss;
  OptionReader reader(spec, now);
  ReadOnPolicyOptions(&reader, &options);
  reader.Read("loss", &loss);
  reader.Read("num_epochs", &options.num_epochs);
  reader.Require("minibatch_size", &options.minibatch_size);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  options.loss = std::string(absl::StripPrefix(loss, std::string(policy::kModuleHashPrefix)));
  if (loss.empty()) {
    return absl::InvalidArgumentError(
        "algorithm.loss: got nothing, expected a TorchScript file (torch.jit.save) with the loss: custom and macustom "
        "have none of their own");
  }
  if (options.loss == loss || !policy::IsSha256(options.loss)) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm.loss: got \"", base::LogSafe(loss, 100),
                                                   "\", expected sha256: and 64 hexadecimal digits of a file that the "
                                                   "run began with"));
  }
  TROUPE_RETURN_IF_ERROR(Validate(options));
  return options;
}

policy::AlgorithmSpec CustomSpec(const CustomOptions& options) {
  policy::AlgorithmSpec spec{.name = "custom"};
  WriteOnPolicyOptions(options, &spec);
  for (const char* const key : {"value_loss_coeff", "huber_delta", "entropy_coeff"}) spec.options.erase(key);
  spec.options["loss"] = absl::StrCat(std::string(policy::kModuleHashPrefix), options.loss);
  spec.options["num_epochs"] = options.num_epochs;
  spec.options["minibatch_size"] = options.minibatch_size;
  return spec;
}

}  // namespace troupe::training
