#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/run_config.h"

namespace troupe::config {

/// The keys of a configuration that a worker reads, env.python.interpreter, path and folder left out: where Python
/// and its modules are is for the worker's machine to say. Every other key stays with the learner; a new one does, too,
/// until it is listed.
const std::vector<std::string>& WorkerKeys();

/// What the learner tells its workers (Welcome.config_yaml): canonical YAML of WorkerKeys, and as `callbacks` those
/// that are called for episodes. A worker makes the same environments and policies of it, and the same spec hash.
std::string WelcomeYaml(const RunConfig& config, const std::vector<std::string>& episode_callbacks = {});

/// The configuration of which a learner tells. One of before there was model.scaling means by_255.
absl::StatusOr<RunConfig> FromWelcome(std::string_view yaml);

/// The file that permits a worker of this machine what the configuration asks for (`troupe worker --config`): the same
/// with interpreter and module path, and all callbacks.
std::string WorkerFileYaml(const RunConfig& config);

}  // namespace troupe::config
