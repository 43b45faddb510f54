// arc4random, which glibc has from 2.36 on and a static libstdc++ asks for (std::random_device, in
// _usual_step.abi3.so). Hidden.
#include <sys/random.h>

#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) unsigned int arc4random() {
  unsigned int number = 0;
  // The kernel gives up to 256 bytes whole or, before 3.17, not at all.
  if (getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}
