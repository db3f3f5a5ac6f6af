// SPDX-License-Identifier: Apache-2.0
#include "stator/access/jwt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stator/access/test/jwt_signer.h"
#include "stator/text/base64.h"

namespace stator::access {
namespace {

using ::testing::HasSubstr;
using text::encode_base64url;

const WallTime kNow(std::chrono::seconds(1'700'000'000));
constexpr std::string_view kGood = R"({"sub":"bob","tenant":"acme","exp":1700000060})";

JwkSet keys_of(const std::string& text) {
  auto set = JwkSet::parse(text);
  EXPECT_TRUE(set) << set.error().message();
  return std::move(*set);
}

TEST(Jwt, HoldsForEveryAlgorithm) {
  for (const std::string_view algorithm :
       {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}) {
    const JwtSigner signer(algorithm, "k1");
    const JwkSet keys = keys_of(signer.key_set());
    const std::string token = signer.sign(kGood);

    const auto claims = keys.verify(token, {}, kNow);

    ASSERT_TRUE(claims) << algorithm << claims.error().message();
    EXPECT_TRUE(keys_of(signer.key_set_of_any_algorithm()).verify(token, {}, kNow)) << algorithm;
    EXPECT_FALSE(keys.verify(token.substr(0, token.size() - 8), {}, kNow)) << algorithm;
    EXPECT_EQ(claims->tenant, "acme");
    EXPECT_EQ(claims->subject, "bob");
    EXPECT_EQ(claims->role, Role::kUser);
    EXPECT_EQ(claims->expires, kNow + std::chrono::seconds(60));
  }
}

TEST(Jwt, AKeyThatNamesItsAlgorithmIsForNoOther) {
  const JwtSigner signer("PS256", "k1");
  const std::string other = signer.sign(R"({"alg":"RS256","kid":"k1"})", kGood);

  const auto named = keys_of(signer.key_set()).verify(other, {}, kNow);
  const auto any = keys_of(signer.key_set_of_any_algorithm()).verify(other, {}, kNow);

  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message(), HasSubstr("algorithm"));
  ASSERT_FALSE(any);
  EXPECT_THAT(any.error().message(), HasSubstr("signature"));
}

TEST(Jwt, ReadsRoleAndTenantFromTheirClaims) {
  const JwtSigner signer("EdDSA", "k1");
  const JwkSet keys = keys_of(signer.key_set());
  const JwtRules rules{.tenant_claim = "org", .role_claim = "roles"};

  const auto both = keys.verify(
      signer.sign(R"({"org":"x","roles":["user","operator"],"exp":1700000060.5})"), rules, kNow);
  const auto none = keys.verify(signer.sign(R"({"sub":"s|1","exp":1700000060})"), rules, kNow);

  ASSERT_TRUE(both);
  EXPECT_EQ(both->role, Role::kOperator);
  EXPECT_EQ(both->tenant, "x");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->tenant, "s|1");
}

TEST(Jwt, RefusesWhatDoesNotHold) {
  const JwtSigner signer("ES256", "k1");
  const JwtSigner other("ES256", "k1");
  const JwkSet keys = keys_of(signer.key_set());
  const JwtRules rules{.issuer = "https://id", .audience = "stator"};
  const auto with = [](std::string_view more) {
    return R"({"sub":"a","iss":"https://id","aud":["x","stator"],)" + std::string(more) + "}";
  };
  const std::string good = signer.sign(with(R"("exp":1700000060)"));
  ASSERT_TRUE(keys.verify(good, rules, kNow));
  std::string bent = good;
  bent[bent.size() / 2] = bent[bent.size() / 2] == 'A' ? 'B' : 'A';
  const std::string unsigned_token = encode_base64url(R"({"alg":"none"})") + "." +
                                     encode_base64url(with(R"("exp":1700000060)")) + ".";

  for (const auto& [token, why] : {
           std::pair{signer.sign(with(R"("exp":1700000000)")), "expired"},
           std::pair{signer.sign(with(R"("nbf":0)")), "never expires"},
           std::pair{signer.sign(with(R"("exp":"1700000060")")), "never expires"},
           std::pair{signer.sign(with(R"("exp":1700000060,"nbf":1700000030)")), "not valid yet"},
           std::pair{signer.sign(R"({"sub":"a","iss":"https://evil","exp":1700000060})"), "issuer"},
           std::pair{signer.sign(R"({"sub":"a","iss":"https://id","exp":1700000060})"), "audience"},
           std::pair{other.sign(with(R"("exp":1700000060)")), "signature"},
           std::pair{bent, "not accepted"},
           std::pair{unsigned_token, "algorithm"},
           std::pair{signer.sign(R"({"alg":"HS256","kid":"k1"})", with(R"("exp":1700000060)")),
                     "algorithm"},
           std::pair{signer.sign(R"({"alg":"ES256","kid":"k1","crit":["b64"]})",
                                 with(R"("exp":1700000060)")),
                     "header"},
           std::pair{signer.sign(with(R"("exp":1700000060,"exp":1)")),
                     "expired"},  // the last counts
           std::pair{std::string("ey.ey"), "no signed"},
           std::pair{good + ".x", "no signed"},
       }) {
    const auto claims = keys.verify(token, rules, kNow);
    ASSERT_FALSE(claims) << why;
    EXPECT_EQ(claims.error().code(), Code::kUnauthenticated) << why;
    EXPECT_THAT(claims.error().message(), HasSubstr(why));
  }
}

TEST(Jwt, SaysWhenItDoesNotKnowTheKey) {
  const JwtSigner old_key("ES256", "old");
  const JwtSigner new_key("ES256", "new");

  const auto claims = keys_of(old_key.key_set()).verify(new_key.sign(kGood), {}, kNow);

  ASSERT_FALSE(claims);
  EXPECT_EQ(claims.error().code(), Code::kNotFound);
  const JwkSet both = keys_of("{\"keys\":[" + old_key.jwk() + "," + new_key.jwk() + "]}");
  EXPECT_TRUE(both.verify(new_key.sign(kGood), {}, kNow));
  EXPECT_TRUE(both.verify(old_key.sign(kGood), {}, kNow));
}

TEST(JwkSet, PassesOverWhatItCannotUse) {
  const JwtSigner signer("RS256", "k1");

  EXPECT_EQ(
      keys_of(
          R"({"keys":[{"kty":"oct","k":"AAAA"},{"kty":"EC","crv":"P-521"},{"kty":"EC","crv":"secp256k1"},)" +
          signer.jwk() + "]}")
          .size(),
      1U);
  for (const std::string_view text :
       {"[]", "{}", R"({"keys":[]})", R"({"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]})", "{"}) {
    const auto set = JwkSet::parse(text);
    ASSERT_FALSE(set) << text;
    EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace stator::access
