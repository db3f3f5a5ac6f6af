// SPDX-License-Identifier: Apache-2.0
#include "stator/access/access_config.h"

namespace stator::access {

void describe(ConfigSchema& schema, AccessConfig& config) {
  schema.text("access.api_keys", config.api_keys,
              "file of API keys, lines `sha256:HEX role tenant` (stator key new writes one); "
              "reloaded when it changes; with it every request needs a key",
              {.flag = "api-keys"});
  schema.text("access.tenants", config.tenants,
              "file of tenants' budgets, lines `NAME requests_per_minute=N tokens_per_minute=N "
              "concurrent=N weight=N`, * for tenants that have no line; reloaded when it changes",
              {.flag = "tenants"});
  schema.text("access.jwt_jwks", config.jwks,
              "file or https:// URL of the JSON Web Key Set that signs clients' tokens (RS256 to "
              "PS512, ES256 to ES512, EdDSA); with it a token does instead of a key",
              {.flag = "jwt-jwks"});
  schema.text("access.jwt_issuer", config.jwt_issuer,
              "tokens must be by this issuer (iss), empty = any that the keys sign",
              {.flag = "jwt-issuer"});
  schema.text("access.jwt_audience", config.jwt_audience,
              "tokens must be for this audience (aud), empty = any", {.flag = "jwt-audience"});
  schema.text("access.jwt_tenant_claim", config.jwt_tenant_claim,
              "claim that names the tenant; the subject (sub) where a token has none");
  schema.text("access.jwt_role_claim", config.jwt_role_claim,
              "claim that names the role, a word or a list of them; user where a token has none");
  schema.duration("access.jwks_interval", config.jwks_interval,
                  "how often a JWKS URL is fetched again; a token with an unknown key id has it "
                  "fetched at once, at most every 2 s");
  schema.duration("access.reload_interval", config.reload_interval,
                  "how often the files are looked at");
  schema.integer("access.jwt_cache_max", config.jwt_cache_max, 1, 1 << 24,
                 "verified tokens that are remembered until they expire; beyond, any of them goes");
  schema.integer("access.tenants_max", config.tenants_max, 1, 1 << 24,
                 "tenants without a line that have a budget of their own; further ones share one");
  schema.secret("access.cache_salt_key", config.cache_salt_key,
                "secret that tenants' cache salts are derived with, the same at all frontends; "
                "empty = one made of all lines of access.api_keys at the start, so caches are cold "
                "after a start with other keys");
}

}  // namespace stator::access
