#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::base {

/// CRC-32C (Castagnoli, RFC 3720) of `size` bytes, continuing from `crc` (0 at the start). Uses the SSE4.2
/// instruction where the processor has it, three streams at a time.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

/// The table-driven form, for processors without the instruction and as the reference of tests.
uint32_t Crc32cPortable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace troupe::base
