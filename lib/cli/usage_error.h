#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace troupe::cli {

/// What is wrong with a command line that `app` did not take, for a person: what is misspelled before what is missing,
/// with the command or option that is nearest to it, and which --help tells more. `app` is the whole program; commands
/// are called as they are typed after "troupe".
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace troupe::cli
