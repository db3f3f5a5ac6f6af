// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/frontend/model_parsers.h"
#include "stator/frontend/output_pipeline.h"
#include "stator/parsers/output_parser.h"
#include "stator/structured/structured_output.h"

namespace stator::frontend {

/// What of a chat decides how its answer is read.
struct OutputWishes {
  const api::ChatRequest& request;
  /// The end of the rendered prompt: a template may have opened the reasoning itself.
  std::string_view prompt_tail;
  bool answers_json = false;  ///< the answer is constrained to JSON
  parsers::UnknownTools unknown_tools = parsers::UnknownTools::kKeep;
  uint64_t id_seed = 0;  ///< for ids of tool calls
};

/// The format of one answer; null when everything the model writes is text. Tool calls are looked
/// for if the request has tools and does not forbid them, reasoning if the model reasons and the
/// request does not switch it off. kInvalidArgument for tools whose parameters cannot be read.
/// Pure.
api::ApiResult<std::unique_ptr<const OutputFormat>> make_output_format(const ModelParsers& parsers,
                                                                       const OutputWishes& wishes);

/// The shape that the answer must have, from response_format, the guided_* fields and tool_choice,
/// as inference::EngineRequest::structured_outputs; empty: free. `from_fields` is of the request's
/// options; `chat` is null for text completions. Errors name the field that asked:
/// kInvalidArgument, or kUnsupported if the engines of the model follow no grammar. Pure.
api::ApiResult<std::string> make_structured_outputs(
    const std::optional<structured::StructuredOutput>& from_fields, const api::ChatRequest* chat,
    bool engine_follows);

/// How much of the prompt's end make_output_format wants to see, in tokens. A message that is to be
/// continued may have opened its reasoning long ago.
inline constexpr size_t kPromptTailTokens = 64;
inline constexpr size_t kContinuedTailTokens = 16384;

}  // namespace stator::frontend
