// SPDX-License-Identifier: Apache-2.0
#include "stator/access/jwt.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "stator/access/key_table.h"
#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::access {
namespace {

using text::decode_base64url;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* what) const {
    kFree(what);
  }
};
using PublicKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;

constexpr size_t kTokenBytesMax = size_t{16} << 10;
constexpr size_t kKeysMax = 1024;
constexpr int kRsaBitsMin = 2048;
constexpr size_t kCoordinateBytes = 32;  // of P-256
constexpr json::ParseLimits kSmall{.depth_max = 16, .values_max = 4096};
// Two clocks may differ by this much for "not before"; for "expires" ours counts.
constexpr Duration kNotBeforeSlack = std::chrono::seconds(5);

Error refused(std::string_view why) {
  return {Code::kUnauthenticated, fmt::format("the token is not accepted: {}", why)};
}

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Number number_of(std::string_view bytes) {
  return Number(BN_bin2bn(as_bytes(bytes), static_cast<int>(bytes.size()), nullptr));
}

PublicKey key_from(const char* kind, OSSL_PARAM_BLD* parts) {
  const std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>> params(OSSL_PARAM_BLD_to_param(parts));
  const std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>> context(
      EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* key = nullptr;
  if (params == nullptr || context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1) {
    return nullptr;
  }
  return PublicKey(key);
}

PublicKey rsa_key(const json::Value& jwk) {
  const auto modulus = decode_base64url(jwk.text_at({"n"}));
  const auto exponent = decode_base64url(jwk.text_at({"e"}));
  if (!modulus || !exponent || modulus->size() > 1024 || exponent->size() > 8) {
    return nullptr;
  }
  const Number n = number_of(*modulus);
  const Number e = number_of(*exponent);
  const std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>> parts(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_N, n.get());
  OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_E, e.get());
  PublicKey key = key_from("RSA", parts.get());
  return key != nullptr && EVP_PKEY_get_bits(key.get()) >= kRsaBitsMin ? std::move(key) : nullptr;
}

PublicKey ec_key(const json::Value& jwk) {
  const auto x = decode_base64url(jwk.text_at({"x"}));
  const auto y = decode_base64url(jwk.text_at({"y"}));
  if (jwk.text_at({"crv"}) != "P-256" || !x || !y || x->size() != kCoordinateBytes ||
      y->size() != kCoordinateBytes) {
    return nullptr;
  }
  const std::string point = "\x04" + *x + *y;  // uncompressed
  const std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>> parts(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
  OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                   point.size());
  return key_from("EC", parts.get());
}

PublicKey ed25519_key(const json::Value& jwk) {
  const auto x = decode_base64url(jwk.text_at({"x"}));
  if (jwk.text_at({"crv"}) != "Ed25519" || !x || x->size() != 32) {
    return nullptr;
  }
  return PublicKey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_bytes(*x), x->size()));
}

/// r and s side by side, as JOSE has them, become the DER that OpenSSL wants.
std::optional<std::string> der_of(std::string_view raw) {
  if (raw.size() != 2 * kCoordinateBytes) {
    return std::nullopt;
  }
  const std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>> pair(ECDSA_SIG_new());
  Number r = number_of(raw.substr(0, kCoordinateBytes));
  Number s = number_of(raw.substr(kCoordinateBytes));
  if (pair == nullptr || ECDSA_SIG_set0(pair.get(), r.release(), s.release()) != 1) {
    return std::nullopt;
  }
  std::array<unsigned char, 80> der{};
  unsigned char* end = der.data();
  const int bytes = i2d_ECDSA_SIG(pair.get(), &end);
  return std::string(reinterpret_cast<const char*>(der.data()),
                     static_cast<size_t>(std::max(bytes, 0)));
}

bool signature_holds(EVP_PKEY* key, std::string_view algorithm, std::string_view text,
                     std::string_view signature) {
  std::string der;
  if (algorithm == "ES256") {
    auto made = der_of(signature);
    if (!made) {
      return false;
    }
    der = std::move(*made);
    signature = der;
  }
  const std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  const EVP_MD* const hash = algorithm == "EdDSA" ? nullptr : EVP_sha256();
  return EVP_DigestVerifyInit(context.get(), nullptr, hash, nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), as_bytes(signature), signature.size(), as_bytes(text),
                          text.size()) == 1;
}

/// Times may have fractions (RFC 7519 §2).
std::optional<WallTime> time_of(const json::Value& claims, std::string_view name) {
  const json::Value* value = claims.find(name);
  const auto seconds = value == nullptr ? std::nullopt : value->as_double();
  constexpr double kSecondsMax = 9e9;
  if (!seconds || !(*seconds >= 0)) {
    return std::nullopt;
  }
  return WallTime(std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(*seconds, kSecondsMax))));
}

/// A word, or a list with it.
bool names(const json::Value* claim, std::string_view word) {
  if (claim == nullptr) {
    return false;
  }
  return claim->as_string() == word || std::ranges::any_of(claim->elements(), [&](const auto& one) {
           return one.as_string() == word;
         });
}

/// The highest role that the claim names.
Role role_of(const json::Value* claim) {
  for (const Role role : {Role::kOperator, Role::kService}) {
    if (names(claim, describe(role))) {
      return role;
    }
  }
  return Role::kUser;
}

Result<JwtClaims> read_claims(const json::Value& claims, const JwtRules& rules, WallTime now) {
  const auto expires = time_of(claims, "exp");
  if (!expires) {
    return refused("it never expires (exp is missing)");
  }
  if (*expires <= now) {
    return refused("it has expired");
  }
  if (const json::Value* from = claims.find("nbf")) {
    const auto begins = time_of(claims, "nbf");
    if (from == nullptr || !begins || *begins > now + kNotBeforeSlack) {
      return refused("it is not valid yet (nbf)");
    }
  }
  if (!rules.issuer.empty() && claims.text_at({"iss"}) != rules.issuer) {
    return refused("its issuer (iss) is another one");
  }
  if (!rules.audience.empty() && !names(claims.find("aud"), rules.audience)) {
    return refused("it is for another audience (aud)");
  }
  JwtClaims out{.role = role_of(claims.find(rules.role_claim)),
                .tenant = std::string(claims.text_at({rules.tenant_claim})),
                .subject = std::string(claims.text_at({"sub"})),
                .expires = *expires};
  if (out.tenant.empty()) {
    out.tenant = out.subject;
  }
  if (Status named = check_tenant(out.tenant); !named) {
    return refused("neither its tenant nor its subject is a tenant's name");
  }
  return out;
}

struct Parts {
  std::string_view signed_text;
  std::string header;
  std::string payload;
  std::string signature;
};

std::optional<Parts> split(std::string_view token) {
  const size_t first = token.find('.');
  const size_t last = token.rfind('.');
  if (token.size() > kTokenBytesMax || first == std::string_view::npos || first == last ||
      token.substr(first + 1, last - first - 1).contains('.')) {
    return std::nullopt;
  }
  auto header = decode_base64url(token.substr(0, first));
  auto payload = decode_base64url(token.substr(first + 1, last - first - 1));
  auto signature = decode_base64url(token.substr(last + 1));
  if (!header || !payload || !signature) {
    return std::nullopt;
  }
  return Parts{token.substr(0, last), std::move(*header), std::move(*payload),
               std::move(*signature)};
}

}  // namespace

bool looks_like_jwt(std::string_view text) {
  return text.starts_with("ey") && std::ranges::count(text, '.') == 2;
}

Result<JwkSet> JwkSet::parse(std::string_view text) {
  STATOR_TRY(const json::Value document,
             json::parse(text, {.depth_max = 16, .values_max = 256 * 1024}));
  const json::Value* list = document.find("keys");
  if (list == nullptr || !list->is_array()) {
    return Error(Code::kInvalidArgument, "a JSON Web Key Set is an object with a list \"keys\"");
  }
  JwkSet set;
  for (const json::Value& jwk : list->elements()) {
    if (set.keys_.size() == kKeysMax || jwk.text_at({"use"}) == "enc") {
      continue;
    }
    const std::string_view kind = jwk.text_at({"kty"});
    PublicKey key;
    std::string_view algorithm;
    if (kind == "RSA") {
      key = rsa_key(jwk);
      algorithm = "RS256";
    } else if (kind == "EC") {
      key = ec_key(jwk);
      algorithm = "ES256";
    } else if (kind == "OKP") {
      key = ed25519_key(jwk);
      algorithm = "EdDSA";
    }
    const std::string_view meant = jwk.text_at({"alg"});
    if (key != nullptr && (meant.empty() || meant == algorithm || meant == "Ed25519")) {
      set.keys_.push_back({std::string(jwk.text_at({"kid"})), algorithm,
                           std::shared_ptr<EVP_PKEY>(key.release(), EVP_PKEY_free)});
    }
  }
  if (set.keys_.empty()) {
    return Error(Code::kInvalidArgument,
                 "none of its keys is RSA (2048 bits or more, RS256), P-256 (ES256) or Ed25519 "
                 "(EdDSA)");
  }
  return set;
}

Result<JwtClaims> JwkSet::verify(std::string_view token, const JwtRules& rules,
                                 WallTime now) const {
  const auto parts = split(token);
  if (!parts) {
    return refused("it is no signed JSON Web Token");
  }
  const auto header = json::parse(parts->header, kSmall);
  if (!header || !header->is_object() || header->find("crit") != nullptr) {
    return refused("its header is not understood");
  }
  std::string_view algorithm = header->text_at({"alg"});
  algorithm = algorithm == "Ed25519" ? "EdDSA" : algorithm;
  const std::string_view id = header->text_at({"kid"});
  bool tried = false;
  for (const Key& key : keys_) {
    if ((!id.empty() && key.id != id) || key.algorithm != algorithm) {
      continue;
    }
    tried = true;
    if (signature_holds(key.key.get(), algorithm, parts->signed_text, parts->signature)) {
      const auto claims = json::parse(parts->payload, kSmall);
      return claims && claims->is_object() ? read_claims(*claims, rules, now)
                                           : refused("its claims are no JSON object");
    }
  }
  const bool known = std::ranges::any_of(keys_, [&](const Key& key) { return key.id == id; });
  if (!tried && !known && !id.empty()) {
    return Error(Code::kNotFound, "the token is signed by a key that is not known here");
  }
  return refused(tried ? "its signature does not hold" : "its algorithm is not that of the key");
}

}  // namespace stator::access
