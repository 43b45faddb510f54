#pragma once

// Scripts that tests of the collector share.

#include "lib/rollout/testing/scripted_env.h"

namespace troupe::rollout {

inline EnvFactory Scripted(const ScriptedOptions& options, const Script& script, ScriptedLog* log = nullptr) {
  return [=] { return MakeScriptedEnv(options, script, log); };
}

/// Two agents that act at every step; the third step is the limit.
inline const Script kBothTruncated = {
    {.observe = {0, 1}},
    {.observe = {0, 1}, .rewards = {{0, 1.0f}, {1, -1.0f}}},
    {.observe = {0, 1}, .rewards = {{0, 2.0f}, {1, -2.0f}}},
    {.observe = {0, 1}, .rewards = {{0, 4.0f}, {1, -4.0f}}, .truncate_all = true},
};

/// Turns: agent 0 at even steps, agent 1 at odd ones; both are rewarded at every step.
inline const Script kTurns = {
    {.observe = {0}},
    {.observe = {1}, .rewards = {{0, 1.0f}}},
    {.observe = {0}, .rewards = {{0, 2.0f}, {1, 10.0f}}},
    {.observe = {1}, .rewards = {{0, 4.0f}, {1, 20.0f}}},
    {.observe = {0}, .rewards = {{0, 8.0f}, {1, 40.0f}}},
    {.observe = {}, .rewards = {{0, 16.0f}, {1, 80.0f}}, .terminate_all = true},
};

}  // namespace troupe::rollout
