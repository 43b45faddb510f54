#include "services/cli/machine_checks.h"

#include "lib/base/testing/made_up_folder.h"
#include "lib/cli/programs.h"
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ProgramAnswer Answer(int status, const std::string& text) {
  ProgramAnswer answer;
  answer.status = status;
  answer.text = text;
  return answer;
}
constexpr int kExited1 = 1 << 8;
constexpr int kExited127 = 127 << 8;

TEST(MachineChecksTest, Glibc) {
  for (const char* version : {"2.34", "2.36", "2.100", "3.0"}) EXPECT_EQ(CheckGlibc(version).verdict, Verdict::kOk);
  for (const char* version : {"2.33", "1.99", "", "new"}) {
    EXPECT_EQ(CheckGlibc(version).verdict, Verdict::kFailed) << version;
    EXPECT_NE(CheckGlibc(version).remedy, "");
  }
}

TEST(MachineChecksTest, AProcessorWithoutVectorUnitsIsSlowAndEnough) {
  EXPECT_EQ(CheckProcessor(true, true).verdict, Verdict::kOk);
  EXPECT_THAT(CheckProcessor(true, true).got, StartsWith("AVX-512"));
  EXPECT_THAT(CheckProcessor(false, true).got, StartsWith("AVX2"));
  EXPECT_EQ(CheckProcessor(false, false).verdict, Verdict::kWarning);
}

TEST(MachineChecksTest, TheLearnerSaysWhichLibTorchItLoads) {
  const auto check = [](const absl::StatusOr<ProgramAnswer>& answer) {
    return CheckLearner(std::string("/bin/troupe-learner"), answer, "2.11.0");
  };
  const MachineCheck right = check(Answer(0, "troupe 0.1.0\nLibTorch 2.11.0 (/opt/torch)\n"));
  EXPECT_EQ(right.verdict, Verdict::kOk);
  EXPECT_EQ(right.got, "2.11.0 (/opt/torch)");
  EXPECT_EQ(right.remedy, "");
  const MachineCheck other = check(Answer(0, "troupe 0.1.0\nLibTorch 2.11.01 (/opt/torch)\n"));
  EXPECT_EQ(other.verdict, Verdict::kFailed);
  EXPECT_THAT(other.remedy, HasSubstr("torch==2.11.0"));
  const MachineCheck missing = check(Answer(kExited127, "x: error while loading shared libraries: libtorch.so\n"));
  EXPECT_EQ(missing.verdict, Verdict::kFailed);
  EXPECT_EQ(missing.got,
            "troupe-learner ended with 127 and said \"x: error while loading shared libraries: libtorch.so\"");
  EXPECT_EQ(check(Answer(0, "something else\n")).verdict, Verdict::kFailed);
  EXPECT_THAT(check(absl::DeadlineExceededError("did not answer within 1m")).got, HasSubstr("did not answer"));
  const MachineCheck none = CheckLearner(absl::NotFoundError("there is no troupe-learner"), Answer(0, ""), "2.11.0");
  EXPECT_EQ(none.verdict, Verdict::kFailed);
  EXPECT_EQ(none.got, "there is no troupe-learner");
}

TEST(MachineChecksTest, OfAWheelTheRemedyNamesItsExtra) {
  const base::MadeUpFolder folder;
  folder.Write("site/troupe/__init__.py", "");
  const MachineCheck missing =
      CheckLearner(folder / "site/troupe/bin/troupe-learner", Answer(kExited1, "no LibTorch\n"), "2.11.0");
  EXPECT_THAT(missing.remedy, HasSubstr("pip install '" TROUPE_DISTRIBUTION "[cpu]'"));
}

TEST(MachineChecksTest, PythonIsForEnvironmentsInPythonAlone) {
  const auto check = [](const absl::StatusOr<ProgramAnswer>& answer) {
    return CheckPython(std::string("/usr/bin/python3"), answer);
  };
  const MachineCheck right = check(Answer(0, "\ntroupe-python: 3.11.2\n\nnumpy: 1.26.4\n"));
  EXPECT_EQ(right.verdict, Verdict::kOk);
  EXPECT_EQ(right.got, "Python 3.11.2 with numpy 1.26.4 (/usr/bin/python3)");
  EXPECT_EQ(check(Answer(0, "\ntroupe-python: 3.8.1\n\nnumpy: 1.20\n")).verdict, Verdict::kWarning);
  const MachineCheck bare = check(Answer(kExited1, "\ntroupe-python: 3.11.2\nModuleNotFoundError\n"));
  EXPECT_EQ(bare.verdict, Verdict::kWarning);
  EXPECT_EQ(bare.got, "Python 3.11.2 without numpy (/usr/bin/python3)");
  EXPECT_THAT(bare.remedy, StartsWith("/usr/bin/python3 -m pip install numpy"));
  EXPECT_THAT(check(Answer(kExited1, "no\n")).got, HasSubstr("ended with 1 and said \"no\""));
  const MachineCheck none = CheckPython(absl::NotFoundError("got python3, which is not on the PATH"), Answer(0, ""));
  EXPECT_EQ(none.verdict, Verdict::kWarning);
  EXPECT_EQ(none.got, "got python3, which is not on the PATH");
}

// Of few descriptors half are for connections, three each, of which one host has half; a worker has two.
TEST(MachineChecksTest, DescriptorsAreCountedInWorkers) {
  EXPECT_EQ(CheckDescriptors(1 << 20).verdict, Verdict::kOk);
  EXPECT_EQ(CheckDescriptors(INT64_MAX).verdict, Verdict::kOk);
  EXPECT_EQ(CheckDescriptors(155).got, "155, for 8 workers");
  EXPECT_EQ(CheckDescriptors(155).verdict, Verdict::kOk);
  EXPECT_EQ(CheckDescriptors(154).got, "154, for 7 workers");
  EXPECT_EQ(CheckDescriptors(154).verdict, Verdict::kWarning);
  EXPECT_EQ(CheckDescriptors(32).verdict, Verdict::kWarning);
  EXPECT_EQ(CheckDescriptors(31).verdict, Verdict::kFailed);
  EXPECT_EQ(CheckDescriptors(0).verdict, Verdict::kFailed);
}

TEST(MachineChecksTest, TheLeastMemoryCounts) {
  MachineLimits limits;
  EXPECT_EQ(CheckMemory(limits, absl::OkStatus()).verdict, Verdict::kOk) << "nobody says how much there is";
  limits.available_bytes = cli::kLearnerBytes;
  EXPECT_EQ(CheckMemory(limits, absl::OkStatus()).verdict, Verdict::kOk);
  EXPECT_EQ(CheckMemory(limits, absl::ResourceExhaustedError("too little")).verdict, Verdict::kFailed);
  limits.limit_bytes = cli::kLearnerBytes - 1;
  const MachineCheck check = CheckMemory(limits, absl::OkStatus());
  EXPECT_EQ(check.verdict, Verdict::kFailed);
  EXPECT_EQ(check.got, "640 MiB free, at most 639 MiB (control group)");
}

TEST(MachineChecksTest, OneCoreIsAWarning) {
  MachineLimits limits;
  limits.processors = 2;
  EXPECT_EQ(CheckProcessors(limits).verdict, Verdict::kOk);
  limits.quota = 1.5;
  EXPECT_EQ(CheckProcessors(limits).verdict, Verdict::kWarning);
  EXPECT_EQ(CheckProcessors(limits).got, "2, of which the control group gives 1.5");
  limits.quota.reset();
  limits.processors = 1;
  EXPECT_EQ(CheckProcessors(limits).verdict, Verdict::kWarning);
}

TEST(MachineChecksTest, ATemporaryFolderThatIsPassedByIsSaid) {
  EXPECT_EQ(CheckTemporary(std::string("/tmp/troupe-1"), "").got, "/tmp can be written");
  EXPECT_EQ(CheckTemporary(std::string("/my/troupe-1"), "/my").verdict, Verdict::kOk);
  EXPECT_EQ(CheckTemporary(std::string("/tmp/troupe-1"), "/very/long").verdict, Verdict::kWarning);
  EXPECT_EQ(CheckTemporary(absl::PermissionDeniedError("cannot make"), "").verdict, Verdict::kFailed);
}

TEST(MachineChecksTest, WithoutAGpuTheCpuTrains) {
  const MachineCheck check = CheckGpu(absl::UnavailableError("there is no NVIDIA driver (x)"));
  EXPECT_EQ(check.verdict, Verdict::kOk);
  EXPECT_EQ(check.got, "there is no NVIDIA driver (x): training is on the CPU");
  training::CudaDevice device;
  device.name = "H100";
  EXPECT_THAT(CheckGpu(device).got, StartsWith("H100 ("));
}

TEST(MachineChecksTest, TheTextSaysWhatHelps) {
  const std::vector<MachineCheck> checks = {{"glibc", Verdict::kOk, "2.36", "2.34 or later", ""},
                                            {"cores", Verdict::kWarning, "1", "2 or more", "--workers 0"}};
  EXPECT_EQ(ChecksText(checks),
            "ok       glibc        2.36\n"
            "warning  cores        1\n"
            "                      expected: 2 or more\n"
            "                      remedy:   --workers 0\n"
            "a run trains on this machine\n");
  EXPECT_EQ(
      ChecksJson(checks).dump(),
      R"({"ok":true,"checks":[{"what":"glibc","verdict":"ok","got":"2.36","expected":"2.34 or later","remedy":null},)"
      R"({"what":"cores","verdict":"warning","got":"1","expected":"2 or more","remedy":"--workers 0"}]})");
  const std::vector<MachineCheck> failed = {{"LibTorch", Verdict::kFailed, "none", "2.11.0", "install it"}};
  EXPECT_THAT(ChecksText(failed), HasSubstr("FAILED   LibTorch     none\n"));
  EXPECT_THAT(ChecksText(failed), HasSubstr("\nno run trains on this machine as it is\n"));
  EXPECT_EQ(ChecksJson(failed)["ok"], false);
  EXPECT_EQ(ChecksJson(failed)["checks"][0]["verdict"], "failed");
}

/// A kernel's files as the test writes them.
class MachineLimitsTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const { made_up_.Write(name.substr(1), text); }
  const base::MadeUpFolder made_up_;
  const std::string& root_ = made_up_.root();
};

TEST_F(MachineLimitsTest, NobodySays) {
  const MachineLimits limits = ReadMachineLimits(root_);
  EXPECT_EQ(limits.available_bytes, std::nullopt);
  EXPECT_EQ(limits.limit_bytes, std::nullopt);
  EXPECT_EQ(limits.quota, std::nullopt);
  EXPECT_GE(limits.processors, 1);
}

TEST_F(MachineLimitsTest, TheTightestGroupOfVersion2Counts) {
  Write("/proc/meminfo", "MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 4000 kB\n");
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  const MachineLimits limits = ReadMachineLimits(root_);
  EXPECT_EQ(limits.available_bytes, 4000 << 10);
  EXPECT_EQ(limits.limit_bytes, 1000000);
  EXPECT_EQ(limits.quota, 1.5);
}

TEST_F(MachineLimitsTest, OfVersion1) {
  Write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadMachineLimits(root_).limit_bytes, 2000000);
  EXPECT_EQ(ReadMachineLimits(root_).quota, std::nullopt);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(ReadMachineLimits(root_).quota, 0.5);
}

}  // namespace
}  // namespace troupe::services
