#include "lib/run/learner/callback_host.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/control_message.h"
#include "lib/envhost/python_program.h"
#include "lib/envhost/shared_layout.h"
#include "lib/envhost/spawn_python.h"

namespace troupe::run {
namespace {

using nlohmann::json;

/// How long is waited at a time for an event, or for what the process says.
constexpr absl::Duration kLook = absl::Milliseconds(100);
/// Of a line to the process, which waits for it.
constexpr absl::Duration kSendTimeout = absl::Seconds(5);
/// Of why a run is to end.
constexpr size_t kMaxReason = 200;
constexpr size_t kMaxError = 1000;
/// Warnings of calls that raised: so many, and then at powers of two.
constexpr int64_t kFirstWarnings = 5;

std::string NameOf(Hook hook) { return std::string(kHookNames[static_cast<size_t>(hook)]); }

std::string ToLine(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

/// The command `troupe` of this build, for what callbacks ask of the run; empty: the package finds one.
std::string FindCommand() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& place : {own / "troupe", own.parent_path() / "cli" / "troupe"}) {
    if (std::filesystem::is_regular_file(place, error) && access(place.c_str(), X_OK) == 0) return place.string();
  }
  return "";
}

/// Everybody may see what is degraded, so its words stay in the log.
absl::Status NotUnderstood(const std::string& line) {
  TROUPE_WARN("callbacks said what is no answer line=\"{}\"", base::LogSafe(line, 100));
  return absl::InternalError("its process said what is no answer");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallbackHost>> CallbackHost::Start(Options options) {
  TROUPE_ASSIGN_OR_RETURN(const std::string interpreter, envhost::FindInterpreter(options.python.interpreter));
  TROUPE_ASSIGN_OR_RETURN(const std::string package, envhost::FindPackage());
  const json start = {{"op", "start"},
                      {"callbacks", envhost::ModuleNames(options.callbacks, options.python.folder)},
                      {"path", options.python.path},
                      {"run", options.run_directory},
                      {"program", FindCommand()}};
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<envhost::PythonChild> child,
                          envhost::PythonChild::Start(
                              [&](const envhost::ChildFds& fds) {
                                return envhost::SpawnPython(interpreter, package, "troupe.callback_host", fds);
                              },
                              /*memory_fd=*/-1, "Python callbacks"));
  TROUPE_RETURN_IF_ERROR(child->Send(ToLine(start), kSendTimeout));
  std::unique_ptr<CallbackHost> host(new CallbackHost(std::move(options), std::move(child)));
  TROUPE_RETURN_IF_ERROR(host->AwaitReady());
  return host;
}

CallbackHost::CallbackHost(Options options, std::unique_ptr<envhost::PythonChild> child)
    : options_(std::move(options)), child_(std::move(child)) {}

CallbackHost::~CallbackHost() = default;

absl::Status CallbackHost::AwaitReady() {
  const absl::Duration timeout = options_.python.start_timeout;
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + timeout;
  while (base::Clock::Real().SteadyNow() < deadline) {
    TROUPE_ASSIGN_OR_RETURN(const std::optional<std::string> line, child_->TryReceive(kLook));
    if (!line && child_->Ended()) {
      return absl::InvalidArgumentError(absl::StrCat("the process of callbacks ", child_->HowItEnded(),
                                                     "; it printed last: ", base::LogSafe(child_->LastOutput(), 500)));
    }
    if (!line) continue;
    const json message = json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (envhost::TextOf(message, "op") == "failed") {
      return absl::InvalidArgumentError(base::LogSafe(envhost::TextOf(message, "error"), kMaxError));
    }
    if (envhost::TextOf(message, "op") != "ready" || !TakeHooks(message).ok()) return NotUnderstood(*line);
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the process of callbacks was not ready within ", absl::FormatDuration(timeout)));
}

absl::Status CallbackHost::TakeHooks(const json& message) {
  const json hooks = message.value("hooks", json()), of_episodes = message.value("episode_hooks", json());
  if (!hooks.is_array() || !of_episodes.is_array() || of_episodes.size() != options_.callbacks.size()) {
    return absl::InternalError("hooks are missing");
  }
  for (size_t hook = 0; hook < kHookNames.size(); ++hook) {
    wanted_[hook] = std::find(hooks.begin(), hooks.end(), kHookNames[hook]) != hooks.end();
  }
  for (size_t i = 0; i < of_episodes.size(); ++i) {
    if (of_episodes[i].empty()) continue;
    episode_callbacks_.push_back(options_.callbacks[i]);
    for (const std::string_view hook : envhost::kEpisodeHooks) {
      if (std::find(of_episodes[i].begin(), of_episodes[i].end(), hook) != of_episodes[i].end()) {
        episode_hooks_.emplace(hook);
      }
    }
  }
  return absl::OkStatus();
}

bool CallbackHost::Wants(Hook hook) const {
  if (!wanted_[static_cast<size_t>(hook)]) return false;
  base::MutexLock lock(&mutex_);
  return !off_;
}

void CallbackHost::PushLocked(Hook hook, json facts) {
  if (off_ || stopped_) return;
  waiting_.push_back({hook, std::move(facts)});
  told_.NotifyAll();
}

bool CallbackHost::TryTell(Hook hook, json facts) {
  base::MutexLock lock(&mutex_);
  if (waiting_.size() >= kMaxWaiting) return false;
  PushLocked(hook, std::move(facts));
  return true;
}

void CallbackHost::Tell(Hook hook, json facts) {
  base::MutexLock lock(&mutex_);
  PushLocked(hook, std::move(facts));
}

void CallbackHost::AwaitRoom(absl::Duration timeout) {
  base::MutexLock lock(&mutex_);
  if (waiting_.size() >= kMaxWaiting) called_.WaitFor(&mutex_, timeout);
}

bool CallbackHost::AwaitIdle(absl::Duration timeout) {
  base::MutexLock lock(&mutex_);
  if (!waiting_.empty() || calling_) called_.WaitFor(&mutex_, timeout);
  return waiting_.empty() && !calling_;
}

void CallbackHost::Run() {
  while (Step()) {
  }
  if (child_ == nullptr || !child_->Send(R"({"op": "exit"})", kSendTimeout).ok()) return;
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + options_.python.leave_timeout;
  while (!child_->Ended() && base::Clock::Real().SteadyNow() < deadline) {
    if (!child_->TryReceive(kLook).ok()) return;
  }
}

void CallbackHost::Stop() {
  base::MutexLock lock(&mutex_);
  stopped_ = true;
  told_.NotifyAll();
}

bool CallbackHost::Step() {
  std::optional<Event> event;
  {
    base::MutexLock lock(&mutex_);
    if (waiting_.empty() && !stopped_) told_.WaitFor(&mutex_, kLook);
    if (waiting_.empty() && stopped_) return false;
    if (!waiting_.empty()) {
      event = std::move(waiting_.front());
      waiting_.pop_front();
      calling_ = true;
    }
  }
  if (child_ == nullptr) {  // off: nothing is told any more
  } else if (event) {
    const absl::Status called = Call(*event);
    if (!called.ok()) TurnOff(called, NameOf(event->hook));
  } else if (child_->DrainOutput(); child_->Ended()) {
    TurnOff(absl::UnavailableError(absl::StrCat("its process ", child_->HowItEnded())), "between two calls");
  }
  base::MutexLock lock(&mutex_);
  calling_ = false;
  called_.NotifyAll();
  return true;
}

absl::Status CallbackHost::Call(const Event& event) {
  TROUPE_RETURN_IF_ERROR(child_->Send(ToLine({{"op", NameOf(event.hook)}, {"facts", event.facts}}), kSendTimeout));
  const base::Clock& clock = base::Clock::Real();
  absl::Duration own, asked;
  asks_ = false;
  for (absl::Duration last = clock.SteadyNow();;) {
    TROUPE_ASSIGN_OR_RETURN(const std::optional<std::string> line, child_->TryReceive(kLook));
    const absl::Duration now = clock.SteadyNow();
    (asks_ ? asked : own) += now - std::exchange(last, now);
    if (line) {
      TROUPE_ASSIGN_OR_RETURN(const bool over, Take(*line, event.hook));
      if (over) return absl::OkStatus();
    } else if (child_->Ended()) {
      return absl::UnavailableError(absl::StrCat("its process ", child_->HowItEnded()));
    }
    if (own > options_.call_timeout || asked > kAskTimeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("did not return within ",
                       absl::FormatDuration(own > options_.call_timeout ? options_.call_timeout : kAskTimeout)));
    }
  }
}

absl::StatusOr<bool> CallbackHost::Take(const std::string& line, Hook hook) {
  const json message = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string op = message.is_object() ? envhost::TextOf(message, "op") : "";
  if (op == "done") return true;
  if (op == "track") {
    TROUPE_RETURN_IF_ERROR(Track(message));
  } else if (op == "asks" || op == "goes on") {
    asks_ = op == "asks";
  } else if (op == "stop") {
    options_.stop(base::LogSafe(envhost::TextOf(message, "reason"), kMaxReason));
  } else if (op == "raised") {
    NoteRaised(message, hook);
  } else {
    return NotUnderstood(line);
  }
  return false;
}

absl::Status CallbackHost::Track(const json& message) {
  const std::string name = envhost::TextOf(message, "name");
  const auto value = message.find("value");
  if (name.empty() || name.size() > kMaxTrackedName || base::LogSafe(name) != name || value == message.end() ||
      !value->is_number() || !base::IsTrackedNumber(value->get<double>())) {
    return NotUnderstood(ToLine(message));
  }
  base::MutexLock lock(&mutex_);
  names_.insert(name);
  if (names_.size() > kMaxTracked) {
    return absl::ResourceExhaustedError(absl::StrCat("tracked more than ", kMaxTracked, " names"));
  }
  Mean& mean = tracked_[name];
  mean.sum += value->get<double>();
  ++mean.count;
  return absl::OkStatus();
}

void CallbackHost::NoteRaised(const json& message, Hook hook) {
  int64_t errors = 0;
  {
    base::MutexLock lock(&mutex_);
    errors = ++errors_;
  }
  const bool told = errors <= kFirstWarnings || (errors & (errors - 1)) == 0;
  if (told) {
    TROUPE_WARN("a callback raised callback=\"{}\" hook={} errors={} error=\"{}\"",
                base::LogSafe(envhost::TextOf(message, "callback"), 200), NameOf(hook), errors,
                base::LogSafe(envhost::TextOf(message, "error"), kMaxError));
  }
  const std::string what = errors == 1 ? "a call" : absl::StrCat(errors, " calls");
  options_.degradations->Set("callbacks",
                             absl::StrCat(what, " of callbacks raised an exception, the last was ", NameOf(hook)));
}

void CallbackHost::TurnOff(const absl::Status& why, std::string_view hook) {
  const std::string words = absl::StrCat("callbacks are off: ", std::string(hook), ": ", std::string(why.message()));
  TROUPE_WARN("{}, training goes on", words);
  options_.degradations->Set("callbacks", words);
  child_->Kill();
  child_ = nullptr;
  std::deque<Event> dropped;  // destroyed after the lock is released
  base::MutexLock lock(&mutex_);
  off_ = true;
  ++errors_;
  dropped.swap(waiting_);
}

void CallbackHost::AddTracked(const learner::TrackedBook::News& news) {
  bool leaves_out = false;
  {
    base::MutexLock lock(&mutex_);
    leaves_out_ = leaves_out_ || news.leaves_out;
    for (const base::TrackedTotal& total : news.tracked) {
      if (names_.size() >= kMaxTracked && names_.count(total.name) == 0) {
        leaves_out_ = true;
        continue;
      }
      names_.insert(total.name);
      Mean& mean = tracked_[total.name];
      mean.sum += total.sum;
      mean.count += total.episodes;
    }
    turned_off_ = news.turned_off;
    leaves_out = leaves_out_;
  }
  std::string words;
  if (news.workers_off > 0) {
    words = absl::StrCat("callbacks of episodes are off at ", news.workers_off,
                         news.workers_off == 1 ? " worker" : " workers");
  } else if (leaves_out) {
    words = absl::StrCat("callbacks of episodes track more than ", kMaxTracked, " names, others are left out");
  }
  options_.degradations->Set("callbacks of episodes", std::move(words));
}

std::vector<learner::NamedValue> CallbackHost::TakeValues() {
  std::map<std::string, Mean> tracked;
  std::vector<learner::NamedValue> values;
  base::MutexLock lock(&mutex_);
  tracked.swap(tracked_);
  for (const auto& [name, mean] : tracked) {
    const std::string key = absl::StrCat("Custom/", name);
    values.push_back({key, key, mean.sum / static_cast<double>(mean.count)});
  }
  values.push_back({"callback_errors", "Callbacks/Errors", static_cast<double>(errors_ + turned_off_)});
  return values;
}

}  // namespace troupe::run
