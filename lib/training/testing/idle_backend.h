#pragma once

#include <string_view>
#include <vector>

#include "lib/training/core/network_backend.h"

namespace troupe::training {

/// Networks that nobody asks to compute. Counts those that are alive in `alive`, which may be nullptr and outlives
/// them.
class IdleBackend final : public NetworkBackend {
 public:
  explicit IdleBackend(int* alive = nullptr) : alive_(alive) {
    if (alive_ != nullptr) ++*alive_;
  }
  ~IdleBackend() override {
    if (alive_ != nullptr) --*alive_;
  }
  absl::Status Begin(const PreparedBatch&, FlatParameters*, int) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<float>> Values() override { return std::vector<float>(); }
  absl::Status BeginEpoch(absl::Span<const int32_t>) override { return absl::OkStatus(); }
  absl::Status Step(int64_t, int64_t, const StepSettings&) override { return absl::OkStatus(); }
  absl::StatusOr<StepTotals> TakeTotals() override { return StepTotals(); }
  absl::Status End() override { return absl::OkStatus(); }
  absl::Status Serves(BackendLevel) const override { return absl::UnimplementedError("it is idle"); }
  std::string_view name() const override { return "idle"; }

 private:
  int* const alive_;
};

}  // namespace troupe::training
