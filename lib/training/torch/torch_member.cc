#include "lib/training/torch/torch_member.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/training/script/script_modules.h"
#include "lib/training/torch/torch_precision.h"

namespace troupe::training {

using torch::Tensor;

namespace {

std::vector<const policy::NetworkSpec*> NetworksOf(const policy::PolicySpec& spec) {
  std::vector<const policy::NetworkSpec*> networks = {&spec.actor};
  for (const policy::NetworkSpec& network : spec.learner_networks) networks.push_back(&network);
  return networks;
}

std::vector<Net> NetsOf(const policy::NetworkSpec& network) {
  return network.has_target ? std::vector<Net>{Net::kOnline, Net::kTarget} : std::vector<Net>{Net::kOnline};
}

std::string SectionOf(const policy::NetworkSpec& network, Net net) {
  return net == Net::kTarget ? network.role + policy::kTargetOf : network.role;
}

/// The sequences with the final rows that they end with, as places of them side by side.
void LoadSequences(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                   const PreparedBatch& prepared, const DeviceMemory& memory, TorchRows* rows) {
  std::vector<int64_t> places;
  std::vector<std::pair<int64_t, int64_t>> pieces;
  auto segment = batch.segments.begin();
  for (const learner::TrainSequence& sequence : prepared.sequences()) {
    const auto first = static_cast<int64_t>(places.size());
    const int64_t end = sequence.first_row + sequence.rows;
    for (int64_t row = sequence.first_row; row < end; ++row) places.push_back(row);
    while (segment->first_row + segment->rows < end) ++segment;
    if (segment->first_row + segment->rows == end && segment->final_row >= 0) {
      places.push_back(batch.rows + segment->final_row);
    }
    pieces.emplace_back(first, static_cast<int64_t>(places.size()) - first);
  }
  const Packed packed = Pack(pieces);
  std::vector<int64_t> order;
  std::vector<int64_t> where(places.size());
  for (const int64_t row : packed.rows) {
    where[static_cast<size_t>(places[static_cast<size_t>(row)])] = static_cast<int64_t>(order.size());
    order.push_back(places[static_cast<size_t>(row)]);
  }
  rows->packed = memory.LoadIndex(order);
  rows->unpacked = memory.LoadIndex(where);
  rows->sequences = memory.LoadIndex(packed.sequences);
  rows->batch_sizes = packed.batch_sizes;
  if (spec.actor_state_size() > 0) rows->memory = memory.Load(prepared.actor_memory()).contiguous();
}

}  // namespace

TorchRows TorchRows::Load(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                          const PreparedBatch& prepared, const DeviceMemory& memory) {
  TorchRows rows;
  rows.rows = batch.rows;
  rows.places = batch.rows + batch.final_rows;
  const Tensor images = memory.Load(prepared.images());
  if (spec.has_action_mask) {
    std::vector<uint8_t> mask(prepared.action_mask.begin(), prepared.action_mask.end());
    mask.insert(mask.end(), batch.final_action_mask.begin(), batch.final_action_mask.end());
    rows.mask = memory.Load(torch::tensor(mask, torch::kUInt8).view({rows.places, spec.mask_size()}));
  }
  const bool masked = spec.actor.encoder == policy::EncoderKind::kTorchScript;
  rows.actor = {memory.Load(prepared.observations()), images, Tensor(), masked ? rows.mask : Tensor(),
                ImageScaling(spec, 1, memory.device())};
  const bool own = spec.critic().Reads(policy::NetworkInput::kObservation) && !spec.critic_reads_agent_state();
  rows.learner = {memory.Load(prepared.critic_input()), own ? images : memory.Load(prepared.critic_images()), Tensor(),
                  Tensor(), ImageScaling(spec, own ? 1 : spec.ImagesOf(spec.critic()), memory.device())};
  if (prepared.critic_images().rows > 0) rows.learner.image_rows = memory.LoadIndex(prepared.critic_image_index());
  std::vector<int32_t> index(prepared.critic_index().begin(), prepared.critic_index().end());
  index.insert(index.end(), prepared.final_critic_index().begin(), prepared.final_critic_index().end());
  const auto is_own = [place = 0](int32_t input) mutable { return input == place++; };
  if (!std::all_of(index.begin(), index.end(), is_own)) {
    rows.learner_index = memory.LoadIndex(std::vector<int64_t>(index.begin(), index.end()));
  }
  rows.actions = memory.Load(prepared.actions.data(), {rows.rows, spec.action_words()}, torch::kInt32);
  rows.rewards = memory.Load(batch.rewards.data(), {rows.rows}, torch::kFloat32);
  if (!batch.waits.empty()) {
    rows.waits = memory.Load(batch.waits.data(), {rows.rows}, torch::kInt32).to(torch::kFloat32);
  }
  std::vector<int64_t> next(static_cast<size_t>(rows.rows));
  std::iota(next.begin(), next.end(), int64_t{1});
  std::vector<float> continues(static_cast<size_t>(rows.rows), 1.0f);
  for (const learner::TrainSegment& segment : batch.segments) {
    if (segment.rows == 0) continue;
    const int64_t last = segment.first_row + segment.rows - 1;
    next[static_cast<size_t>(last)] = segment.final_row >= 0 ? rows.rows + segment.final_row : last;
    continues[static_cast<size_t>(last)] = segment.final_row >= 0 ? 1.0f : 0.0f;
  }
  rows.next = memory.LoadIndex(next);
  rows.continues = memory.Load(torch::tensor(continues));
  std::vector<float> counts(static_cast<size_t>(rows.rows), 0.0f);
  for (const int32_t row : prepared.uses().counted()) counts[static_cast<size_t>(row)] = 1.0f;
  rows.counts = memory.Load(torch::tensor(counts));
  if (spec.remembers()) LoadSequences(spec, batch, prepared, memory, &rows);
  return rows;
}

TorchRows TorchRows::Take(const RowSelection& selection) const {
  const auto take = [](const Tensor& from, const Tensor& index) {
    return from.defined() ? from.index_select(0, index) : Tensor();
  };
  TorchRows taken;
  taken.rows = selection.rows.size(0);
  taken.places = selection.run.size(0);
  taken.actor = {take(actor.floats, selection.run), take(actor.images, selection.run), Tensor(),
                 take(actor.mask, selection.run), actor.scaling};
  taken.mask = take(mask, selection.rows);
  taken.actions = take(actions, selection.rows);
  taken.targets = take(targets, selection.rows);
  if (!selection.kept.defined()) return taken;
  taken.memory = take(memory, selection.sequences);
  taken.unpacked = selection.kept;
  taken.batch_sizes = selection.batch_sizes;
  return taken;
}

TorchMember::TorchMember(const policy::PolicySpec& spec, const DeviceMemory& memory, bool bfloat16)
    : spec_(spec), memory_(memory), bfloat16_(bfloat16), head_(ActionHead::For(spec)) {
  for (const CategoricalPart& part : head_.categorical) leaves_.push_back(part.categories);
}

absl::Status TorchMember::LoadScripts(const Device& device) {
  for (const policy::NetworkSpec* const network : NetworksOf(spec_)) {
    if (network->encoder != policy::EncoderKind::kTorchScript) continue;
    for (const Net net : NetsOf(*network)) {
      TROUPE_ASSIGN_OR_RETURN(scripts_[SectionOf(*network, net)], LoadScript(spec_, *network, device));
    }
  }
  return absl::OkStatus();
}

void TorchMember::Bind(const TorchParameters& parameters) {
  for (const policy::NetworkSpec* const network : NetworksOf(spec_)) {
    for (const Net net : NetsOf(*network)) {
      const std::string section = SectionOf(*network, net);
      const auto find = [&](const std::string& name) {
        return parameters.Find(absl::StrCat(section, name.substr(network->role.size())));
      };
      const auto script = scripts_.find(section);
      modules_[section] = MakeModule(spec_, *network, find, script == scripts_.end() ? nullptr : script->second);
    }
  }
  for (const policy::LearnerNumber& number : spec_.learner_numbers) {
    numbers_[number.name] = parameters.Find(number.name + ".value");
  }
}

const policy::NetworkSpec& TorchMember::NetworkOf(std::string_view role) const {
  const policy::NetworkSpec* const found = role == policy::kActorRole ? &spec_.actor : spec_.FindLearnerNetwork(role);
  TROUPE_CHECK(found != nullptr);
  return *found;
}

const Module& TorchMember::ModuleOf(const policy::NetworkSpec& network, Net net) const {
  return modules_.at(SectionOf(network, network.has_target ? net : Net::kOnline));
}

Tensor TorchMember::Run(std::string_view role, Net net, At at, const Tensor& actions) const {
  const policy::NetworkSpec& network = NetworkOf(role);
  TROUPE_CHECK(net == Net::kOnline || network.has_target);
  const c10::AutoGradMode grad(net == Net::kOnline && torch::GradMode::is_enabled());
  const bool is_actor = &network == &spec_.actor || network.encoder == policy::EncoderKind::kShared;
  const int64_t count = at == At::kRows ? rows_.rows : rows_.places;
  // Networks that remember are run over all places: a row is of the sequence that is run anyway.
  const bool remembers = spec_.EncodingNetwork(network).remembers();
  const int64_t read = remembers ? rows_.places : count;
  const auto pass = [&](int64_t first, int64_t rows) {
    Tensor inputs = is_actor                        ? rows_.actor.Range(first, rows)
                    : rows_.learner_index.defined() ? rows_.learner.Take(rows_.learner_index.narrow(0, first, rows))
                                                    : rows_.learner.Range(first, rows);
    if (is_actor && network.encoder != policy::EncoderKind::kShared && rows_.actor.mask.defined()) {
      inputs = torch::cat({inputs, rows_.actor.mask.narrow(0, first, rows).to(torch::kFloat32)}, 1);
    }
    if (network.reads_actions()) inputs = torch::cat({inputs, actions.narrow(0, first, rows)}, 1);
    return Compute(network, net, inputs);
  };
  // Without gradients nothing holds what is made between: images are read some rows at a time.
  const bool whole = remembers || torch::GradMode::is_enabled();
  const int64_t most = whole ? read : RowsOfPass(spec_, spec_.EncodingNetwork(network), read);
  std::vector<Tensor> passes;
  for (int64_t first = 0; first < read; first += most) passes.push_back(pass(first, std::min(most, read - first)));
  const Tensor outputs = passes.size() == 1 ? passes.front() : torch::cat(passes);
  return remembers && at == At::kRows ? AtRows(outputs) : outputs;
}

Tensor TorchMember::Compute(const policy::NetworkSpec& network, Net net, const Tensor& inputs) const {
  const policy::NetworkSpec& encoding = spec_.EncodingNetwork(network);
  const bool shares = &encoding != &network;
  const Module& module = ModuleOf(network, net);
  const Module& encoder = ModuleOf(encoding, net);
  if (!encoding.remembers()) {
    const auto run = [&] {
      if (!shares) return RunNetwork(network.activation, module, inputs);
      return Decode(network.activation, module, Encode(encoding.activation, encoder, inputs));
    };
    if (!bfloat16_) return run();
    const Bfloat16Products products(memory_.device().type());
    return run().to(torch::kFloat32);
  }
  const Tensor packed = rows_.packed.defined() ? inputs.index_select(0, rows_.packed) : inputs;
  Tensor states = rows_.memory;
  if (&encoding != &spec_.actor) {
    states = torch::zeros({rows_.sequences.size(0), encoding.state_size()}, inputs.options());
  } else if (rows_.sequences.defined()) {
    states = states.index_select(0, rows_.sequences);
  }
  const Tensor outputs =
      shares ? Decode(network.activation, module,
                      EncodeSequences(encoding, encoder, packed, rows_.batch_sizes, states).first)
             : RunSequences(network, module, packed, rows_.batch_sizes, states, /*kept=*/Tensor()).first;
  return outputs.index_select(0, rows_.unpacked);
}

Tensor TorchMember::Chosen(const Tensor& values) const {
  std::vector<Tensor> index;
  for (const CategoricalPart& part : head_.categorical) {
    index.push_back(rows_.actions.select(1, part.word).to(torch::kInt64) + (part.output - part.start));
  }
  return Taken(values, torch::stack(index, 1));
}

Tensor TorchMember::IsAllowed(const Tensor& values) const {
  if (!rows_.mask.defined()) return torch::ones_like(values);
  std::vector<Tensor> allowed;
  for (const Tensor& leaf : (rows_.mask != 0).split_with_sizes(leaves_, 1)) {
    allowed.push_back(leaf.logical_or(leaf.any(1, /*keepdim=*/true).logical_not()));
  }
  return torch::cat(allowed, 1).to(torch::kFloat32);
}

Tensor TorchMember::Allowed(const Tensor& values) const {
  if (!rows_.mask.defined()) return values;
  return values.masked_fill(IsAllowed(values) == 0, std::numeric_limits<float>::lowest());
}

Tensor TorchMember::Greatest(const Tensor& values) const {
  std::vector<Tensor> greatest;
  for (const Tensor& leaf : ByLeaf(values)) greatest.push_back(leaf.amax(1));
  return torch::stack(greatest, 1);
}

Tensor TorchMember::GreatestAt(const Tensor& values) const {
  std::vector<Tensor> index;
  int64_t first = 0;
  for (const Tensor& leaf : ByLeaf(values)) {
    index.push_back(leaf.argmax(1) + first);
    first += leaf.size(1);
  }
  return torch::stack(index, 1);
}

Tensor TorchMember::ActionInputs() const {
  std::vector<Tensor> inputs;
  for (const CategoricalPart& part : head_.categorical) {
    const Tensor category = rows_.actions.select(1, part.word).to(torch::kInt64) - part.start;
    const Tensor places = torch::arange(part.categories, category.options());
    inputs.push_back((category.unsqueeze(1) == places).to(torch::kFloat32));
  }
  for (const ContinuousPart& part : head_.continuous) {
    inputs.push_back(rows_.actions.narrow(1, part.word, part.words).view(torch::kFloat32));
  }
  return torch::cat(inputs, 1);
}

Tensor TorchMember::Discounts(double gamma) const {
  if (!rows_.waits.defined()) return rows_.continues * gamma;
  return rows_.continues * torch::pow(gamma, rows_.waits);
}

Tensor TorchMember::Discounts(const Tensor& gamma) const {
  return rows_.continues * (rows_.waits.defined() ? torch::pow(gamma, rows_.waits) : gamma);
}

Tensor TorchMember::Mean(const Tensor& of_rows) const {
  return (of_rows * rows_.counts).sum() / rows_.counts.sum().clamp_min(1);
}

}  // namespace troupe::training
