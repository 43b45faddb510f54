#include "lib/base/sha256.h"

// EVP_Digest, and SHA256 in one call, would bring all of OpenSSL's algorithms into a program that is linked with its
// archive.
#define OPENSSL_API_COMPAT 10100
#include "absl/strings/escaping.h"
#include <openssl/sha.h>

namespace troupe::base {

std::string Sha256(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_CTX state;
  SHA256_Init(&state);
  SHA256_Update(&state, bytes.data(), bytes.size());
  SHA256_Final(digest, &state);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

}  // namespace troupe::base
