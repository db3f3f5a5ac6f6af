// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/operator_listener.h"

#include "stator/io/read_file.h"

namespace stator::cli {
namespace {

constexpr uint64_t kKeyBytesMax = 4096;

}  // namespace

Result<net::HttpHeaderList> read_credentials(const Invocation& invocation) {
  net::HttpHeaderList headers;
  const auto file = invocation.options.find("--key");
  if (file != invocation.options.end() && !file->second.empty()) {
    STATOR_TRY(const std::string key, io::read_file(file->second, kKeyBytesMax), "--key");
    headers.emplace_back("Authorization", "Bearer " + key.substr(0, key.find_first_of(" \r\n")));
  }
  return headers;
}

}  // namespace stator::cli
