#include "lib/env/plugin_file.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"

namespace troupe::env {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "say which ELF machine this is"
#endif

std::string MachineName(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    case EM_386:
      return "x86 (32 bits)";
    case EM_ARM:
      return "ARM (32 bits)";
    case EM_RISCV:
      return "RISC-V";
    default:
      return absl::StrCat("ELF machine ", machine);
  }
}

}  // namespace

absl::StatusOr<std::string> FindEnvPlugin(const std::string& path, std::string_view search) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  const std::string file = std::filesystem::path(path).filename().string();
  const std::vector<std::string> folders = absl::StrSplit(std::string(search), ':', absl::SkipEmpty());
  for (const std::string& folder : folders) {
    const std::string candidate = (std::filesystem::path(folder) / file).string();
    if (std::filesystem::exists(candidate, error)) return candidate;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no file ", base::LogSafe(path),
                   search.empty() ? "" : absl::StrCat(", nor ", base::LogSafe(file), " in ", base::LogSafe(search)),
                   "; a plug-in must be on every machine that runs its environments, at the same path or in a folder "
                   "of TROUPE_PLUGIN_PATH",
                   search.empty() ? " (not set)" : ""));
}

absl::Status CheckPluginFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::NotFoundError("there is no such file");
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what..., ", expected a shared library for ", MachineName(kMachine)));
  };
  if (!std::filesystem::is_regular_file(path, error)) return wrong("is no file");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return wrong("cannot be read");
  const uint64_t size = static_cast<uint64_t>(file.tellg());
  const auto read = [&](uint64_t offset, void* to, size_t bytes) {
    if (offset > size || bytes > size - offset) return false;
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  };
  Elf64_Ehdr header;
  if (!read(0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return wrong("is no shared library (not an ELF file)");
  }
  // Both classes have type and machine at the same place.
  if (header.e_machine != kMachine || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return wrong("is for ", MachineName(header.e_machine));
  }
  if (header.e_type != ET_DYN) return wrong("is no shared library (ELF type ", header.e_type, ")");
  for (uint16_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const uint64_t offset = header.e_phoff + uint64_t{i} * header.e_phentsize;
    const bool whole = offset >= header.e_phoff && read(offset, &segment, sizeof(segment)) &&
                       segment.p_offset <= size && segment.p_filesz <= size - segment.p_offset;
    if (!whole) return wrong("is cut off after ", size, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace troupe::env
