// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/kube/access.h"

namespace stator::kube {

/// What a kubeconfig's program said: by what an API server knows us, and until when.
struct ExecCredential {
  std::string token;
  std::string certificate;  ///< PEM
  std::string key;          ///< PEM
  /// None: as long as the server takes it.
  std::optional<WallTime> expires = {};

  /// There is one, and it will not end within half a minute.
  bool is_good(WallTime now) const;
};

/// Reads an ExecCredential object; kCorrupt where it is none, or says neither a token nor a
/// certificate with its key. Errors have no word of it: it is a secret.
Result<ExecCredential> parse_exec_credential(std::string_view text);

/// Runs the program and reads its answer from its standard output; what it says beside goes to our
/// standard error. Takes a minute at most and 1 MiB. kNotFound where it is not installed.
Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin);

}  // namespace stator::kube
