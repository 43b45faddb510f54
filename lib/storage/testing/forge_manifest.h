#pragma once

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "lib/base/crc32c.h"
#include "lib/storage/file_system.h"
#include <nlohmann/json.hpp>

namespace troupe::storage {

/// Changes a checkpoint's manifest as anybody may who can compute a checksum.
inline void ForgeManifest(const std::string& directory, const std::function<void(nlohmann::json&)>& change) {
  const std::string path = directory + "/manifest.json";
  nlohmann::json manifest = nlohmann::json::parse(*FileSystem::Posix().ReadFile(path, 8 << 20));
  change(manifest);
  manifest["manifest_crc32c"] = "00000000";
  std::string text = manifest.dump(1);
  char crc[9];
  std::snprintf(crc, sizeof(crc), "%08x", base::Crc32c(text.data(), text.size()));
  const std::string key = "\"manifest_crc32c\": \"";
  text.replace(text.find(key) + key.size(), 8, crc);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace troupe::storage
