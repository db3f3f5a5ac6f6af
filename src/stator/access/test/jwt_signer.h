// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::access {

/// An issuer's key pair, for tests.
class JwtSigner {
 public:
  /// `algorithm`: RS256 to PS512, ES256, ES384, ES512 or EdDSA.
  JwtSigner(std::string_view algorithm, std::string_view key_id);
  JwtSigner(const JwtSigner&) = delete;
  JwtSigner& operator=(const JwtSigner&) = delete;
  ~JwtSigner();

  /// The public half, as a member of a JSON Web Key Set.
  std::string jwk() const;
  std::string key_set() const { return "{\"keys\":[" + jwk() + "]}"; }
  /// The same, of a key that does not say what it is for.
  std::string key_set_of_any_algorithm() const;
  std::string sign(std::string_view claims) const;
  /// With another header.
  std::string sign(std::string_view header, std::string_view claims) const;

 private:
  std::string algorithm_;
  std::string key_id_;
  void* key_;  // an EVP_PKEY
};

}  // namespace stator::access
