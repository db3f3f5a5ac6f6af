// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "stator/json/value.h"

struct evp_pkey_st;

namespace stator::access::detail {

enum class KeyKind { kRsa, kP256, kP384, kP521, kEd25519 };

/// How a signature is made (RFC 7518 §3.1, RFC 8037): by public keys only, so no HMAC and no none.
struct JwsAlgorithm {
  std::string_view name;
  KeyKind kind;
  const char* digest;  ///< OpenSSL's name; null: the algorithm has its own
  bool pss;            ///< RSA with probabilistic padding
};

/// Null for names that are none of ours. "Ed25519" is "EdDSA" (RFC 9864).
const JwsAlgorithm* find_jws_algorithm(std::string_view name);

/// A public key that verifies signatures; any thread may use it.
struct JwsKey {
  KeyKind kind;
  std::shared_ptr<evp_pkey_st> key;
};

/// Of a member of a JSON Web Key Set; nothing if it is of another kind, too short (RSA below 2048
/// bits) or not whole.
std::optional<JwsKey> read_jws_key(const json::Value& jwk);

/// Whether `signature` is one over `text` by that key. The key must be of the algorithm's kind.
bool signature_holds(const JwsKey& key, const JwsAlgorithm& algorithm, std::string_view text,
                     std::string_view signature);

}  // namespace stator::access::detail
