// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace stator::runtime {

/// PEM files of one side of a worker-plane connection. Both sides present a certificate and check
/// the other's against `ca`: a cluster-internal line is mutual or it is plain.
struct TlsFiles {
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path ca;
};

}  // namespace stator::runtime
