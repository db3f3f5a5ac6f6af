// SPDX-License-Identifier: Apache-2.0
#include "stator/access/detail/jws_key.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "stator/text/base64.h"

namespace stator::access::detail {
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

constexpr int kRsaBitsMin = 2048;
constexpr size_t kRsaBytesMax = 1024;
constexpr size_t kEd25519Bytes = 32;

constexpr std::array<JwsAlgorithm, 10> kAlgorithms{{
    {"RS256", KeyKind::kRsa, "SHA256", false},
    {"RS384", KeyKind::kRsa, "SHA384", false},
    {"RS512", KeyKind::kRsa, "SHA512", false},
    {"PS256", KeyKind::kRsa, "SHA256", true},
    {"PS384", KeyKind::kRsa, "SHA384", true},
    {"PS512", KeyKind::kRsa, "SHA512", true},
    {"ES256", KeyKind::kP256, "SHA256", false},
    {"ES384", KeyKind::kP384, "SHA384", false},
    {"ES512", KeyKind::kP521, "SHA512", false},
    {"EdDSA", KeyKind::kEd25519, nullptr, false},
}};

struct Curve {
  std::string_view name;  // in JSON Web Keys
  const char* group;      // at OpenSSL
  KeyKind kind;
  size_t bytes;  // of a coordinate, and of each half of a signature
};
constexpr std::array<Curve, 3> kCurves{{{"P-256", "prime256v1", KeyKind::kP256, 32},
                                        {"P-384", "secp384r1", KeyKind::kP384, 48},
                                        {"P-521", "secp521r1", KeyKind::kP521, 66}}};

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
  if (!modulus || !exponent || modulus->size() > kRsaBytesMax || exponent->size() > 8) {
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

PublicKey ec_key(const json::Value& jwk, const Curve& curve) {
  const auto x = decode_base64url(jwk.text_at({"x"}));
  const auto y = decode_base64url(jwk.text_at({"y"}));
  if (!x || !y || x->size() != curve.bytes || y->size() != curve.bytes) {
    return nullptr;
  }
  const std::string point = "\x04" + *x + *y;  // uncompressed
  const std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>> parts(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve.group, 0);
  OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                   point.size());
  return key_from("EC", parts.get());
}

PublicKey ed25519_key(const json::Value& jwk) {
  const auto x = decode_base64url(jwk.text_at({"x"}));
  if (jwk.text_at({"crv"}) != "Ed25519" || !x || x->size() != kEd25519Bytes) {
    return nullptr;
  }
  return PublicKey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_bytes(*x), x->size()));
}

/// r and s side by side, as JOSE has them, become the DER that OpenSSL wants.
std::optional<std::string> der_of(std::string_view raw, size_t bytes) {
  if (raw.size() != 2 * bytes) {
    return std::nullopt;
  }
  const std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>> pair(ECDSA_SIG_new());
  Number r = number_of(raw.substr(0, bytes));
  Number s = number_of(raw.substr(bytes));
  if (pair == nullptr || ECDSA_SIG_set0(pair.get(), r.release(), s.release()) != 1) {
    return std::nullopt;
  }
  std::array<unsigned char, 160> der{};
  unsigned char* end = der.data();
  const int size = i2d_ECDSA_SIG(pair.get(), &end);
  return std::string(reinterpret_cast<const char*>(der.data()),
                     static_cast<size_t>(std::max(size, 0)));
}

const Curve* curve_of(KeyKind kind) {
  const auto* const found = std::ranges::find(kCurves, kind, &Curve::kind);
  return found == kCurves.end() ? nullptr : found;
}

}  // namespace

const JwsAlgorithm* find_jws_algorithm(std::string_view name) {
  const auto* const found =
      std::ranges::find(kAlgorithms, name == "Ed25519" ? "EdDSA" : name, &JwsAlgorithm::name);
  return found == kAlgorithms.end() ? nullptr : found;
}

std::optional<JwsKey> read_jws_key(const json::Value& jwk) {
  const std::string_view type = jwk.text_at({"kty"});
  KeyKind kind = KeyKind::kRsa;
  PublicKey key;
  if (type == "RSA") {
    key = rsa_key(jwk);
  } else if (type == "OKP") {
    kind = KeyKind::kEd25519;
    key = ed25519_key(jwk);
  } else if (type == "EC") {
    const auto* const curve = std::ranges::find(kCurves, jwk.text_at({"crv"}), &Curve::name);
    if (curve != kCurves.end()) {
      kind = curve->kind;
      key = ec_key(jwk, *curve);
    }
  }
  if (key == nullptr) {
    return std::nullopt;
  }
  return JwsKey{kind, std::shared_ptr<EVP_PKEY>(key.release(), EVP_PKEY_free)};
}

bool signature_holds(const JwsKey& key, const JwsAlgorithm& algorithm, std::string_view text,
                     std::string_view signature) {
  std::string der;
  if (const Curve* curve = curve_of(algorithm.kind)) {
    auto made = der_of(signature, curve->bytes);
    if (!made) {
      return false;
    }
    der = std::move(*made);
    signature = der;
  }
  const std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* details = nullptr;  // the context's
  if (EVP_DigestVerifyInit_ex(context.get(), &details, algorithm.digest, nullptr, nullptr,
                              key.key.get(), nullptr) != 1) {
    return false;
  }
  // A salt as long as the digest (RFC 7518 §3.5).
  if (algorithm.pss && (EVP_PKEY_CTX_set_rsa_padding(details, RSA_PKCS1_PSS_PADDING) != 1 ||
                        EVP_PKEY_CTX_set_rsa_pss_saltlen(details, RSA_PSS_SALTLEN_DIGEST) != 1)) {
    return false;
  }
  return EVP_DigestVerify(context.get(), as_bytes(signature), signature.size(), as_bytes(text),
                          text.size()) == 1;
}

}  // namespace stator::access::detail
