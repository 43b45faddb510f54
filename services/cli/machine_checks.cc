#include "services/cli/machine_checks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/cli/programs.h"
#include "lib/rpc/door/admission.h"
#include "services/torch_launcher/find_libtorch.h"
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

constexpr int kMinGlibcMinor = 34;  // of glibc 2: what a bundle's programs need (docs/deployment.md)
constexpr char kPythonMarker[] = "troupe-python:";
constexpr int64_t kFewWorkers = 8;          // as many as a laptop has use for
constexpr int64_t kFewestDescriptors = 32;  // measured: a learner with one worker has 23 open, and 2 more a worker

std::string Mebibytes(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

std::string VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "FAILED";
  }
  return "";
}

/// A line "MARKER rest" of what was said; empty without one.
std::string Marked(const std::string& text, absl::string_view marker) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, marker)) return base::LogSafe(std::string(absl::StripAsciiWhitespace(line)));
  }
  return "";
}

}  // namespace

MachineCheck CheckGlibc(const std::string& version) {
  MachineCheck check{"glibc", Verdict::kOk, version, absl::StrCat("2.", kMinGlibcMinor, " or later"), ""};
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0, minor = 0;
  const bool known = parts.size() >= 2 && absl::SimpleAtoi(parts[0], &major) && absl::SimpleAtoi(parts[1], &minor);
  if (known && (major > 2 || (major == 2 && minor >= kMinGlibcMinor))) return check;
  check.verdict = Verdict::kFailed;
  check.remedy = "a newer system: Debian 12, Ubuntu 22.04, RHEL 9 or later";
  return check;
}

MachineCheck CheckProcessor(bool has_avx512, bool has_avx2) {
  MachineCheck check{"processor", Verdict::kOk, "", "AVX2 with FMA, or AVX-512", ""};
  if (has_avx512) {
    check.got = "AVX-512: the fastest kernels";
  } else if (has_avx2) {
    check.got = "AVX2 with FMA, no AVX-512: the second fastest kernels";
  } else {
    check.verdict = Verdict::kWarning;
    check.got = "neither AVX2 with FMA nor AVX-512: portable kernels, several times slower";
    check.remedy = "another processor, or of a virtual machine: have it show the host's features";
  }
  return check;
}

MachineCheck CheckLearner(const absl::StatusOr<std::string>& program, const absl::StatusOr<ProgramAnswer>& answer,
                          const std::string& wanted) {
  MachineCheck check{"LibTorch", Verdict::kFailed, "", absl::StrCat("LibTorch ", wanted), ""};
  check.remedy =
      absl::StrCat("python3 -m pip install torch==", wanted, ", or TROUPE_LIBTORCH=FOLDER; of a clone: ./troupe build");
  const std::string site = program.ok() ? SitePackagesOf(*program) : "";
  if (!site.empty()) check.remedy = LibTorchRemedy(site, wanted);
  if (!program.ok()) {
    check.got = std::string(program.status().message());
  } else if (!answer.ok()) {
    check.got = absl::StrCat(*program, " ", std::string(answer.status().message()));
  } else if (answer->status != 0) {
    check.got =
        absl::StrCat("troupe-learner ended with ", answer->EndedWith(), " and said \"", answer->LastLine(), "\"");
  } else {
    check.got = Marked(answer->text, "LibTorch ");
    const bool right = check.got == wanted || absl::StartsWith(check.got, absl::StrCat(wanted, " "));
    if (check.got.empty())
      check.got = absl::StrCat("troupe-learner does not say which, it said \"", answer->LastLine(), "\"");
    check.verdict = right ? Verdict::kOk : Verdict::kFailed;
    if (right) check.remedy = "";
  }
  return check;
}

std::string PythonQuestion() {
  // A platform.py or numpy where we were started is nobody's package, and its code is not run.
  return absl::StrCat(
      "import sys\nsys.path = [folder for folder in sys.path if folder]\nsys.dont_write_bytecode = True\n"
      "import platform\nprint('\\n",
      kPythonMarker, "', platform.python_version())\nimport numpy\nprint('\\nnumpy:', numpy.__version__)\n");
}

MachineCheck CheckPython(const absl::StatusOr<std::string>& interpreter, const absl::StatusOr<ProgramAnswer>& answer) {
  MachineCheck check{"Python", Verdict::kWarning, "", "Python 3.9 or later with numpy, for environments in Python", ""};
  check.remedy = "another: --python PROGRAM or FOLDER (env.python.interpreter)";
  if (!interpreter.ok()) {
    check.got = std::string(interpreter.status().message());
    return check;
  }
  if (!answer.ok()) {
    check.got = absl::StrCat(*interpreter, " ", std::string(answer.status().message()));
    return check;
  }
  const std::string version = Marked(answer->text, kPythonMarker);
  const std::string numpy = Marked(answer->text, "numpy:");
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0, minor = 0;
  const bool known = parts.size() >= 2 && absl::SimpleAtoi(parts[0], &major) && absl::SimpleAtoi(parts[1], &minor);
  if (!known) {
    check.got =
        absl::StrCat(*interpreter, " ended with ", answer->EndedWith(), " and said \"", answer->LastLine(), "\"");
  } else if (answer->status != 0 || numpy.empty()) {
    check.got = absl::StrCat("Python ", version, " without numpy (", *interpreter, ")");
    check.remedy = absl::StrCat(*interpreter, " -m pip install numpy, or ", check.remedy);
  } else {
    check.got = absl::StrCat("Python ", version, " with numpy ", numpy, " (", *interpreter, ")");
    if (major > 3 || (major == 3 && minor >= 9)) {
      check.verdict = Verdict::kOk;
      check.remedy = "";
    }
  }
  return check;
}

MachineCheck CheckDescriptors(int64_t most) {
  const rpc::AdmissionLimits limits = rpc::AdmissionLimitsFor(most);
  // Those of `troupe train` come from one host, with two connections each.
  const int64_t workers = std::min(limits.total - limits.kept, limits.per_host) / 2;
  MachineCheck check{"descriptors", Verdict::kOk, absl::StrCat(most, ", for ", workers, " workers"),
                     absl::StrCat("enough for ", kFewWorkers, " workers"), ""};
  if (most >= kFewestDescriptors && workers >= kFewWorkers) return check;
  check.verdict = most < kFewestDescriptors ? Verdict::kFailed : Verdict::kWarning;
  check.remedy = "a higher hard limit of open files (ulimit -Hn)";
  return check;
}

MachineCheck CheckMemory(const MachineLimits& limits, const absl::Status& fits) {
  MachineCheck check{"memory", Verdict::kOk, "", absl::StrCat(Mebibytes(cli::kLearnerBytes), " for a small run"), ""};
  std::vector<std::string> told;
  int64_t least = INT64_MAX;
  if (limits.available_bytes) told.push_back(absl::StrCat(Mebibytes(*limits.available_bytes), " free"));
  if (limits.limit_bytes) told.push_back(absl::StrCat("at most ", Mebibytes(*limits.limit_bytes), " (control group)"));
  if (limits.available_bytes) least = std::min(least, *limits.available_bytes);
  if (limits.limit_bytes) least = std::min(least, *limits.limit_bytes);
  if (!fits.ok()) told.push_back(std::string(fits.message()));
  check.got = told.empty() ? "the kernel does not say" : absl::StrJoin(told, ", ");
  if (fits.ok() && least >= cli::kLearnerBytes) return check;
  check.verdict = Verdict::kFailed;
  check.remedy = fits.ok() ? "end other programs, or give the container more memory" : "a higher limit (ulimit -v)";
  return check;
}

MachineCheck CheckProcessors(const MachineLimits& limits) {
  MachineCheck check{"cores", Verdict::kOk, absl::StrCat(limits.processors), "2 or more: a learner and a worker", ""};
  if (limits.quota) absl::StrAppendFormat(&check.got, ", of which the control group gives %.1f", *limits.quota);
  if (limits.processors >= 2 && limits.quota.value_or(2) >= 2) return check;
  check.verdict = Verdict::kWarning;
  check.remedy = "with one core, --workers 0: the learner samples";
  return check;
}

MachineCheck CheckTemporary(const absl::StatusOr<std::string>& folder, const std::string& wanted) {
  MachineCheck check{"temporary", Verdict::kOk, "", "a folder for a Unix socket, in $TMPDIR or /tmp", ""};
  if (!folder.ok()) {
    check.verdict = Verdict::kFailed;
    check.got = std::string(folder.status().message());
    check.remedy = "TMPDIR=FOLDER with a short path that can be written";
    return check;
  }
  check.got = absl::StrCat(folder->substr(0, folder->rfind('/')), " can be written");
  if (wanted.empty() || absl::StartsWith(*folder, wanted)) return check;
  check.verdict = Verdict::kWarning;
  absl::StrAppend(&check.got, "; TMPDIR, ", base::LogSafe(wanted),
                  ", is too long for a socket, not absolute, or cannot be");
  check.remedy = "nothing, where that folder will do";
  return check;
}

MachineCheck CheckGpu(const absl::StatusOr<training::CudaDevice>& device) {
  MachineCheck check{"GPU", Verdict::kOk, "", "none, or one of NVIDIA (device: cuda)", ""};
  check.got = device.ok() ? device->ToString()
                          : absl::StrCat(std::string(device.status().message()), ": training is on the CPU");
  return check;
}

bool TrainingWorks(const std::vector<MachineCheck>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const MachineCheck& check) { return check.verdict == Verdict::kFailed; });
}

std::string ChecksText(const std::vector<MachineCheck>& checks) {
  std::string text;
  for (const MachineCheck& check : checks) {
    absl::StrAppendFormat(&text, "%-8s %-12s %s\n", VerdictName(check.verdict), check.what,
                          base::TerminalSafe(check.got));
    if (check.verdict == Verdict::kOk) continue;
    absl::StrAppendFormat(&text, "%22sexpected: %s\n", "", base::TerminalSafe(check.expected));
    absl::StrAppendFormat(&text, "%22sremedy:   %s\n", "", base::TerminalSafe(check.remedy));
  }
  return text + (TrainingWorks(checks) ? "a run trains on this machine\n" : "no run trains on this machine as it is\n");
}

nlohmann::ordered_json ChecksJson(const std::vector<MachineCheck>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MachineCheck& check : checks) {
    list.push_back(
        {{"what", check.what},
         {"verdict", check.verdict == Verdict::kFailed ? "failed" : VerdictName(check.verdict)},
         {"got", check.got},
         {"expected", check.expected},
         {"remedy", check.remedy.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(check.remedy)}});
  }
  return {{"ok", TrainingWorks(checks)}, {"checks", std::move(list)}};
}

}  // namespace troupe::services
