// SPDX-License-Identifier: Apache-2.0
#include "stator/access/jwt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "stator/access/key_table.h"
#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::access {
namespace {

using text::decode_base64url;

constexpr size_t kTokenBytesMax = size_t{16} << 10;
constexpr size_t kKeysMax = 1024;
constexpr json::ParseLimits kSmall{.depth_max = 16, .values_max = 4096};
// Two clocks may differ by this much for "not before"; for "expires" ours counts.
constexpr Duration kNotBeforeSlack = std::chrono::seconds(5);

Error refused(std::string_view why) {
  return {Code::kUnauthenticated, fmt::format("the token is not accepted: {}", why)};
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
    const std::string_view meant = jwk.text_at({"alg"});
    const detail::JwsAlgorithm* const only =
        meant.empty() ? nullptr : detail::find_jws_algorithm(meant);
    auto key = detail::read_jws_key(jwk);
    if (key && (meant.empty() || (only != nullptr && only->kind == key->kind))) {
      set.keys_.push_back({std::string(jwk.text_at({"kid"})), only, std::move(*key)});
    }
  }
  if (set.keys_.empty()) {
    return Error(Code::kInvalidArgument,
                 "none of its keys is RSA (2048 bits or more), P-256, P-384, P-521 or Ed25519, for "
                 "signatures");
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
  const auto* const algorithm = detail::find_jws_algorithm(header->text_at({"alg"}));
  const std::string_view id = header->text_at({"kid"});
  bool tried = false;
  for (const Key& key : keys_) {
    if ((!id.empty() && key.id != id) || algorithm == nullptr || key.key.kind != algorithm->kind ||
        (key.only != nullptr && key.only != algorithm)) {
      continue;
    }
    tried = true;
    if (detail::signature_holds(key.key, *algorithm, parts->signed_text, parts->signature)) {
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
