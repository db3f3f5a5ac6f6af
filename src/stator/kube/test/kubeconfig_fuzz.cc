// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kube/access.h"
#include "stator/kube/exec_credential.h"

/// What is taken of a kubeconfig, and of a program's answer, names a server and a secret.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto access = stator::kube::parse_kubeconfig(text, "/folder/config")) {
    STATOR_ASSERT(!access->server.empty(), "there is a server");
    for (const std::string& path :
         {access->ca_path, access->token_path, access->certificate_path, access->key_path}) {
      STATOR_ASSERT(path.empty() || path.front() == '/', "paths are whole");
    }
  }
  if (const auto credential = stator::kube::parse_exec_credential(text)) {
    STATOR_ASSERT(!credential->token.empty() || !credential->key.empty(), "there is a secret");
  }
  return 0;
}
