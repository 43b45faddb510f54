#include "lib/cli/run_curves.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/storage/file_system.h"
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr double kMostOfX = 9e15;  // whole numbers are exact up to there
constexpr size_t kMostMetricsNamed = 8;
constexpr char kPolicy[] = "policy/";
constexpr char kReturn[] = "/return_mean";

/// Keys in which runs of one group may differ.
bool IsOfOneRun(const std::string& key) {
  if (key == "seed" || key == "evaluation.seed" || key == "learner_threads") return true;
  for (const char* const section : {"experiment.", "stop.", "env.python."}) {
    if (absl::StartsWith(key, section)) return true;
  }
  return false;
}

/// The first ones, and how many more.
std::string NamesOf(const RunGroup& group, absl::Span<const RunRecord> runs) {
  constexpr size_t kMostNames = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(group.runs.size(), kMostNames); ++i) names.push_back(runs[group.runs[i]].name);
  const std::string text = absl::StrJoin(names, ", ");
  return group.runs.size() > kMostNames ? absl::StrCat(text, " and ", group.runs.size() - kMostNames, " more") : text;
}

/// Calls `take` with each whole line of the file.
template <typename Take>
absl::Status ForEachLine(const storage::OpenFile& file, Take take) {
  std::string rest;
  bool too_long = false;  // the line at hand
  for (int64_t at = 0; at < file.bytes();) {
    const int64_t bytes = std::min(kPieceBytes, file.bytes() - at);
    TROUPE_ASSIGN_OR_RETURN(const std::string piece, file.Read(at, bytes));
    at += bytes;
    size_t begin = 0;
    for (size_t end = piece.find('\n'); end != std::string::npos; end = piece.find('\n', begin)) {
      rest.append(piece, begin, end - begin);
      if (!too_long) take(rest);
      rest.clear();
      too_long = false;
      begin = end + 1;
    }
    if (!too_long) rest.append(piece, begin);
    if (rest.size() > kMostLineBytes) {
      too_long = true;
      rest.clear();
    }
  }
  return absl::OkStatus();
}

absl::Status NoSuchMetric(const std::string& folder, const std::string& metric, const std::set<std::string>& there) {
  const std::vector<std::string> names(there.begin(), there.end());
  const std::string nearest = base::NearestName(metric, names);
  return absl::NotFoundError(absl::StrCat(
      base::LogSafe(folder), ": no line of progress.jsonl has the metric \"", base::LogSafe(metric, 100), "\"; ",
      names.empty()      ? "there is no line yet"
      : !nearest.empty() ? absl::StrCat("the nearest is \"", base::LogSafe(nearest, 100), "\"")
                         : absl::StrCat("there are ", base::LogSafe(base::FewOf(names, kMostMetricsNamed)))));
}

}  // namespace

std::optional<double> Curve::At(double at) const {
  if (x.empty() || at < x.front() || at > x.back()) return std::nullopt;
  const auto above = static_cast<size_t>(std::lower_bound(x.begin(), x.end(), at) - x.begin());
  if (x[above] == at) return values[above];
  const double share = (at - x[above - 1]) / (x[above] - x[above - 1]);
  return values[above - 1] + share * (values[above] - values[above - 1]);
}

absl::StatusOr<Curve> ReadCurve(const std::string& folder, const std::string& metric, const std::string& x,
                                size_t most_points) {
  const auto file = storage::FileSystem::Posix().Open(folder + "/progress.jsonl");
  if (!file.ok()) {
    return absl::NotFoundError(absl::StrCat(
        base::LogSafe(folder), ": there is no progress.jsonl that can be read: ", file.status().message()));
  }
  if ((*file)->bytes() > kMostProgressBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(base::LogSafe(folder), ": progress.jsonl has ", (*file)->bytes(),
                                                     " bytes, expected at most ", kMostProgressBytes));
  }
  Curve curve;
  std::set<std::string> there;
  bool is_full = false, had_some = false;
  TROUPE_RETURN_IF_ERROR(ForEachLine(**file, [&](const std::string& text) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) return;
    const std::optional<double> at = NumberIn(line, x);
    const std::optional<double> value = NumberIn(line, metric);
    const bool has_x = at && *at >= 0 && *at < kMostOfX;
    // What a life that was given up had trained beyond, also where this line does not have the metric.
    while (has_x && !curve.x.empty() && (curve.x.back() > *at || (value && curve.x.back() == *at))) {
      curve.x.pop_back();
      curve.values.pop_back();
    }
    if (has_x && value) {
      had_some = true;
      is_full = is_full || curve.x.size() >= most_points;
      if (is_full) return;
      curve.x.push_back(*at);
      curve.values.push_back(*value);
    } else if (curve.x.empty() && there.size() < 1000) {
      for (const auto& [key, field] : line.items()) {
        if (field.is_number()) there.insert(key);
      }
    }
  }));
  if (is_full) {
    return absl::ResourceExhaustedError(absl::StrCat(base::LogSafe(folder), ": progress.jsonl has more than ",
                                                     most_points, " lines with the metric, expected at most ",
                                                     kMostPoints, " of all runs together: name fewer"));
  }
  if (!curve.x.empty()) return curve;
  if (!had_some) return NoSuchMetric(folder, metric, there);
  return absl::NotFoundError(absl::StrCat(base::LogSafe(folder), ": the lines of progress.jsonl with the metric \"",
                                          base::LogSafe(metric, 100),
                                          "\" were trained again, and none has it since then"));
}

double StudentT(size_t degrees_of_freedom) {
  static constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                          2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                          2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  constexpr size_t kTold = sizeof(kQuantiles) / sizeof(double);
  if (degrees_of_freedom == 0) return INFINITY;
  if (degrees_of_freedom <= kTold) return kQuantiles[degrees_of_freedom - 1];
  // Abramowitz and Stegun 26.7.5, to three digits from there on.
  const double z = 1.959964, n = static_cast<double>(degrees_of_freedom);
  return z + (z * z * z + z) / (4 * n) + (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

SeedMean MeanOf(absl::Span<const double> values) {
  SeedMean result{.seeds = values.size()};
  if (values.empty()) return result;
  const double n = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / n;
  if (values.size() == 1) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.half_width = StudentT(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return result;
}

std::vector<RunGroup> GroupRuns(absl::Span<const RunRecord> runs) {
  std::map<std::string, size_t> groups_by_text;
  std::vector<RunGroup> groups;
  std::map<std::string, std::set<std::string>> values;  // of each key; "" where a group has none
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string text = runs[i].keys.empty() ? runs[i].path : "";
    for (const auto& [key, value] : runs[i].keys) {
      if (!IsOfOneRun(key)) absl::StrAppend(&text, key, "=", value, "\n");
    }
    const auto [place, is_new] = groups_by_text.emplace(text, groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].runs.push_back(i);
  }
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : run.keys) values[key].insert(value);
  }
  if (groups.size() == 1) return groups;
  std::vector<std::string> told;  // keys in which groups differ
  for (const auto& [key, all] : values) {
    const bool everywhere = std::all_of(runs.begin(), runs.end(), [&key = key](const RunRecord& each) {
      return each.keys.empty() || each.keys.count(key) > 0;
    });
    if (!IsOfOneRun(key) && (all.size() > 1 || !everywhere)) told.push_back(key);
  }
  for (RunGroup& group : groups) {
    const RunRecord& run = runs[group.runs[0]];
    std::vector<std::string> words;
    for (const std::string& key : told) {
      words.push_back(absl::StrCat(key, ": ", run.keys.count(key) > 0 ? run.Key(key) : "-"));
    }
    group.label = absl::StrJoin(words, ", ");
    if (run.keys.empty() || group.label.size() > kMostLabelBytes) group.label = NamesOf(group, runs);
  }
  return groups;
}

absl::StatusOr<BandCurve> BandOf(absl::Span<const Curve> curves, size_t points) {
  BandCurve band;
  if (curves.size() == 1) {
    band.x = curves[0].x;
    band.mean = curves[0].values;
    return band;
  }
  double begin = -INFINITY, end = INFINITY;
  for (const Curve& curve : curves) {
    begin = std::max(begin, curve.x.front());
    end = std::min(end, curve.x.back());
  }
  if (!(begin <= end)) {
    return absl::FailedPreconditionError("the runs have no part in common, expected curves that overlap");
  }
  for (size_t i = 0; i < points; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(points - 1);
    const double x = i + 1 == points ? end : begin + share * (end - begin);
    std::vector<double> values;
    for (const Curve& curve : curves) values.push_back(curve.At(x).value_or(curve.values.back()));
    const SeedMean mean = MeanOf(values);
    band.x.push_back(x);
    band.mean.push_back(mean.mean);
    band.low.push_back(mean.mean - *mean.half_width);
    band.high.push_back(mean.mean + *mean.half_width);
    if (begin == end) break;
  }
  return band;
}

std::vector<std::string> UsualMetrics(const RunGroup& group, absl::Span<const RunRecord> runs) {
  std::vector<std::string> metrics;
  const auto has_begun = [&](size_t place) { return !runs[place].last_line.empty(); };
  const auto first = std::find_if(group.runs.begin(), group.runs.end(), has_begun);
  const bool differ = first != group.runs.end() && runs[*first].rewards_differ;
  const Json line = differ ? Json::parse(runs[*first].last_line, nullptr, false) : Json();
  if (line.is_object()) {
    for (const auto& [key, value] : line.items()) {
      if (absl::StartsWith(key, kPolicy) && absl::EndsWith(key, kReturn) && metrics.size() < kMostPolicies) {
        metrics.push_back(key);
      }
    }
  }
  if (metrics.empty()) metrics.push_back("return_sum");
  return metrics;
}

}  // namespace troupe::cli
