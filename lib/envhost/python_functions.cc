#include "lib/envhost/python_functions.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_actor.h"
#include "lib/envhost/python_function.h"
#include "lib/envhost/python_program.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"

namespace troupe::envhost {
namespace {

using OrderedJson = nlohmann::ordered_json;  // what a function iterates over has the order of the run

std::string ToText(const policy::HostedQuestion& question) {
  const policy::EpisodeInfo& episode = question.episode;
  OrderedJson mapped = OrderedJson::object();
  for (const auto& [agent, policy] : question.mapped) mapped[std::string(agent)] = std::string(policy);
  OrderedJson policies = OrderedJson::array();
  for (const policy::PolicyId& id : question.policies) policies.push_back(id.value());
  OrderedJson args = OrderedJson::object();
  for (const policy::EnvArgument& argument : episode.env_args) args[argument.name] = argument.value;
  const OrderedJson message = {{"agent_id", question.agent_id.value()},
                               {"env_id", episode.env_id.value()},
                               {"episode", episode.episode},
                               {"worker", episode.worker},
                               {"env_args", std::move(args)},
                               {"mapped", std::move(mapped)},
                               {"policies", std::move(policies)}};
  return message.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

absl::Status StoppedError() { return absl::CancelledError("functions in Python are asked no more: it ends"); }

}  // namespace

PythonFunctions::Call::Call(PythonFunctions* functions) : functions_(*functions) { functions_.calls_.fetch_add(1); }
PythonFunctions::Call::~Call() { functions_.calls_.fetch_sub(1); }
absl::Status PythonFunctions::Call::status() const {
  return functions_.stopped_.load() ? StoppedError() : absl::OkStatus();
}

std::shared_ptr<PythonFunctions> PythonFunctions::Create(HostOptions options) {
  return std::shared_ptr<PythonFunctions>(new PythonFunctions(std::move(options)));
}

PythonFunctions::PythonFunctions(HostOptions options) : options_(std::move(options)), budget_(options_) {}

PythonFunctions::~PythonFunctions() {
  base::MutexLock lock(&mutex_);
  if (process_ != nullptr) Dismiss({process_}, options_.leave_timeout);
}

absl::StatusOr<std::shared_ptr<HostProcess>> PythonFunctions::RestartLocked() {
  if (stopped_.load()) return StoppedError();
  if (process_ != nullptr) {
    const absl::Status death = process_->death();
    TROUPE_RETURN_IF_ERROR(budget_.Spend(death));
    ++totals_.deaths;
    ++totals_.restarts;
    if (process_->timed_out()) ++totals_.timeouts;
    TROUPE_WARN("Python process of functions restarted pid={} restarts={} cause={}", process_->pid(), totals_.restarts,
                base::LogSafe(std::string(death.message()), 500));
  }
  TROUPE_ASSIGN_OR_RETURN(const ProcessOrder order, ProcessOrder::Make(options_, {{"functions", true}}));
  TROUPE_ASSIGN_OR_RETURN(process_, HostProcess::Start(order, "Python functions"));
  return process_;
}

absl::StatusOr<std::shared_ptr<HostProcess>> PythonFunctions::Process() {
  base::MutexLock start(&start_mutex_);
  std::shared_ptr<HostProcess> process;
  {
    base::MutexLock lock(&mutex_);
    if (process_ != nullptr && !process_->dead()) return process_;
    TROUPE_ASSIGN_OR_RETURN(process, RestartLocked());
  }
  // There is nothing that could differ from one process to the next.
  TROUPE_ASSIGN_OR_RETURN(std::string description, process->AwaitDescription());
  process->Expect(std::move(description), nlohmann::json::object());
  return process;
}

void PythonFunctions::Stop() {
  stopped_.store(true);
  if (calls_.load() == 0) return;
  std::shared_ptr<HostProcess> process;
  {
    base::MutexLock lock(&mutex_);
    process = process_;
  }
  if (process != nullptr) process->Kill(StoppedError());
}

void PythonFunctions::CountError(bool raised, bool bad_output) {
  base::MutexLock lock(&mutex_);
  ++totals_.errors;
  totals_.exceptions += static_cast<int64_t>(raised);
  totals_.bad_outputs += static_cast<int64_t>(bad_output);
}

HostStats PythonFunctions::stats() const {
  base::MutexLock lock(&mutex_);
  HostStats stats = totals_;
  if (process_ != nullptr && process_->dead()) {
    ++stats.deaths;
    if (process_->timed_out()) ++stats.timeouts;
  }
  return stats;
}

std::shared_ptr<PythonFunction> PythonFunctions::MappingFunction(std::string_view function) {
  const std::string key = absl::StrCat("mapping ", std::string(function));
  base::MutexLock lock(&mutex_);
  std::shared_ptr<PythonFunction>& place = functions_[key];
  if (place == nullptr) {
    place = std::make_shared<PythonFunction>(nlohmann::json{{"mapping", ModuleName(function, options_.folder)}},
                                             kMaxTextBytes);
  }
  return place;
}

absl::Status PythonFunctions::Prepare(std::string_view function) { return MappingFunction(function)->Make(*this); }

absl::StatusOr<policy::PolicyId> PythonFunctions::Ask(const policy::HostedQuestion& question) {
  const std::string text = ToText(question);
  std::string answer;
  TROUPE_RETURN_IF_ERROR(
      MappingFunction(question.function)
          ->CallText(
              *this,
              {.text = text, .has = "agents, policies, arguments of the environment", .seed = question.episode.seed},
              [&answer](std::string_view said) {
                answer = said;
                return absl::OkStatus();
              }));
  return policy::PolicyId(std::move(answer));
}

absl::StatusOr<std::unique_ptr<inference::PolicyActor>> PythonFunctions::MakeActor(const policy::PolicySpec& spec,
                                                                                   uint64_t seed) {
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  const PythonActor::Layout layout(spec);
  const std::string key = absl::StrCat("policy ", spec.id.value(), " ", spec.ToString());
  std::shared_ptr<PythonFunction> function;
  {
    base::MutexLock lock(&mutex_);
    std::shared_ptr<PythonFunction>& place = functions_[key];
    if (place == nullptr) {
      place = std::make_shared<PythonFunction>(layout.ToJson(spec, ModuleName(spec.policy_class.name, options_.folder)),
                                               layout.payload_bytes);
    }
    function = place;
  }
  return std::make_unique<PythonActor>(shared_from_this(), std::move(function), spec, layout, seed);
}

}  // namespace troupe::envhost
