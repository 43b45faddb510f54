#pragma once

// In scratch copies of the sources alone (run.py puts it there): whether this process is the mutant of that name.

#include <cstdlib>
#include <cstring>

// Static: files that are compiled for one instruction set share no function with others.
[[maybe_unused]] static bool TroupeMutant(const char* name) {
  static const char* const chosen = std::getenv("TROUPE_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
