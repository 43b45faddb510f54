#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::training {

/// A number that an algorithm keeps of a policy, a block f64 []: a rate or coefficient that follows from what was
/// trained (state_blocks.h has the names).
struct StateNumber {
  std::string name;
  double initial = 0;  ///< of a fresh policy; no part of the form
};

/// The kind of an algorithm's loss.
enum class LossOver : uint8_t {
  kRows = 1,     ///< RowLoss: a NetworkBackend steps actor and critic together
  kTensors = 2,  ///< TorchGroup: each section of the parameters has an optimizer and steps of its own
  kModule = 3,   ///< as kRows, but LibTorch alone computes it: a user's TorchScript module
};

/// What a policy's state has for its algorithm, beside the networks. Plain value.
struct StateForm {
  bool value_moments = false;  ///< running mean and variance of the returns
  int64_t optimizer = 0;       ///< OptimizerNumber: what its moments mean
  LossOver loss = LossOver::kRows;
  std::vector<StateNumber> numbers = {};

  bool operator==(const StateForm& other) const { return ToString() == other.ToString(); }
  /// " value_moments", " optimizer 3", " block_steps", " learning_rate" or nothing: canonical.
  std::string ToString() const {
    std::string text = value_moments ? " value_moments" : "";
    if (optimizer != 0) text += " optimizer " + std::to_string(optimizer);
    if (loss == LossOver::kTensors) text += " block_steps";
    if (loss == LossOver::kModule) text += " loss_module";
    for (const StateNumber& number : numbers) text += " " + number.name;
    return text;
  }
};

}  // namespace troupe::training
