// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/api/responses_encoder.h"
#include "stator/api/responses_request.h"
#include "stator/protocols/protocol.h"

namespace stator::protocols::responses {

/// OpenAI's Responses API: POST /v1/responses, and /v1/responses/input_tokens to count. Reader and
/// encoder are api/responses_*.h. Answers are stored and may outlive their client, so the frontend
/// writes them itself (frontend/responses_answer.h) from the echo: no stream or body writer here.
extern const Protocol kProtocol;

/// POST /v1/responses/compact: the model writes a summary of a conversation, and the answer is the
/// user's messages and that summary, as items to go on from. One body, stored nowhere.
extern const Protocol kCompact;

/// Puts the conversation of a request together, earlier turns included; `closing`, if there is any,
/// is the user's last word. Returns the items of the earlier turns.
api::ApiResult<std::vector<std::string>> add_conversation(api::ResponsesRequest& request,
                                                          const ReadOptions& options,
                                                          std::string_view closing = {});

/// What a response repeats, and leaves for later ones.
struct ResponsesEcho final : Echo {
  std::string members_json;  ///< see ResponsesRequest::echo_json
  std::string input_json;
  std::string previous_id;
  bool store = true;
  bool background = false;
  bool summarizes_reasoning = false;
  bool encrypts_reasoning = false;
  std::vector<api::NamespacedTool> tools;
};

}  // namespace stator::protocols::responses
