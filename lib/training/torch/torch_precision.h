#pragma once

#include "lib/training/device_options.h"
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace troupe::training {

/// Matrix products of float32 numbers on CUDA devices, of the whole process: Precision::kTf32 or not. LibTorch itself
/// would have convolutions and recurrent layers in TF32.
inline void SetFloat32Products(Precision precision) {
  const auto as = precision == Precision::kTf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  for (const at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, op, as);
  }
}

/// While it lives, this thread's matrix products and convolutions on the device are of bfloat16 (autocast). The copies
/// of parameters that it makes do not outlive it: a step changes what they are copies of.
class Bfloat16Products {
 public:
  explicit Bfloat16Products(c10::DeviceType device)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, torch::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Bfloat16Products() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_, was_dtype_);
    at::autocast::set_autocast_enabled(device_, was_enabled_);
  }
  Bfloat16Products(const Bfloat16Products&) = delete;
  Bfloat16Products& operator=(const Bfloat16Products&) = delete;

 private:
  const c10::DeviceType device_;
  const bool was_enabled_;
  const at::ScalarType was_dtype_;
};

}  // namespace troupe::training
