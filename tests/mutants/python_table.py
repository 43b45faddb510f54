"""The mutants in Python; table.py says how they are written."""

from mutant import mutant

PY_POLICY, PY_LOCAL, PY_EXTERNAL = "python/troupe/policy.py", "python/troupe/local_inference.py", "python/troupe/external.py"
PY_QUERIES, PY_ADAPTERS, PY_HOST = "python/troupe/query_calls.py", "python/troupe/env_adapters/", "python/troupe/env_host.py"
PY_FUNCTIONS, PY_EPISODES = "python/troupe/function_host.py", "python/troupe/episode_callbacks.py"

MUTANTS = [
    # --- Python: policies of a checkpoint
    mutant("predict_does_not_forget_at_an_episodes_start", PY_POLICY, "        if episode_start is not None:", "        if False:",
           ("python_policy_test", "PolicyTest.*")),
    mutant("a_policy_draws_the_same_again", PY_POLICY, "self._drawn += 1\n", "self._drawn += 0\n", ("python_policy_test", "PolicyTest.*")),
    mutant("agents_of_all_episodes_are_mapped_as_the_first", PY_POLICY, "self._checkpoint.map(_OF_AGENTS, self._episode)",
           "self._checkpoint.map(_OF_AGENTS, 0)", ("python_policy_test", "AgentsTest.*")),
    mutant("agents_remember_over_a_reset", PY_POLICY, "self._states: Dict[str, Array] = {}", 'self._states = getattr(self, "_states", {})',
           ("python_policy_test", "AgentsTest.*")),
    mutant("masks_of_infos_are_not_seen", PY_POLICY, "mask = info.get(MASK_KEY) if isinstance(info, Mapping) else None", "mask = None",
           ("python_policy_test", "AgentsTest.*")),
    mutant("evaluation_ignores_deterministic_in_python", "python/troupe/run.py", 'arguments += ["--deterministic"] if deterministic else []',
           "arguments += []", ("python_run_test", "RunTest.test_evaluation")),
    mutant("evaluation_ignores_the_seed_in_python", "python/troupe/run.py", 'arguments += ["--seed", str(seed)] if seed is not None else []',
           "arguments += []", ("python_run_test", "RunTest.test_evaluation")),

    # --- Python: the client of an external environment
    mutant("old_answers_say_which_weights_are_newest", PY_LOCAL, "if fetches < self._fetches:", "if False:", ("python_external_test", "LocalInferenceTest.*")),
    mutant("what_another_policy_remembers_is_taken", PY_LOCAL, "(remembered[0], remembered[1].size) == (policy.id, policy.state_size)",
           "remembered[1].size == policy.state_size", ("python_external_test", "LocalPoliciesTest.*")),
    mutant("a_lost_episode_goes_on", PY_LOCAL, "            self._lost[episode] = None", "            pass", ("python_external_test", "LocalInferenceTest.*")),
    mutant("the_last_rewards_are_dropped_outside", PY_EXTERNAL, "self._steps(observations or {}, None, rewards, (), ())",
           "self._steps(observations or {}, None, None, (), ())", ("python_external_test", "FormsTest.*")),
    mutant("truncated_ends_count_as_terminated_outside", PY_EXTERNAL, "messages.EPISODE_END_TRUNCATED if truncated else",
           "messages.EPISODE_END_TERMINATED if truncated else", ("python_external_test", "FormsTest.*")),
    mutant("agents_that_leave_have_no_end_outside", PY_EXTERNAL, "messages.EPISODE_END_TRUNCATED if agent in truncateds else",
           "messages.EPISODE_END_NONE if agent in truncateds else", ("python_external_test", "FormsTest.*")),

    # --- Python: the client of queries
    mutant("a_server_that_failed_is_asked_first_again", PY_QUERIES, "key=lambda server: self._down_until[server] > now", "key=lambda server: 0",
           ("python_query_servers_test", "OrderTest.*")),
    mutant("state_tags_are_not_sent", PY_QUERIES, "self.message.state_tag = tag", "pass", ("python_query_servers_test", "ServersTest.*")),
    mutant("answers_to_agents_in_another_order", "python/troupe/query.py", "dict(zip(observations, self._ask(asked, deterministic, outputs, seed, timeout)))",
           "dict(zip(sorted(observations), self._ask(asked, deterministic, outputs, seed, timeout)))", ("python_query_servers_test", "ServersTest.*")),

    # --- Python: adapters
    mutant("truncation_counts_as_termination_in_adapters", PY_ADAPTERS + "core.py",
           "(self._result.truncated if truncated else self._result.terminated)[i] = True", "self._result.terminated[i] = True",
           ("python_env_adapters_test", "*")),
    mutant("rllib_time_limits_are_terminations", PY_ADAPTERS + "dicts.py", "elif truncated.get(ALL):\n            self._end_all(truncated=True)",
           "elif truncated.get(ALL):\n            self._end_all(truncated=False)", ("python_env_adapters_forms_test", "*")),
    mutant("lists_that_end_mixed_count_as_truncated", PY_ADAPTERS + "gymnasium_env.py", "self._end_all(truncated=True not in self._result.terminated)",
           "self._end_all(truncated=True in self._result.truncated)", ("python_env_adapters_forms_test", "GymnasiumTest.*")),
    mutant("an_agent_that_aec_lets_go_is_terminated", PY_ADAPTERS + "aec.py", "self._end(i, True)", "self._end(i, False)",
           ("python_env_adapters_agree_test", "EndsTest.*")),
    mutant("who_is_truncated_beside_an_end_sees_the_state_before", PY_ADAPTERS + "core.py",
           "if result.all_terminated and True not in result.truncated:", "if result.all_terminated:", ("python_env_adapters_agree_test", "EndsTest.*")),
    mutant("any_state_of_infos_is_the_global_state", PY_ADAPTERS + "agent_spaces.py",
           'array.ndim and array.size and array.dtype.kind in "biuf"', "True", ("python_env_adapters_agree_test", "StateOfInfosTest.*")),
    mutant("agents_that_came_back_are_left_out", PY_ADAPTERS + "dicts.py", "if done[i] and (terminated.get(key) or (truncated and truncated.get(key))):",
           "if done[i]:", ("python_env_adapters_agree_test", "AgentsThatStayTest.*")),
    mutant("what_close_raises_hides_the_error", PY_ADAPTERS + "base.py", "except (Exception, SystemExit) as error:", "except ZeroDivisionError as error:",
           ("python_env_adapters_names_test", "MadeInVainTest.*")),
    mutant("a_files_folder_comes_last", PY_ADAPTERS + "resolve.py", "sys.path.insert(0, os.path.dirname(whole))", "sys.path.append(os.path.dirname(whole))",
           ("python_env_adapters_names_test", "FileTest.*")),
    mutant("fillers_of_a_discrete_begin_at_zero", PY_ADAPTERS + "gymnasium_env.py", 'return [description["start"]]', "return [0]",
           ("python_env_adapters_forms_test", "*")),

    # --- Python: the host of environments
    mutant("environments_share_their_arguments", PY_HOST, "copy.deepcopy(self._args)", "self._args", ("python_env_host_test", "MadeTest.*")),
    mutant("an_environment_made_again_may_have_other_spaces", PY_HOST, "if self.description and self._describe(adapter) != self.description:", "if False:",
           ("python_env_host_test", "MadeTest.*")),
    mutant("each_reset_seeds_the_process", PY_HOST, "        if not self._seeded:", "        if True:", ("python_env_host_test", "MadeTest.*")),
    mutant("steps_of_the_next_batch_are_made_at_once", PY_HOST, "or (sent and entry & shm.BATCH_BEGINS):", "or False:",
           ("python_env_host_test", "StepsAtOnceTest.*")),
    mutant("a_failed_step_is_answered_twice", PY_HOST, "            if ok:\n", "            if True:\n", ("python_env_host_test", "StepsAtOnceTest.*")),
    mutant("an_environment_shares_its_action_with_the_ring", "python/troupe/_shm_env.py", "        return row.copy\n", "        return lambda: row\n",
           ("python_env_host_test", "RowsTest.*")),

    # --- Python: the host of functions
    mutant("rows_of_all_calls_draw_alike", PY_FUNCTIONS, "np.random.SeedSequence([self._seed, *first])", "np.random.SeedSequence([self._seed])",
           ("python_function_host_test", "PolicyTest.*")),
    mutant("a_policy_in_python_always_samples", PY_FUNCTIONS, "bool(header[shm.BLOCK_CALL_DETERMINISTIC])", "False", ("python_function_host_test", "PolicyTest.*")),
    mutant("actions_too_many_are_dropped", PY_FUNCTIONS, "if given != count:", "if given < count:", ("python_function_host_test", "PolicyTest.*")),
    mutant("all_workers_draw_the_same_mapping", PY_FUNCTIONS, "(seed + worker.worker_index) & 0x7FFFFFFF", "seed & 0x7FFFFFFF",
           ("python_function_host_test", "MappingTest.*")),
    mutant("episodes_of_all_environments_have_one_id", PY_FUNCTIONS, 'f"{seed} {self.env_id} {self.episode}"', 'f"{seed} {self.episode}"',
           ("python_function_host_test", "MappingTest.*")),
    mutant("a_number_says_who_trains", PY_FUNCTIONS, "if not isinstance(answer, (bool, np.bool_)):", "if not isinstance(answer, (bool, np.bool_, int)):",
           ("python_function_host_test", "TrainTest.*")),
    mutant("a_function_of_two_parameters_gets_one", PY_FUNCTIONS, "for count in range(most, 0, -1):", "for count in range(1, most + 1):",
           ("python_function_host_test", "MappingTest.*")),
    mutant("a_function_that_exits_ends_its_process", PY_FUNCTIONS, "except BaseException as error:  # also SystemExit: a function", "except Exception as error:  # a function",
           ("python_function_host_test", "MappingTest.*")),

    # --- Python: callbacks
    mutant("an_environments_own_alarm_is_lost", PY_EPISODES, "            signal.setitimer(signal.ITIMER_REAL, *own_timer)\n", "",
           ("python_episode_callbacks_test", "EpisodeCallbacksTest.*")),
    mutant("callbacks_go_on_after_one_raised", PY_EPISODES, "if self.off or not overrides(callback, hook):", "if not overrides(callback, hook):",
           ("python_episode_callbacks_test", "EpisodeCallbacksTest.*")),
    mutant("callbacks_returns_of_a_step_before", PY_EPISODES, "context.returns[agent] += reward", "context.returns[agent] = reward",
           ("python_episode_callbacks_test", "EpisodeWatchTest.*")),
    mutant("a_player_is_known_once_for_all_episodes", PY_EPISODES, "context, self._context = self._context, None", "context = self._context",
           ("python_episode_callbacks_test", "EpisodeWatchTest.*")),
    mutant("an_episode_tracks_its_last_number", "python/troupe/callbacks.py", "entry[0] += (number - entry[0]) / entry[1]", "entry[0] = number",
           ("python_episode_callbacks_test", "EpisodeWatchTest.*")),
    mutant("episodes_track_sums_without_counts", PY_EPISODES, "                entry[1] += 1\n", "                entry[1] = 1\n",
           ("python_episode_callbacks_test", "EpisodeWatchTest.*")),
    mutant("a_callback_that_raises_costs_its_neighbours", "python/troupe/callback_host.py",
           'self._learner.send({"op": "raised", "callback": name, "error": _describe(error)})',
           'self._learner.send({"op": "raised", "callback": name, "error": _describe(error)})\n                break', ("python_callback_host_test", "CallbackHostTest.*")),
    mutant("hooks_that_nobody_overrides_are_called", "python/troupe/callbacks.py",
           "return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)", "return True",
           ("python_callback_host_test", "CallbackHostTest.*")),
    mutant("a_checkpoints_callback_asks_for_the_next", "python/troupe/callbacks.py",
           '        raise TroupeError("save in on_checkpoint_end', '        return super().save()\n        raise TroupeError("save in on_checkpoint_end',
           ("python_callback_host_test", "CallbackHostTest.*")),
    mutant("names_of_a_run_have_no_limit", "python/troupe/callbacks.py", "if name not in self._learner.tracked and len(self._learner.tracked) >= MAX_TRACKED:", "if False:",
           ("python_callback_host_test", "CallbackHostTest.*")),
]
