#include "lib/training/a2c/a2c_options.h"

#include "lib/base/status_macros.h"

namespace troupe::training {

absl::Status ValidateA2cOptions(const A2cOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckOnPolicyOptions(options));
  if (options.minibatch_size < 0)
    return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1, or auto");
  return absl::OkStatus();
}

absl::StatusOr<A2cOptions> ParseA2cOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  A2cOptions options;
  OptionReader reader(spec, now);
  ReadOnPolicyOptions(&reader, &options);
  reader.Read("minibatch_size", &options.minibatch_size);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  TROUPE_RETURN_IF_ERROR(ValidateA2cOptions(options));
  return options;
}

policy::AlgorithmSpec A2cSpec(const A2cOptions& options) {
  policy::AlgorithmSpec spec{.name = "a2c"};
  WriteOnPolicyOptions(options, &spec);
  if (options.minibatch_size > 0) spec.options["minibatch_size"] = options.minibatch_size;
  return spec;
}

}  // namespace troupe::training
