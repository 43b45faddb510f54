#include "lib/training/core/vtrace_options.h"

#include "lib/base/status_macros.h"

namespace troupe::training {

void ReadVtraceOptions(OptionReader* reader, VtraceOptions* options) {
  ReadOnPolicyOptions(reader, options);
  reader->Read("vtrace_lambda", &options->gae_lambda);
  reader->Read("vtrace_clip_rho_threshold", &options->clips.rho);
  reader->Read("vtrace_clip_pg_rho_threshold", &options->clips.pg_rho);
  reader->Read("minibatch_size", &options->minibatch_size);
}

absl::Status CheckVtraceOptions(const VtraceOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("vtrace_lambda", options.gae_lambda));
  TROUPE_RETURN_IF_ERROR(CheckOnPolicyOptions(options));
  TROUPE_RETURN_IF_ERROR(CheckPositive("vtrace_clip_rho_threshold", options.clips.rho));
  TROUPE_RETURN_IF_ERROR(CheckPositive("vtrace_clip_pg_rho_threshold", options.clips.pg_rho));
  if (options.minibatch_size >= 0) return absl::OkStatus();
  return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1, or auto");
}

void WriteVtraceOptions(const VtraceOptions& options, policy::AlgorithmSpec* spec) {
  WriteOnPolicyOptions(options, spec);
  spec->options.erase("gae_lambda");
  spec->options.erase("use_gae");
  spec->options["vtrace_lambda"] = options.gae_lambda;
  spec->options["vtrace_clip_rho_threshold"] = options.clips.rho;
  spec->options["vtrace_clip_pg_rho_threshold"] = options.clips.pg_rho;
  if (options.minibatch_size > 0) spec->options["minibatch_size"] = options.minibatch_size;
}

}  // namespace troupe::training
