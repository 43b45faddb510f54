#include "lib/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace troupe::base {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // Castagnoli, bit-reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)

// The CRC instruction has a latency of three cycles and can start every cycle: three independent streams of kBlock
// bytes run side by side and are joined by "appending zeros" to the first two, an XOR-linear map kept as a table.
constexpr size_t kBlock = 4096;
constexpr size_t kLine = 64;

using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

ShiftTable MakeShiftTable(size_t zero_bytes) {
  // Column i of the linear map: the CRC register 1<<i after `zero_bytes` zero bytes.
  std::array<uint32_t, 32> columns{};
  for (int i = 0; i < 32; ++i) {
    uint32_t crc = 1u << i;
    for (size_t b = 0; b < zero_bytes; ++b) crc = (crc >> 8) ^ kTable[crc & 0xFF];
    columns[i] = crc;
  }
  ShiftTable table{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      uint32_t crc = 0;
      for (int bit = 0; bit < 8; ++bit) {
        if (value & (1u << bit)) crc ^= columns[byte * 8 + bit];
      }
      table[byte][value] = crc;
    }
  }
  return table;
}

uint32_t Shift(const ShiftTable& table, uint32_t crc) {
  return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^ table[3][crc >> 24];
}

uint64_t Load64(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cHardware(const unsigned char* p, size_t size, uint32_t crc) {
  static const ShiftTable kShift = MakeShiftTable(kBlock);
  while (size >= 3 * kBlock) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kBlock; i += kLine) {
      // The next round's lines: the processor's own prefetchers stop at the end of a page, which is where streams end.
      for (size_t stream = 3; stream < 6; ++stream) _mm_prefetch(p + stream * kBlock + i, _MM_HINT_T0);
      for (size_t j = i; j < i + kLine; j += 8) {
        a = _mm_crc32_u64(a, Load64(p + j));
        b = _mm_crc32_u64(b, Load64(p + kBlock + j));
        c = _mm_crc32_u64(c, Load64(p + 2 * kBlock + j));
      }
    }
    crc = Shift(kShift, static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    crc = Shift(kShift, crc) ^ static_cast<uint32_t>(c);
    p += 3 * kBlock;
    size -= 3 * kBlock;
  }
  uint64_t wide = crc;
  for (; size >= 8; size -= 8, p += 8) wide = _mm_crc32_u64(wide, Load64(p));
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; --size, ++p) crc = _mm_crc32_u8(crc, *p);
  return crc;
}

#endif

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ p[i]) & 0xFF];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  static const bool kHasInstruction = __builtin_cpu_supports("sse4.2");
  if (kHasInstruction) return ~Crc32cHardware(static_cast<const unsigned char*>(data), size, ~crc);
#endif
  return Crc32cPortable(data, size, crc);
}

}  // namespace troupe::base
