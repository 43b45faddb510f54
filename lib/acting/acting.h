/* Policies of a checkpoint, for programs in other languages: libtroupe_acting.so exports these functions. What computes
 * is the actor that workers have (lib/inference), with their kernels and their random numbers: the same weights,
 * observations and keys give the same bits. python/troupe/policy.py is made on this.
 *
 * A checkpoint is data: its manifest and weights are read and verified, nothing is executed. Policies in Python and
 * TorchScript files need another process or LibTorch, and are refused when they are asked.
 *
 * Functions that return int32_t give 0, or a status code with gRPC's number and a text in `error`. Thread-safe: rows of
 * one policy are computed one call at a time. Text is UTF-8 with a zero at its end. */
#ifndef TROUPE_LIB_ACTING_ACTING_H_
#define TROUPE_LIB_ACTING_ACTING_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when anything below changes. */
#define TROUPE_ACTING_VERSION 2u
#define TROUPE_ACTING_ERROR_BYTES 1024u
/* Most rows of a call. */
#define TROUPE_ACTING_MAX_ROWS 65536
#define TROUPE_ACTING_EXPORT __attribute__((visibility("default")))

typedef struct TroupeActing TroupeActing;

/* The caller's memory for an error's text, which is cut where it is longer. */
typedef struct TroupeActingError {
  char text[TROUPE_ACTING_ERROR_BYTES];
} TroupeActingError;

/* Whose decision a row is: the counter of its random numbers, and the agent that a policy may see. */
typedef struct TroupeActingKey {
  uint32_t env_id;
  uint32_t episode;
  int32_t agent_slot;
  uint32_t env_step;
} TroupeActingKey;

/* Rows to act for. Sizes are those of the description. */
typedef struct TroupeActingRows {
  int32_t policy; /* its place in the description's list */
  int32_t deterministic;
  int64_t rows;
  const void* observations;    /* [rows, obs_size] float, or uint8_t as obs_dtype says */
  const uint8_t* action_masks; /* [rows, mask_size], 1: allowed; NULL: everything is */
  const TroupeActingKey* keys; /* [rows] */
  const float* state_in;       /* [rows, state_size]; NULL where that is 0 */
  float* state_out;            /* the same after the decision; may be state_in */
  int32_t* actions; /* [rows, action words], as the environment gets them; floats where word_dtypes says so */
  float* logp;      /* [rows], nats, of the actions before they are brought into their space */
} TroupeActingRows;

TROUPE_ACTING_EXPORT uint32_t troupe_acting_version(void);
/* The size of TroupeActingRows, for who declares it in another language. */
TROUPE_ACTING_EXPORT size_t troupe_acting_rows_bytes(void);

/* checkpoint: its folder (RUN/checkpoints/N), or a link to it (RUN/checkpoints/latest), which a learner may move
 * meanwhile; seed: of everything that is sampled. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_open(const char* checkpoint, uint64_t seed, TroupeActing** acting,
                                                TroupeActingError* error);
/* {"agents": [ID, ...], "policies": [{"id", "learner_epoch", "version", "observation_space", "action_space",
 * "obs_dtype", "obs_size", "mask_size", "state_size", "word_dtypes", "needs_agent", "agents": [SLOT, ...]}, ...]}; as
 * long as `acting` lives. */
TROUPE_ACTING_EXPORT const char* troupe_acting_describe(const TroupeActing* acting);
/* policies[slot]: the place of the policy that plays the agent in the episode, by the run's mapping. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_map(const TroupeActing* acting, uint32_t env_id, uint32_t episode,
                                               int32_t* policies, TroupeActingError* error);
/* What a policy with networks is made of, as JSON with "spec", its entry of a policy_table in format 2; "outputs", the
 * columns of the actor's last layer; "parameters", the floats of the acting part; and "tensors" in these, a list of
 * {"name", "shape", "offset"}, names without the policy's id. As long as `acting` lives. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_network(TroupeActing* acting, int32_t policy, const char** network,
                                                   TroupeActingError* error);
/* Its weights, read and verified: parameters [parameters]; moments [2, obs_size], means and variances of the
 * observation, NULL where the policy does not normalize it. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_weights(TroupeActing* acting, int32_t policy, float* parameters,
                                                   double* moments, TroupeActingError* error);
/* outputs [rows, outputs]: the actor's last layer, before masks and distribution; writes state_out. Masks, actions and
 * logp of `rows` are not looked at. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_outputs(TroupeActing* acting, const TroupeActingRows* rows, float* outputs,
                                                   TroupeActingError* error);
/* After an error, actions and states hold anything. */
TROUPE_ACTING_EXPORT int32_t troupe_acting_act(TroupeActing* acting, const TroupeActingRows* rows,
                                               TroupeActingError* error);
TROUPE_ACTING_EXPORT void troupe_acting_close(TroupeActing* acting);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TROUPE_LIB_ACTING_ACTING_H_ */
