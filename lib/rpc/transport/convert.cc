#include "lib/rpc/transport/convert.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/limits.h"
#include <grpcpp/support/slice.h>

namespace troupe::rpc {

v1::WeightVersion ToProto(const policy::WeightVersion& version) {
  v1::WeightVersion proto;
  proto.set_learner_epoch(version.learner_epoch);
  proto.set_n(version.n);
  return proto;
}

policy::WeightVersion FromProto(const v1::WeightVersion& version) {
  return policy::WeightVersion{version.learner_epoch(), version.n()};
}

v1::Grant ToProto(const sample::Grant& grant) {
  v1::Grant proto;
  proto.set_id(grant.id.value());
  proto.set_iteration(grant.iteration);
  *proto.mutable_min_version() = ToProto(grant.min_version);
  proto.set_complete_episodes(grant.complete_episodes);
  for (const sample::GrantLane& lane : grant.lanes) {
    v1::Lane* out = proto.add_lanes();
    out->set_env_id(lane.env_id.value());
    out->set_next_episode(lane.next_episode);
    out->set_fresh(lane.fresh);
    out->set_env_steps(lane.env_steps);
  }
  return proto;
}

absl::StatusOr<sample::Grant> FromProto(const v1::Grant& grant) {
  sample::Grant out;
  out.id = sample::GrantId(grant.id());
  out.iteration = grant.iteration();
  out.min_version = FromProto(grant.min_version());
  out.complete_episodes = grant.complete_episodes();
  for (const v1::Lane& lane : grant.lanes()) {
    if (lane.env_steps() < 1) {
      return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id(), ": environment ", lane.env_id(), " has ",
                                                     lane.env_steps(), " steps, expected >= 1"));
    }
    if (!out.lanes.empty() && out.lanes.back().env_id.value() >= lane.env_id()) {
      return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id(), ": environment ", lane.env_id(), " after ",
                                                     out.lanes.back().env_id.value(), ", expected ascending ids"));
    }
    out.lanes.push_back({.env_id = base::EnvId(lane.env_id()),
                         .next_episode = lane.next_episode(),
                         .fresh = lane.fresh(),
                         .env_steps = lane.env_steps()});
  }
  return out;
}

v1::Ack ToProto(const sample::FragmentAck& ack) {
  v1::Ack proto;
  proto.set_sequence(ack.sequence);
  proto.set_watermark(ack.watermark);
  proto.set_disposition(static_cast<v1::Disposition>(ack.disposition));
  proto.set_reason(ack.reason);
  return proto;
}

absl::StatusOr<sample::FragmentAck> FromProto(const v1::Ack& ack) {
  if (ack.disposition() < v1::DISPOSITION_ACCEPTED || ack.disposition() > v1::DISPOSITION_INVALID) {
    return absl::InvalidArgumentError(
        absl::StrCat("ack of fragment ", ack.sequence(), ": disposition ", ack.disposition(), ", expected 1 to 4"));
  }
  return sample::FragmentAck{.sequence = ack.sequence(),
                             .watermark = ack.watermark(),
                             .disposition = static_cast<sample::Disposition>(ack.disposition()),
                             .reason = ack.reason()};
}

v1::EnvCounters ToProto(const sample::EnvCounters& counters) {
  v1::EnvCounters proto;
  proto.set_errors(counters.errors);
  proto.set_outside_space(counters.outside_space);
  proto.set_exceptions(counters.exceptions);
  proto.set_bad_outputs(counters.bad_outputs);
  proto.set_timeouts(counters.timeouts);
  proto.set_process_deaths(counters.process_deaths);
  proto.set_process_restarts(counters.process_restarts);
  proto.set_lost_episodes(counters.lost_episodes);
  return proto;
}

absl::StatusOr<sample::EnvCounters> FromProto(const v1::EnvCounters& proto) {
  const sample::EnvCounters counters = {.errors = proto.errors(),
                                        .outside_space = proto.outside_space(),
                                        .lost_episodes = proto.lost_episodes(),
                                        .exceptions = proto.exceptions(),
                                        .bad_outputs = proto.bad_outputs(),
                                        .timeouts = proto.timeouts(),
                                        .process_deaths = proto.process_deaths(),
                                        .process_restarts = proto.process_restarts()};
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    if (counters.*field.value >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("environment counters: ", field.key, " is ", counters.*field.value, ", expected at least 0"));
  }
  return counters;
}

void FillHeartbeat(const sample::EnvReport& report, v1::Heartbeat* heartbeat) {
  *heartbeat->mutable_env_counters() = ToProto(report.counters);
  heartbeat->mutable_recent_episodes()->set_ended(report.recent.ended);
  heartbeat->mutable_recent_episodes()->set_failed(report.recent.failed);
  heartbeat->set_fails_from_the_start(report.fails_from_the_start);
  for (const sample::EnvIncident& incident : report.incidents) {
    v1::EnvIncident* out = heartbeat->add_env_incidents();
    out->set_what(static_cast<v1::EnvIncidentKind>(incident.what));
    out->set_kind(incident.kind);
    out->set_text(incident.text);
  }
  for (const base::TrackedTotal& total : report.tracked) {
    v1::TrackedTotal* out = heartbeat->add_tracked();
    out->set_name(total.name);
    out->set_sum(total.sum);
    out->set_episodes(total.episodes);
  }
  heartbeat->set_callbacks_off(report.callbacks_off);
}

namespace {

absl::Status TakeTracked(const v1::Heartbeat& heartbeat, sample::EnvReport* report) {
  if (heartbeat.tracked_size() > static_cast<int>(base::kMaxTrackedNames)) {
    return absl::InvalidArgumentError(absl::StrCat("a Heartbeat has ", heartbeat.tracked_size(),
                                                   " tracked names, expected at most ", base::kMaxTrackedNames));
  }
  for (const v1::TrackedTotal& total : heartbeat.tracked()) {
    if (!base::IsTrackedName(total.name()) || !base::IsTrackedNumber(total.sum()) || total.episodes() < 0 ||
        total.episodes() > base::kMaxTrackedEpisodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a Heartbeat has tracked \"", base::LogSafe(total.name(), base::kMaxTrackedNameBytes),
                       "\": ", total.sum(), " over ", total.episodes(), " episodes, expected a name of 1 to ",
                       base::kMaxTrackedNameBytes, " printable characters, a sum of at most ", base::kMaxTrackedSum,
                       " either way, and 0 to ", base::kMaxTrackedEpisodes, " episodes"));
    }
    report->tracked.push_back({total.name(), total.sum(), total.episodes()});
  }
  report->callbacks_off = heartbeat.callbacks_off().substr(0, sample::EnvReport::kMaxCallbacksOffBytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<sample::EnvReport> FromProto(const v1::Heartbeat& heartbeat) {
  using sample::EnvIncident;
  using sample::RecentEpisodes;
  sample::EnvReport report;
  TROUPE_ASSIGN_OR_RETURN(report.counters, FromProto(heartbeat.env_counters()));
  report.recent = {heartbeat.recent_episodes().ended(), heartbeat.recent_episodes().failed()};
  if (report.recent.failed < 0 || report.recent.failed > report.recent.ended ||
      report.recent.ended > RecentEpisodes::kMost) {
    return absl::InvalidArgumentError(absl::StrCat("recent_episodes has ", report.recent.failed, " failed of ",
                                                   report.recent.ended, ", expected 0 to ", RecentEpisodes::kMost,
                                                   " episodes and no more failed ones"));
  }
  report.fails_from_the_start = heartbeat.fails_from_the_start();
  if (heartbeat.env_incidents_size() > static_cast<int>(EnvIncident::kMostKinds)) {
    return absl::InvalidArgumentError(absl::StrCat("a Heartbeat has ", heartbeat.env_incidents_size(),
                                                   " env_incidents, expected at most ", EnvIncident::kMostKinds));
  }
  for (const v1::EnvIncident& incident : heartbeat.env_incidents()) {
    const bool outside = incident.what() == v1::ENV_INCIDENT_KIND_OUTSIDE_SPACE;
    if (!outside && incident.what() != v1::ENV_INCIDENT_KIND_FAILURE) continue;  // of a later release
    report.incidents.push_back({outside ? EnvIncident::What::kOutsideSpace : EnvIncident::What::kFailure,
                                incident.kind().substr(0, EnvIncident::kMaxKindBytes),
                                incident.text().substr(0, EnvIncident::kMaxTextBytes)});
  }
  TROUPE_RETURN_IF_ERROR(TakeTracked(heartbeat, &report));
  return report;
}

absl::Status CheckProtocol(const v1::ProtocolVersion& peer) {
  if (peer.major() == kProtocolMajor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("protocol ", peer.major(), ".", peer.minor(),
                                                    " is not spoken here, expected ", kProtocolMajor, ".",
                                                    kProtocolMinor, ": use builds of the same release on both ends"));
}

v1::ProtocolVersion OurProtocol() {
  v1::ProtocolVersion version;
  version.set_major(kProtocolMajor);
  version.set_minor(kProtocolMinor);
  return version;
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace troupe::rpc
