#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "absl/status/status.h"
#include "lib/env/plugin_abi.h"
#include "lib/env/registry.h"

namespace troupe::envs {

/// Every native environment; made at the first call. Thread-safe.
const env::EnvRegistry& NativeEnvs();

/// Runs `body`, which returns a Status; its error, or what it throws, becomes code and text.
template <typename Body>
int32_t AtBorder(TroupeEnvError* error, const Body& body) noexcept {
  const auto failed = [error](int32_t code, const char* text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text);
    return code;
  };
  try {
    const absl::Status status = body();
    if (status.ok()) return TROUPE_ENV_OK;
    return failed(static_cast<int32_t>(status.code()), std::string(status.message()).c_str());
  } catch (const std::exception& thrown) {
    return failed(TROUPE_ENV_INTERNAL, (std::string("threw ") + thrown.what()).c_str());
  } catch (...) {
    return failed(TROUPE_ENV_INTERNAL, "threw something that is no std::exception");
  }
}

}  // namespace troupe::envs
