/* The border between Troupe and an environment in a shared library, in C alone: it includes nothing of Troupe's, so
 * that a library may be built by another compiler, at another time and in another language. In C++ plugin_sdk.h is
 * shorter.
 *
 * A library exports one function, troupe_env_plugin. Troupe calls it once when it loads the library (RTLD_NOW |
 * RTLD_LOCAL, never unloaded), then make, and for every environment: spec once, reset, step …, destroy.
 *
 * Threads: troupe_env_plugin and make may be called by several threads at once; an environment is used by one thread at
 * a time, two environments by two threads at once.
 *
 * Nothing may be thrown through these functions. Text is UTF-8 that ends with a zero byte. */
#ifndef TROUPE_LIB_ENV_PLUGIN_ABI_H_
#define TROUPE_LIB_ENV_PLUGIN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when anything below changes; a library works with the Troupe that has the same number. */
#define TROUPE_ENV_ABI_VERSION 1u

/* Most bytes of texts, the zero at the end included: longer ones are errors (an error's text is cut). */
#define TROUPE_ENV_ERROR_BYTES 1024u
#define TROUPE_ENV_NAME_BYTES 256u
#define TROUPE_ENV_SPEC_BYTES (16u << 20)
/* Most environments of a library. */
#define TROUPE_ENV_MAX_ENVS 1024u

#define TROUPE_ENV_EXPORT __attribute__((visibility("default")))

/* What functions return, with the numbers that gRPC gives them; others count as TROUPE_ENV_INTERNAL. */
enum {
  TROUPE_ENV_OK = 0,
  TROUPE_ENV_INVALID_ARGUMENT = 3,    /* an argument or action that the environment refuses */
  TROUPE_ENV_NOT_FOUND = 5,           /* no environment of that name */
  TROUPE_ENV_FAILED_PRECONDITION = 9, /* step before reset */
  TROUPE_ENV_INTERNAL = 13            /* anything else */
};

/* The caller's memory for an error's text: what was got and what was expected. Read only when the code is not OK. */
typedef struct TroupeEnvError {
  char text[TROUPE_ENV_ERROR_BYTES];
} TroupeEnvError;

/* One number of an action row: i32 where that part of the action space is discrete, f32 where it is continuous. */
typedef union TroupeActionWord {
  int32_t i32;
  float f32;
} TroupeActionWord;

/* Which episode it is. All randomness of an episode follows from these three: the same give the same episode. */
typedef struct TroupeEpisodeSeed {
  uint64_t seed;    /* of the run */
  uint32_t env_id;  /* of this environment among those of the run */
  uint32_t episode; /* of this environment: 0, 1, … */
} TroupeEpisodeSeed;

/* Where a reset or step writes what it brings; valid until it returns. An agent is a slot: its place in the spec's
 * "agents". Every function gets `context` as it is. The rules are those of docs/environments.md; the caller checks
 * them. */
typedef struct TroupeStepWriter {
  void* context;
  /* By slot, or one number for state: how many elements the rows below have. */
  const uint64_t* observation_sizes;
  const uint64_t* action_mask_sizes;
  uint64_t state_size;

  /* The agent is ready, it acts next (unless it is done): gives the row for its observation, float, or uint8_t for a
   * Box of uint8; observation_sizes[slot] elements, uninitialized; write all. Once per agent and call. Never NULL. */
  void* (*observe)(void* context, int32_t slot);
  /* After observe, for agents with "action_mask": the row for its mask, 1 allowed and 0 not. */
  uint8_t* (*action_mask)(void* context, int32_t slot);
  /* The row for the global state; slot counts only for per_agent. */
  float* (*state)(void* context, int32_t slot);
  /* Adds to the reward of the agent's last action; before its observe of the same call. */
  void (*add_reward)(void* context, int32_t slot, float reward);
  void (*terminate_agent)(void* context, int32_t slot);
  void (*truncate_agent)(void* context, int32_t slot);
  /* The episode ends for everybody. */
  void (*terminate_all)(void* context);
  void (*truncate_all)(void* context);
  /* active == 0: the agent's next action trains nothing; with "agent_mask" alone. */
  void (*set_agent_mask)(void* context, int32_t slot, int32_t active);
  /* A number for metrics; column is a place in "info_columns". */
  void (*set_info)(void* context, int32_t slot, int32_t column, double value);
} TroupeStepWriter;

/* An environment; what it is only the library knows. */
typedef struct TroupeEnv TroupeEnv;

typedef struct TroupeEnvEntry {
  const char* name;        /* "mine", what `env.name` says */
  const char* description; /* one line */
} TroupeEnvEntry;

typedef struct TroupeEnvPlugin {
  /* TROUPE_ENV_ABI_VERSION as the library was built; the first field in every version. */
  uint32_t abi_version;
  uint32_t num_envs;
  const TroupeEnvEntry* envs;

  /* Makes an environment. args is a JSON object: `env.args` of the configuration. Sets *env when OK. */
  int32_t (*make)(const char* name, const char* args, TroupeEnv** env, TroupeEnvError* error);
  /* What the environment promises, as JSON, the same for its life; the text lives as long as the environment:
   *   {"agents": [{"id": "cat", "observation_space": "Box(-1, 1, [4])", "action_space": "Discrete(5)",
   *                "action_mask": false}, …],
   *    "state": "none" | "per_env" | "per_agent", "state_space": "Box(-1, 1, [8])",
   *    "agent_mask": false, "info_columns": ["distance"], "max_episode_steps": 100}
   * Only "agents" with id and spaces must be there. Spaces are written as in configurations. */
  const char* (*spec)(TroupeEnv* env);
  /* Starts an episode, also in the middle of another one. */
  int32_t (*reset)(TroupeEnv* env, const TroupeEpisodeSeed* seed, const TroupeStepWriter* out, TroupeEnvError* error);
  /* actions[slot] is the agent's action row, or NULL when it does not act. */
  int32_t (*step)(TroupeEnv* env, const TroupeActionWord* const* actions, const TroupeStepWriter* out,
                  TroupeEnvError* error);
  void (*destroy)(TroupeEnv* env);
} TroupeEnvPlugin;

/* The library's one export. abi_version is the caller's. NULL when the library does not know it; a library may also
 * answer with its own, which the caller compares. What it gives lives as long as the library. */
TROUPE_ENV_EXPORT const TroupeEnvPlugin* troupe_env_plugin(uint32_t abi_version);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TROUPE_LIB_ENV_PLUGIN_ABI_H_ */
