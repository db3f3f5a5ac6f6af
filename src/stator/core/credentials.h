// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator {

/// `text` with *** for the user and password of every URL in it: "nats://***@host:4222". The log,
/// the command line's messages and `stator config` pass through it.
std::string hide_credentials(std::string_view text);

}  // namespace stator
