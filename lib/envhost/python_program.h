#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::envhost {

/// The program for `env.python.interpreter`: a virtual environment's folder gives its bin/python, a name without a
/// slash is looked up on the PATH. Empty: that of $VIRTUAL_ENV, else the one beside this program (of an environment
/// that it is installed in), else python3 on the PATH. NOT_FOUND says where it was looked for.
absl::StatusOr<std::string> FindInterpreter(const std::string& interpreter);

/// What Python is told for a name of the configuration: without "python:", and where it names a file, "FILE.py" or
/// "FILE.py:NAME", that lies in `folder`, with the file's whole path.
std::string ModuleName(std::string_view name, const std::string& folder);

/// Of each of them, in their order.
std::vector<std::string> ModuleNames(const std::vector<std::string>& names, const std::string& folder);

/// The folder that holds the Python package `troupe`, for PYTHONPATH: $TROUPE_PYTHON; else python/ beside a build in
/// its source tree; else share/troupe/python beside an installed bin/. Empty: none of them, or this program is a
/// wheel's, and the interpreter has it installed or it fails. NOT_FOUND when $TROUPE_PYTHON does not hold it.
absl::StatusOr<std::string> FindPackage();

/// What starts `interpreter`, as `python -m module` does, with `arguments`. But Python puts the working directory,
/// which may be anybody's folder, in front of what it imports from, and this takes it out before anything is imported.
std::vector<std::string> ModuleCommand(const std::string& interpreter, const std::string& module,
                                       const std::vector<std::string>& arguments = {});

/// PYTHONPATH for the package in `folder` (FindPackage): this folder, then the items of our own PYTHONPATH. Items that
/// are empty, which stand for the working directory, are left out.
std::string PythonPath(const std::string& folder);

/// The module that shortens the host's way for the usual step, of the build that this program is of. Empty: none, and
/// the package may have one of its own.
std::string FindUsualStep();

/// Where FindPackage looks, for the error of a process that did not find it.
std::string PackagePlaces();

}  // namespace troupe::envhost
