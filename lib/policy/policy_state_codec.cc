#include "lib/policy/policy_state_codec.h"

#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/status_macros.h"

namespace troupe::policy {
namespace {

// Arrays are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x31535054;  // "TPS1"

/// What every encoded state begins with; the arrays follow in the order of the sizes.
struct Header {
  uint32_t magic;
  uint32_t crc32c;  // of everything behind this field
  uint64_t learner_epoch;
  int64_t version;
  int64_t adam_steps;
  int64_t trained_rows;
  int64_t skipped_updates;
  int64_t consecutive_skips;
  double observation_count;
  double value_count;
  // Elements of each array.
  uint64_t observation_mean;
  uint64_t observation_variance;
  uint64_t value_mean;
  uint64_t value_variance;
  uint64_t parameters;
  uint64_t adam_exp_avg;
  uint64_t adam_exp_avg_sq;
  uint64_t id;
};
static_assert(sizeof(Header) == 2 * 4 + 16 * 8, "no padding");
constexpr size_t kUnchecked = 2 * sizeof(uint32_t);

template <typename T>
size_t BytesIn(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

template <typename Array>
void Append(const Array& values, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
}

/// Moves `count` elements from the front of `rest`; false when there are fewer.
template <typename Array>
bool Take(uint64_t count, std::string_view* rest, Array* values) {
  using T = typename Array::value_type;
  if (count > rest->size() / sizeof(T)) return false;
  values->resize(static_cast<size_t>(count));
  const size_t size = static_cast<size_t>(count) * sizeof(T);
  if (size > 0) std::memcpy(values->data(), rest->data(), size);
  rest->remove_prefix(size);
  return true;
}

}  // namespace

int64_t BytesOf(const PolicyState& state) {
  const RunningMoments& observations = state.observation_moments;
  const RunningMoments& values = state.value_moments;
  return static_cast<int64_t>(sizeof(PolicyState) + state.id.value().size() + BytesIn(state.parameters) +
                              BytesIn(state.adam_exp_avg) + BytesIn(state.adam_exp_avg_sq) +
                              BytesIn(observations.mean) + BytesIn(observations.variance) + BytesIn(values.mean) +
                              BytesIn(values.variance));
}

std::string EncodePolicyState(const PolicyState& state) {
  const std::string& id = state.id.value();
  Header header{.magic = kMagic,
                .crc32c = 0,
                .learner_epoch = state.version.learner_epoch,
                .version = state.version.n,
                .adam_steps = state.adam_steps,
                .trained_rows = state.trained_rows,
                .skipped_updates = state.skipped_updates,
                .consecutive_skips = state.consecutive_skips,
                .observation_count = state.observation_moments.count,
                .value_count = state.value_moments.count,
                .observation_mean = state.observation_moments.mean.size(),
                .observation_variance = state.observation_moments.variance.size(),
                .value_mean = state.value_moments.mean.size(),
                .value_variance = state.value_moments.variance.size(),
                .parameters = state.parameters.size(),
                .adam_exp_avg = state.adam_exp_avg.size(),
                .adam_exp_avg_sq = state.adam_exp_avg_sq.size(),
                .id = id.size()};
  std::string bytes;
  bytes.reserve(sizeof(Header) + static_cast<size_t>(BytesOf(state)));
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(Header));
  Append(state.observation_moments.mean, &bytes);
  Append(state.observation_moments.variance, &bytes);
  Append(state.value_moments.mean, &bytes);
  Append(state.value_moments.variance, &bytes);
  Append(state.parameters, &bytes);
  Append(state.adam_exp_avg, &bytes);
  Append(state.adam_exp_avg_sq, &bytes);
  bytes += id;
  const uint32_t crc = base::Crc32c(bytes.data() + kUnchecked, bytes.size() - kUnchecked);
  std::memcpy(bytes.data() + offsetof(Header, crc32c), &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<PolicyState> DecodePolicyState(std::string_view bytes, const PolicySpec& spec) {
  const auto damaged = [&spec](auto&&... what) {
    return absl::DataLossError(absl::StrCat("stored state of policy \"", spec.id.value(), "\" is damaged: ", what...));
  };
  Header header;
  if (bytes.size() < sizeof(Header)) {
    return damaged("got ", bytes.size(), " bytes, expected at least ", sizeof(Header));
  }
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.magic != kMagic) return damaged("it does not begin as one");
  const uint32_t crc = base::Crc32c(bytes.data() + kUnchecked, bytes.size() - kUnchecked);
  if (crc != header.crc32c) return damaged("its checksum is ", crc, ", expected ", header.crc32c);

  PolicyState state;
  state.version = {header.learner_epoch, header.version};
  state.adam_steps = header.adam_steps;
  state.trained_rows = header.trained_rows;
  state.skipped_updates = header.skipped_updates;
  state.consecutive_skips = header.consecutive_skips;
  state.observation_moments.count = header.observation_count;
  state.value_moments.count = header.value_count;
  std::string id;
  std::string_view rest = bytes.substr(sizeof(Header));
  const bool whole = Take(header.observation_mean, &rest, &state.observation_moments.mean) &&
                     Take(header.observation_variance, &rest, &state.observation_moments.variance) &&
                     Take(header.value_mean, &rest, &state.value_moments.mean) &&
                     Take(header.value_variance, &rest, &state.value_moments.variance) &&
                     Take(header.parameters, &rest, &state.parameters) &&
                     Take(header.adam_exp_avg, &rest, &state.adam_exp_avg) &&
                     Take(header.adam_exp_avg_sq, &rest, &state.adam_exp_avg_sq) && Take(header.id, &rest, &id);
  if (!whole || !rest.empty()) return damaged("its sizes do not add up to ", bytes.size(), " bytes");
  state.id = PolicyId(std::move(id));
  if (const absl::Status fits = state.Validate(spec); !fits.ok()) return damaged(std::string(fits.message()));
  return state;
}

}  // namespace troupe::policy
