#include "lib/cli/run_selection.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"

namespace troupe::cli {
namespace {

constexpr size_t kMostRunsNamed = 3;

bool HasItsOwnName(const RunRecord& run) {
  std::error_code error;
  return std::filesystem::canonical(run.path, error).filename() == run.name;
}

}  // namespace

RunSelection SelectRuns(std::vector<RunRecord> runs) {
  RunSelection selection;
  std::stable_partition(runs.begin(), runs.end(), HasItsOwnName);
  std::map<std::pair<dev_t, ino_t>, std::string> taken;  // the name that a folder has here
  for (RunRecord& run : runs) {
    if (run.state == "evaluation") {
      selection.left_out.push_back({run.name, "an evaluation, expected a run that trained"});
      continue;
    }
    struct stat info {};
    if (stat(run.path.c_str(), &info) == 0) {
      const auto [place, is_new] = taken.emplace(std::pair(info.st_dev, info.st_ino), run.name);
      if (!is_new) {
        selection.left_out.push_back(
            {run.name, absl::StrCat("the folder of \"", place->second, "\", which counts once")});
        continue;
      }
    }
    selection.runs.push_back(std::move(run));
  }
  std::stable_sort(selection.runs.begin(), selection.runs.end(),
                   [](const RunRecord& a, const RunRecord& b) { return a.name < b.name; });
  return selection;
}

std::vector<LeftOut> NotListed(const RunListing& listing, const std::string& directory) {
  std::vector<LeftOut> all;
  if (listing.left_out > 0) {
    all.push_back({directory, absl::StrCat(listing.left_out, " runs that were written before the newest ",
                                           RunListing::kMostRuns)});
  }
  if (listing.is_cut) {
    all.push_back(
        {directory, absl::StrCat("what comes after the folder's first ", RunListing::kMostEntries, " entries")});
  }
  return all;
}

std::vector<std::string> SharedSeeds(const RunGroup& group, absl::Span<const RunRecord> runs) {
  std::map<std::string, std::vector<std::string>> names;  // of a seed's runs
  for (const size_t place : group.runs) {
    if (!runs[place].keys.empty()) names[runs[place].Key("seed")].push_back(runs[place].name);
  }
  std::vector<std::string> sentences;
  for (const auto& [seed, of_seed] : names) {
    if (of_seed.size() < 2) continue;
    sentences.push_back(absl::StrCat(base::FewOf(of_seed, kMostRunsNamed), ": runs of one seed, ", seed,
                                     ", expected a seed each: the interval takes them for independent"));
  }
  return sentences;
}

}  // namespace troupe::cli
