// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/certificates.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>

#include "stator/kube/base64.h"

namespace stator::kube {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAuthorityLife = std::chrono::hours(24 * 3650);
constexpr long kVersion3 = 2;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* of) const {
    Free(of);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;

Error failed(std::string_view what) {
  std::array<char, 200> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  return {Code::kInternal, fmt::format("{}: {}", what, reason.data())};
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(std::max<long>(size, 0))};
}

Bio reader(std::string_view pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Result<Certificate> read_certificate(std::string_view pem) {
  Certificate certificate(PEM_read_bio_X509(reader(pem).get(), nullptr, nullptr, nullptr));
  if (!certificate) {
    return Error(Code::kInvalidArgument, "not a PEM certificate");
  }
  return certificate;
}

Status add_extension(X509& certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, &certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (!extension || X509_add_ext(&certificate, extension.get(), -1) != 1) {
    return failed("making a certificate's extension");
  }
  return {};
}

/// Everything but its extensions and its signature.
Result<Certificate> make_certificate(std::string_view name, EVP_PKEY& key, WallTime now,
                                     Duration life) {
  Certificate made(X509_new());
  std::array<unsigned char, 16> serial{};
  if (!made || RAND_bytes(serial.data(), serial.size()) != 1) {
    return failed("making a certificate");
  }
  serial[0] &= 0x7F;  // a serial number is positive
  BIGNUM* number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(made.get()));
  BN_free(number);
  const time_t begin = std::chrono::duration_cast<std::chrono::seconds>(
                           (now - std::chrono::hours(1)).time_since_epoch())
                           .count();
  const time_t end =
      begin +
      std::chrono::duration_cast<std::chrono::seconds>(life + std::chrono::hours(1)).count();
  X509_set_version(made.get(), kVersion3);
  ASN1_TIME_set(X509_getm_notBefore(made.get()), begin);
  ASN1_TIME_set(X509_getm_notAfter(made.get()), end);
  X509_set_pubkey(made.get(), &key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  return made;
}

Result<KeyPair> sign(X509& certificate, EVP_PKEY& key, EVP_PKEY& signer) {
  if (X509_sign(&certificate, &signer, EVP_sha256()) == 0) {
    return failed("signing a certificate");
  }
  const Bio out(BIO_new(BIO_s_mem()));
  const Bio key_out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(out.get(), &certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_out.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return failed("writing a certificate");
  }
  return KeyPair{text_of(out.get()), text_of(key_out.get())};
}

/// RFC 4251: a length and the bytes; whole numbers with a zero in front where they would look
/// negative.
void append_field(std::string& out, std::string_view bytes) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(bytes.size() >> shift & 0xFFU));
  }
  out += bytes;
}

bool append_number(std::string& out, const EVP_PKEY& key, const char* name) {
  BIGNUM* number = nullptr;
  if (EVP_PKEY_get_bn_param(&key, name, &number) != 1) {
    return false;
  }
  std::string bytes(static_cast<size_t>(BN_num_bytes(number)), '\0');
  BN_bn2bin(number, reinterpret_cast<unsigned char*>(bytes.data()));
  BN_free(number);
  if ((static_cast<unsigned char>(bytes.front()) & 0x80U) != 0) {
    bytes.insert(bytes.begin(), '\0');
  }
  append_field(out, bytes);
  return true;
}

bool is_address(std::string_view host) {
  return host.find(':') != std::string_view::npos ||
         std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

}  // namespace

Result<KeyPair> make_authority(std::string_view name, WallTime now) {
  const Key key(EVP_EC_gen("P-256"));
  if (!key) {
    return failed("making a key");
  }
  STATOR_TRY(const Certificate made, make_certificate(name, *key, now, kAuthorityLife));
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  STATOR_CHECK(add_extension(*made, made.get(), NID_basic_constraints, "critical,CA:TRUE"));
  STATOR_CHECK(add_extension(*made, made.get(), NID_key_usage, "critical,keyCertSign,cRLSign"));
  STATOR_CHECK(add_extension(*made, made.get(), NID_subject_key_identifier, "hash"));
  return sign(*made, *key, *key);
}

Result<KeyPair> make_server_certificate(const KeyPair& authority,
                                        const std::vector<std::string>& hosts, WallTime now,
                                        Duration lifetime) {
  STATOR_TRY(const Certificate issuer, read_certificate(authority.certificate));
  const Key signer(PEM_read_bio_PrivateKey(reader(authority.key).get(), nullptr, nullptr, nullptr));
  const Key key(EVP_EC_gen("P-256"));
  if (!signer || !key) {
    return failed("reading the authority's key");
  }
  std::string names;
  for (const std::string& host : hosts) {
    names +=
        fmt::format("{}{}:{}", names.empty() ? "" : ",", is_address(host) ? "IP" : "DNS", host);
  }
  STATOR_TRY(const Certificate made,
             make_certificate(hosts.empty() ? "stator" : hosts.front(), *key, now, lifetime));
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer.get()));
  STATOR_CHECK(add_extension(*made, issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  STATOR_CHECK(add_extension(*made, issuer.get(), NID_ext_key_usage, "serverAuth"));
  STATOR_CHECK(add_extension(*made, issuer.get(), NID_subject_alt_name, names));
  return sign(*made, *key, *signer);
}

Result<WallTime> end_of_certificate(std::string_view pem) {
  STATOR_TRY(const Certificate certificate, read_certificate(pem));
  std::tm when{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &when) != 1) {
    return Error(Code::kInvalidArgument, "the certificate has no end");
  }
  return WallTime(std::chrono::seconds(timegm(&when)));
}

bool certifies(const KeyPair& server, std::string_view authority_pem,
               const std::vector<std::string>& hosts) {
  const auto certificate = read_certificate(server.certificate);
  const auto authority = read_certificate(authority_pem);
  if (!certificate || !authority) {
    return false;
  }
  const Key key(X509_get_pubkey(authority->get()));
  if (X509_verify(certificate->get(), key.get()) != 1) {
    return false;
  }
  return std::ranges::all_of(hosts, [&](const std::string& host) {
    return is_address(host)
               ? X509_check_ip_asc(certificate->get(), host.c_str(), 0) == 1
               : X509_check_host(certificate->get(), host.c_str(), host.size(), 0, nullptr) == 1;
  });
}

Result<SshKey> make_ssh_key() {
  constexpr unsigned int kBits = 3072;
  const Key key(EVP_RSA_gen(kBits));
  const Bio out(BIO_new(BIO_s_mem()));
  if (!key || PEM_write_bio_PrivateKey_traditional(out.get(), key.get(), nullptr, nullptr, 0,
                                                   nullptr, nullptr) != 1) {
    return failed("making an ssh key");
  }
  std::string blob;
  append_field(blob, "ssh-rsa");
  if (!append_number(blob, *key, "e") || !append_number(blob, *key, "n")) {
    return failed("writing an ssh key");
  }
  return SshKey{text_of(out.get()), fmt::format("ssh-rsa {} stator\n", to_base64(blob))};
}

}  // namespace stator::kube
