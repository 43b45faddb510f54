#include "lib/run/learner/train_function.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_program.h"
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

using envhost::PythonFunctions;
using nlohmann::json;

constexpr size_t kMaxError = 1000;
/// How often is asked, in the wait for a first answer, whether the run ends.
constexpr absl::Duration kEndInterval = absl::Milliseconds(50);
/// Warnings: so many, and then at powers of two.
constexpr int64_t kFirstWarnings = 5;

bool IsToldOf(int64_t count) { return count <= kFirstWarnings || (count & (count - 1)) == 0; }

std::string ToText(const learner::BatchFacts& batch) {
  json policies = json::array(), infos = json::object();
  for (const learner::BatchFacts::Policy& policy : batch.policies) {
    json agents = json::object();
    for (const auto& [agent, rows] : policy.agents) agents[agent] = rows;
    policies.push_back({{"id", policy.id.value()}, {"rows", policy.rows}, {"agents", std::move(agents)}});
  }
  for (const auto& [column, mean] : batch.infos) infos[column] = mean;
  const json question = {{"updates", batch.updates},
                         {"env_steps", batch.env_steps},
                         {"policies", std::move(policies)},
                         {"infos", std::move(infos)}};
  return question.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

TrainFunction::TrainFunction(const std::string& name, const envhost::HostOptions& python, Degradations* degradations,
                             std::function<bool()> ends, absl::Duration patience)
    : functions_(PythonFunctions::Create(python)),
      function_(json{{"trains", envhost::ModuleName(name, python.folder)}}, PythonFunctions::kMaxTextBytes),
      degradations_(degradations),
      ends_(std::move(ends)),
      patience_(patience),
      first_patience_(python.step_timeout) {}

absl::StatusOr<std::unique_ptr<TrainFunction>> TrainFunction::Start(const std::string& name,
                                                                    const envhost::HostOptions& python,
                                                                    Degradations* degradations,
                                                                    std::function<bool()> ends,
                                                                    absl::Duration patience) {
  std::unique_ptr<TrainFunction> made(new TrainFunction(name, python, degradations, std::move(ends), patience));
  TROUPE_RETURN_IF_ERROR(made->function_.Make(*made->functions_));
  return made;
}

std::vector<bool> TrainFunction::Choose(const learner::BatchFacts& batch) {
  Question question;
  question.text = ToText(batch);
  for (const learner::BatchFacts::Policy& policy : batch.policies) question.policies.push_back(policy.id);
  const std::vector<policy::PolicyId> policies = question.policies;
  int64_t number = 0;
  bool is_free = false, is_first = false;
  {
    base::MutexLock lock(&mutex_);
    std::erase_if(answers_, [&batch](const auto& answer) { return batch.active.count(answer.first) == 0; });
    for (const policy::PolicyId& policy : policies) is_first = is_first || answers_.count(policy) == 0;
    is_first = is_first && !failed_;
    is_free = !asking_;
    number = question.number = ++asked_;
    open_ = std::move(question);
    changed_.NotifyAll();
  }
  const bool over = is_free && AwaitAnswer(number, patience_);
  bool ends = !over && is_first && AwaitFirstAnswer(number);
  std::vector<bool> trains;
  std::string words;
  int64_t late = 0;  // with this one
  {
    base::MutexLock lock(&mutex_);
    ends = ends || stopped_;
    if (answered_ < number && !ends) late = ++late_;
    words = DegradationLocked(late > 0);
    for (const policy::PolicyId& policy : policies) {
      const auto found = answers_.find(policy);
      trains.push_back(found == answers_.end() ? !ends : found->second);
    }
  }
  if (late > 0 && IsToldOf(late)) TROUPE_WARN("policies_to_train answers late, the last answer holds late={}", late);
  degradations_->Set("policies_to_train", std::move(words));
  return trains;
}

bool TrainFunction::AwaitAnswer(int64_t number, absl::Duration timeout) {
  base::MutexLock lock(&mutex_);
  return base::Await(changed_, &mutex_, base::Deadline::After(timeout),
                     [this, number]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answered_ >= number || stopped_; });
}

bool TrainFunction::AwaitFirstAnswer(int64_t number) {
  const base::Deadline deadline = base::Deadline::After(first_patience_);
  while (!AwaitAnswer(number, std::min(kEndInterval, deadline.left()))) {
    if (deadline.passed()) return false;
    if (ends_()) return true;
  }
  return false;
}

void TrainFunction::Run() {
  while (true) {
    Question question;
    {
      base::MutexLock lock(&mutex_);
      while (open_.number == 0 && !stopped_) changed_.Wait(&mutex_);
      if (stopped_) return;
      question = std::exchange(open_, Question());
      asking_ = true;
    }
    const absl::StatusOr<std::vector<bool>> answer = Ask(question.text, question.policies.size());
    int64_t errors = 0;  // with this one
    {
      base::MutexLock lock(&mutex_);
      asking_ = false;
      answered_ = question.number;
      if (answer.ok()) {
        for (size_t i = 0; i < question.policies.size(); ++i) answers_[question.policies[i]] = (*answer)[i];
        failed_ = false;
      } else if (!stopped_) {
        failed_ = true;
        errors = ++errors_;
      }
      changed_.NotifyAll();
    }
    if (errors > 0 && IsToldOf(errors)) {
      TROUPE_WARN("policies_to_train gave no answer, the last one holds errors={} error=\"{}\"", errors,
                  base::LogSafe(std::string(answer.status().message()), kMaxError));
    }
  }
}

absl::StatusOr<std::vector<bool>> TrainFunction::Ask(const std::string& question, size_t count) {
  std::vector<bool> answers;
  TROUPE_RETURN_IF_ERROR(
      function_.CallText(*functions_, {.text = question, .has = "a batch's policies, agents and info columns"},
                         [&](std::string_view said) {
                           const json answer = json::parse(said, nullptr, /*allow_exceptions=*/false);
                           if (!answer.is_array() || answer.size() != count) {
                             return absl::InternalError("its process said what is no answer");
                           }
                           for (const json& each : answer) answers.push_back(each.is_boolean() && each.get<bool>());
                           return absl::OkStatus();
                         }));
  return answers;
}

std::string TrainFunction::DegradationLocked(bool late) const {
  if (errors_ > 0) {
    return absl::StrCat("policies_to_train gave no answer for ", errors_, errors_ == 1 ? " batch" : " batches",
                        ", the last one holds");
  }
  if (!late) return "";
  return absl::StrCat("policies_to_train answers late, for ", late_, late_ == 1 ? " batch" : " batches",
                      ", the last answer holds meanwhile");
}

void TrainFunction::Stop() {
  {
    base::MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  functions_->Stop();
}

int64_t TrainFunction::errors() const {
  base::MutexLock lock(&mutex_);
  return errors_;
}

int64_t TrainFunction::late() const {
  base::MutexLock lock(&mutex_);
  return late_;
}

}  // namespace troupe::run
