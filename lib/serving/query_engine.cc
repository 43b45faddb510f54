#include "lib/serving/query_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/serving/check_rows.h"

namespace troupe::serving {
namespace {

uint64_t ActorSeed(uint64_t seed) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kQuery);
  return (static_cast<uint64_t>(key.k1) << 32) | key.k0;
}

std::vector<tensor::DType> WordDTypes(const policy::PolicySpec& spec) {
  std::vector<tensor::DType> dtypes(static_cast<size_t>(spec.action_words()), tensor::DType::kInt32);
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    for (int64_t i = 0; i < leaf.words; ++i) dtypes[static_cast<size_t>(leaf.word + i)] = tensor::DType::kFloat32;
  }
  return dtypes;
}

}  // namespace

QueryEngine::Policy::Policy(const policy::PolicySpec& spec_in)
    : spec(spec_in), leaves(space::ActionLeaves(spec.action_space)), word_dtypes(WordDTypes(spec)), bounds(spec) {}

QueryEngine::QueryEngine(const Options& options)
    : options_(options), actor_seed_(ActorSeed(options.seed)), next_request_(options.first_request) {}

absl::StatusOr<std::unique_ptr<QueryEngine>> QueryEngine::Create(absl::Span<const policy::PolicySpec> specs,
                                                                 Options options) {
  auto engine = std::unique_ptr<QueryEngine>(new QueryEngine(options));
  for (const policy::PolicySpec& spec : specs) {
    TROUPE_RETURN_IF_ERROR(spec.Validate());
    if (!engine->policies_.emplace(spec.id.value(), std::make_unique<Policy>(spec)).second) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" comes twice"));
    }
  }
  return engine;
}

absl::StatusOr<QueryEngine::Policy*> QueryEngine::Find(const policy::PolicyId& id) const {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(id.value()));
  const auto found = policies_.find(id.value());
  if (found != policies_.end()) return found->second.get();
  std::vector<std::string> ids;
  for (const auto& [name, policy] : policies_) ids.push_back(name);
  const std::string nearest = base::NearestName(id.value(), ids);
  return absl::NotFoundError(absl::StrCat("there is no policy \"", id.value(), "\" among the ", ids.size(), " here",
                                          nearest.empty() ? "" : absl::StrCat(", did you mean \"", nearest, "\"?")));
}

absl::Status QueryEngine::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr) return absl::InvalidArgumentError("no weights");
  TROUPE_ASSIGN_OR_RETURN(Policy* const policy, Find(weights->id));
  TROUPE_RETURN_IF_ERROR(weights->Validate(policy->spec));
  base::MutexLock lock(&policy->weights_mutex);
  if (policy->newest != nullptr && !(policy->newest->version < weights->version)) return absl::OkStatus();
  policy->newest.swap(weights);  // the old one is destroyed after the lock
  return absl::OkStatus();
}

absl::StatusOr<std::vector<QueryEngine::Policy*>> QueryEngine::Check(const ActionQuery& query) const {
  if (query.policies.empty()) return absl::InvalidArgumentError("the query asks no policy, expected at least one");
  if (query.policies.size() > static_cast<size_t>(kMaxQueryRows)) {
    return absl::ResourceExhaustedError(absl::StrCat("the query asks ", query.policies.size(),
                                                     " times, expected at most ", kMaxQueryRows, " rows in all"));
  }
  int64_t total_rows = 0;
  for (const QueryRows& rows : query.policies) total_rows += rows.rows;
  if (total_rows > kMaxQueryRows) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the query has ", total_rows, " rows, expected at most ", kMaxQueryRows));
  }
  std::vector<Policy*> policies;
  int64_t answer_bytes = 0;
  for (const QueryRows& rows : query.policies) {
    TROUPE_ASSIGN_OR_RETURN(Policy* const policy, Find(rows.policy_id));
    TROUPE_RETURN_IF_ERROR(CheckRows(policy->spec, policy->leaves, rows));
    answer_bytes += rows.rows * (2 * policy->spec.action_words() * 4 + 4);
    policies.push_back(policy);
  }
  if (answer_bytes > kMaxAnswerBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer would have ", answer_bytes, " bytes, expected at most ", kMaxAnswerBytes));
  }
  return policies;
}

absl::StatusOr<PolicyActions> QueryEngine::Act(Policy& policy, const QueryRows& rows, uint64_t request,
                                               int64_t first_row, bool deterministic) const {
  PolicyActions answer;
  answer.policy_id = policy.spec.id;
  answer.rows = rows.rows;
  answer.word_dtypes = policy.word_dtypes;
  const auto words = static_cast<size_t>(policy.spec.action_words());
  answer.sampled_actions.resize(static_cast<size_t>(rows.rows) * words);
  answer.logp.resize(static_cast<size_t>(rows.rows));
  std::vector<inference::RowKey> keys(static_cast<size_t>(rows.rows));
  for (size_t row = 0; row < keys.size(); ++row) {
    keys[row] = {static_cast<uint32_t>(request >> 32), static_cast<uint32_t>(request),
                 rows.agent_slots.empty() ? 0 : rows.agent_slots[row],
                 static_cast<uint32_t>(first_row) + static_cast<uint32_t>(row)};
  }
  std::vector<uint8_t> all_allowed;
  inference::ActInput input;
  input.rows = rows.rows;
  input.obs = rows.obs.data();
  input.keys = keys.data();
  input.deterministic = deterministic;
  if (policy.spec.mask_size() > 0) {
    if (rows.action_mask.empty()) all_allowed.assign(static_cast<size_t>(rows.rows * policy.spec.mask_size()), 1);
    input.action_mask = rows.action_mask.empty() ? all_allowed.data() : rows.action_mask.data();
  }
  policy::WeightSnapshotPtr newest;  // once swapped, maybe the last owner of what it replaced: destroyed after the lock
  {
    base::MutexLock lock(&policy.mutex);
    {
      base::MutexLock weights_lock(&policy.weights_mutex);
      newest = policy.newest;
    }
    const bool has_weights = policy.spec.policy_class.has_weights();
    if (has_weights && newest == nullptr) {
      return absl::UnavailableError(absl::StrCat("policy \"", policy.spec.id.value(), "\" has no weights yet"));
    }
    if (policy.actor == nullptr) {
      TROUPE_ASSIGN_OR_RETURN(policy.actor, inference::MakePolicyActor(policy.spec, actor_seed_, options_.backend));
    }
    if (has_weights) {
      TROUPE_RETURN_IF_ERROR(policy.actor->SetWeights(newest));
      answer.version = newest->version;
      policy.acting.swap(newest);
    }
    TROUPE_RETURN_IF_ERROR(policy.actor->Act(input, answer.sampled_actions.data(), answer.logp.data()));
  }
  answer.actions = answer.sampled_actions;
  for (size_t row = 0; !policy.bounds.identity() && row < keys.size(); ++row) {
    const absl::Span<space::ActionWord> action = absl::MakeSpan(answer.actions).subspan(row * words, words);
    policy.bounds.Apply(action, action);
  }
  return answer;
}

absl::StatusOr<ActionAnswer> QueryEngine::Compute(const ActionQuery& query) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Policy*> policies, Check(query));
  const uint64_t request = query.deterministic ? 0 : next_request_.fetch_add(1, std::memory_order_relaxed);
  ActionAnswer answer;
  answer.reserve(policies.size());
  int64_t first_row = 0;
  for (size_t i = 0; i < policies.size(); ++i) {
    const QueryRows& rows = query.policies[i];
    TROUPE_ASSIGN_OR_RETURN(PolicyActions actions, Act(*policies[i], rows, request, first_row, query.deterministic));
    answer.push_back(std::move(actions));
    first_row += rows.rows;
  }
  return answer;
}

}  // namespace troupe::serving
