#pragma once

namespace troupe::training {

// Names of what the trainer keeps of a policy beside policy::kParameters and policy::kObservationMoments, as blocks of
// its policy::PolicyState. Integers have shape [].

inline constexpr char kAdamExpAvg[] = "adam.exp_avg";       ///< f32 [ParameterLayout::size()], as the next one
inline constexpr char kAdamExpAvgSq[] = "adam.exp_avg_sq";  ///< a state without both begins with an optimizer of zeros
inline constexpr char kAdamSteps[] = "adam.steps";          ///< i64
inline constexpr char kValueMoments[] = "value_moments";    ///< of value targets, one column, with use_value_norm
inline constexpr char kTrainedRows[] = "trained_rows";      ///< i64
inline constexpr char kSkippedUpdates[] = "skipped_updates";      ///< i64, refused for a non-finite loss or gradient
inline constexpr char kConsecutiveSkips[] = "consecutive_skips";  ///< i64

}  // namespace troupe::training
