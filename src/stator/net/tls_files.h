// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stator::net {

/// PEM files of one side of a connection between our processes. Both sides present a certificate
/// and check the other's against `ca`: a cluster-internal line is mutual or it is plain.
struct TlsFiles {
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path ca;
  /// Of who is called: by whom. One subject alternative name (DNS name, IP address, or URI such
  /// as spiffe://…) of the caller's certificate must be among them; empty: whoever `ca` signed.
  std::vector<std::string> allowed_callers = {};
  /// Of a frontend: the name that workers' certificates have; empty: their address.
  std::string server_name = {};
};

}  // namespace stator::net
