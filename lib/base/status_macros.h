#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Debian 12's Abseil has no status macros; these are the two that Google code uses.

#define TROUPE_CONCAT_INNER_(a, b) a##b
#define TROUPE_CONCAT_(a, b) TROUPE_CONCAT_INNER_(a, b)

/// Returns the Status of `expr` from the enclosing function unless it is OK.
#define TROUPE_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::absl::Status troupe_status_ = (expr);          \
    if (!troupe_status_.ok()) return troupe_status_; \
  } while (false)

/// Evaluates `expr` (a StatusOr); assigns its value to `lhs`, or returns its Status.
#define TROUPE_ASSIGN_OR_RETURN(lhs, expr) \
  TROUPE_ASSIGN_OR_RETURN_IMPL_(TROUPE_CONCAT_(troupe_statusor_, __LINE__), lhs, expr)

#define TROUPE_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)
