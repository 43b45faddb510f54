#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/space.h"

namespace troupe::v1 {
class ConvFilters;
class ModelConfig;
}  // namespace troupe::v1

namespace troupe::config {

/// Gives the networks of `spec`, whose spaces and inputs are known, their encoders: model.encoder, model.conv_filters
/// and of a Dict or Tuple model.leaf_encoders. A critic of all agents' observations convolves them where all agents
/// observe images as the policy's own. INVALID_ARGUMENT with the place of the key for a CNN of what is no
/// image, a convolution that is larger than what it reads, an image for which there are no convolutions,
/// normalize_observations or normalize_state over images of bytes, and what SetLeafEncoders refuses.
absl::Status SetEncoders(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of,
                         policy::PolicySpec* spec);

/// What conv_filters gives.
std::vector<policy::ConvLayer> ConvLayersOf(const v1::ConvFilters& filters);
/// Convolutions by the size of an image, DQN's from 64 x 64 pixels on; empty for one that is smaller than all.
std::vector<policy::ConvLayer> ConvLayersFor(const policy::ImageShape& image);
/// Whether the network reads its agent's observation before all else: only such a one has an encoder of it.
bool ReadsOwnObservation(const policy::NetworkSpec& network);
/// True where encoder auto has convolutions: for images of 0 to 255. A model that scales as older versions did has them
/// for images of any bounds, as it had.
bool ConvolvesUnasked(const v1::ModelConfig& model, const space::Space& space);
/// A Box that looks like an image, whatever networks take it for.
bool LooksLikeImage(const space::Space& space);

/// Sentences for the log about networks that read images as rows of numbers, one for actors, one for critics of all
/// agents' images and one for critics of the state and their agent's image, each with the first policy that has one,
/// and the way out.
std::vector<std::string> ImageWarnings(const std::vector<policy::PolicySpec>& specs);

}  // namespace troupe::config
