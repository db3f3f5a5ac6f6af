// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/access/caller.h"
#include "stator/access/detail/jws_key.h"
#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::access {

/// What tokens must say, and where they say who sends them.
struct JwtRules {
  std::string issuer;    ///< empty: any
  std::string audience;  ///< empty: any
  std::string tenant_claim = "tenant";
  std::string role_claim = "role";
};

/// What a token that holds says.
struct JwtClaims {
  Role role = Role::kUser;
  std::string tenant;
  std::string subject;
  WallTime expires;
};

/// Whether it looks like a signed token rather than a key: three parts, the first a JSON object.
bool looks_like_jwt(std::string_view text);

/// The public keys of an issuer (RFC 7517): RSA of 2048 bits or more, P-256, P-384, P-521, Ed25519.
/// Keys of other kinds and uses are passed over. Immutable, so any thread may verify.
class JwkSet {
 public:
  /// kInvalidArgument: no JSON Web Key Set, or none of its keys is of a kind we verify with.
  static Result<JwkSet> parse(std::string_view text);

  /// Signature, times, issuer and audience (RFC 7515, RFC 7519). The key says by which algorithms:
  /// its own if it names one, else those of its kind; what the token's header says must be among
  /// them, so that "none" and HMAC with a public key as secret are not even tried. A token must
  /// expire.
  /// kNotFound: signed by a key that is not here, so the set may be old; kUnauthenticated: the
  /// rest, with a reason that tells nothing of keys.
  Result<JwtClaims> verify(std::string_view token, const JwtRules& rules, WallTime now) const;
  size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string id;
    const detail::JwsAlgorithm* only;  // null: every one of its kind
    detail::JwsKey key;
  };
  std::vector<Key> keys_;
};

}  // namespace stator::access
