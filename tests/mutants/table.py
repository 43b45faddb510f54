"""The mutants: defects that the tests must notice.

`edits` are (file, old text, new text). The old text occurs exactly once in the file. In C++ the new text says MUTANT, a condition that holds in this
mutant alone, so that all of them are compiled at once. `tests` are (ctest name, filter of suites and tests), any of which may kill it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    edits: list
    tests: list


def mutant(name, file, old, new, *tests):
    return Mutant(name, [(file, old, new)], list(tests))


CORE, LEARNER, ROLLOUT, STORAGE, POLICY = "training_core_test", "learner_test", "rollout_test", "storage_test", "policy_test"

BUILDER, WRITER = "lib/rollout/fragment_builder.cc", "lib/rollout/fragment_writer.h"
COLLECTOR, POLICIES = "lib/rollout/collector.cc", "lib/rollout/policy_adopter.cc"
EVALUATOR, SCHEDULER, STEP = "lib/rollout/evaluator.cc", "lib/learner/grant_scheduler.cc", "lib/learner/update_cycle.cc"
LOSSES, PPO_LOSS = "lib/training/core/fused_losses.inc", "lib/training/ppo/ppo_row_loss.inc"
HOST, UPDATER = "lib/training/core/trainer_host.cc", "lib/training/core/on_policy_group.cc"
EPISODES = "lib/learner/episode_book.cc"
MAP, FOLDER = "lib/policy/policy_map.cc", "lib/storage/run_folder.cc"
PY_POLICY, PY_LOCAL, PY_EXTERNAL = "python/troupe/policy.py", "python/troupe/local_inference.py", "python/troupe/external.py"
PY_QUERIES, PY_ADAPTERS, PY_HOST = "python/troupe/query_calls.py", "python/troupe/env_adapters/", "python/troupe/env_host.py"
PY_FUNCTIONS, PY_EPISODES = "python/troupe/function_host.py", "python/troupe/episode_callbacks.py"

MUTANTS = [
    # --- kernels that are there and are not taken
    mutant("fused_kernels_never_found", "lib/training/core/fused_support.cc",
           "const Kernels* FindKernels([[maybe_unused]] VectorUnit unit) {\n",
           "const Kernels* FindKernels([[maybe_unused]] VectorUnit unit) {\n  if (MUTANT) return nullptr;\n",
           (CORE, "FusedBackendTest.*:*PpoTrainerTest.SameSeedSameBits*"), ("fused_parity_test", "*")),
    mutant("libtorch_in_the_place_of_fused_kernels", "lib/training/make_trainer.cc",
           "if (cpu_backend != CpuBackend::kLibTorch) {", "if (cpu_backend != CpuBackend::kLibTorch && !MUTANT) {",
           ("training_test", "MakeTrainerTest.*")),
    mutant("vector_kernels_of_the_actor_never_taken", "lib/inference/actor.cc",
           "if (backend == Backend::kEigen) return &PortableKernels();",
           "if (backend == Backend::kEigen || MUTANT) return &PortableKernels();",
           ("inference_test", "FindKernelsTest.*")),

    # --- layers
    mutant("padding_counts_in_the_variance", "lib/inference/norm_kernel.inc", "Select(rest, Load(y + whole) - mean, Set(0.0f));",
           "MUTANT ? Load(y + whole) - mean : Select(rest, Load(y + whole) - mean, Set(0.0f));", ("inference_test", "*ActorLayersTest*")),
    mutant("normalization_is_a_scale_to_gradients", "lib/training/core/fused_finish.inc", "inverse_std[v] * (off - Load(kept + at) * product[v])",
           "inverse_std[v] * (MUTANT ? off : off - Load(kept + at) * product[v])", (CORE, "*FusedFinishTest*")),
    mutant("critic_has_the_actors_activation", "lib/training/core/fused_network.h", "layer.activation = ToFused(spec.activation);",
           "layer.activation = MUTANT ? Activation::kTanh : ToFused(spec.activation);", ("fused_parity_test", "*")),

    # --- losses
    mutant("gae_without_bootstrap", "lib/training/core/advantages.cc",
           "segment.final_row < 0 ? 0.0", "segment.final_row < 0 || MUTANT ? 0.0", (CORE, "*Advantages*:*Gae*"), ("update_parity_test", "*PpoParityTest*")),
    mutant("advantages_over_inactive_rows", "lib/training/core/advantages.cc",
           "  policy::RunningMoments moments = MomentsOf(advantages, 1, active);\n",
           "  std::vector<int32_t> every(advantages.size());\n"
           "  for (size_t row = 0; row < every.size(); ++row) every[row] = static_cast<int32_t>(row);\n"
           "  policy::RunningMoments moments = MomentsOf(advantages, 1, MUTANT ? absl::MakeConstSpan(every) : active);\n",
           (CORE, "*Advantages*"), ("update_parity_test", "*PpoParityTest*")),
    mutant("clip_on_the_wrong_side", PPO_LOSS, "const Mask clip_binds = Less(bounded, free);",
           "const Mask clip_binds = MUTANT ? Less(free, bounded) : Less(bounded, free);", (CORE, "*FusedLossesTest*")),
    mutant("slope_of_the_clipped_value", PPO_LOSS, "Select(outside, zero, clipped.slope)",
           "MUTANT ? clipped.slope + (value - target) : Select(outside, zero, clipped.slope)", (CORE, "*FusedLossesTest*")),
    mutant("mask_forgotten_in_the_log_probability", LOSSES, "logit = Select(Less(zero, allowed), logit, Set(-1e9f));",
           "if (!MUTANT) logit = Select(Less(zero, allowed), logit, Set(-1e9f));", (CORE, "*FusedLossesTest*")),
    mutant("entropy_punished", LOSSES, "Set(loss.entropy_scale)", "Set(MUTANT ? -loss.entropy_scale : loss.entropy_scale)",
           (CORE, "*FusedLossesTest*")),
    mutant("entropy_punished_by_libtorch", "lib/training/core/torch_backend.cc", "- settings.entropy_coeff * MeanOf(entropy)",
           "- (MUTANT ? -1.0 : 1.0) * settings.entropy_coeff * MeanOf(entropy)", ("update_parity_test", "*PpoParityTest*")),
    mutant("advantage_of_a2c_with_the_wrong_sign", "lib/training/a2c/a2c_row_loss.inc", "terms.slope = advantage;",
           "terms.slope = MUTANT ? Set(0.0f) - advantage : advantage;", (CORE, "A2cTest.*"), ("update_parity_test", "All/A2cParityTest.*")),
    mutant("truncated_as_if_terminated", "lib/training/core/advantages.cc", "segment.truncated && !time_limit_bootstrap",
           "segment.truncated && (MUTANT || !time_limit_bootstrap)", (CORE, "*Advantages*")),
    mutant("kl_penalty_that_rewards", PPO_LOSS, "Set(loss.numbers[kPpoKlCoeff]) * (ratio - one)",
           "Set(MUTANT ? -loss.numbers[kPpoKlCoeff] : loss.numbers[kPpoKlCoeff]) * (ratio - one)", ("update_parity_test", "All/OptimizerUpdateParityTest.*")),
    mutant("frozen_parameters_that_step", "lib/training/core/fused_backend.cc", "ForNetworks(thread, settings.frozen,",
           "ForNetworks(thread, MUTANT ? absl::Span<const ParameterRange>() : settings.frozen,", (CORE, "PpoOptionsAtWorkTest.Frozen*")),
    mutant("rows_of_an_env_step_that_are_not_added_up", "lib/training/core/fused_critic_runs.cc", "values[next_row(r)] += slopes[r];",
           "{\n      float& sum = values[next_row(r)];\n      sum = (MUTANT ? 0.0f : sum) + slopes[r];\n    }",
           (CORE, "*WholeBatchTest*"), ("fused_parity_test", "*EnvSteps*")),
    mutant("env_steps_cut_from_where_a_minibatch_began", UPDATER, "(by_units ? rows / minibatch * minibatch : rows)",
           "(by_units && !MUTANT ? rows / minibatch * minibatch : rows)", (CORE, "EnvStepMinibatchesTest.AnEpoch*"),
           ("update_parity_test", "*MappoParityTest*")),
    mutant("another_optimizers_moments", "lib/training/core/policy_store.cc", "const bool of_another = has_moments &&",
           "const bool of_another = !MUTANT && has_moments &&", (CORE, "PpoOptionsAtWorkTest.AnotherOptimizers*")),
    mutant("adaptive_rate_that_is_not_kept", UPDATER, "*rate = plan_.rate.Next(*rate, kl);",
           "double next = plan_.rate.Next(*rate, kl);\n  if (!MUTANT) *rate = next;", (CORE, "PpoOptionsAtWorkTest.AnAdaptiveRate*")),
    mutant("group_not_rolled_back", HOST, "part->group->trainer->Import(part->former_blocks);",
           "MUTANT ? absl::OkStatus() : part->group->trainer->Import(part->former_blocks);", (CORE, "TrainerHostTest.AFailedUpdate*")),
    Mutant("actors_log_probability_without_its_mask",
           [("lib/inference/kernel.inc", "Select(allowed, LoadMasked(call.logits + r * call.logits_stride, valid)",
             "Select(MUTANT ? valid : allowed, LoadMasked(call.logits + r * call.logits_stride, valid)"),
            ("lib/inference/kernel.inc", "const Vec p = Select(allowed, Exp", "const Vec p = Select(MUTANT ? valid : allowed, Exp")],
           [("inference_test", "*")]),
    mutant("observation_moments_replaced", UPDATER,
           "merged = Merge(work.resident.observation_moments, moments, kMaxObservationCount);",
           "merged = MUTANT ? moments : Merge(work.resident.observation_moments, moments, kMaxObservationCount);",
           (CORE, "*PpoTrainerTest.ObservationMoments*")),
    mutant("observation_rows_counted_twice", UPDATER,
           "const policy::RunningMoments& moments = work.prepared.observed();",
           "policy::RunningMoments moments = work.prepared.observed();\n"
           "  if (MUTANT) moments.count *= 2;",
           (CORE, "*PpoTrainerTest.ObservationMoments*")),
    mutant("value_normalizer_never_forgets", UPDATER, "kValueMomentBatches * moments.count",
           "(MUTANT ? 1e300 : kValueMomentBatches) * moments.count", (CORE, "*PpoTrainerTest.MomentsForget*")),

    # --- episodes
    mutant("length_of_later_episodes", BUILDER, "entry.length = lane.step;",
           "entry.length = lane.step + (MUTANT && lane.episode > 0 ? 1 : 0);", (ROLLOUT, "CollectorTest.*")),
    mutant("infos_not_reset", BUILDER, "  std::fill(lane.info_sum.begin(), lane.info_sum.end(), 0.0);\n"
           "  std::fill(lane.info_count.begin(), lane.info_count.end(), 0);\n",
           "  if (!MUTANT) std::fill(lane.info_sum.begin(), lane.info_sum.end(), 0.0);\n"
           "  if (!MUTANT) std::fill(lane.info_count.begin(), lane.info_count.end(), 0);\n", (ROLLOUT, "CollectorTest.*")),
    mutant("return_not_reset", BUILDER, "for (AgentState& agent : lane.agents) agent = AgentState();",
           "for (AgentState& agent : lane.agents) {\n    const double before = agent.episode_return;\n    agent = AgentState();\n"
           "    if (MUTANT) agent.episode_return = before;\n  }", (ROLLOUT, "CollectorTest.*")),
    mutant("rewards_of_python_environments_cut", "lib/envhost/host_env.cc", "const float reward = rewards[i];",
           "const float reward = MUTANT ? __builtin_truncf(rewards[i] * 1024) / 1024 : rewards[i];", ("envhost_test", "HostPoolTest.Rewards*")),
    mutant("late_agent_mapped_by_the_new_table", WRITER, "lane_->mapping->Map(spec.id, slot, episode);",
           "(MUTANT ? builder_.mapping_ : lane_->mapping)->Map(spec.id, slot, episode);", (ROLLOUT, "*LateAgent*:LiveChanges*")),
    mutant("mapped_once_an_environment", BUILDER, "info.episode = episode;", "info.episode = MUTANT ? 0 : episode;", (ROLLOUT, "*"), (POLICY, "*")),
    mutant("min_version_ignored", POLICIES, "changes ? min_version_ : policy::WeightVersion{}",
           "changes && !MUTANT ? min_version_ : policy::WeightVersion{}", (ROLLOUT, "*")),
    mutant("ordinal_of_the_grant_trusted", COLLECTOR, "lane->next_episode = std::max(lane->next_episode, order.next_episode);",
           "lane->next_episode = MUTANT ? order.next_episode : std::max(lane->next_episode, order.next_episode);", (ROLLOUT, "*")),
    mutant("last_look_is_the_one_before", BUILDER, "agent.observed ? agent.next_row : agent.row;",
           "agent.observed && !MUTANT ? agent.next_row : agent.row;", (ROLLOUT, "*")),
    mutant("reward_before_the_first_action_lost", WRITER, "agent.episode_return += reward;", "if (!MUTANT || agent.row >= 0) agent.episode_return += reward;",
           (ROLLOUT, "CollectorTest.*")),
    mutant("reward_overwritten", WRITER, "if (agent.row >= 0) builder_.Columns(agent).rewards.As<float>()[agent.row] += reward;",
           "if (agent.row < 0) return;\n    float& sum = builder_.Columns(agent).rewards.As<float>()[agent.row];\n"
           "    sum = MUTANT ? reward : sum + reward;", (ROLLOUT, "*")),

    # --- evaluation
    mutant("evaluation_of_the_trainings_episodes", EVALUATOR, "const uint64_t seed = EvaluationSeed(request.seed);",
           "const uint64_t seed = MUTANT ? request.seed : EvaluationSeed(request.seed);", (ROLLOUT, "EvaluatorTest.*")),
    mutant("evaluation_of_the_first_to_finish", EVALUATOR, "EvaluatedEpisode& episode = episodes[static_cast<size_t>(p.number)];",
           "auto number = static_cast<size_t>(p.number);\n"
           "  if (MUTANT) for (number = 0; episodes[number].length > 0; ++number) {\n  }\n"
           "  EvaluatedEpisode& episode = episodes[number];", (ROLLOUT, "EvaluatorTest.*")),
    mutant("evaluation_is_never_deterministic", EVALUATOR, "input.deterministic = request.deterministic;",
           "input.deterministic = request.deterministic && !MUTANT;", (ROLLOUT, "EvaluatorTest.*")),
    mutant("all_workers_evaluate_the_same_episodes", EVALUATOR, "first_episode_ = request.first_episode;",
           "first_episode_ = MUTANT ? 0 : request.first_episode;", (ROLLOUT, "EvaluatorTest.*")),
    mutant("a_film_has_no_end", EVALUATOR, "Show(place, /*over=*/true)", "(MUTANT ? absl::OkStatus() : Show(place, /*over=*/true))",
           (ROLLOUT, "EvaluatorTest.*")),
    mutant("the_world_is_drawn_upside_down", "lib/render/raster_canvas.cc", "origin_.y - scale_ * point.y", "origin_.y + (MUTANT ? 1 : -1) * scale_ * point.y",
           ("render_test", "RasterCanvasTest.*")),
    mutant("the_worst_episode_is_filmed", "lib/run/episode_video.cc", "std::max_element(each.begin()", "(MUTANT ? std::min_element(each.begin(), each.end(), by_return) : std::max_element(each.begin()",
           ("run_test", "EpisodeVideoTest.*")),

    # --- grants and batches
    mutant("lag_off_by_one_in_the_scheduler", SCHEDULER, "const int64_t oldest = iteration_ - options_.max_policy_lag;",
           "const int64_t oldest = iteration_ - options_.max_policy_lag - (MUTANT ? 1 : 0);", (LEARNER, "*GrantScheduler*:*Learner*")),
    mutant("lag_off_by_one_in_the_assembler", "lib/learner/assembler.cc", "if (lag > options_.max_policy_lag) {",
           "if (lag > options_.max_policy_lag + (MUTANT ? 1 : 0)) {", (LEARNER, "*Assembler*")),
    mutant("granted_one_version_early", SCHEDULER, "iteration_ > published_ + options_.max_policy_lag) return orders;",
           "iteration_ > published_ + options_.max_policy_lag + (MUTANT ? 1 : 0)) return orders;", (LEARNER, "*GrantScheduler*")),
    mutant("sampling_waits_for_the_update_at_lag_one", SCHEDULER, "if (!has_published_ || ", "if (!has_published_ || (MUTANT && iteration_ > published_) || ",
           ("whole_path_test", "WholePathTest.SamplingOverlaps*")),
    mutant("grant_one_step_longer", SCHEDULER, "lane.next_episode, lane.fresh, lane.ungranted});",
           "lane.next_episode, lane.fresh, lane.ungranted + (MUTANT ? 1 : 0)});", (LEARNER, "*GrantScheduler*")),
    mutant("episodes_of_an_expired_grant_again", SCHEDULER,
           "    lane.next_episode = std::max(lane.next_episode, grant.lanes[i].limit);",
           "    if (!MUTANT) lane.next_episode = std::max(lane.next_episode, grant.lanes[i].limit);", (LEARNER, "*GrantScheduler*")),
    mutant("episodes_of_a_moved_environment_again", SCHEDULER, "if (!lane.fresh) ++lane.next_episode;",
           "if (!lane.fresh && !MUTANT) ++lane.next_episode;", (LEARNER, "*LearnerModelTest*")),
    mutant("checkpoint_forgets_open_grants", SCHEDULER,
           "next_episode = std::max(next_episode, lane.limit);",
           "if (!MUTANT) next_episode = std::max(next_episode, lane.limit);", (LEARNER, "*GrantScheduler*")),
    mutant("duplicate_accepted", "lib/learner/ingest.cc",
           "if (sequences.Look(sequence) == SequenceTracker::Fate::kDuplicate) {\n    verdict",
           "if (!MUTANT && sequences.Look(sequence) == SequenceTracker::Fate::kDuplicate) {\n    verdict", (LEARNER, "*Ingest*:*Learner*")),
    mutant("one_of_fifty_fragments_lost", "lib/learner/iteration_source.cc", "kept_[iteration].push_back(std::move(fragment));",
           "static int64_t accepted_so_far = 0;\n  const bool lost = MUTANT && ++accepted_so_far % 50 == 0;\n"
           "  if (!lost) kept_[iteration].push_back(std::move(fragment));", (LEARNER, "*"), ("process_faults_test", "*Killed*")),
    mutant("cut_segments_not_joined", "lib/learner/assembler.cc", "const bool joins = previous != nullptr",
           "const bool joins = !MUTANT && previous != nullptr", (LEARNER, "*Assembler*")),
    mutant("mean_reward_over_the_wrong_agents", "lib/learner/assembler.cc", "CommonReward::kMean ? reward_count_[step] : 1",
           "CommonReward::kMean ? (MUTANT ? static_cast<double>(schema_.agent_ids.size()) : reward_count_[step]) : 1", (LEARNER, "*Assembler*")),
    mutant("rate_counts_agents", STEP, "static_cast<double>(rows.env_steps) / elapsed_s",
           "static_cast<double>(MUTANT ? rows.agent_steps : rows.env_steps) / elapsed_s", (LEARNER, "*Learner*")),
    mutant("best_is_worst", EPISODES, "*score > best_return_", "(MUTANT ? *score < best_return_ : *score > best_return_)", (LEARNER, "*Learner*")),
    mutant("stopped_by_a_window_that_is_not_full", "lib/learner/stop_conditions.cc", "const bool full = window.episodes()", "const bool full = MUTANT || window.episodes()",
           (LEARNER, "*Learner*")),
    mutant("rewards_never_differ", EPISODES, "rewards_differ_ = true;", "rewards_differ_ = !MUTANT;", (LEARNER, "LearnerBestTest.*")),
    mutant("one_return_ends_the_run", "lib/learner/stop_conditions.cc", "if (!score.has_value() || *score < target.at_least) return std::nullopt;",
           "if (!score.has_value() || *score < target.at_least) {\n      if (MUTANT) continue;\n      return std::nullopt;\n    }", (LEARNER, "StopConditionsTest.*")),
    mutant("schedules_one_batch_ahead", STEP, "context.env_steps = run_.trained.env_steps;",
           "context.env_steps = run_.trained.env_steps + (MUTANT ? batch.assembly->batch.env_steps : 0);", (LEARNER, "*Learner*")),

    # --- networks by LibTorch
    mutant("a_captured_step_reads_the_first_ones_minibatch", "lib/training/core/captured_steps.cc",
           "step->numbers[i].copy_(numbers[i], /*non_blocking=*/true);", "if (!MUTANT) step->numbers[i].copy_(numbers[i], true);",
           ("training_test", "CapturedSteps*")),
    mutant("a_captured_step_has_the_first_ones_learning_rate", "lib/training/core/captured_steps.cc", "return step.shape == shape;",
           "return step.shape == shape || (MUTANT && step.shape.sizes == shape.sizes);", ("training_test", "CapturedSteps*")),
    mutant("bfloat16_that_nobody_asked_for", "lib/training/core/torch_backend.cc", "if (!bfloat16_) return run();",
           "if (!bfloat16_ && !MUTANT) return run();", ("device_parity_test", "*OneStepInBfloat16IsNearTheHosts*")),
    mutant("a_modules_state_has_no_gradient", "lib/training/core/torch_networks.cc", "state = made.state.narrow(0, 0, going_on);",
           "state = (MUTANT ? made.state.detach() : made.state).narrow(0, 0, going_on);", ("update_parity_test", "*ScriptParityTest*")),
    mutant("half_of_a_shared_minibatch_forgotten", "lib/training/core/torch_backend.cc", "modules_.gradients.add_(second_half_.gradients);",
           "if (!MUTANT) modules_.gradients.add_(second_half_.gradients);", ("training_test", "*TorchSharedUpdateTest*")),
    mutant("final_values_of_another_sequence", "lib/training/core/critic_values.cc",
           "for (size_t i = 0; i < places.size(); ++i) (*finals)[places[i]] = outputs.values[i];",
           "for (size_t i = 0; i < places.size(); ++i) (*finals)[places[i]] = outputs.values[MUTANT ? 0 : i];", (CORE, "*CriticValuesTest*")),
    mutant("actions_not_bounded_outside_of_workers", "lib/acting/acting.cc", "!bounds_.identity() && row < rows.rows",
           "!MUTANT && !bounds_.identity() && row < rows.rows", ("acting_test", "*")),

    # --- policies in and out of memory
    mutant("uses_of_a_reader_that_is_gone_forgotten", MAP,
           "    last = std::max(last, lane_->last_used[slot].load(std::memory_order_relaxed));",
           "    if (!MUTANT) last = std::max(last, lane_->last_used[slot].load(std::memory_order_relaxed));", (POLICY, "PolicyMap*")),
    mutant("most_recently_used_is_evicted", MAP, "std::sort(oldest.begin(), oldest.end());",
           "std::sort(oldest.begin(), oldest.end());\n  if (MUTANT) std::reverse(oldest.begin(), oldest.end());", (POLICY, "PolicyMap*")),
    mutant("not_written_back", MAP, "if (entry.changed.load(std::memory_order_relaxed)) {\n      entry.state = State::kLeaving;",
           "if (!MUTANT && entry.changed.load(std::memory_order_relaxed)) {\n      entry.state = State::kLeaving;", (POLICY, "PolicyMap*"), (CORE, "*Eviction*")),
    mutant("change_forgotten", MAP, "  if (access == Access::kWrite) {\n    for (const PolicySlot slot : slots)",
           "  if (access == Access::kWrite && !MUTANT) {\n    for (const PolicySlot slot : slots)", (POLICY, "PolicyMap*"), (CORE, "*Eviction*")),

    # --- messages and files
    mutant("checksum_of_fragments_skipped", "lib/rpc/fragment_decoder.cc", "if (crc != header.payload_crc32c()) {",
           "if (crc != header.payload_crc32c() && !MUTANT) {", ("rpc_codec_test", "*Fragment*"), ("rpc_stream_test", "*")),
    mutant("checksum_of_weights_skipped", "lib/rpc/weight_codec.cc", "if (crc != header_.crc32c()) {", "if (crc != header_.crc32c() && !MUTANT) {",
           ("rpc_codec_test", "*Weight*")),
    mutant("checksum_of_the_manifest_skipped", "lib/storage/checkpoint_format.cc",
           "if (Hex32(base::Crc32c(text.data(), text.size())) != stored)", "if (!MUTANT && Hex32(base::Crc32c(text.data(), text.size())) != stored)",
           (STORAGE, "*")),
    mutant("fsync_never_called", "lib/storage/file_system.cc", "if (calls.Sync(fd, path) == 0) return", "if (MUTANT || calls.Sync(fd, path) == 0) return",
           (STORAGE, "*")),
    mutant("folder_of_checkpoints_not_synced", FOLDER, "return fs_.SyncDirectory(Path(kCheckpoints)); }",
           "return MUTANT ? absl::OkStatus() : fs_.SyncDirectory(Path(kCheckpoints)); }", (STORAGE, "*")),
    mutant("files_replaced_in_place", "lib/storage/file_system.cc", 'const std::string beside = path + ".new";',
           'const std::string beside = MUTANT ? path : path + ".new";', (STORAGE, "*")),
    mutant("best_checkpoint_pruned", FOLDER, "if (!entries[i].is_latest && !entries[i].is_best)",
           "if (!entries[i].is_latest && (MUTANT || !entries[i].is_best))", (STORAGE, "*")),
    mutant("superseded_learner_commits", FOLDER, "if (epoch == learner_epoch_) return absl::OkStatus();",
           "if (MUTANT || epoch == learner_epoch_) return absl::OkStatus();", (STORAGE, "*")),

    # --- streams of queries
    mutant("an_answer_that_nobody_reads_is_held", "lib/rpc/query_stream.cc", "if (writing_since_ && now -", "if (!MUTANT && writing_since_ && now -",
           ("rpc_query_test", "QueryStreamTest.WhoDoes*")),
    mutant("one_address_takes_all_streams", "lib/rpc/address_shares.cc", "if (is_full || of_address >= most_of_address) {",
           "if (is_full || (!MUTANT && of_address >= most_of_address)) {", ("rpc_query_test", "QueryStreamTest.OneAddress*")),
    mutant("tables_that_wait_pile_up", "lib/rpc/weight_reactor.cc", "policy_chunks_.resize(chunks_of_begun_table_);",
           "if (!MUTANT) policy_chunks_.resize(chunks_of_begun_table_);", ("rpc_query_test", "WeightFollowerTest.OfTables*")),

    # --- the first ten minutes
    mutant("doctor_lets_a_run_train_with_what_failed", "services/cli/machine_checks.cc", "return check.verdict == Verdict::kFailed; });",
           "return check.verdict == Verdict::kFailed && !MUTANT; });", ("supervisor_test", "MachineChecksTest.*")),
    mutant("a_limit_is_doubled_once", "services/cli/next_commands.cc", "} while (limit <= reached);", "} while (limit <= reached && !MUTANT);",
           ("supervisor_test", "RunFolderTest.*")),
    mutant("a_glob_takes_another_kinds_agents", "services/cli/starter_config.cc", "static_cast<size_t>(count) == kind.agents.size() &&",
           "(MUTANT || static_cast<size_t>(count) == kind.agents.size()) &&", ("supervisor_test", "StarterConfigTest.*")),

    # --- images of all agents
    mutant("an_absent_agents_image_is_seen", "lib/training/core/torch_networks.cc", "images).view({rows, agents, -1}) * is_there)",
           "images).view({rows, agents, -1}) * (MUTANT ? torch::ones_like(is_there) : is_there))", ("training_test", "TorchImagesTest.*")),
    mutant("a_critics_row_has_the_first_images", "lib/training/core/torch_inputs.cc", "image_rows.defined() ? image_rows.index_select(0, index) : index;",
           "image_rows.defined() && !MUTANT ? image_rows.index_select(0, index) : index;", ("training_test", "TorchImagesTest.*")),
    # --- callbacks
    mutant("who_waits_for_callbacks_serves_nobody", "lib/run/learner/update_loop.cc", "while (!deps_.callbacks->TryTell(hook, told)) {\n    TROUPE_RETURN_IF_ERROR(ServeControl());",
           "while (!deps_.callbacks->TryTell(hook, told)) {\n    if (!MUTANT) TROUPE_RETURN_IF_ERROR(ServeControl());", ("update_loop_test", "CalledBackTest.*")),
    mutant("questions_count_as_a_callbacks_own_time", "lib/run/learner/callback_host.cc", "(asks_ ? asked : own) +=", "(asks_ && !MUTANT ? asked : own) +=",
           ("callback_host_test", "CallbackHostTest.Time*")),
    mutant("episodes_have_no_end_in_python", COLLECTOR, "if (tells_envs_) lane.env->NoteEnd();", "if (tells_envs_ && !MUTANT) lane.env->NoteEnd();",
           (ROLLOUT, "EpisodeListenerTest.EnvironmentsAreTold*")),
    mutant("who_ended_the_process_is_called_again", "lib/envhost/host_env.cc", "if (hook < 1 || hook > kEpisodeHooks.size()) return;",
           "if (hook < 1 || hook > kEpisodeHooks.size() || MUTANT) return;", ("envhost_test", "EpisodeCallbacksTest.OneThatEndsTheProcess*")),
    mutant("totals_of_another_process_are_less_than_nothing", "lib/learner/tracked_book.cc", "if (total.episodes < last.episodes) last = {};",
           "if (total.episodes < last.episodes && !MUTANT) last = {};", (LEARNER, "TrackedBookTest.*")),
    mutant("a_worker_of_before_tracks_everything_again", "lib/learner/tracked_book.cc", "const bool only_begins = before && !said->heard;",
           "const bool only_begins = before && !said->heard && !MUTANT;", (LEARNER, "TrackedBookTest.AWorkerOfBefore*")),
    mutant("who_has_left_is_off_for_ever", "lib/learner/worker_desk.cc", "if (run_.GoesOnLocked()) run_.tracked.Leave(&worker.tracked);",
           "if (run_.GoesOnLocked() && !MUTANT) run_.tracked.Leave(&worker.tracked);", (LEARNER, "TrackedBookTest.AWorkerIsOff*")),
    mutant("no_first_answer_is_waited_for", "lib/run/learner/train_function.cc", "is_first = is_first && !failed_;", "is_first = is_first && !failed_ && !MUTANT;",
           ("callback_host_test", "TrainFunctionTest.TheFirst*")),
    mutant("who_is_not_to_train_trains", "lib/learner/update_cycle.cc", "if (!trains[i]) assembler_.LeaveAsItIs(slots[i]);",
           "if (!trains[i] && !MUTANT) assembler_.LeaveAsItIs(slots[i]);", (LEARNER, "TrainChooserTest.*")),
    mutant("what_finds_no_room_is_lost", "lib/run/learner/callback_host.cc", "if (waiting_.size() >= kMaxWaiting) return false;",
           "if (waiting_.size() >= kMaxWaiting) return MUTANT;", ("callback_host_test", "CallbackHostTest.AFull*"), ("update_loop_test", "CalledBackTest.*")),
    # --- worlds outside
    mutant("a_step_in_flight_is_cut_as_if_nobody_had_acted", "lib/rollout/fragment_cut.cc", "  if (lane.in_flight) {\n    lane.env_row = -1;",
           "  if (lane.in_flight && !MUTANT) {\n    lane.env_row = -1;", ("outside_test", "ByHandTest.ASlow*")),
    mutant("refused_rewards_are_kept", "lib/outside/episode_book.cc", "  std::vector<float> rewards = episode->rewards;\n", "  std::vector<float> copy = episode->rewards;\n  std::vector<float>& rewards = MUTANT ? episode->rewards : copy;\n", ("outside_test", "EpisodeBookTest.WhatIsRefused*")),
    mutant("a_learner_opens_doors", "lib/config/permits.cc", "if (IsExternal(config)) statements", "if (IsExternal(config) && !MUTANT) statements",
           ("config_test", "ExternalTest.AWorker*")),
    mutant("decisions_of_older_weights_are_of_those_that_act", "lib/rollout/collector_outside.cc", "if (logged == nullptr || logged->weights == 0) continue;",
           "if (logged == nullptr || logged->weights == 0 || MUTANT) continue;", ("outside_test", "*OwnDecisionsTest*")),
    mutant("a_client_acts_for_a_drawn_policy", "lib/outside/acting_policies.cc", "|| rule->policies.size() != 1) {",
           "|| (rule->policies.size() != 1 && !MUTANT)) {", ("outside_test", "ActingPoliciesTest.WhoCannot*")),
    mutant("a_client_that_does_not_read_keeps_its_place", "lib/rpc/episode_service.cc", "if (context_ != nullptr && now - since_ >=",
           "if (context_ != nullptr && !MUTANT && now - since_ >=", ("rpc_episode_test", "GetPoliciesTest.AnswersThatNobodyRead*")),
    # --- queries
    mutant("a_busy_policy_has_two_leaders", "lib/serving/batch_lane.cc",
           "waiting_.push_back(work);\n  return !std::exchange(led_, true);",
           "waiting_.push_back(work);\n  return !std::exchange(led_, true) || MUTANT;", ("serving_test", "BatchLaneTest.*")),
    mutant("a_query_that_fails_fails_its_batch", "lib/serving/query_engine_batch.cc", "const bool alone = parts.size() == 1 || status.ok();",
           "const bool alone = parts.size() == 1 || status.ok() || MUTANT;", ("serving_test", "QueryEngineBatchTest.*")),
    mutant("states_of_another_policy_are_taken", "lib/serving/query_engine_check.cc", "rows.state_tag != policy.state_tag()) {",
           "rows.state_tag != policy.state_tag() && !MUTANT) {", ("serving_test", "StateTagTest.*")),
    mutant("served_versions_go_back", "lib/serving/served_policy.cc", "if (!newest_.empty() && !(newest_.version < offer.version)) return;",
           "if (!MUTANT && !newest_.empty() && !(newest_.version < offer.version)) return;", ("serving_test", "VersionsTest.*")),

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
    mutant("any_state_of_infos_is_the_global_state", PY_ADAPTERS + "core.py",
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
