#pragma once

#include <cstdint>

namespace troupe::sample {

/// What went wrong in the environments of a worker process since it began, or of several together. Plain value.
struct EnvCounters {
  int64_t errors = 0;         ///< calls that failed, whatever the cause; each ended its episode
  int64_t outside_space = 0;  ///< calls that gave an observation outside its space; nothing ended for it
  int64_t lost_episodes = 0;  ///< of worlds outside: their clients fell silent or went away
  // Of environments in Python:
  int64_t exceptions = 0;        ///< calls in which the environment raised an exception
  int64_t bad_outputs = 0;       ///< calls that gave what does not fit what the environment declared
  int64_t timeouts = 0;          ///< processes that were killed because nothing came within a deadline
  int64_t process_deaths = 0;    ///< processes that ended unasked, those that were killed included
  int64_t process_restarts = 0;  ///< processes that took the place of one that ended

  friend bool operator==(const EnvCounters&, const EnvCounters&) = default;
};

/// One of them, and how it is called where people see it.
struct EnvCounterField {
  int64_t EnvCounters::*value;
  const char* key;  ///< of progress.jsonl and `troupe status --json`
  const char* tag;  ///< of TensorBoard
};

inline constexpr EnvCounterField kEnvCounterFields[] = {
    {&EnvCounters::errors, "env_errors", "Environments/Errors"},
    {&EnvCounters::outside_space, "env_outside_space", "Environments/Outside space"},
    {&EnvCounters::lost_episodes, "env_lost_episodes", "Environments/Lost episodes"},
    {&EnvCounters::exceptions, "env_exceptions", "Environments/Exceptions"},
    {&EnvCounters::bad_outputs, "env_bad_outputs", "Environments/Bad outputs"},
    {&EnvCounters::timeouts, "env_timeouts", "Environments/Timeouts"},
    {&EnvCounters::process_deaths, "env_process_deaths", "Environments/Process deaths"},
    {&EnvCounters::process_restarts, "env_process_restarts", "Environments/Process restarts"},
};
static_assert(sizeof(EnvCounters) == sizeof(kEnvCounterFields) / sizeof(EnvCounterField) * sizeof(int64_t));

}  // namespace troupe::sample
