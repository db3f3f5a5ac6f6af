// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::kube {

/// A certificate and its private key, both PEM. The key is never logged.
struct KeyPair {
  std::string certificate;
  std::string key;
};

/// A certificate authority of our own: ECDSA P-256, valid for ten years from an hour before `now`.
Result<KeyPair> make_authority(std::string_view name, WallTime now);

/// A server's certificate, signed by `authority`; `hosts` are DNS names and IP addresses. Valid for
/// `lifetime` from an hour before `now`.
Result<KeyPair> make_server_certificate(const KeyPair& authority,
                                        const std::vector<std::string>& hosts, WallTime now,
                                        Duration lifetime);

/// When the first certificate of a PEM text ends. kInvalidArgument when it is none.
Result<WallTime> end_of_certificate(std::string_view pem);

/// Whether a server's certificate names all of these hosts and is signed by this authority.
bool certifies(const KeyPair& server, std::string_view authority_pem,
               const std::vector<std::string>& hosts);

/// An RSA key (3072 bits) as ssh reads it.
struct SshKey {
  std::string secret;  ///< PEM, never logged
  std::string shared;  ///< a line of authorized_keys
};
Result<SshKey> make_ssh_key();

}  // namespace stator::kube
