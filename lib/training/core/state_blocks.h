#pragma once

namespace troupe::training {

// Names of what the trainer keeps of a policy beside policy::kParameters and its moments (of observations, of states,
// and of value targets with use_value_norm or use_popart), as blocks of its policy::PolicyState. Integers have shape
// [].

/// f32 [ParameterLayout::size()], as the next one: with RMSprop and SGD the momentum, and the average of squares
/// (kOptimizer says so). A state without both begins with an optimizer of zeros.
inline constexpr char kAdamExpAvg[] = "adam.exp_avg";
inline constexpr char kAdamExpAvgSq[] = "adam.exp_avg_sq";
inline constexpr char kAdamSteps[] = "adam.steps";  ///< i64
/// i64 [trained sections of the layout]: steps of each; with LossOver::kTensors, beside kAdamSteps, which counts all.
inline constexpr char kBlockSteps[] = "adam.block_steps";
/// i64, OptimizerKind: whose moments these are; absent: Adam's or AdamW's. Those of another one than the policy is
/// trained with are not taken: its optimizer begins with zeros.
inline constexpr char kOptimizer[] = "optimizer";
inline constexpr char kTrainedRows[] = "trained_rows";            ///< i64
inline constexpr char kSkippedUpdates[] = "skipped_updates";      ///< i64, refused for a non-finite loss or gradient
inline constexpr char kConsecutiveSkips[] = "consecutive_skips";  ///< i64
inline constexpr char kLearningRate[] = "learning_rate";          ///< f64, of `lr_kl_target`
inline constexpr char kKlCoeff[] = "kl_coeff";                    ///< f64, of `use_kl_loss` with a `kl_target`

}  // namespace troupe::training
