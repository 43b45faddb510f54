// Stands in for libcuda.so.1: the functions that AskCudaDriver uses, with their names and types of cuda.h. What it
// answers stands in the environment: FAKE_CUDA_INIT (a code), FAKE_CUDA_DEVICES (how many), FAKE_CUDA_CAPABILITY (major
// * 10 + minor).

#include <cstdlib>
#include <cstring>

namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {

int cuInit(unsigned int /*flags*/) { return FromEnvironment("FAKE_CUDA_INIT", 0); }

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = FromEnvironment("FAKE_CUDA_DEVICES", 2);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, device == 0 ? "Fake K80" : "Fake K81", static_cast<size_t>(length));
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  const int capability = FromEnvironment("FAKE_CUDA_CAPABILITY", 37);
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int /*device*/) {
  *bytes = size_t{12} << 30;
  return 0;
}

int cuGetErrorString(int code, const char** words) {
  *words = code == 803 ? "system has unsupported display driver / cuda driver combination" : nullptr;
  return 0;
}

}  // extern "C"
