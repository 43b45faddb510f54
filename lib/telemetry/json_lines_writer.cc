#include "lib/telemetry/json_lines_writer.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

namespace troupe::telemetry {
namespace {

using Json = nlohmann::ordered_json;

/// The lines of `path` that stay: whole JSON objects up to `keep_env_steps`.
std::string LinesToKeep(const std::string& path, int64_t keep_env_steps) {
  std::ifstream in(path);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("env_steps") || !json["env_steps"].is_number_integer()) continue;
    if (json["env_steps"].get<int64_t>() <= keep_env_steps) kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string ToJsonLine(absl::Span<const JsonField> fields) {
  Json json = Json::object();
  // Behind each other: json[name] would compare each name with all before it, which a line of a thousand policies
  // notices.
  auto& object = json.get_ref<Json::object_t&>();
  object.reserve(fields.size());
  for (const auto& [name, value] : fields) {
    std::visit(
        [&object, &name = name](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
            object.emplace_back(name, std::isfinite(v) ? Json(v) : Json(nullptr));
          } else {
            object.emplace_back(name, v);
          }
        },
        value);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::unique_ptr<JsonLinesWriter>> JsonLinesWriter::Open(const std::string& path,
                                                                       int64_t keep_env_steps) {
  const std::string kept = LinesToKeep(path, keep_env_steps);
  const std::string beside = path + ".new";
  const auto error = [](const char* what) {
    const int error = errno;
    return absl::Status(absl::ErrnoToStatusCode(error),
                        absl::StrCat("cannot ", what, " progress.jsonl: ", std::strerror(error)));
  };
  {
    std::ofstream out(beside, std::ios::trunc);
    out << kept;
    if (!out.flush()) return error("write");
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) return error("replace");
  absl::StatusOr<std::unique_ptr<AppendFile>> file = AppendFile::Open(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("cannot open progress.jsonl: ", file.status().message()));
  }
  return std::unique_ptr<JsonLinesWriter>(new JsonLinesWriter(*std::move(file)));
}

void JsonLinesWriter::Write(absl::Span<const JsonField> fields) {
  log_.Append(ToJsonLine(fields) + "\n");
  log_.Flush();
}

}  // namespace troupe::telemetry
