#include "lib/client/policy_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/loopback.h"
#include "proto/troupe/v1/query.grpc.pb.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

namespace troupe {
namespace {

constexpr int kMaxMessageBytes = 5 << 20;  // as the server's limit
// A server that was not there is not asked first for so long.
constexpr absl::Duration kDown = absl::Seconds(1);
// Before the second try at a server alone; doubles.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);

using Clock = std::chrono::steady_clock;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// Plain text to `address` stays on this machine. INVALID_ARGUMENT: it is no address.
absl::Status CheckStaysHere(const std::string& address) {
  if (absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:")) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  std::string host = address.substr(0, address.size() - port.size() - 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (port.empty() || port.find_first_not_of("0123456789") != std::string::npos || host.empty() ||
      (!brackets && absl::StrContains(host, ':'))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got the address \"", address, "\", expected unix:PATH, unix-abstract:NAME, HOST:PORT or [IPV6]:PORT"));
  }
  if (brackets) host = host.substr(1, host.size() - 2);
  if (base::IsLoopback(host)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("address ", address, " is on another machine and the connection is plain text; set credentials, or ",
                   "insecure_plaintext_network on a network you trust"));
}

template <typename T>
void Put(const std::vector<T>& values, std::string* bytes) {
  bytes->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Get(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

PolicyVersion FromProto(const v1::WeightVersion& version) { return {version.learner_epoch(), version.n()}; }

v1::ComputeActionsRequest ToProto(const PolicyQuery& query) {
  v1::ComputeActionsRequest request;
  request.set_deterministic(query.deterministic);
  if (query.seed.has_value()) request.set_seed(*query.seed);
  request.mutable_outputs()->Add(query.outputs.begin(), query.outputs.end());
  for (const PolicyRows& rows : query.policies) {
    v1::QueryRows* const out = request.add_policies();
    out->set_policy_id(rows.policy_id);
    out->set_rows(static_cast<uint32_t>(rows.rows));
    out->set_obs_dtype(rows.byte_obs.empty() ? v1::DTYPE_FLOAT32 : v1::DTYPE_UINT8);
    rows.byte_obs.empty() ? Put(rows.obs, out->mutable_obs()) : Put(rows.byte_obs, out->mutable_obs());
    Put(rows.action_mask, out->mutable_action_mask());
    out->mutable_agent_slots()->Add(rows.agent_slots.begin(), rows.agent_slots.end());
    Put(rows.state.values, out->mutable_state_in());
    out->set_state_tag(rows.state.tag);
    out->set_version(rows.version);
    out->mutable_agent_ids()->Add(rows.agent_ids.begin(), rows.agent_ids.end());
    if (rows.min_version.learner_epoch == 0 && rows.min_version.updates == 0) continue;
    out->mutable_min_version()->set_learner_epoch(rows.min_version.learner_epoch);
    out->mutable_min_version()->set_n(rows.min_version.updates);
  }
  return request;
}

/// INVALID_ARGUMENT: arrays are not as long as they say.
absl::StatusOr<PolicyActions> FromProto(const v1::QueryActions& in, const PolicyRows& asked,
                                        const std::vector<std::string>& outputs) {
  const auto rows = static_cast<size_t>(asked.rows);
  const auto words = static_cast<size_t>(in.action_dtypes_size());
  const auto fits = [&](const char* output, size_t size, size_t expected) {
    const bool named = outputs.empty() || std::find(outputs.begin(), outputs.end(), output) != outputs.end();
    return size == (named ? expected : 0);
  };
  const size_t row_bytes = 4 * std::max<size_t>(rows, 1);
  if (in.rows() != rows || !fits("action", in.actions().size(), 4 * rows * words) ||
      !fits("sampled_action", in.sampled_actions().size(), 4 * rows * words) ||
      !fits("log_prob", static_cast<size_t>(in.action_logp_size()), rows) || in.state_out().size() % row_bytes != 0 ||
      in.logits().size() % row_bytes != 0 || in.mean().size() % row_bytes != 0 ||
      (in.values_size() != 0 && in.values_size() != asked.rows)) {
    return absl::InvalidArgumentError(absl::StrCat("the answer of policy \"", in.policy_id().substr(0, 64),
                                                   "\" has arrays that are not as long as it says"));
  }
  PolicyActions out;
  out.policy_id = in.policy_id();
  out.version = FromProto(in.version());
  out.rows = asked.rows;
  for (const int dtype : in.action_dtypes()) out.is_float.push_back(dtype == v1::DTYPE_FLOAT32);
  out.actions = Get<ActionWord>(in.actions());
  out.sampled_actions = Get<ActionWord>(in.sampled_actions());
  out.log_prob.assign(in.action_logp().begin(), in.action_logp().end());
  out.state = {Get<float>(in.state_out()), in.state_tag()};
  out.logits = Get<float>(in.logits());
  out.mean = Get<float>(in.mean());
  out.values.assign(in.values().begin(), in.values().end());
  return out;
}

absl::StatusOr<std::vector<PolicyActions>> FromProto(const v1::ComputeActionsReply& reply, const PolicyQuery& query) {
  if (static_cast<size_t>(reply.policies_size()) != query.policies.size()) {
    return absl::InternalError(
        absl::StrCat("the answer is of ", reply.policies_size(), " policies, expected ", query.policies.size()));
  }
  std::vector<PolicyActions> answer;
  for (size_t i = 0; i < query.policies.size(); ++i) {
    absl::StatusOr<PolicyActions> actions =
        FromProto(reply.policies(static_cast<int>(i)), query.policies[i], query.outputs);
    if (!actions.ok()) return absl::InternalError(actions.status().message());
    answer.push_back(*std::move(actions));
  }
  return answer;
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

/// A server of several.
struct Server {
  std::string address;
  std::unique_ptr<v1::Query::Stub> stub;
  std::atomic<int64_t> down_until_ns{0};  ///< relaxed: a hint whom to ask first
};

class Client final : public PolicyClient {
 public:
  Client(const std::vector<std::string>& addresses, Options options) : options_(std::move(options)) {
    const auto credentials =
        options_.credentials != nullptr ? options_.credentials : grpc::InsecureChannelCredentials();
    for (const std::string& address : addresses) {
      grpc::ChannelArguments arguments;
      arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
      arguments.SetMaxSendMessageSize(kMaxMessageBytes);
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, options_.use_http_proxy ? 1 : 0);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
      auto server = std::make_unique<Server>();
      server->address = address;
      server->stub = v1::Query::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
      servers_.push_back(std::move(server));
    }
    next_ = std::random_device()() % servers_.size();
  }

  absl::StatusOr<std::vector<PolicyActions>> ComputeActions(const PolicyQuery& query) override {
    const v1::ComputeActionsRequest request = ToProto(query);
    v1::ComputeActionsReply reply;
    const absl::Status status = Try([&](Server& server, int64_t deadline_ns) {
      grpc::ClientContext context;
      Prepare(deadline_ns, &context);
      return FromGrpc(server.stub->ComputeActions(&context, request, &reply));
    });
    if (!status.ok()) return status;
    return FromProto(reply, query);
  }

  absl::StatusOr<std::vector<PolicyDescription>> DescribePolicies(const std::vector<std::string>& ids) override {
    v1::DescribePoliciesRequest request;
    request.mutable_policy_ids()->Add(ids.begin(), ids.end());
    v1::DescribePoliciesReply reply;
    const absl::Status status = Try([&](Server& server, int64_t deadline_ns) {
      grpc::ClientContext context;
      Prepare(deadline_ns, &context);
      return FromGrpc(server.stub->DescribePolicies(&context, request, &reply));
    });
    if (!status.ok()) return status;
    std::vector<PolicyDescription> answer;
    for (const v1::PolicyDescription& in : reply.policies()) {
      PolicyDescription& out = answer.emplace_back();
      out.policy_id = in.policy_id();
      out.version = FromProto(in.version());
      out.observation_space = in.observation_space();
      out.action_space = in.action_space();
      out.network = in.network();
      out.has_byte_obs = in.obs_dtype() == v1::DTYPE_UINT8;
      out.obs_size = in.obs_size();
      out.mask_size = in.mask_size();
      out.state_size = in.state_size();
      out.logits_size = in.logits_size();
      out.mean_size = in.mean_size();
      out.needs_agents = in.needs_agent_slots();
      out.outputs.assign(in.outputs().begin(), in.outputs().end());
      for (const v1::LabelledVersion& each : in.versions()) {
        out.versions.emplace_back(each.label(), FromProto(each.version()));
      }
      for (const int32_t slot : in.agent_slots()) {
        if (slot < 0 || slot >= reply.agent_ids_size()) {
          return absl::InternalError("the answer names slots of agents that it does not have");
        }
        out.agents.push_back(reply.agent_ids(slot));
      }
    }
    return answer;
  }

  std::unique_ptr<PolicyStream> OpenStream() override;

  void Prepare(int64_t deadline_ns, grpc::ClientContext* context) const {
    context->set_deadline(gpr_time_from_nanos(std::max<int64_t>(deadline_ns - NowNs(), 0), GPR_TIMESPAN));
    AddMetadata(context);
  }
  void AddMetadata(grpc::ClientContext* context) const {
    for (const auto& [key, value] : options_.metadata) context->AddMetadata(key, value);
  }

  /// `ask` at one server after the other, until it is not UNAVAILABLE or the tries are used up. Times are of the steady
  /// clock, as in all of this file.
  template <typename Ask>
  absl::Status Try(Ask ask) {
    const int64_t deadline_ns = NowNs() + absl::ToInt64Nanoseconds(options_.timeout);
    const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
    std::vector<Server*> order;
    for (size_t i = 0; i < servers_.size(); ++i) order.push_back(servers_[(first + i) % servers_.size()].get());
    const int64_t now = NowNs();
    std::stable_partition(order.begin(), order.end(), [now](const Server* server) {
      return server->down_until_ns.load(std::memory_order_relaxed) <= now;
    });
    absl::Status status;
    for (size_t attempt = 0; attempt <= static_cast<size_t>(options_.retries); ++attempt) {
      const size_t around = attempt / order.size();
      const absl::Duration pause =
          around == 0 ? absl::ZeroDuration() : kFirstPause * (int64_t{1} << std::min<size_t>(around - 1, 10));
      if (attempt > 0 && NowNs() + absl::ToInt64Nanoseconds(pause) >= deadline_ns) break;
      if (pause > absl::ZeroDuration()) absl::SleepFor(pause);
      Server& server = *order[attempt % order.size()];
      status = ask(server, deadline_ns);
      if (!status.ok())
        status = absl::Status(status.code(),
                              absl::StrCat("server at ", server.address, ": ", std::string(status.message())));
      const bool gone = absl::IsUnavailable(status);
      server.down_until_ns.store(gone ? NowNs() + absl::ToInt64Nanoseconds(kDown) : 0, std::memory_order_relaxed);
      if (!gone) break;
    }
    return status;
  }

 private:
  const Options options_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::atomic<size_t> next_{0};  ///< relaxed: a number
};

/// A call's reader and writer, and the thread that cancels it when an answer is late.
class Stream final : public PolicyStream {
 public:
  explicit Stream(Client* client) : client_(*client) {}
  ~Stream() override { Close().IgnoreError(); }

  absl::StatusOr<std::vector<PolicyActions>> ComputeActions(const PolicyQuery& query) override {
    const v1::ComputeActionsRequest request = ToProto(query);
    v1::ComputeActionsReply reply;
    const absl::Status status =
        client_.Try([&](Server& server, int64_t deadline_ns) { return Ask(server, deadline_ns, request, &reply); });
    if (!status.ok()) return status;
    return FromProto(reply, query);
  }

 private:
  /// On the stream that stands; else on a new one of `server`.
  absl::Status Ask(Server& server, int64_t deadline_ns, const v1::ComputeActionsRequest& request,
                   v1::ComputeActionsReply* reply) {
    const bool stood = call_ != nullptr;
    if (!stood) {
      context_ = std::make_unique<grpc::ClientContext>();
      client_.AddMetadata(context_.get());
      call_ = server.stub->StreamActions(context_.get());
      watch_ = std::thread([this, context = context_.get()] { CancelLate(context); });
    }
    deadline_ns_.store(deadline_ns, std::memory_order_relaxed);
    const bool answered = call_->Write(request) && call_->Read(reply);
    deadline_ns_.store(kNever, std::memory_order_relaxed);
    if (answered) {
      if (!reply->has_error()) return absl::OkStatus();
      const int code = reply->error().code();
      const absl::Status refused(
          code > 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          reply->error().message());
      if (absl::IsUnavailable(refused)) Close().IgnoreError();  // the next server may have what this one lacks
      return refused;
    }
    const absl::Status ended = Close();
    if (NowNs() >= deadline_ns) return absl::DeadlineExceededError("no answer in time");
    // One that stood may have ended for its own reasons: silence, a server that went down. That is no failure of the
    // server that is asked.
    const bool gone = absl::IsUnavailable(ended) || absl::IsCancelled(ended) || absl::IsDeadlineExceeded(ended);
    if (stood && (ended.ok() || gone)) return Ask(server, deadline_ns, request, reply);
    return ended.ok() ? absl::UnavailableError("the server has ended the stream") : ended;
  }

  /// Looks often enough, so that a request wakes no thread.
  void CancelLate(grpc::ClientContext* context) {
    while (!closing_.load(std::memory_order_relaxed)) {
      if (NowNs() >= deadline_ns_.load(std::memory_order_relaxed)) context->TryCancel();
      absl::SleepFor(absl::Milliseconds(10));
    }
  }

  absl::Status Close() {
    if (call_ == nullptr) return absl::OkStatus();
    context_->TryCancel();
    closing_.store(true, std::memory_order_relaxed);
    watch_.join();
    closing_.store(false, std::memory_order_relaxed);
    const absl::Status status = FromGrpc(call_->Finish());
    call_.reset();
    context_.reset();
    return status;
  }

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Client& client_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ComputeActionsRequest, v1::ComputeActionsReply>> call_;
  std::thread watch_;
  std::atomic<bool> closing_{false};
  std::atomic<int64_t> deadline_ns_{kNever};  ///< relaxed: looked at every so often
};

std::unique_ptr<PolicyStream> Client::OpenStream() { return std::make_unique<Stream>(this); }

}  // namespace

absl::StatusOr<std::unique_ptr<PolicyClient>> PolicyClient::Create(std::vector<std::string> addresses,
                                                                   Options options) {
  if (addresses.empty()) return absl::InvalidArgumentError("got no address, expected at least one");
  if (options.retries < 0 || options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", options.retries, " retries and a timeout of ",
                                                   absl::FormatDuration(options.timeout),
                                                   ", expected 0 or more and above 0"));
  }
  for (const std::string& address : addresses) {
    if (options.credentials != nullptr || options.insecure_plaintext_network) continue;
    if (absl::Status refused = CheckStaysHere(address); !refused.ok()) return refused;
  }
  return std::make_unique<Client>(addresses, std::move(options));
}

}  // namespace troupe
