#include "lib/env/agent_groups.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

std::string Quoted(std::string_view name) { return absl::StrCat("\"", base::LogSafe(name), "\""); }

/// Where an inner agent is found in what policies see.
struct Place {
  int32_t slot = 0;    ///< outer
  int32_t group = -1;  ///< -1: stands alone
  int32_t reward_column = -1;
};

struct Group {
  AgentSlot slot{0};                            ///< outer
  std::vector<int32_t> members;                 ///< inner slots
  std::vector<int64_t> first_word;              ///< of every member in the action row
  std::vector<std::vector<uint8_t>> idle_mask;  ///< of every member once it is done: the first value of each leaf
};

struct Layout {
  EnvSpec spec;
  std::vector<Place> places;  ///< by inner slot
  std::vector<Group> groups;
  int64_t state_size = 0;     ///< of one agent, of kPerAgent
  int64_t state_members = 1;  ///< of a row of states
};

absl::Status CheckGiven(const AgentGroup& group, const char* what, const space::Space& given,
                        const std::vector<space::Space>& members, bool actions) {
  const auto refuse = [&](const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", Quoted(group.name), ": ", what, " is ", given.ToString(), ", expected ", expected));
  };
  if (given.kind() != space::SpaceKind::kTuple || given.children().size() != members.size()) {
    return refuse(absl::StrCat("a Tuple of ", members.size(), " spaces, one for each member"));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const space::Space& child = given.children()[i];
    bool fits = child.flat_size() == members[i].flat_size();
    if (actions) {
      const std::vector<space::ActionLeaf> a = space::ActionLeaves(child);
      const std::vector<space::ActionLeaf> b = space::ActionLeaves(members[i]);
      fits = std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.kind == y.kind && x.words == y.words && x.categories == y.categories && x.start == y.start &&
               x.low == y.low && x.high == y.high;
      });
    }
    if (fits) continue;
    return refuse(absl::StrCat(actions ? "the actions of " : "the size of ", members[i].ToString(), " for ",
                               Quoted(group.agents[i])));
  }
  return absl::OkStatus();
}

/// The one agent that stands for a group's members.
absl::StatusOr<AgentSpec> GroupSpec(const EnvSpec& inner, const AgentGroup& group,
                                    const std::vector<int32_t>& members) {
  std::vector<space::Space> observations;
  std::vector<space::Space> actions;
  size_t masks = 0;
  for (const int32_t member : members) {
    const AgentSpec& agent = inner.possible_agents[static_cast<size_t>(member)];
    observations.push_back(agent.observation_space);
    actions.push_back(agent.action_space);
    masks += agent.has_action_mask ? 1 : 0;
  }
  if (masks != 0 && masks != members.size()) {
    return absl::InvalidArgumentError(absl::StrCat("group ", Quoted(group.name), ": ", masks, " of ", members.size(),
                                                   " members have an action mask, expected all or none"));
  }
  AgentSpec spec{.id = AgentId(group.name),
                 .observation_space = group.observation_space,
                 .action_space = group.action_space,
                 .has_action_mask = masks > 0};
  if (spec.observation_space.has_value()) {
    TROUPE_RETURN_IF_ERROR(CheckGiven(group, "obs_space", spec.observation_space, observations, false));
  } else {
    TROUPE_ASSIGN_OR_RETURN(spec.observation_space, space::Space::Tuple(std::move(observations)));
  }
  if (spec.action_space.has_value()) {
    TROUPE_RETURN_IF_ERROR(CheckGiven(group, "act_space", spec.action_space, actions, true));
  } else {
    TROUPE_ASSIGN_OR_RETURN(spec.action_space, space::Space::Tuple(std::move(actions)));
  }
  return spec;
}

/// The members' inner slots; INVALID_ARGUMENT for what is no group. `group_of` is by inner slot.
absl::StatusOr<std::vector<int32_t>> FindMembers(const EnvSpec& inner, const AgentGroup& group, int32_t index,
                                                 const std::vector<AgentGroup>& groups,
                                                 std::vector<int32_t>* group_of) {
  const std::string whose = absl::StrCat("group ", Quoted(group.name));
  if (group.agents.empty()) return absl::InvalidArgumentError(absl::StrCat(whose, " is empty, expected agents"));
  std::vector<int32_t> members;
  for (const std::string& id : group.agents) {
    const absl::StatusOr<AgentSlot> slot = inner.FindAgent(AgentId(id));
    if (!slot.ok()) {
      std::vector<std::string> names;
      for (const AgentSpec& agent : inner.possible_agents) names.push_back(agent.id.value());
      return absl::InvalidArgumentError(
          absl::StrCat(whose, ": ", std::string(base::NoSuchName("agent", id, names).message())));
    }
    int32_t& other = (*group_of)[static_cast<size_t>(slot->value())];
    if (other == index) return absl::InvalidArgumentError(absl::StrCat(whose, " has ", Quoted(id), " twice"));
    if (other >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(whose, ": ", Quoted(id), " is in group ",
                                                     Quoted(groups[static_cast<size_t>(other)].name),
                                                     ", too, expected in one group only"));
    }
    other = index;
    members.push_back(slot->value());
  }
  return members;
}

std::vector<uint8_t> IdleMask(const space::Space& action_space) {
  std::vector<uint8_t> mask(static_cast<size_t>(action_space.mask_size()));
  for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) {
    if (leaf.kind == space::ActionLeaf::Kind::kCategorical) mask[static_cast<size_t>(leaf.mask_offset)] = 1;
  }
  return mask;
}

absl::StatusOr<Layout> MakeLayout(const EnvSpec& inner, const std::vector<AgentGroup>& groups) {
  Layout layout;
  layout.spec = inner;
  layout.spec.possible_agents.clear();
  layout.places.resize(inner.possible_agents.size());
  std::vector<int32_t> group_of(inner.possible_agents.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    Group& group = layout.groups.emplace_back();
    TROUPE_ASSIGN_OR_RETURN(group.members, FindMembers(inner, groups[g], static_cast<int32_t>(g), groups, &group_of));
    int64_t word = 0;
    for (const int32_t member : group.members) {
      Place& place = layout.places[static_cast<size_t>(member)];
      place.group = static_cast<int32_t>(g);
      place.reward_column = static_cast<int32_t>(layout.spec.info_columns.size());
      const AgentSpec& agent = inner.possible_agents[static_cast<size_t>(member)];
      layout.spec.info_columns.push_back(absl::StrCat("individual_rewards/", agent.id.value()));
      group.first_word.push_back(word);
      group.idle_mask.push_back(IdleMask(agent.action_space));
      word += agent.action_space.action_words();
    }
    layout.state_members = std::max(layout.state_members, static_cast<int64_t>(group.members.size()));
  }
  std::vector<uint8_t> placed(groups.size());
  for (size_t i = 0; i < inner.possible_agents.size(); ++i) {
    Place& place = layout.places[i];
    const AgentSlot slot(layout.spec.num_agents());
    if (place.group < 0) {
      place.slot = slot.value();
      layout.spec.possible_agents.push_back(inner.possible_agents[i]);
      continue;
    }
    const size_t g = static_cast<size_t>(place.group);
    if (placed[g] == 0) {
      placed[g] = 1;
      layout.groups[g].slot = slot;
      TROUPE_ASSIGN_OR_RETURN(layout.spec.possible_agents.emplace_back(),
                              GroupSpec(inner, groups[g], layout.groups[g].members));
    }
    place.slot = layout.groups[g].slot.value();
  }
  if (inner.state_kind == StateKind::kPerAgent) {
    layout.state_size = inner.state_space.flat_size();
    if (layout.state_members > 1) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      TROUPE_ASSIGN_OR_RETURN(layout.spec.state_space,
                              space::Space::Box(-kInfinity, kInfinity, {layout.state_members * layout.state_size}));
    }
  }
  TROUPE_RETURN_IF_ERROR(layout.spec.Validate());
  return layout;
}

class GroupedEnv final : public EnvWrapper {
 public:
  GroupedEnv(std::unique_ptr<MultiAgentEnv> env, Layout layout)
      : EnvWrapper(std::move(env), std::move(layout.spec)),
        places_(std::move(layout.places)),
        groups_(std::move(layout.groups)),
        state_size_(layout.state_size),
        state_members_(layout.state_members),
        kept_(inner_spec(), 1),
        writer_(*this),
        inner_actions_(places_.size()),
        done_(places_.size()),
        truncated_(places_.size()),
        acted_(groups_.size()),
        group_done_(groups_.size()) {}

  void NoteDecision(AgentSlot slot, std::string_view policy, float log_prob) override {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].slot != slot.value()) continue;
      EnvWrapper::NoteDecision(AgentSlot(static_cast<int32_t>(i)), policy, log_prob);
    }
  }

 private:
  /// Keeps what members of groups get, for rewards come after observations of other members; passes the rest on.
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(const GroupedEnv& owner) : owner_(owner) {}
    void Begin(StepWriter& kept, StepWriter& out) {
      ForwardingWriter::Begin(out);
      kept_ = &kept;
      all_ = false;
    }
    bool all() const { return all_; }

    void* Observe(AgentSlot slot) override { return To(slot).Observe(At(slot)); }
    uint8_t* ActionMask(AgentSlot slot) override { return To(slot).ActionMask(At(slot)); }
    float* State(AgentSlot slot) override {
      if (owner_.spec().state_kind == StateKind::kPerEnv) return out().State(AgentSlot(0));
      if (PlaceOf(slot).group >= 0) return kept_->State(slot);
      float* const row = out().State(At(slot));
      std::fill(row + owner_.state_size_, row + owner_.state_members_ * owner_.state_size_, 0.0f);
      return row;
    }
    void AddReward(AgentSlot slot, float reward) override { To(slot).AddReward(At(slot), reward); }
    void TerminateAgent(AgentSlot slot) override { To(slot).TerminateAgent(At(slot)); }
    void TruncateAgent(AgentSlot slot) override { To(slot).TruncateAgent(At(slot)); }
    void TerminateAll() override {
      all_ = true;
      out().TerminateAll();
    }
    void TruncateAll() override {
      all_ = true;
      out().TruncateAll();
    }
    void SetAgentMask(AgentSlot slot, bool active) override { To(slot).SetAgentMask(At(slot), active); }
    void SetInfo(AgentSlot slot, int column, double value) override {
      out().SetInfo(AgentSlot(PlaceOf(slot).slot), column, value);
    }

   private:
    const Place& PlaceOf(AgentSlot slot) const { return owner_.places_[static_cast<size_t>(slot.value())]; }
    StepWriter& To(AgentSlot slot) { return PlaceOf(slot).group >= 0 ? *kept_ : out(); }
    AgentSlot At(AgentSlot slot) const { return PlaceOf(slot).group >= 0 ? slot : AgentSlot(PlaceOf(slot).slot); }

    const GroupedEnv& owner_;
    StepWriter* kept_ = nullptr;
    bool all_ = false;
  };

  ActionRows MapActions(ActionRows actions) override {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].group < 0) inner_actions_[i] = actions[static_cast<size_t>(places_[i].slot)];
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      const space::ActionWord* const row = actions[static_cast<size_t>(group.slot.value())];
      acted_[g] = row != nullptr ? 1 : 0;
      for (size_t m = 0; m < group.members.size(); ++m) {
        const auto member = static_cast<size_t>(group.members[m]);
        inner_actions_[member] = row == nullptr || done_[member] != 0 ? nullptr : row + group.first_word[m];
      }
    }
    return inner_actions_;
  }

  StepWriter& BeginCall(StepWriter& out) override {
    if (is_reset()) {
      for (std::vector<uint8_t>* flags : {&done_, &truncated_, &acted_, &group_done_})
        std::fill(flags->begin(), flags->end(), uint8_t{0});
    }
    writer_.Begin(kept_.BeginStep(0), out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& out) override {
    for (size_t g = 0; g < groups_.size(); ++g) TROUPE_RETURN_IF_ERROR(WriteGroup(g, out));
    return absl::OkStatus();
  }

  absl::Status WriteGroup(size_t g, StepWriter& out) {
    const Group& group = groups_[g];
    WriteReward(g, out);
    size_t ready = 0;
    size_t observed = 0;
    size_t in_play = 0;
    bool any_truncated = false;
    for (const int32_t member : group.members) {
      const size_t m = static_cast<size_t>(member);
      if (kept_.done(0, member)) {
        done_[m] = 1;
        truncated_[m] = kept_.truncated(0, member) ? 1 : 0;
      } else if (done_[m] != 0 && kept_.observed(0, member)) {
        done_[m] = truncated_[m] = group_done_[g] = 0;  // it returns
      }
      in_play += done_[m] == 0 ? 1 : 0;
      any_truncated = any_truncated || truncated_[m] != 0;
      observed += kept_.observed(0, member) ? 1 : 0;
      ready += kept_.observed(0, member) && done_[m] == 0 ? 1 : 0;
    }
    const bool all_done = in_play == 0;
    const bool over = all_done || writer_.all();
    if (!over && ready != 0 && ready != in_play) return PartlyReady(group);
    if (over ? observed > 0 : ready > 0) WriteObservation(group, out);
    if (all_done && group_done_[g] == 0) {
      group_done_[g] = 1;
      if (any_truncated) {
        out.TruncateAgent(group.slot);
      } else {
        out.TerminateAgent(group.slot);
      }
    }
    return absl::OkStatus();
  }

  void WriteReward(size_t g, StepWriter& out) {
    const Group& group = groups_[g];
    float sum = 0;
    bool any = acted_[g] != 0;
    for (const int32_t member : group.members) {
      sum += kept_.reward(0, member);
      any = any || kept_.reward(0, member) != 0.0f;
    }
    if (is_reset() || !any) return;
    out.AddReward(group.slot, sum);
    for (const int32_t member : group.members) {
      out.SetInfo(group.slot, places_[static_cast<size_t>(member)].reward_column,
                  static_cast<double>(kept_.reward(0, member)));
    }
  }

  void WriteObservation(const Group& group, StepWriter& out) {
    const EnvSpec& inner = inner_spec();
    const bool has_mask = spec().possible_agents[static_cast<size_t>(group.slot.value())].has_action_mask;
    float* row = out.ObserveFloat(group.slot);
    uint8_t* mask = has_mask ? out.ActionMask(group.slot) : nullptr;
    float* state = inner.state_kind == StateKind::kPerAgent ? out.State(group.slot) : nullptr;
    if (state != nullptr) std::fill_n(state, state_members_ * state_size_, 0.0f);
    bool active = false;
    for (size_t m = 0; m < group.members.size(); ++m) {
      const int32_t member = group.members[m];
      const AgentSpec& agent = inner.possible_agents[static_cast<size_t>(member)];
      const bool observed = kept_.observed(0, member);
      const bool acts = observed && done_[static_cast<size_t>(member)] == 0;
      active = active || (acts && kept_.agent_mask(0, member));
      if (!observed) {
        row = std::fill_n(row, agent.observation_space.flat_size(), 0.0f);
      } else if (agent.observation_space.flat_dtype() == tensor::DType::kUint8) {
        const absl::Span<const uint8_t> from = kept_.observation_uint8(0, member);
        row = std::copy(from.begin(), from.end(), row);
      } else {
        const absl::Span<const float> from = kept_.observation(0, member);
        row = std::copy(from.begin(), from.end(), row);
      }
      if (mask != nullptr) {
        const absl::Span<const uint8_t> from = acts ? kept_.action_mask(0, member) : group.idle_mask[m];
        mask = std::copy(from.begin(), from.end(), mask);
      }
      if (state != nullptr) {
        const absl::Span<const float> from = kept_.state(0, member);
        if (observed) std::copy(from.begin(), from.end(), state);
        state += state_size_;
      }
    }
    if (inner.has_agent_mask) out.SetAgentMask(group.slot, active);
  }

  absl::Status PartlyReady(const Group& group) const {
    std::vector<std::string> ready;
    std::vector<std::string> others;
    for (const int32_t member : group.members) {
      const std::string id = base::LogSafe(inner_spec().possible_agents[static_cast<size_t>(member)].id.value());
      if (done_[static_cast<size_t>(member)] != 0) continue;
      (kept_.observed(0, member) ? ready : others).push_back(id);
    }
    const AgentSpec& agent = spec().possible_agents[static_cast<size_t>(group.slot.value())];
    return Broken(EnvRule::kObservedAgents,
                  absl::StrCat("group ", Quoted(agent.id.value()), " is partly ready: ", absl::StrJoin(ready, ", "),
                               ready.size() == 1 ? " is, " : " are, ", absl::StrJoin(others, ", "),
                               others.size() == 1 ? " is not" : " are not",
                               "; expected all members that are not done at the same time"));
  }

  const std::vector<Place> places_;
  const std::vector<Group> groups_;
  const int64_t state_size_;
  const int64_t state_members_;
  SlotBuffers kept_;  ///< of the call, what members got
  Writer writer_;
  std::vector<const space::ActionWord*> inner_actions_;
  std::vector<uint8_t> done_, truncated_;    ///< of the episode, by inner slot
  std::vector<uint8_t> acted_, group_done_;  ///< by group: in the call, of the episode
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithAgentGroups(std::unique_ptr<MultiAgentEnv> env,
                                                               std::vector<AgentGroup> groups) {
  if (groups.empty()) return env;
  TROUPE_ASSIGN_OR_RETURN(Layout layout, MakeLayout(env->spec(), groups));
  return std::make_unique<GroupedEnv>(std::move(env), std::move(layout));
}

}  // namespace troupe::env
