#pragma once

#include <cstdint>
#include <string_view>

namespace troupe::rpc {

/// Counts the fields of HTTP/2 header blocks (HPACK, RFC 7541, section 6) as their bytes pass by, without decoding any:
/// where a field ends follows from its own lengths. One byte makes a field that lies in the connection's table, and
/// gRPC keeps memory for each, those beyond its limit of metadata, too. Changes of the table's size count as fields.
/// Plain value; keeps no bytes.
class HeaderFieldCounter {
 public:
  /// Another block begins, whatever became of the last one.
  void BeginBlock() { *this = HeaderFieldCounter(); }
  /// The block's next bytes.
  void Add(std::string_view bytes);

  /// Fields that have begun in this block.
  int64_t num_fields() const { return num_fields_; }
  /// It holds an integer that no peer needs; what follows is not counted.
  bool malformed() const { return malformed_; }

 private:
  void BeginField(uint8_t byte);
  void BeginInteger(uint8_t byte, int prefix_bits);
  void ContinueInteger(uint8_t byte);
  void OnInteger();

  int64_t num_fields_ = 0;
  bool malformed_ = false;
  bool literal_ = false;     ///< the field under way has texts of its own
  int texts_left_ = 0;       ///< of the field under way: their lengths are still to come
  uint64_t text_bytes_ = 0;  ///< of the text under way that are still to come
  int shift_ = -1;           ///< of the integer under way; -1: none is
  uint64_t value_ = 0;       ///< of it so far
};

}  // namespace troupe::rpc
