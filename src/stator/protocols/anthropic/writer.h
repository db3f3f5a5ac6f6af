// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/protocols/output.h"
#include "stator/protocols/protocol.h"

namespace stator::protocols::anthropic {

/// Events of one stream:
///
///   message_start, ping, (content_block_start, content_block_delta …, content_block_stop) …,
///   message_delta, message_stop
///
/// Blocks come in the model's order and never overlap; a block of thinking ends with a signature.
/// `error` may come in place of the rest.
std::unique_ptr<StreamWriter> make_stream_writer(AnswerHead head);

/// The whole message: {"id","type":"message","role","model","content",…,"usage"}.
void append_message(std::string& out, const AnswerHead& head, const Output& output,
                    const Ending& ending);

}  // namespace stator::protocols::anthropic
