// troupe runs ls|show|compare|plot

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/output.h"
#include "lib/cli/run_curves.h"
#include "lib/cli/run_path.h"
#include "lib/cli/run_record.h"
#include "lib/cli/run_selection.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/python_half.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostShownBytes = 120;  // of a label or metric, in a picture

struct RunsFlags {
  std::vector<std::string> runs;  // none: all of the directory
  std::string directory = "runs";
  std::string sort = "newest";
  std::vector<std::string> metrics;
  int64_t at_env_steps = -1;
  std::string x = "env_steps";
  std::string output, python;
  bool each = false, overwrite = false, json = false;
};

std::string TwoDigits(std::optional<double> value) {
  if (!value) return "-";
  return std::abs(*value) < 1e9 ? absl::StrFormat("%.2f", *value) : absl::StrFormat("%.4g", *value);
}
Json JsonOf(std::optional<double> value) { return value ? Json(*value) : Json(); }
std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

/// "12 s", "3 min", "5 h", "12 d".
std::string Age(absl::Duration age) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(age));
  if (seconds < 120) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  if (seconds < 172'800) return absl::StrFormat("%.0f h", seconds / 3600);
  return absl::StrFormat("%.0f d", seconds / 86'400);
}

std::string Took(std::optional<double> seconds) {
  if (!seconds || !(*seconds >= 0 && *seconds < 1e12)) return "-";  // it is read from a file
  const auto whole = static_cast<int64_t>(*seconds);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

Json RecordJson(const cli::RunRecord& run) {
  return {{"name", run.name},
          {"path", run.path},
          {"state", run.state},
          {"host", run.host.empty() ? Json() : Json(run.host)},
          {"reason", run.reason.empty() ? Json() : Json(run.reason)},
          {"env", run.keys.empty() ? Json() : Json(run.Key("env.name"))},
          {"algorithm", run.keys.empty() ? Json() : Json(run.Key("algorithm.name"))},
          {"seed", run.keys.empty() ? Json() : Json(run.Key("seed"))},
          {"env_steps", run.env_steps},
          {"updates", run.updates},
          {"return_sum", JsonOf(run.return_sum)},
          {"best_return", JsonOf(run.best_return)},
          {"wall_clock_s", JsonOf(run.wall_clock_s)},
          {"written_unix_s", absl::ToDoubleSeconds(run.written - absl::UnixEpoch())},
          {"problems", run.problems}};
}

/// Those that sort later have no such value.
bool Sorts(const std::optional<double>& a, const std::optional<double>& b) {
  if (a.has_value() != b.has_value()) return a.has_value();
  return a && *a > *b;
}

void SortRuns(const std::string& by, std::vector<cli::RunRecord>* runs) {
  const auto comes_first = [&by](const cli::RunRecord& a, const cli::RunRecord& b) {
    if (by == "name") return a.name < b.name;
    if (by == "env_steps") return a.env_steps > b.env_steps;
    if (by == "return") return Sorts(a.return_sum, b.return_sum);
    if (by == "best") return Sorts(a.best_return, b.best_return);
    return a.written > b.written;
  };
  std::stable_sort(runs->begin(), runs->end(), comes_first);
}

void SayProblems(const cli::RunRecord& run) {
  for (const std::string& problem : run.problems) {
    std::fprintf(stderr, "troupe: %s: %s\n", base::TerminalSafe(run.name).c_str(),
                 base::TerminalSafe(problem, 300).c_str());
  }
}

void LeaveOut(const std::string& name, const std::string& why) {
  std::fprintf(stderr, "troupe: left out: %s: %s\n", base::TerminalSafe(name).c_str(),
               base::TerminalSafe(why, 400).c_str());
}

void SayNotListed(const cli::RunListing& listing, const RunsFlags& flags) {
  for (const cli::LeftOut& each : cli::NotListed(listing, flags.directory)) LeaveOut(each.name, each.why);
}

void SayOthers(const cli::RunListing& listing) {
  if (listing.num_others == 0) return;
  std::string names;
  for (const std::string& other : listing.others) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", base::TerminalSafe(other, 64));
  }
  std::fprintf(stderr, "troupe: no runs (without a config.yaml): %s%s\n", names.c_str(),
               listing.num_others > listing.others.size()
                   ? absl::StrCat(" and ", listing.num_others - listing.others.size(), " more").c_str()
                   : "");
}

void PrintLs(const cli::RunListing& listing) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "environment", "algorithm", "seed", "env steps", "return", "best", "took", "written"}};
  for (const cli::RunRecord& run : listing.runs) {
    rows.push_back({run.name, run.state, OrDash(run.Key("env.name")), OrDash(run.Key("algorithm.name")),
                    OrDash(run.Key("seed")), cli::WithThousands(run.env_steps), TwoDigits(run.return_sum),
                    TwoDigits(run.best_return), Took(run.wall_clock_s),
                    absl::StrCat(Age(base::Clock::Real().WallNow() - run.written), " ago")});
  }
  cli::PrintTable(rows);
  std::fflush(stdout);
  for (const cli::RunRecord& run : listing.runs) SayProblems(run);
}

absl::StatusOr<int> Ls(const RunsFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(cli::RunListing listing, cli::ListRuns(flags.directory));
  SortRuns(flags.sort, &listing.runs);
  if (flags.json) {
    Json list = Json::array();
    for (const cli::RunRecord& run : listing.runs) list.push_back(RecordJson(run));
    cli::PrintJson(list);
  } else {
    PrintLs(listing);
  }
  SayNotListed(listing, flags);
  SayOthers(listing);
  return 0;
}

absl::StatusOr<int> Show(const RunsFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.runs[0], flags.directory));
  cli::RunRecord run = cli::ReadRun(folder);
  const auto checkpoints = storage::ListCheckpoints(storage::FileSystem::Posix(), folder);
  Json saved = Json::array();
  std::vector<std::string> saved_words;
  if (checkpoints.ok()) {
    for (const storage::CheckpointEntry& entry : *checkpoints) {
      saved.push_back({{"env_steps", entry.env_steps}, {"latest", entry.is_latest}, {"best", entry.is_best}});
      saved_words.push_back(absl::StrCat(cli::WithThousands(entry.env_steps), entry.is_latest ? " (latest)" : "",
                                         entry.is_best ? " (best)" : ""));
    }
  } else {
    run.problems.push_back(absl::StrCat("checkpoints: ", checkpoints.status().message()));
  }
  if (flags.json) {
    Json json = RecordJson(run);
    json["config"] = run.keys;
    json["checkpoints"] = saved;
    json["last_line"] = run.last_line.empty() ? Json() : Json::parse(run.last_line, nullptr, false);
    cli::PrintJson(json);
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"run", run.path},
      {"state", absl::StrCat(run.state, run.host.empty() ? "" : absl::StrCat(" (on ", run.host, ")"),
                             run.reason.empty() ? "" : absl::StrCat(": ", run.reason))},
      {"environment", OrDash(run.Key("env.name"))},
      {"algorithm", absl::StrCat(OrDash(run.Key("algorithm.name")), ", seed ", OrDash(run.Key("seed")))},
      {"trained",
       absl::StrCat(cli::WithThousands(run.env_steps), " env steps, ", cli::WithThousands(run.updates), " updates, ",
                    cli::WithThousands(run.episodes), " episodes in ", Took(run.wall_clock_s))},
      {"return",
       absl::StrCat(TwoDigits(run.return_sum), ", sum over agents, of the last 100 episodes; best ",
                    TwoDigits(run.best_return), run.best_by.empty() ? "" : absl::StrCat(" by ", run.best_by))},
      {"checkpoints", OrDash(absl::StrJoin(saved_words, ", "))},
      {"written", absl::StrCat(Age(base::Clock::Real().WallNow() - run.written), " ago")}};
  for (const auto& [key, value] : cli::WrittenKeys(run)) rows.push_back({key, value});
  cli::PrintTable(rows);
  std::fflush(stdout);
  SayProblems(run);
  return 0;
}

/// One line of a comparison or plot: runs that differ by their seeds.
struct Series {
  std::string label;
  std::string metric;
  std::vector<std::string> names;
  std::vector<cli::Curve> curves;
};

absl::StatusOr<std::vector<cli::RunRecord>> RecordsOf(const RunsFlags& flags) {
  std::vector<cli::RunRecord> records;
  if (flags.runs.empty()) {
    TROUPE_ASSIGN_OR_RETURN(cli::RunListing listing, cli::ListRuns(flags.directory));
    records = std::move(listing.runs);
    SayNotListed(listing, flags);
  }
  for (const std::string& name : flags.runs) {
    TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(name, flags.directory));
    records.push_back(cli::ReadRun(folder));
  }
  cli::RunSelection selection = cli::SelectRuns(std::move(records));
  for (const cli::LeftOut& each : selection.left_out) LeaveOut(each.name, each.why);
  if (!selection.runs.empty()) return std::move(selection.runs);
  return absl::NotFoundError(absl::StrCat("\"", flags.directory, "\" holds no run that trained"));
}

/// What is compared. Runs that cannot be read are named on stderr and left out; an error where none is left.
absl::StatusOr<std::vector<Series>> ReadSeries(const RunsFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<cli::RunRecord> records, RecordsOf(flags));
  std::vector<Series> all;
  absl::Status first_error;
  size_t points_left = cli::kMostPoints;
  const std::vector<cli::RunGroup> groups = cli::GroupRuns(records);
  for (const cli::RunGroup& group : groups) {
    for (const std::string& sentence : flags.each ? std::vector<std::string>() : cli::SharedSeeds(group, records)) {
      std::fprintf(stderr, "troupe: %s\n", base::TerminalSafe(sentence, 1000).c_str());
    }
    const std::vector<std::string> metrics = flags.metrics.empty() ? cli::UsualMetrics(group, records) : flags.metrics;
    for (const std::string& metric : metrics) {
      Series series{.label = group.label, .metric = metric, .names = {}, .curves = {}};
      for (const size_t place : group.runs) {
        absl::StatusOr<cli::Curve> curve = cli::ReadCurve(records[place].path, metric, flags.x, points_left);
        if (!curve.ok()) {
          LeaveOut(records[place].name, std::string(curve.status().message()));
          first_error.Update(curve.status());
          continue;
        }
        points_left -= curve->x.size();
        series.names.push_back(records[place].name);
        series.curves.push_back(*std::move(curve));
      }
      if (series.curves.empty()) continue;
      if (series.label.empty()) series.label = series.names.size() == 1 ? series.names[0] : "all";
      all.push_back(std::move(series));
    }
  }
  if (all.empty()) return first_error;
  return all;
}

absl::StatusOr<int> Compare(const RunsFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Series> all, ReadSeries(flags));
  double at = static_cast<double>(flags.at_env_steps);
  if (flags.at_env_steps < 0) {
    at = all[0].curves[0].x.back();
    for (const Series& series : all) {
      for (const cli::Curve& curve : series.curves) at = std::min(at, curve.x.back());
    }
  }
  Json list = Json::array();
  bool all_have_it = true;
  std::vector<std::vector<std::string>> rows = {{"runs", "metric", "seeds", "mean", "95 % interval", "least", "most"}};
  for (const Series& series : all) {
    std::vector<double> values;
    std::vector<std::string> names;
    for (size_t i = 0; i < series.curves.size(); ++i) {
      const std::optional<double> value = series.curves[i].At(at);
      if (!value) {
        LeaveOut(series.names[i], absl::StrFormat("no %s at %.0f env steps, there are %.0f to %.0f", series.metric, at,
                                                  series.curves[i].x.front(), series.curves[i].x.back()));
        all_have_it = false;
        continue;
      }
      values.push_back(*value);
      names.push_back(series.names[i]);
    }
    if (values.empty()) continue;
    const cli::SeedMean mean = cli::MeanOf(values);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const std::string interval =
        mean.half_width ? absl::StrFormat("%.2f to %.2f", mean.mean - *mean.half_width, mean.mean + *mean.half_width)
                        : "-";
    rows.push_back({series.label, series.metric, absl::StrCat(values.size()), absl::StrFormat("%.2f", mean.mean),
                    interval, absl::StrFormat("%.2f", *least), absl::StrFormat("%.2f", *most)});
    list.push_back({{"label", series.label},
                    {"metric", series.metric},
                    {"runs", names},
                    {"values", values},
                    {"mean", mean.mean},
                    {"low", mean.half_width ? Json(mean.mean - *mean.half_width) : Json()},
                    {"high", mean.half_width ? Json(mean.mean + *mean.half_width) : Json()}});
  }
  if (list.empty()) {
    return absl::NotFoundError(absl::StrFormat("--at %.0f: no run has values at so many env steps", at));
  }
  if (flags.json) {
    cli::PrintJson({{"env_steps", at}, {"groups", list}});
    return 0;
  }
  std::printf("at %s env steps%s\n", cli::WithThousands(static_cast<int64_t>(at)).c_str(),
              all_have_it ? ", which all runs that are compared have" : "; runs without a value there are left out");
  cli::PrintTable(rows);
  return 0;
}

absl::Status CheckOutput(const RunsFlags& flags) {
  const std::string& path = flags.output;
  if (!absl::EndsWithIgnoreCase(path, ".png") && !absl::EndsWithIgnoreCase(path, ".svg")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: got \"", base::LogSafe(path), "\", expected a file that ends in .png or .svg"));
  }
  std::error_code error;
  if (!flags.overwrite && std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    return base::WithExitCode(
        absl::AlreadyExistsError(absl::StrCat("--output: \"", base::LogSafe(path),
                                              "\" is there, expected none; choose another name, or --overwrite")),
        base::ExitCode::kRefused);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Plot(const RunsFlags& flags) {
  TROUPE_RETURN_IF_ERROR(CheckOutput(flags));
  TROUPE_ASSIGN_OR_RETURN(std::vector<Series> all, ReadSeries(flags));
  if (flags.each) {
    std::vector<Series> split;
    for (const Series& series : all) {
      for (size_t i = 0; i < series.curves.size(); ++i) {
        split.push_back({series.names[i], series.metric, {series.names[i]}, {series.curves[i]}});
      }
    }
    all = std::move(split);
  }
  std::set<std::string> metrics;
  for (const Series& series : all) metrics.insert(series.metric);
  Json list = Json::array();
  for (const Series& series : all) {
    const absl::StatusOr<cli::BandCurve> band = cli::BandOf(series.curves);
    if (!band.ok()) {
      LeaveOut(series.label, std::string(band.status().message()));
      continue;
    }
    std::string label = base::TerminalSafe(series.label, kMostShownBytes);
    if (metrics.size() > 1) {
      absl::StrAppend(&label, label.empty() ? "" : ", ", base::TerminalSafe(series.metric, kMostShownBytes));
    }
    if (series.names.size() > 1) absl::StrAppend(&label, " (", series.names.size(), " seeds)");
    list.push_back({{"label", label}, {"x", band->x}, {"mean", band->mean}, {"low", band->low}, {"high", band->high}});
  }
  if (list.empty()) return absl::FailedPreconditionError("nothing is left to draw");
  const std::string metric = metrics.size() == 1 ? *metrics.begin() : "return of a policy";
  const Json document = {{"x", flags.x}, {"metric", base::TerminalSafe(metric, kMostShownBytes)}, {"series", list}};
  const std::string text = document.dump(-1, ' ', true, Json::error_handler_t::replace);
  PythonHalf half = {.module = "troupe.plot_command",
                     .does = "draw curves",
                     .needs = "",
                     .python = flags.python,
                     .words = {absl::StrCat("--output=", flags.output)},
                     .in = &text};
  if (flags.overwrite) half.words.push_back("--overwrite");
  if (flags.json) half.words.push_back("--json");
  std::fflush(stdout);
  return BecomePython(half);
}

void AddDirectory(CLI::App* command, RunsFlags* flags) {
  command->add_option("--directory", flags->directory, "where runs lie")->capture_default_str();
}

void AddSelection(CLI::App* command, RunsFlags* flags) {
  command->add_option("runs", flags->runs, "run folders, or names inside --directory (default: all that lie there)");
  command
      ->add_option("--metric", flags->metrics,
                   "a key of progress.jsonl (repeat; default: return_sum, or the policies' returns where agents' "
                   "rewards differ)")
      ->allow_extra_args(false);
  AddDirectory(command, flags);
}

void AddRunsLs(CLI::App* runs, Action* action) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command = runs->add_subcommand("ls", "The runs of a folder, a line each.");
  AddDirectory(command, flags.get());
  command->add_option("--sort", flags->sort, "newest, name, env_steps, return or best; the largest first")
      ->capture_default_str()
      ->check(CLI::IsMember({"newest", "name", "env_steps", "return", "best"}));
  command->add_flag("--json", flags->json,
                    "one line: [{\"name\", \"path\", \"state\", \"env\", \"algorithm\", \"seed\", \"env_steps\", "
                    "\"return_sum\", \"best_return\", \"wall_clock_s\", \"written_unix_s\", \"problems\", ...}]");
  command->footer("Example: troupe runs ls --sort best");
  command->callback([=] { *action = [=] { return Ls(*flags); }; });
}

void AddShow(CLI::App* runs, Action* action) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command =
      runs->add_subcommand("show", "One run: where it stands, its checkpoints, what it was configured.");
  command->add_option("run", flags->runs, "run folder, or a run's name inside --directory")->required()->expected(1);
  AddDirectory(command, flags.get());
  command->add_flag("--json", flags->json,
                    "one line: as of ls, with \"config\" {KEY: VALUE}, \"checkpoints\" and \"last_line\"");
  command->footer("Example: troupe runs show my_run");
  command->callback([=] { *action = [=] { return Show(*flags); }; });
}

void AddCompare(CLI::App* runs, Action* action) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command = runs->add_subcommand(
      "compare", "Runs that differ by their seed alone together, by mean and 95 % interval at equal env steps.");
  AddSelection(command, flags.get());
  command->add_option("--at", flags->at_env_steps, "env steps (default: the most that all of them have)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", flags->json,
                    "one line: {\"env_steps\", \"groups\": [{\"label\", \"metric\", \"runs\", \"values\", \"mean\", "
                    "\"low\", \"high\"}]}");
  command->footer("Example: troupe runs compare a_1 a_2 a_3 b_1 b_2 b_3 --at 500000");
  command->callback([=] { *action = [=] { return Compare(*flags); }; });
}

void AddPlot(CLI::App* runs, Action* action) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command = runs->add_subcommand(
      "plot", "Curves as a picture, runs that differ by their seed alone as mean and 95 % interval; by matplotlib.");
  AddSelection(command, flags.get());
  command->add_option("--output", flags->output, "a file that ends in .png or .svg")->required();
  command->add_option("--x", flags->x, "env_steps, agent_steps, updates, or wall_clock_s (seconds)")
      ->capture_default_str()
      ->check(CLI::IsMember({"env_steps", "agent_steps", "updates", "wall_clock_s"}));
  command->add_flag("--each", flags->each, "a line for each run instead of means");
  command->add_flag("--overwrite", flags->overwrite, "replace the file where there is one");
  command->add_option("--python", flags->python,
                      "the Python that draws: a program, or a virtual environment's folder (default: that of "
                      "$VIRTUAL_ENV, else the one beside this program, else python3)");
  command->add_flag("--json", flags->json, "one line: {\"path\", \"series\"}");
  command->footer("Example: troupe runs plot --output curves.png");
  command->callback([=] { *action = [=] { return Plot(*flags); }; });
}

}  // namespace

void AddRunsCommand(CLI::App& app, Action* action) {
  CLI::App* runs = app.add_subcommand("runs", "List, show, compare and plot runs; their folders are read as data.");
  runs->require_subcommand(1);
  runs->footer("Example: troupe runs ls");
  AddRunsLs(runs, action);
  AddShow(runs, action);
  AddCompare(runs, action);
  AddPlot(runs, action);
}

}  // namespace troupe::services
