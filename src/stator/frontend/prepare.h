// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/core/cancel_token.h"
#include "stator/core/clock.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/generation.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/media/blob.h"
#include "stator/net/http_request.h"
#include "stator/protocols/protocol.h"

namespace stator::frontend {

// From a parsed request to a GenerationPlan: template, tokenizer, limits, defaults. Pure functions.

/// What a plan takes from around the request.
struct PrepareContext {
  const FrontendConfig& config;
  const PromptEncoder& encoder;
  const net::HttpRequest& http;
  const CancelToken* cancel = nullptr;            ///< null: the work is always wanted
  std::string request_id;                         ///< UUID text
  const protocols::Protocol* protocol = nullptr;  ///< of the request; null: OpenAI's
  std::shared_ptr<const protocols::Echo> echo;    ///< for its answer
  std::string session;                            ///< that its body names; empty: none
  WallTime wall_now;
  /// Of the request's media, in their order; set where it has any.
  std::vector<media::BlobPtr> media = {};
};

/// kInvalidArgument for a prompt that does not fit, template errors and the like; `param` names it.
/// kCancelled within milliseconds after context.cancel was set.
api::ApiResult<GenerationPlan> prepare_chat(api::ChatRequest request, NamedModel named,
                                            const PrepareContext& context);
api::ApiResult<GenerationPlan> prepare_completion(api::CompletionRequest request, NamedModel named,
                                                  const PrepareContext& context);

}  // namespace stator::frontend
