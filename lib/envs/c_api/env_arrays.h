/* Environments as arrays, for languages that call C but are too slow for a callback a row: libtroupe_envs.so exports
 * these functions beside troupe_env_plugin. One object is one environment, native or of a plug-in, held to the contract
 * of docs/environments.md; what a reset or step brings lies in arrays that belong to it. python/troupe/envs is made on
 * this.
 *
 * Functions that return int32_t give 0, or a code of plugin_abi.h and a text in `error`. An environment is used by one
 * thread at a time. Text is UTF-8 with a zero at its end. */
#ifndef TROUPE_LIB_ENVS_C_API_ENV_ARRAYS_H_
#define TROUPE_LIB_ENVS_C_API_ENV_ARRAYS_H_

#include "lib/env/plugin_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when anything below changes. */
#define TROUPE_ARRAYS_VERSION 1u

typedef struct TroupeArrayEnv TroupeArrayEnv;

/* Where the arrays are: at the same place as long as the environment lives. N agents, by slot. */
typedef struct TroupeArrays {
  int32_t num_agents;
  int32_t num_info_columns;
  uint64_t state_rows; /* 0 without a state, 1, or N (per_agent) */
  uint64_t state_size;
  /* N + 1 each: slot i has [offsets[i], offsets[i + 1]); in bytes, bytes and words. */
  const uint64_t* observation_offsets;
  const uint64_t* action_mask_offsets;
  const uint64_t* action_offsets;

  uint8_t* observations; /* float rows, or uint8_t for a Box of uint8; offsets are multiples of 4 */
  uint8_t* action_masks;
  float* states;  /* [state_rows, state_size] */
  float* rewards; /* [N], of the last call */
  double* infos;  /* [N, num_info_columns], of the last call; NaN where it gave none */
  /* [5, N] and two more: observed in the last call; ready, acts in the next step; terminated; truncated (ended alone in
   * the last call); agent mask; then whether the episode has been terminated, truncated. */
  uint8_t* flags;
  TroupeActionWord* actions; /* the caller writes the rows of agents that are ready */
} TroupeArrays;

TROUPE_ENV_EXPORT uint32_t troupe_arrays_version(void);
/* A JSON list of {"name", "description"}: what is built in, or what the library at `plugin` has. */
TROUPE_ENV_EXPORT int32_t troupe_arrays_list(const char* plugin, char** json, TroupeEnvError* error);
TROUPE_ENV_EXPORT void troupe_arrays_free(char* json);

/* plugin: NULL for what is built in; args: a JSON object, or NULL. */
TROUPE_ENV_EXPORT int32_t troupe_arrays_make(const char* plugin, const char* name, const char* args,
                                             TroupeArrayEnv** env, TroupeEnvError* error);
/* The JSON of plugin_abi.h; as long as the environment lives. */
TROUPE_ENV_EXPORT const char* troupe_arrays_spec(const TroupeArrayEnv* env);
TROUPE_ENV_EXPORT const TroupeArrays* troupe_arrays_view(const TroupeArrayEnv* env);
TROUPE_ENV_EXPORT int32_t troupe_arrays_reset(TroupeArrayEnv* env, const TroupeEpisodeSeed* seed,
                                              TroupeEnvError* error);
TROUPE_ENV_EXPORT int32_t troupe_arrays_step(TroupeArrayEnv* env, TroupeEnvError* error);
TROUPE_ENV_EXPORT void troupe_arrays_destroy(TroupeArrayEnv* env);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TROUPE_LIB_ENVS_C_API_ENV_ARRAYS_H_ */
