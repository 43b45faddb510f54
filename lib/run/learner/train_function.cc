#include "lib/run/learner/train_function.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_program.h"
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

using envhost::PythonFunction;
using envhost::PythonFunctions;
using nlohmann::json;

constexpr size_t kMaxError = 1000;
/// Warnings of errors: so many, and then at powers of two.
constexpr int64_t kFirstWarnings = 5;

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
                             absl::Duration patience)
    : functions_(PythonFunctions::Create(python)),
      function_(json{{"trains", envhost::ModuleName(name, python.folder)}}, PythonFunctions::kMaxTextBytes),
      degradations_(degradations),
      patience_(patience) {}

absl::StatusOr<std::unique_ptr<TrainFunction>> TrainFunction::Start(const std::string& name,
                                                                    const envhost::HostOptions& python,
                                                                    Degradations* degradations,
                                                                    absl::Duration patience) {
  std::unique_ptr<TrainFunction> made(new TrainFunction(name, python, degradations, patience));
  TROUPE_RETURN_IF_ERROR(made->function_.Make(*made->functions_));
  return made;
}

std::vector<bool> TrainFunction::Choose(const learner::BatchFacts& batch) {
  Question question;
  question.text = ToText(batch);
  for (const learner::BatchFacts::Policy& policy : batch.policies) question.policies.push_back(policy.id);
  const std::vector<policy::PolicyId> policies = question.policies;
  std::vector<bool> trains;
  std::string words;
  {
    base::MutexLock lock(&mutex_);
    const int64_t number = question.number = ++asked_;
    open_ = std::move(question);
    changed_.NotifyAll();
    if (!asking_) {
      base::Await(changed_, &mutex_, base::Deadline::After(patience_),
                  [this, number]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answered_ >= number || stopped_; });
    }
    if (answered_ < number) ++late_;
    words = DegradationLocked();
    for (const policy::PolicyId& policy : policies) {
      const auto found = answers_.find(policy);
      trains.push_back(found == answers_.end() || found->second);
    }
  }
  degradations_->Set("policies_to_train", std::move(words));
  return trains;
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
      } else if (!stopped_) {
        errors = ++errors_;
      }
      changed_.NotifyAll();
    }
    if (errors > 0 && (errors <= kFirstWarnings || (errors & (errors - 1)) == 0)) {
      TROUPE_WARN("policies_to_train gave no answer, the last one holds errors={} error=\"{}\"", errors,
                  base::LogSafe(std::string(answer.status().message()), kMaxError));
    }
  }
}

absl::StatusOr<std::vector<bool>> TrainFunction::Ask(const std::string& question, size_t count) {
  if (question.size() > PythonFunctions::kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the question has ", question.size(), " bytes, expected at most ",
                                                   PythonFunctions::kMaxTextBytes));
  }
  std::vector<bool> answers;
  TROUPE_RETURN_IF_ERROR(function_.Call(
      *functions_,
      [&question](PythonFunction::Block block) {
        std::memcpy(block.payload, question.data(), question.size());
        block.header.call_count = static_cast<uint32_t>(question.size());
      },
      [&](PythonFunction::Block block) {
        const size_t bytes = std::min<size_t>(block.header.call_count, PythonFunctions::kMaxTextBytes);
        const json answer = json::parse(std::string(reinterpret_cast<const char*>(block.payload), bytes), nullptr,
                                        /*allow_exceptions=*/false);
        if (!answer.is_array() || answer.size() != count) {
          return absl::InternalError("its process said what is no answer");
        }
        for (const json& each : answer) answers.push_back(each.is_boolean() && each.get<bool>());
        return absl::OkStatus();
      }));
  return answers;
}

std::string TrainFunction::DegradationLocked() const {
  if (errors_ > 0) {
    return absl::StrCat("policies_to_train gave no answer for ", errors_, errors_ == 1 ? " batch" : " batches",
                        ", the last one holds");
  }
  if (late_ == 0) return "";
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
