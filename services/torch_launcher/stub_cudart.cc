// A libcudart.so.13 for machines without one: what libtorch_cpu.so takes from it, each function answering that there is
// no CUDA. tests/e2e/bundle_test.py holds the list against LibTorch's.

namespace {
constexpr int kInsufficientDriver = 35;  // cudaErrorInsufficientDriver
}

extern "C" {
int cudaDeviceSynchronize() { return kInsufficientDriver; }
int cudaDriverGetVersion() { return kInsufficientDriver; }
int cudaGetDeviceCount() { return kInsufficientDriver; }
int cudaGetDeviceProperties() { return kInsufficientDriver; }
int cudaRuntimeGetVersion() { return kInsufficientDriver; }
const char* cudaGetErrorString(int /*error*/) { return "CUDA is not installed"; }
}
