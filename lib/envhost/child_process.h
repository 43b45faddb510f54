#pragma once

#include <sys/types.h>

#include <string>

namespace troupe::envhost {

/// The child's ends of its pipes and sockets, and the memory it shares with us. It gets them as file descriptors 1 and
/// 2 (output), 3 (control), 4 (memory) and 5 (lifeline).
struct ChildFds {
  int output;
  int control;
  int memory;  ///< -1: it shares none
  int lifeline;
};

/// A process that was started for this one, the first of a process group of its own. Not thread-safe.
class ChildProcess {
 public:
  ChildProcess() = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  virtual ~ChildProcess() = default;

  virtual pid_t pid() const = 0;
  /// Whether it has ended; it is not reaped yet. Never waits.
  virtual bool Ended() = 0;
  /// A signal to the process alone.
  virtual void Signal(int number) = 0;
  /// SIGKILL to it and to what is left of its group; waits until it is gone and gives its number free. What it left
  /// behind lives on where somebody else has reaped it, who may have given its number to another. To be called once,
  /// and nothing after it. How it ended: "was killed by signal 11 (Segmentation fault)", "exited with 3", "ended (how
  /// is not known: …)".
  virtual std::string KillAndReap() = 0;
};

/// Of what waitpid gives, as ChildProcess::KillAndReap says it.
std::string HowItEnded(int wait_status);

}  // namespace troupe::envhost
