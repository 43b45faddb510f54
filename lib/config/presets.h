#pragma once

#include <string>

#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

/// The keys that a preset sets, as YAML: settings that other people's code trains with, as far as there are keys for
/// them. Of env and of workers it says nothing. "" for none.
std::string PresetYaml(v1::PresetName name);

}  // namespace troupe::config
