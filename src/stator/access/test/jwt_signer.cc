// SPDX-License-Identifier: Apache-2.0
#include "stator/access/test/jwt_signer.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <array>
#include <memory>
#include <vector>

#include "stator/core/assert.h"
#include "stator/text/base64.h"

namespace stator::access {
namespace {

using text::encode_base64url;

EVP_PKEY* as_key(void* key) {
  return static_cast<EVP_PKEY*>(key);
}

std::string number_of(void* key, const char* name, int bytes = 0) {
  BIGNUM* number = nullptr;
  STATOR_ASSERT(EVP_PKEY_get_bn_param(as_key(key), name, &number) == 1, "the key has it");
  const int size = bytes > 0 ? bytes : BN_num_bytes(number);
  std::string out(static_cast<size_t>(size), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(out.data()), size);
  BN_free(number);
  return encode_base64url(out);
}

bool is_rsa(std::string_view algorithm) {
  return algorithm.starts_with("RS") || algorithm.starts_with("PS");
}

/// Of a coordinate; 0 for other kinds of keys.
int curve_bytes(std::string_view algorithm) {
  return algorithm == "ES256" ? 32 : algorithm == "ES384" ? 48 : algorithm == "ES512" ? 66 : 0;
}

const char* curve_name(std::string_view algorithm) {
  return algorithm == "ES256" ? "P-256" : algorithm == "ES384" ? "P-384" : "P-521";
}

const EVP_MD* digest_of(std::string_view algorithm) {
  return algorithm == "EdDSA"         ? nullptr
         : algorithm.ends_with("256") ? EVP_sha256()
         : algorithm.ends_with("384") ? EVP_sha384()
                                      : EVP_sha512();
}

}  // namespace

JwtSigner::JwtSigner(std::string_view algorithm, std::string_view key_id)
    : algorithm_(algorithm),
      key_id_(key_id),
      key_(is_rsa(algorithm)            ? EVP_RSA_gen(2048)
           : curve_bytes(algorithm) > 0 ? EVP_EC_gen(curve_name(algorithm))
                                        : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")) {
  STATOR_ASSERT(key_ != nullptr, "OpenSSL makes keys");
}

JwtSigner::~JwtSigner() {
  EVP_PKEY_free(as_key(key_));
}

std::string JwtSigner::jwk() const {
  std::string parts;
  const int bytes = curve_bytes(algorithm_);
  if (is_rsa(algorithm_)) {
    parts = fmt::format(R"("kty":"RSA","n":"{}","e":"{}")", number_of(key_, OSSL_PKEY_PARAM_RSA_N),
                        number_of(key_, OSSL_PKEY_PARAM_RSA_E));
  } else if (bytes > 0) {
    parts = fmt::format(R"("kty":"EC","crv":"{}","x":"{}","y":"{}")", curve_name(algorithm_),
                        number_of(key_, OSSL_PKEY_PARAM_EC_PUB_X, bytes),
                        number_of(key_, OSSL_PKEY_PARAM_EC_PUB_Y, bytes));
  } else {
    std::array<unsigned char, 32> raw{};
    size_t size = raw.size();
    EVP_PKEY_get_raw_public_key(as_key(key_), raw.data(), &size);
    parts = fmt::format(R"("kty":"OKP","crv":"Ed25519","x":"{}")",
                        encode_base64url({reinterpret_cast<const char*>(raw.data()), raw.size()}));
  }
  return fmt::format(R"({{"kid":"{}","use":"sig","alg":"{}",{}}})", key_id_, algorithm_, parts);
}

std::string JwtSigner::key_set_of_any_algorithm() const {
  std::string text = key_set();
  const std::string named = fmt::format(R"("alg":"{}",)", algorithm_);
  return text.erase(text.find(named), named.size());
}

std::string JwtSigner::sign(std::string_view claims) const {
  return sign(fmt::format(R"({{"alg":"{}","kid":"{}","typ":"JWT"}})", algorithm_, key_id_), claims);
}

std::string JwtSigner::sign(std::string_view header, std::string_view claims) const {
  const std::string text = encode_base64url(header) + "." + encode_base64url(claims);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t size = 0;
  EVP_PKEY_CTX* details = nullptr;  // the context's
  EVP_DigestSignInit(context.get(), &details, digest_of(algorithm_), nullptr, as_key(key_));
  if (algorithm_.starts_with("PS")) {
    EVP_PKEY_CTX_set_rsa_padding(details, RSA_PKCS1_PSS_PADDING);
    EVP_PKEY_CTX_set_rsa_pss_saltlen(details, RSA_PSS_SALTLEN_DIGEST);
  }
  EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size());
  std::vector<unsigned char> signature(size);
  EVP_DigestSign(context.get(), signature.data(), &size, bytes, text.size());
  std::string out(reinterpret_cast<const char*>(signature.data()), size);
  if (const int half = curve_bytes(algorithm_); half > 0) {
    const unsigned char* at = signature.data();
    ECDSA_SIG* pair = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(size));
    out.assign(static_cast<size_t>(2 * half), '\0');
    auto* const begin = reinterpret_cast<unsigned char*>(out.data());
    BN_bn2binpad(ECDSA_SIG_get0_r(pair), begin, half);
    BN_bn2binpad(ECDSA_SIG_get0_s(pair), begin + half, half);
    ECDSA_SIG_free(pair);
  }
  return text + "." + encode_base64url(out);
}

}  // namespace stator::access
