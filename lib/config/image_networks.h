#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/space.h"

namespace troupe::config {

/// Gives the networks of `spec`, whose spaces and inputs are known, their encoders: model.encoder and
/// model.conv_filters. INVALID_ARGUMENT with the place of the key for a CNN of what is no image, a convolution that is
/// larger than what it reads, an image for which there are no convolutions, and normalize_observations over images of
/// bytes.
absl::Status SetEncoders(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

/// A Box that looks like an image, whatever networks take it for.
bool LooksLikeImage(const space::Space& space);

/// Sentences for the log about networks that read images as rows of numbers, one for actors and one for critics of all
/// agents' images, each with the first policy that has one, and the way out.
std::vector<std::string> ImageWarnings(const std::vector<policy::PolicySpec>& specs);

}  // namespace troupe::config
