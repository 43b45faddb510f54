#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace troupe::cli {

/// One line of JSON on stdout, which must be the last thing a command prints. NaN and infinities become null.
void PrintJson(const nlohmann::ordered_json& value);

/// Rows as aligned columns, a line each; all rows are as long as the first. Control characters in them are escaped.
std::string TableText(const std::vector<std::vector<std::string>>& rows);
void PrintTable(const std::vector<std::vector<std::string>>& rows);

/// "12,345".
std::string WithThousands(int64_t number);

}  // namespace troupe::cli
