#include "lib/policy/policy_state_codec.h"

#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

// Arrays are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x53535054;  // "TPSS"
constexpr uint32_t kFormat = 2;          // 1 began with "TPS1" and had the blocks of PPO, without names
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxBlocks = 4096;

/// What every encoded state begins with; the id follows, and `num_blocks` blocks.
struct Header {
  uint32_t magic;
  uint32_t crc32c;  // of everything behind this field
  uint32_t format;
  uint32_t num_blocks;
  uint64_t learner_epoch;
  int64_t version;
  uint64_t id_bytes;
};
static_assert(sizeof(Header) == 4 * 4 + 3 * 8, "no padding");
constexpr size_t kUnchecked = 2 * sizeof(uint32_t);

/// What every block begins with; its name, extents and values follow.
struct BlockHeader {
  uint32_t type;
  uint32_t num_dimensions;
  uint64_t name_bytes;
  uint64_t num_values;
};
static_assert(sizeof(BlockHeader) == 2 * 4 + 2 * 8, "no padding");

template <typename T>
void AppendStruct(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename Array>
void Append(const Array& values, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
}

template <typename T>
bool TakeStruct(std::string_view* rest, T* value) {
  if (rest->size() < sizeof(T)) return false;
  std::memcpy(value, rest->data(), sizeof(T));
  rest->remove_prefix(sizeof(T));
  return true;
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

/// False when it is not whole, or of a type that there is not.
bool TakeBlock(std::string_view* rest, StateBlock* block) {
  BlockHeader header;
  if (!TakeStruct(rest, &header) || header.num_dimensions > kMaxDimensions) return false;
  if (!Take(header.name_bytes, rest, &block->name) || !Take(header.num_dimensions, rest, &block->shape)) return false;
  switch (header.type) {
    case static_cast<uint32_t>(BlockType::kF32):
      return Take(header.num_values, rest, &block->values.emplace<std::vector<float>>());
    case static_cast<uint32_t>(BlockType::kF64):
      return Take(header.num_values, rest, &block->values.emplace<std::vector<double>>());
    case static_cast<uint32_t>(BlockType::kI64):
      return Take(header.num_values, rest, &block->values.emplace<std::vector<int64_t>>());
    default:
      return false;
  }
}

}  // namespace

std::string EncodePolicyState(const PolicyState& state) {
  const std::string& id = state.id.value();
  const Header header{.magic = kMagic,
                      .crc32c = 0,
                      .format = kFormat,
                      .num_blocks = static_cast<uint32_t>(state.blocks.size()),
                      .learner_epoch = state.version.learner_epoch,
                      .version = state.version.n,
                      .id_bytes = id.size()};
  std::string bytes;
  bytes.reserve(sizeof(Header) + static_cast<size_t>(BytesOf(state)));
  AppendStruct(header, &bytes);
  bytes += id;
  for (const StateBlock& block : state.blocks) {
    AppendStruct(BlockHeader{.type = static_cast<uint32_t>(block.type()),
                             .num_dimensions = static_cast<uint32_t>(block.shape.size()),
                             .name_bytes = block.name.size(),
                             .num_values = static_cast<uint64_t>(block.size())},
                 &bytes);
    bytes += block.name;
    Append(block.shape, &bytes);
    std::visit([&bytes](const auto& values) { Append(values, &bytes); }, block.values);
  }
  const uint32_t crc = base::Crc32c(bytes.data() + kUnchecked, bytes.size() - kUnchecked);
  std::memcpy(bytes.data() + offsetof(Header, crc32c), &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<PolicyState> DecodePolicyState(std::string_view bytes, const PolicySpec& spec) {
  const auto damaged = [&spec](auto&&... what) {
    return absl::DataLossError(absl::StrCat("stored state of policy \"", spec.id.value(), "\" is damaged: ", what...));
  };
  Header header;
  std::string_view rest = bytes;
  if (!TakeStruct(&rest, &header)) return damaged("got ", bytes.size(), " bytes, expected at least ", sizeof(Header));
  if (header.magic != kMagic) return damaged("it does not begin as one");
  const uint32_t crc = base::Crc32c(bytes.data() + kUnchecked, bytes.size() - kUnchecked);
  if (crc != header.crc32c) return damaged("its checksum is ", crc, ", expected ", header.crc32c);
  if (header.format != kFormat) return damaged("got format ", header.format, ", expected ", kFormat);

  PolicyState state;
  state.version = {header.learner_epoch, header.version};
  std::string id;
  bool whole = Take(header.id_bytes, &rest, &id) && header.num_blocks <= kMaxBlocks;
  for (uint32_t i = 0; whole && i < header.num_blocks; ++i) whole = TakeBlock(&rest, &state.blocks.emplace_back());
  if (!whole || !rest.empty()) return damaged("its sizes do not add up to ", bytes.size(), " bytes");
  state.id = PolicyId(std::move(id));
  if (const absl::Status fits = state.Validate(spec); !fits.ok()) return damaged(std::string(fits.message()));
  return state;
}

}  // namespace troupe::policy
