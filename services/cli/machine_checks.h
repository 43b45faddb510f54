#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/training/core/cuda_driver.h"
#include "services/torch_launcher/ask_program.h"
#include <nlohmann/json_fwd.hpp>

/// What `troupe doctor` finds of this machine: plain functions of what was asked, and the text of it.
namespace troupe::services {

enum class Verdict {
  kOk,       ///< as it should be, or nothing that training on a laptop needs
  kWarning,  ///< training works, something else does not or is slower
  kFailed,   ///< no run trains here
};

/// One thing that was looked at. Plain value.
struct MachineCheck {
  std::string what;
  Verdict verdict = Verdict::kOk;
  std::string got;
  std::string expected;
  std::string remedy;  ///< empty where all is well
};

/// Bytes of memory and processors that this process may have. Plain value.
struct MachineLimits {
  std::optional<int64_t> available_bytes;  ///< that the machine has free
  std::optional<int64_t> limit_bytes;      ///< of the control group
  int processors = 1;                      ///< that the kernel lets it run on
  std::optional<double> quota;             ///< processors' worth of time that the control group has
};
/// Asks the kernel below `root` ("/"); of control groups both versions.
MachineLimits ReadMachineLimits(const std::string& root);

MachineCheck CheckGlibc(const std::string& version);
/// Which kernels of lib/inference are taken.
MachineCheck CheckProcessor(bool has_avx512, bool has_avx2);
/// `program`: FindLearnerProgram's. `answer`: of its --version, which loads LibTorch. `wanted`: the version.
MachineCheck CheckLearner(const absl::StatusOr<std::string>& program, const absl::StatusOr<ProgramAnswer>& answer,
                          const std::string& wanted);
/// `answer`: to PythonQuestion.
MachineCheck CheckPython(const absl::StatusOr<std::string>& interpreter, const absl::StatusOr<ProgramAnswer>& answer);
/// What an interpreter is asked behind -c: its version, and numpy's.
std::string PythonQuestion();
/// `most`: the hard limit, to which a learner raises its own.
MachineCheck CheckDescriptors(int64_t most);
/// `fits`: whether a limit on a process's memory leaves a learner enough.
MachineCheck CheckMemory(const MachineLimits& limits, const absl::Status& fits);
MachineCheck CheckProcessors(const MachineLimits& limits);
/// `folder`: what SocketFolder made; `wanted`: $TMPDIR, empty where it is not set.
MachineCheck CheckTemporary(const absl::StatusOr<std::string>& folder, const std::string& wanted);
MachineCheck CheckGpu(const absl::StatusOr<training::CudaDevice>& device);

/// Whether a run trains: no check failed.
bool TrainingWorks(const std::vector<MachineCheck>& checks);
/// For people: a line for each check, behind those that are not ok what was expected and what helps, and a last line.
std::string ChecksText(const std::vector<MachineCheck>& checks);
/// {"ok", "checks": [{"what", "verdict", "got", "expected", "remedy" (null: none)}]}.
nlohmann::ordered_json ChecksJson(const std::vector<MachineCheck>& checks);

}  // namespace troupe::services
