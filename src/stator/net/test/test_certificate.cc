// SPDX-License-Identifier: Apache-2.0
#include "stator/net/test/test_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "stator/core/assert.h"

namespace stator::net {
namespace {

struct Deleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};

void add_extension(X509* certificate, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Deleter> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  STATOR_ASSERT(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
                "OpenSSL makes the extension");
}

}  // namespace

TestCertificate::TestCertificate() {
  std::string pattern = (std::filesystem::temp_directory_path() / "stator-tls-XXXXXX").string();
  STATOR_ASSERT(::mkdtemp(pattern.data()) != nullptr, "the temporary folder is writable");
  folder_ = pattern;

  const std::unique_ptr<EVP_PKEY, Deleter> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Deleter> certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 24L * 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const unsigned char common_name[] = "stator test";
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common_name, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  add_extension(certificate.get(), NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  STATOR_ASSERT(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "OpenSSL signs");

  const std::unique_ptr<BIO, Deleter> cert_file(BIO_new_file(cert_path().c_str(), "w"));
  const std::unique_ptr<BIO, Deleter> key_file(BIO_new_file(key_path().c_str(), "w"));
  STATOR_ASSERT(PEM_write_bio_X509(cert_file.get(), certificate.get()) == 1, "written");
  STATOR_ASSERT(PEM_write_bio_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                         nullptr) == 1,
                "written");
}

TestCertificate::~TestCertificate() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace stator::net
