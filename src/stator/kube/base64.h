// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::kube {

/// Bytes as Secrets, patches and certificate bundles carry them (RFC 4648, with padding).
std::string to_base64(std::string_view bytes);
/// Nothing when it is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace stator::kube
