#include "lib/base/sha256.h"

#include "absl/strings/escaping.h"
#include "lib/base/check.h"
#include <openssl/evp.h>

namespace troupe::base {

std::string Sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TROUPE_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace troupe::base
