// std::condition_variable::wait under its own name: libstdc++ 12 gives it a version (GLIBCXX_3.4.30) that RHEL 9's
// library does not have. Hidden, so that no library in the process sees it.
#include <pthread.h>

#include <condition_variable>
#include <mutex>

extern "C" {

__attribute__((visibility("hidden"))) void TroupeConditionVariableWait(std::condition_variable* self,
                                                                       std::unique_lock<std::mutex>& lock) noexcept
    __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");

void TroupeConditionVariableWait(std::condition_variable* self, std::unique_lock<std::mutex>& lock) noexcept {
  pthread_cond_wait(self->native_handle(), lock.mutex()->native_handle());
}

}  // extern "C"
