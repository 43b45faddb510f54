#pragma once

#include <optional>

#include "absl/status/statusor.h"

namespace troupe::run {

/// Where a worker says that its life was fruitful: a pipe inherited from the process that started it and decides
/// whether another takes its place (`troupe worker --report-fd`). Made once by the worker, before it starts anything.
/// Movable, not copyable.
class LifeReport {
 public:
  /// Takes the descriptor; the worker's own children do not inherit it. INVALID_ARGUMENT when it is no pipe.
  static absl::StatusOr<LifeReport> Adopt(int fd);
  LifeReport(LifeReport&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  LifeReport& operator=(LifeReport&&) = delete;
  ~LifeReport();

  /// Writes this process's id on a line. Nobody who reads is no error. Never blocks where the pipe does not.
  /// Thread-safe.
  void Fruitful() const;

 private:
  explicit LifeReport(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace troupe::run
