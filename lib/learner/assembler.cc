#include "lib/learner/assembler.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/learner/row_scatter.h"
#include "lib/learner/row_tally.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using policy::NetworkInput;
using sample::MultiAgentBatch;
using sample::MultiAgentBatchPtr;
using sample::PolicyRows;
using sample::SegmentEnd;

namespace {

/// The same for actions, of which bytes become words.
void ScatterActions(const sample::ColumnView& from, absl::Span<const int32_t> place, space::ActionWord* to) {
  const int64_t width = from.row_elements;
  if (from.dtype == tensor::DType::kInt32) {
    return Scatter(reinterpret_cast<const space::ActionWord*>(from.data), width, place, to);
  }
  const absl::Span<const uint8_t> bytes = from.As<uint8_t>();
  for (size_t r = 0; r < place.size(); ++r) {
    if (place[r] < 0) continue;
    const uint8_t* const row = bytes.data() + static_cast<int64_t>(r) * width;
    space::ActionWord* const out = to + int64_t{place[r]} * width;
    for (int64_t i = 0; i < width; ++i) out[i].i32 = row[i];
  }
}

}  // namespace

absl::Status Assembler::CheckSchema(const sample::BatchSchema& schema) {
  const size_t num_agents = schema.agent_ids.size();
  if (!schema.agent_observation_sizes.empty() && schema.agent_observation_sizes.size() != num_agents) {
    return absl::InvalidArgumentError(absl::StrCat("agent_observation_sizes has ",
                                                   schema.agent_observation_sizes.size(), " entries, expected one for ",
                                                   "each of ", num_agents, " agents"));
  }
  const int64_t joint = std::accumulate(schema.agent_observation_sizes.begin(), schema.agent_observation_sizes.end(),
                                        static_cast<int64_t>(num_agents));
  for (const policy::PolicySpec& spec : schema.policies) {
    int64_t expected = 0;
    if (spec.critic_input() == NetworkInput::kJointObservation) {
      if (schema.agent_observation_sizes.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("policy '", spec.id.value(),
                                                       "' has a critic of joint observations, but the schema has no "
                                                       "agent_observation_sizes"));
      }
      expected = joint;
      const auto differs = [&spec](int64_t size) { return size != spec.observation_size(); };
      if (spec.ImagesOf(spec.critic()) > 0 &&
          std::any_of(schema.agent_observation_sizes.begin(), schema.agent_observation_sizes.end(), differs)) {
        return absl::InvalidArgumentError(
            absl::StrCat("policy '", spec.id.value(),
                         "' has a critic that convolves all agents' images, but their observations have other sizes "
                         "than its own, ",
                         spec.observation_size()));
      }
    } else if (spec.critic_input() == NetworkInput::kState) {
      expected = schema.env_state_size > 0 ? schema.env_state_size : schema.agent_state_size;
      if (expected == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "policy '", spec.id.value(), "' has a critic of the global state, but the environment has none"));
      }
    }
    if (spec.critic_state_size() != expected) {
      return absl::InvalidArgumentError(absl::StrCat("policy '", spec.id.value(), "': critic_state_size is ",
                                                     spec.critic_state_size(), ", expected ", expected));
    }
  }
  return absl::OkStatus();
}

Assembler::Assembler(sample::BatchSchema schema, Options options, tensor::TensorAllocator& allocator)
    : schema_(std::move(schema)),
      options_(std::move(options)),
      trains_(std::vector<uint8_t>(options_.trains.begin(), options_.trains.end())),
      allocator_(allocator),
      joint_(0, allocator),
      joint_images_(0, allocator),
      presence_(0, allocator),
      joint_steps_(allocator) {
  for (const int64_t size : schema_.agent_observation_sizes) {
    joint_offset_.push_back(joint_size_);
    joint_size_ += size;
  }
  joint_size_ += static_cast<int64_t>(schema_.agent_ids.size());
  FollowSchema();
  policy::BySlot<sample::PolicyOfRun> policies;
  for (const policy::PolicySpec& spec : schema_.policies) policies.push_back({spec.id});
  options_.rules.Bind(std::move(policies));
}

void Assembler::FollowSchema() {
  needs_joint_floats_ = false;
  needs_joint_images_ = false;
  bool needs_env_state = false;
  for (const policy::PolicySpec& spec : schema_.policies) {
    if (spec.critic_input() == NetworkInput::kJointObservation) {
      (spec.ByteElements(spec.critic()) > 0 ? needs_joint_images_ : needs_joint_floats_) = true;
    }
    needs_env_state = needs_env_state || (schema_.env_state_size > 0 && spec.critic_input() == NetworkInput::kState);
  }
  needs_steps_ = needs_joint_floats_ || needs_joint_images_ || needs_env_state || options_.joint_steps ||
                 options_.common_reward != CommonReward::kNone;
  gathers_.resize(std::min(gathers_.size(), schema_.policies.size()));
  while (gathers_.size() < schema_.policies.size()) gathers_.push_back(MakeGather());
  for (const policy::PolicySlot slot : gathers_.ids()) {
    gathers_[slot].scaling = schema_.policies[slot].observation_scaling();
  }
}

Assembler::Gather Assembler::MakeGather() const {
  Gather gather{.columns = ColumnGather(allocator_)};
  for (tensor::Buffer* buffer :
       {&gather.obs, &gather.images, &gather.actions, &gather.left_out, &gather.slot, &gather.waits, &gather.critic_row,
        &gather.final_slot, &gather.final_critic_row, &gather.critic_state, &gather.critic_images, &gather.memory}) {
    *buffer = tensor::Buffer(0, allocator_);
  }
  return gather;
}

void Assembler::SetPolicies(const policy::PolicyTable& table) {
  schema_.policies = table.Specs();
  trains_ = policy::BySlot<uint8_t>(table.num_slots());
  replaced_ = policy::BySlot<uint8_t>(table.num_slots());
  FollowSchema();
  policy::BySlot<sample::PolicyOfRun> policies(table.num_slots());
  for (const policy::PolicySlot slot : policies.ids()) {
    if (const policy::PolicyEntry* const entry = table.Find(slot)) {
      policies[slot] = {entry->spec.id, entry->since, entry->active()};
      trains_[slot] = static_cast<uint8_t>(entry->trains);
      replaced_[slot] = static_cast<uint8_t>(entry->replaced);
    } else {
      gathers_[slot] = MakeGather();
    }
  }
  options_.rules.Bind(std::move(policies));
}

void Assembler::SetJointSteps(bool joint_steps) {
  if (options_.joint_steps == joint_steps) return;
  options_.joint_steps = joint_steps;
  FollowSchema();
}

template <typename T>
absl::Span<T> Assembler::Reserve(tensor::Buffer& buffer, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  // Batches of complete episodes differ in size: a quarter more than needed saves the next growth.
  if (buffer.size() < bytes) buffer.EnsureCapacity(bytes + bytes / 4);
  return buffer.As<T>(0, static_cast<size_t>(count));
}

RowMatrix Assembler::ReserveMatrix(tensor::Buffer& buffer, int64_t rows, int64_t columns) {
  const int64_t stride = RowMatrix::PaddedStride(columns);
  return {Reserve<float>(buffer, rows * stride).data(), rows, columns, stride};
}

int64_t Assembler::NewAgentSteps(const Gather& gather, const PolicyTrainBatch& rows) {
  int64_t steps = 0;
  int64_t row = 0;
  for (const SegmentRef& segment : gather.segments) {
    const auto mask = rows.agent_mask.empty() ? rows.agent_mask : rows.agent_mask.subspan(row, segment.rows);
    const int64_t active = mask.empty() ? segment.rows : std::accumulate(mask.begin(), mask.end(), int64_t{0});
    steps += segment.counts ? active : 0;
    row += segment.rows;
  }
  return steps;
}

const Assembly& Assembler::Assemble(absl::Span<const MultiAgentBatchPtr> fragments, const FeedClock& clock) {
  TrainBatch& batch = assembly_.batch;
  batch.env_steps = 0;
  batch.agent_steps = 0;
  for (const MultiAgentBatchPtr& fragment : fragments) batch.env_steps += fragment->num_env_steps;

  if (needs_steps_) global_steps_.Build(fragments, schema_.num_envs);
  CollectSegments(fragments, clock);
  if (!options_.rules.empty()) IndexEpisodes(fragments);
  batch.policies.clear();
  for (const policy::PolicySlot slot : gathers_.ids()) {
    Gather& gather = gathers_[slot];
    if (gather.segments.empty()) continue;
    batch.policies.emplace_back();
    PolicyTrainBatch& rows = batch.policies.back();
    rows.policy = slot;
    rows.train = schema_.policies[slot].policy_class.trainable() && (trains_.empty() || trains_[slot] != 0);
    LayOut(gather, rows);
    CopyRows(gather, rows);
    CopyFinalRows(gather, rows);
    if (schema_.policies[slot].reward_discount != 1) FillWaits(gather, rows, fragments);
    if (schema_.policies[slot].remembers()) GatherMemories(gather, rows);
    batch.agent_steps += NewAgentSteps(gather, rows);
    if (rows.train && !options_.rules.empty()) LeaveOut(gather, rows);
  }
  if (options_.common_reward != CommonReward::kNone) ShareRewards();
  if (needs_joint_floats_ || needs_joint_images_) {
    NumberJointRows();
    WriteJointRows();
  }
  for (PolicyTrainBatch& rows : batch.policies) {
    Gather& gather = gathers_[rows.policy];
    switch (schema_.policies[rows.policy].critic_input()) {
      case NetworkInput::kObservation:
        break;
      case NetworkInput::kJointObservation:
        PointAtJointRows(gather, rows);
        break;
      case NetworkInput::kState:
        if (schema_.env_state_size > 0) {
          GatherEnvStates(gather, rows, fragments);
        } else {
          GatherAgentStates(gather, rows);
        }
        break;
      default:  // no critic reads it: PolicySpec::Validate
        break;
    }
  }
  batch.joint = nullptr;
  if (options_.joint_steps) BuildJointSteps(fragments);
  return assembly_;
}

void Assembler::LeaveAsItIs(policy::PolicySlot policy) {
  for (PolicyTrainBatch& rows : assembly_.batch.policies) rows.train = rows.train && rows.policy != policy;
}

void Assembler::BuildJointSteps(absl::Span<const MultiAgentBatchPtr> fragments) {
  std::vector<JointStepBuilder::Part> parts;
  for (PolicyTrainBatch& rows : assembly_.batch.policies) {
    const Gather& gather = gathers_[rows.policy];
    parts.push_back({&rows, gather.step, gather.final_step});
  }
  assembly_.batch.joint = &joint_steps_.Build(parts, global_steps_.steps(), fragments, schema_.env_state_size);
}

void Assembler::CollectSegments(absl::Span<const MultiAgentBatchPtr> fragments, const FeedClock& clock) {
  for (Gather& gather : gathers_) {
    gather.sources.clear();
    gather.segments.clear();
    gather.cursor.clear();
    gather.final_place.clear();
  }
  RowTally tally(gathers_.size());
  std::vector<int32_t> counts;
  std::vector<int32_t> first_rows;
  std::vector<int32_t> decisions;
  for (size_t f = 0; f < fragments.size(); ++f) {
    const MultiAgentBatch& fragment = *fragments[f];
    const absl::Span<const int32_t> step_index = fragment.step_index.As<int32_t>();
    for (const PolicyRows& rows : fragment.policies) {
      if (!replaced_.empty() && replaced_[rows.policy] != 0) {
        tally.Replace(rows.policy, rows.rows);
        continue;
      }
      Gather& gather = gathers_[rows.policy];
      const auto source = static_cast<int32_t>(gather.sources.size());
      gather.sources.push_back(Source{static_cast<int32_t>(f), &rows, gather.cursor.size()});
      counts.assign(static_cast<size_t>(rows.num_segments), 0);
      first_rows.resize(static_cast<size_t>(rows.num_segments));
      const absl::Span<const sample::Index> segment = rows.segment.As<sample::Index>();
      for (int64_t r = 0; r < rows.rows; ++r) {
        if (counts[segment[r]]++ == 0) first_rows[segment[r]] = static_cast<int32_t>(r);
      }
      FindFirstDecisions(rows, first_rows, &decisions);
      const absl::Span<const sample::Index> env_row = rows.env_row.As<sample::Index>();
      const absl::Span<const sample::Index> final_env_row = rows.final_env_row.As<sample::Index>();
      for (int64_t s = 0; s < rows.num_segments; ++s) {
        const int32_t* const words = rows.segments.As<int32_t>().data() + s * sample::kSegmentFields;
        const int64_t lag = clock.Lag(rows.version.n - words[sample::kSegmentVersionLag]);
        gather.cursor.push_back(-1);
        gather.final_place.push_back(-1);
        const bool is_old = lag > options_.max_policy_lag;
        if (is_old && words[sample::kSegmentWaited] == 0) {
          tally.Age(rows.policy, counts[s]);
          continue;
        }
        tally.Keep(rows.policy, counts[s], lag);
        if (is_old) tally.Wait(rows.policy, counts[s], lag);
        const sample::EpisodeEntry& episode = fragment.episodes[words[sample::kSegmentEpisode]];
        const int32_t final_row = words[sample::kSegmentFinalRow];
        gather.segments.push_back(SegmentRef{
            episode.env_id, episode.episode, base::AgentSlot(words[sample::kSegmentSlot]),
            step_index[env_row[first_rows[s]]], final_row < 0 ? -1 : step_index[final_env_row[final_row]], source,
            static_cast<int32_t>(s), counts[s], final_row, decisions[static_cast<size_t>(s)],
            static_cast<SegmentEnd>(words[sample::kSegmentEnd]) == SegmentEnd::kCut, fragment.num_agent_steps > 0});
      }
    }
  }
  for (Gather& gather : gathers_) {
    std::vector<SegmentRef>& segments = gather.segments;
    std::sort(segments.begin(), segments.end(), [](const SegmentRef& a, const SegmentRef& b) {
      return std::tie(a.env_id, a.episode, a.slot, a.first_step) < std::tie(b.env_id, b.episode, b.slot, b.first_step);
    });
  }
  assembly_.trained = tally.kept();
  assembly_.aged = tally.aged();
  assembly_.waited = tally.waited();
  assembly_.waited_ages = tally.waited_ages();
  assembly_.replaced = tally.replaced();
  assembly_.mean_lag = tally.mean_lag();
}

void Assembler::LayOut(Gather& gather, PolicyTrainBatch& batch) {
  for (size_t i = 0; i < gather.segments.size(); ++i) {
    const SegmentRef& ref = gather.segments[i];
    const size_t place = gather.sources[ref.source].first_segment + static_cast<size_t>(ref.segment);
    gather.cursor[place] = batch.rows;
    const SegmentRef* const previous = i > 0 ? &gather.segments[i - 1] : nullptr;
    const bool joins = previous != nullptr && previous->cut && previous->env_id == ref.env_id &&
                       previous->episode == ref.episode && previous->slot == ref.slot &&
                       previous->final_step == ref.first_step &&
                       (ref.decision < 0 || int64_t{previous->decision} + previous->rows == ref.decision);
    if (joins) {
      // The cut one's final observation is this one's first: nothing to bootstrap from between them.
      TrainSegment& segment = batch.segments.back();
      gather.final_place[gather.sources[previous->source].first_segment + static_cast<size_t>(previous->segment)] = -1;
      --batch.final_rows;
      segment.rows += ref.rows;
      segment.final_row = -1;
    } else {
      batch.segments.push_back(TrainSegment{batch.rows, ref.rows, -1, ref.env_id, ref.episode, ref.slot});
    }
    batch.rows += ref.rows;
    if (ref.final_row >= 0) {
      gather.final_place[place] = batch.final_rows;
      batch.segments.back().final_row = batch.final_rows++;
      batch.segments.back().truncated = !ref.cut;
    }
  }
}

absl::Span<const int32_t> Assembler::PlaceRows(const Source& source, Gather& gather) {
  const absl::Span<const sample::Index> segment = source.rows->segment.As<sample::Index>();
  int64_t* const cursor = gather.cursor.data() + source.first_segment;
  const size_t begin = gather.place.size();
  gather.place.resize(begin + segment.size());
  int32_t* const place = gather.place.data() + begin;
  for (size_t r = 0; r < segment.size(); ++r) {
    int64_t& next = cursor[segment[r]];
    place[r] = static_cast<int32_t>(next);
    if (next >= 0) ++next;
  }
  return absl::Span<const int32_t>(place, segment.size());
}

ByteMatrix Assembler::ReserveBytes(tensor::Buffer& buffer, int64_t rows, int64_t columns) {
  const auto bytes = static_cast<size_t>(rows * columns);
  // As Reserve, with half of its spare room: pictures are most of what a learner holds (at most 1.3 bytes a pixel
  // byte).
  if (buffer.size() < bytes) buffer.EnsureCapacity(bytes + bytes / 8);
  return {buffer.As<uint8_t>(0, bytes).data(), rows, columns};
}

void Assembler::ReserveImages(const policy::PolicySpec& spec, Gather& gather, PolicyTrainBatch& batch) {
  const int64_t size = spec.observation_size();
  const ByteMatrix all = ReserveBytes(gather.images, batch.rows + batch.final_rows, size);
  batch.images = {all.data, batch.rows, size};
  batch.final_images = {all.row(batch.rows), batch.final_rows, size};
}

void Assembler::CopyRows(Gather& gather, PolicyTrainBatch& batch) {
  const policy::PolicySpec& spec = schema_.policies[batch.policy];
  const bool image_bytes = spec.image_bytes();
  if (image_bytes) ReserveImages(spec, gather, batch);
  const int64_t words = spec.action_words();
  const RowMatrix obs = ReserveMatrix(gather.obs, batch.rows + batch.final_rows,
                                      image_bytes ? spec.agent_id_size : spec.actor_input_size());
  const absl::Span<space::ActionWord> actions = Reserve<space::ActionWord>(gather.actions, batch.rows * words);
  gather.columns.Begin(sample::FormsOf(schema_.MaxSizes(), spec), batch.rows, batch.final_rows);
  const absl::Span<int32_t> slot = Reserve<int32_t>(gather.slot, batch.rows);
  if (needs_steps_) gather.step.resize(static_cast<size_t>(batch.rows));
  gather.place.clear();
  for (const Source& source : gather.sources) {
    const PolicyRows& rows = *source.rows;
    const absl::Span<const int32_t> place = PlaceRows(source, gather);
    ScatterActions(rows.actions, place, actions.data());
    gather.columns.CopyRows(rows, place);
    const sample::Index* const segment = rows.segment.As<sample::Index>().data();
    const int32_t* const segment_words = rows.segments.As<int32_t>().data();
    for (size_t r = 0; r < place.size(); ++r) {
      if (place[r] >= 0) slot[place[r]] = segment_words[segment[r] * sample::kSegmentFields + sample::kSegmentSlot];
    }
    const PaddedRows padded{Writable(obs), obs.stride, spec.agent_id_size, slot.data()};
    if (image_bytes) {
      Scatter(rows.obs.As<uint8_t>().data(), batch.images.columns, place, Writable(batch.images));
      ScatterOneHots(place, padded);
    } else {
      ScatterPadded(rows.obs, place, padded, gather.scaling);
    }
    if (!needs_steps_) continue;
    const sample::Index* const env_row = rows.env_row.As<sample::Index>().data();
    const int32_t* const global = global_steps_.Of(source.fragment);
    for (size_t r = 0; r < place.size(); ++r) {
      if (place[r] >= 0) gather.step[place[r]] = global[env_row[r]];
    }
  }
  batch.obs = obs.Rows(0, batch.rows);
  batch.final_obs = obs.Rows(batch.rows, batch.final_rows);
  gather.in_place = {Writable(obs)};
  batch.in_place = &gather.in_place;
  batch.actions = actions;
  batch.slot = slot;
  batch.columns = gather.columns.views();
  batch.action_logp = batch.columns.action_logp.As<float>();
  batch.rewards = batch.columns.rewards.As<float>();
  batch.action_mask = batch.columns.action_mask.As<uint8_t>();
  batch.agent_mask = batch.columns.agent_mask.As<uint8_t>();
  batch.final_action_mask = batch.columns.final_action_mask.As<uint8_t>();
}

void Assembler::CopyFinalRows(Gather& gather, PolicyTrainBatch& batch) {
  const absl::Span<int32_t> slot = Reserve<int32_t>(gather.final_slot, batch.final_rows);
  const PaddedRows obs{Writable(batch.final_obs), batch.final_obs.stride, schema_.policies[batch.policy].agent_id_size,
                       slot.data()};
  if (needs_steps_) gather.final_step.resize(static_cast<size_t>(batch.final_rows));
  for (const SegmentRef& ref : gather.segments) {
    const Source& source = gather.sources[ref.source];
    const int64_t to = gather.final_place[source.first_segment + static_cast<size_t>(ref.segment)];
    if (to < 0) continue;
    const auto place = static_cast<int32_t>(to);
    gather.columns.CopyFinalRow(*source.rows, ref.final_row, to);
    slot[to] = ref.slot.value();
    const sample::ColumnView observed = RowOf(source.rows->final_obs, ref.final_row);
    if (batch.final_images.rows > 0) {
      Scatter(observed.As<uint8_t>().data(), observed.row_elements, {&place, 1}, Writable(batch.final_images));
      ScatterOneHots({&place, 1}, obs);
    } else {
      ScatterPadded(observed, {&place, 1}, obs, gather.scaling);
    }
    if (!needs_steps_) continue;
    const int32_t env_row = source.rows->final_env_row.As<sample::Index>()[ref.final_row];
    gather.final_step[to] = global_steps_.Of(source.fragment)[env_row];
  }
  batch.final_slot = slot;
}

void Assembler::FillWaits(Gather& gather, PolicyTrainBatch& batch, absl::Span<const MultiAgentBatchPtr> fragments) {
  const absl::Span<int32_t> waits = Reserve<int32_t>(gather.waits, batch.rows);
  // At first the env step of each decision.
  absl::Span<const int32_t> place = gather.place;
  for (const Source& source : gather.sources) {
    const absl::Span<const sample::Index> env_row = source.rows->env_row.As<sample::Index>();
    const int32_t* const step_index = fragments[source.fragment]->step_index.As<int32_t>().data();
    for (size_t r = 0; r < env_row.size(); ++r) {
      if (place[r] >= 0) waits[place[r]] = step_index[env_row[r]];
    }
    place.remove_prefix(env_row.size());
  }
  std::vector<int32_t> ends(static_cast<size_t>(batch.final_rows));
  for (const SegmentRef& ref : gather.segments) {
    const int64_t to = gather.final_place[gather.sources[ref.source].first_segment + static_cast<size_t>(ref.segment)];
    if (to >= 0) ends[static_cast<size_t>(to)] = ref.final_step;
  }
  for (const TrainSegment& segment : batch.segments) {
    const int64_t last = segment.first_row + segment.rows - 1;
    for (int64_t row = segment.first_row; row < last; ++row) waits[row] = waits[row + 1] - waits[row];
    waits[last] = segment.final_row < 0 ? 1 : ends[static_cast<size_t>(segment.final_row)] - waits[last];
  }
  batch.waits = waits;
}

void Assembler::GatherMemories(Gather& gather, PolicyTrainBatch& batch) {
  const policy::PolicySpec& spec = schema_.policies[batch.policy];
  const int64_t size = spec.actor_state_size();
  gather.memories.clear();
  absl::Span<const int32_t> place = gather.place;
  for (const Source& source : gather.sources) {
    const int32_t* at = source.rows->memory_at.As<int32_t>().data();
    const float* const states = source.rows->memory.As<float>().data();
    for (int64_t m = 0; m < source.rows->num_memories; ++m, at += sample::kMemoryFields) {
      const int32_t row = place[at[sample::kMemoryRow]];
      if (row >= 0) gather.memories.push_back({row, at[sample::kMemoryDecision], states + m * size});
    }
    place.remove_prefix(static_cast<size_t>(source.rows->rows));
  }
  batch.sequences = CutSequences(batch.segments, spec.sequence_length, &gather.memories);
  if (size == 0) return;
  batch.memory = ReserveMatrix(gather.memory, static_cast<int64_t>(batch.sequences.size()), size);
  float* to = Writable(batch.memory);
  for (const MemoryRef& memory : gather.memories) {
    CopyPadded(memory.state, size, batch.memory.stride, to);
    to += batch.memory.stride;
  }
}

void Assembler::IndexEpisodes(absl::Span<const MultiAgentBatchPtr> fragments) {
  episodes_.clear();
  for (const MultiAgentBatchPtr& fragment : fragments) {
    for (const sample::EpisodeEntry& entry : fragment->episodes) {
      episodes_.push_back(EpisodeRef{entry.env_id, entry.episode, &entry.agents});
    }
  }
  // Tables grow with an episode: the largest holds what the others hold.
  std::sort(episodes_.begin(), episodes_.end(), [](const EpisodeRef& a, const EpisodeRef& b) {
    return std::make_tuple(a.env_id, a.episode, b.agents->size()) <
           std::make_tuple(b.env_id, b.episode, a.agents->size());
  });
}

void Assembler::LeaveOut(Gather& gather, PolicyTrainBatch& batch) {
  absl::Span<uint8_t> agent_mask;
  bool any = false;
  for (TrainSegment& segment : batch.segments) {
    const auto episode = std::lower_bound(
        episodes_.begin(), episodes_.end(), segment, [](const EpisodeRef& entry, const TrainSegment& wanted) {
          return std::tie(entry.env_id, entry.episode) < std::tie(wanted.env_id, wanted.episode);
        });
    // Every segment points into an episode table.
    const sample::Trajectory trajectory{batch.policy, segment.slot, segment.env_id, segment.episode,
                                        absl::MakeConstSpan(*episode->agents)};
    if (options_.rules.Trains(trajectory)) {
      any = true;
      continue;
    }
    if (agent_mask.empty()) {
      if (batch.agent_mask.empty()) {
        agent_mask = Reserve<uint8_t>(gather.left_out, batch.rows);
        std::fill(agent_mask.begin(), agent_mask.end(), uint8_t{1});
        batch.agent_mask = agent_mask;
      } else {
        agent_mask = Writable<uint8_t>(batch.columns.agent_mask);
      }
    }
    const absl::Span<uint8_t> rows =
        agent_mask.subspan(static_cast<size_t>(segment.first_row), static_cast<size_t>(segment.rows));
    std::fill(rows.begin(), rows.end(), uint8_t{0});
    segment.trains = false;
  }
  batch.train = any;
}

void Assembler::ShareRewards() {
  reward_sum_.assign(global_steps_.size(), 0.0);
  reward_count_.assign(global_steps_.size(), 0);
  for (const PolicyTrainBatch& rows : assembly_.batch.policies) {
    const std::vector<int32_t>& step = gathers_[rows.policy].step;
    for (int64_t r = 0; r < rows.rows; ++r) {
      reward_sum_[step[r]] += rows.rewards[r];
      ++reward_count_[step[r]];
    }
  }
  for (PolicyTrainBatch& rows : assembly_.batch.policies) {
    const Gather& gather = gathers_[rows.policy];
    const absl::Span<float> rewards = Writable<float>(rows.columns.rewards);
    for (int64_t r = 0; r < rows.rows; ++r) {
      const int32_t step = gather.step[r];
      const double divisor = options_.common_reward == CommonReward::kMean ? reward_count_[step] : 1;
      rewards[r] = static_cast<float>(reward_sum_[step] / divisor);
    }
  }
}

}  // namespace troupe::learner
