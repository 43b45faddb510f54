#include "lib/cli/output.h"

#include <algorithm>
#include <cstdio>

#include "lib/base/log.h"
#include <nlohmann/json.hpp>

namespace troupe::cli {

void PrintJson(const nlohmann::ordered_json& value) {
  // Text from outside may not be UTF-8; a reader gets a replacement character rather than an exception. What is not
  // ASCII is escaped, or a terminal might obey it.
  const std::string line = value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::string TableText(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  if (rows.empty()) return text;
  std::vector<std::vector<std::string>> cells;
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    std::vector<std::string>& shown = cells.emplace_back();
    for (size_t i = 0; i < widths.size(); ++i) {
      shown.push_back(base::TerminalSafe(row[i]));
      widths[i] = std::max(widths[i], shown[i].size());
    }
  }
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) line += "  ";
      line += row[i];
      if (i + 1 < widths.size()) line.append(widths[i] - row[i].size(), ' ');
    }
    text += line + "\n";
  }
  return text;
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  const std::string text = TableText(rows);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string WithThousands(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > (number < 0 ? 4u : 3u); at -= 3) text.insert(at - 3, ",");
  return text;
}

}  // namespace troupe::cli
