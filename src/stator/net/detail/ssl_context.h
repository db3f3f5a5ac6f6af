// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/ssl.h>

#include <filesystem>
#include <memory>

#include "stator/core/result.h"

namespace stator::net::detail {

struct SslContextDeleter {
  void operator()(SSL_CTX* of) const { SSL_CTX_free(of); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDeleter>;

/// A context of TLS 1.2 and newer without renegotiation and compression, for transports whose
/// output may move and be written in parts, that shows the chain in `certificate` (PEM), or none
/// without `certificate` and `key`. kInvalidArgument names the file that cannot be used.
Result<SslContext> make_ssl_context(const SSL_METHOD* method,
                                    const std::filesystem::path& certificate,
                                    const std::filesystem::path& key);

/// Asks the other side, as `verify` (SSL_VERIFY_…) says, for a certificate that `ca` signed.
Status ask_certificate(SSL_CTX& context, int verify, const std::filesystem::path& ca);

}  // namespace stator::net::detail
