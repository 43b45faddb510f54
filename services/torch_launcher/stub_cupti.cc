// A libcupti.so.13 for machines without one: what libtorch_cpu.so takes from it for its profiler, each function
// answering that it is not initialized. tests/e2e/bundle_test.py holds the list against LibTorch's.

namespace {
constexpr int kNotInitialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED
}

extern "C" {
int cuptiActivityDisable() { return kNotInitialized; }
int cuptiActivityEnable() { return kNotInitialized; }
int cuptiActivityEnableCudaEventDeviceTimestamps() { return kNotInitialized; }
int cuptiActivityEnableDriverApi() { return kNotInitialized; }
int cuptiActivityEnableRuntimeApi() { return kNotInitialized; }
int cuptiActivityFlushAll() { return kNotInitialized; }
int cuptiActivityGetNextRecord() { return kNotInitialized; }
int cuptiActivityGetNumDroppedRecords() { return kNotInitialized; }
int cuptiActivityPopExternalCorrelationId() { return kNotInitialized; }
int cuptiActivityPushExternalCorrelationId() { return kNotInitialized; }
int cuptiActivityRegisterCallbacks() { return kNotInitialized; }
int cuptiActivityRegisterTimestampCallback() { return kNotInitialized; }
int cuptiActivitySetAttribute() { return kNotInitialized; }
int cuptiEnableCallback() { return kNotInitialized; }
int cuptiEnableDomain() { return kNotInitialized; }
int cuptiFinalize() { return kNotInitialized; }
int cuptiGetVersion() { return kNotInitialized; }
int cuptiSubscribe() { return kNotInitialized; }
int cuptiUnsubscribe() { return kNotInitialized; }
int cuptiGetResultString(int /*result*/, const char** text) {
  *text = "CUPTI is not installed";
  return 0;
}
}
