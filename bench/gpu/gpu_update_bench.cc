// Milliseconds of one PPO update on a device, by size of the networks and of the batch (bench/spread_update.h): CUDA,
// the fused kernels, or LibTorch on the CPU. One JSON object a line, as soon as it is measured; bench/gpu/check puts
// them side by side. With --profile one more update of the last size is recorded by LibTorch's profiler.
//
//   gpu_update_bench --device cuda --hidden 64,256 --rows 12000,262144

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/spread_update.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/training/make_trainer.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/torch/device.h"
#include "lib/training/torch/torch_device.h"
#include <ATen/record_function.h>
#include <CLI/CLI.hpp>
#include <c10/core/CachingDeviceAllocator.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/profiler_kineto.h>

namespace troupe::training {
namespace {

// Batches up to the main job's size have its minibatches; larger ones those that fill a GPU.
constexpr int64_t kSmallBatchRows = 12000;
constexpr int64_t kSmallMinibatch = 1000;
constexpr int64_t kLargeMinibatch = 16384;

struct Flags {
  std::string device = "auto";
  std::string backend = "auto";
  Precision precision = Precision::kFloat32;
  int threads = 1;
  std::vector<int64_t> hidden = {64};
  std::vector<int64_t> rows = {kSmallBatchRows};
  int64_t epochs = 10;
  int rounds = 5;
  double max_seconds = 20;
  std::string profile;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// One size.
class Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Make(const Flags& flags, const Device& device, int64_t hidden,
                                                       int64_t rows) {
    const CpuBackend backend = flags.backend == "fused"      ? CpuBackend::kFused
                               : flags.backend == "libtorch" ? CpuBackend::kLibTorch
                                                             : CpuBackend::kAuto;
    const int64_t minibatch = rows <= kSmallBatchRows ? kSmallMinibatch : kLargeMinibatch;
    TROUPE_ASSIGN_OR_RETURN(
        std::unique_ptr<learner::Trainer> trainer,
        MakeTrainer({SpreadUpdate::Spec(hidden)}, {PpoSpec(SpreadUpdate::Options(flags.epochs, minibatch))},
                    {.device = device.ToString(), .precision = flags.precision, .num_threads = flags.threads}, 1,
                    backend));
    return std::unique_ptr<Subject>(new Subject(std::move(trainer), rows, minibatch));
  }

  /// Seconds of one update; INTERNAL where a step was left out.
  absl::StatusOr<double> Update() {
    const learner::UpdateContext context = {.seed = 1, .iteration = iteration_, .next_version = {1, iteration_ + 1}};
    ++iteration_;
    const double begin = Now();
    TROUPE_ASSIGN_OR_RETURN(const std::vector<learner::PolicyUpdateReport> reports,
                            trainer_->Update(rows_.batch, context));
    const double seconds = Now() - begin;
    minibatch_steps_ = reports[0].minibatch_steps;
    if (reports[0].skipped_steps == 0) return seconds;
    return absl::InternalError(
        absl::StrCat(reports[0].skipped_steps, " minibatch steps had a loss that is not finite"));
  }

  int64_t minibatch() const { return minibatch_; }
  int64_t minibatch_steps() const { return minibatch_steps_; }

 private:
  Subject(std::unique_ptr<learner::Trainer> trainer, int64_t rows, int64_t minibatch)
      : trainer_(std::move(trainer)), rows_(rows), minibatch_(minibatch) {}

  const std::unique_ptr<learner::Trainer> trainer_;
  const SpreadRows rows_;
  const int64_t minibatch_;
  int64_t minibatch_steps_ = 0;
  int64_t iteration_ = 0;
};

c10::CachingDeviceAllocator::DeviceStats MemoryOf(const Device& device) {
  return c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(ToTorch(device).index());
}

/// Warms up with one update and measures others while there is time: at least one round, which may be the first.
absl::StatusOr<nlohmann::ordered_json> Measure(const Flags& flags, const Device& device, Subject* subject) {
  if (device.is_cuda()) c10::getDeviceAllocator(c10::DeviceType::CUDA)->resetPeakStats(ToTorch(device).index());
  const double deadline = Now() + flags.max_seconds;
  TROUPE_ASSIGN_OR_RETURN(const double first, subject->Update());
  std::vector<double> seconds;
  while (static_cast<int>(seconds.size()) < flags.rounds && Now() + first < deadline) {
    TROUPE_ASSIGN_OR_RETURN(const double round, subject->Update());
    seconds.push_back(round);
  }
  const bool warm = !seconds.empty();
  if (!warm) seconds.push_back(first);
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  nlohmann::ordered_json line = {{"minibatch", subject->minibatch()},
                                 {"epochs", flags.epochs},
                                 {"minibatch_steps", subject->minibatch_steps()},
                                 {"rounds", seconds.size()},
                                 {"warm", warm},
                                 {"seconds", seconds},
                                 {"first_update_s", first},
                                 {"ms_p50", sorted[sorted.size() / 2] * 1e3},
                                 {"ms_min", sorted.front() * 1e3},
                                 {"ms_max", sorted.back() * 1e3}};
  if (device.is_cuda()) {
    const auto memory = MemoryOf(device);
    line["device_memory_peak_bytes"] = memory.allocated_bytes[0].peak;
    line["device_memory_reserved_bytes"] = memory.reserved_bytes[0].peak;
  }
  return line;
}

absl::Status Profile(const Device& device, const std::string& path, Subject* subject) {
  namespace profiler = torch::profiler::impl;
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (device.is_cuda()) activities.insert(profiler::ActivityType::CUDA);
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  absl::Status status;
  {
    RECORD_USER_SCOPE("troupe::update");
    status = subject->Update().status();
  }
  torch::autograd::profiler::disableProfiler()->save(path);
  return status;
}

absl::Status Run(const Flags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const Device device, ResolveDevice(flags.device));
  const std::string backend = device.is_cuda()              ? absl::StrCat("libtorch/", device.ToString())
                              : flags.backend == "libtorch" ? "libtorch/cpu"
                                                            : flags.backend;
  double seconds_per_flop = 0;  // of the last size that was measured
  std::unique_ptr<Subject> subject;
  for (const int64_t hidden : flags.hidden) {
    for (const int64_t rows : flags.rows) {
      nlohmann::ordered_json line = {{"device", device.ToString()},
                                     {"backend", backend},
                                     {"threads", flags.threads},
                                     {"hidden", hidden},
                                     {"rows", rows}};
      const double flops = SpreadUpdate::FlopsPerRow(hidden) * static_cast<double>(rows * flags.epochs);
      const double predicted = flops * seconds_per_flop;
      if (predicted > flags.max_seconds) {
        line["skipped"] = absl::StrCat("would take about ", static_cast<int64_t>(predicted), " s of the ",
                                       flags.max_seconds, " s given, by the size before it");
      } else {
        subject.reset();  // its memory first
        TROUPE_ASSIGN_OR_RETURN(subject, Subject::Make(flags, device, hidden, rows));
        TROUPE_ASSIGN_OR_RETURN(const nlohmann::ordered_json measured, Measure(flags, device, subject.get()));
        line.update(measured);
        seconds_per_flop = measured["ms_p50"].get<double>() / 1e3 / flops;
      }
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    }
  }
  if (flags.profile.empty() || subject == nullptr) return absl::OkStatus();
  return Profile(device, flags.profile, subject.get());
}

}  // namespace
}  // namespace troupe::training

int main(int argc, char** argv) {
  troupe::base::InitLogging("bench", "warn");
  using troupe::training::Precision;
  troupe::training::Flags flags;
  CLI::App app{"Times one PPO update by size; one JSON object a line."};
  app.add_option("--device", flags.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--backend", flags.backend, "on the CPU")->check(CLI::IsMember({"auto", "fused", "libtorch"}));
  const std::map<std::string, Precision> precisions = {
      {"float32", Precision::kFloat32}, {"tf32", Precision::kTf32}, {"bfloat16", Precision::kBfloat16}};
  app.add_option("--precision", flags.precision, "of matrix products on CUDA: float32, tf32, bfloat16")
      ->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--threads", flags.threads, "of the CPU")->check(CLI::Range(1, 256));
  app.add_option("--hidden", flags.hidden, "sizes of the two hidden layers")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--rows", flags.rows, "rows of the batch")->delimiter(',')->check(CLI::Range(1, 1 << 24));
  app.add_option("--epochs", flags.epochs, "passes over the batch")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", flags.rounds, "updates after the first")->check(CLI::Range(1, 1000));
  app.add_option("--max-seconds", flags.max_seconds, "for one size; what would take longer is left out");
  app.add_option("--profile", flags.profile, "record one more update of the last size into this file");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = troupe::training::Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_update_bench: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
