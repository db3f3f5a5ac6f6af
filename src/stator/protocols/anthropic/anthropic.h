// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/protocols/protocol.h"

namespace stator::protocols::anthropic {

/// Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.
/// docs/reference/anthropic.md says what becomes of each field.
extern const Protocol kProtocol;

}  // namespace stator::protocols::anthropic
