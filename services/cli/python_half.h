#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace troupe::services {

/// What the Python half of a command is.
struct PythonHalf {
  std::string module;               ///< "troupe.export_command": its main() is called, and gives the exit code
  std::string does;                 ///< "export policies": what cannot be done where the module cannot be imported
  std::string needs;                ///< "numpy": what the module imports besides this troupe's package; may be empty
  std::string python;               ///< a program, or a virtual environment's folder; empty: looked for
  std::vector<std::string> words;   ///< the module's command line
  const std::string* in = nullptr;  ///< what it reads from stdin; nullptr: what this process would
};

/// Makes `text` what is read from stdin, also by what this process becomes, and also where stdin is closed: a file in
/// memory, so that nobody has to write while it is read. INTERNAL where the machine has none.
absl::Status PutOnStdin(const std::string& text);

/// Becomes Python; returns only when that fails. kRefused where there is no interpreter or package.
absl::Status BecomePython(const PythonHalf& half);

}  // namespace troupe::services
