// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "stator/protocols/kserve/infer.h"

namespace stator::protocols::kserve {

/// The header of both directions: how many of the body's first bytes are JSON; tensors in binary
/// form are behind them.
inline constexpr std::string_view kJsonBytesHeader = "inference-header-content-length";

/// `POST /v2/models/{model}/infer`. `json_bytes` is the header's value; nothing: all of the body.
/// kInvalidArgument for what is no such request, naming the field.
api::ApiResult<InferRequest> read_http_infer(std::string_view body,
                                             std::optional<size_t> json_bytes);

struct HttpBody {
  std::string bytes;
  std::optional<size_t> json_bytes;  ///< for the header; nothing: all of it is JSON
};
HttpBody write_http_infer(const InferRequest& request, const GenerateAnswer& answer);

/// GET /v2, /v2/models/{model} and /v2/models/{model}/config.
void append_server_metadata(std::string& out);
void append_model_metadata(std::string& out, std::string_view model);
void append_model_config(std::string& out, std::string_view model);

}  // namespace stator::protocols::kserve
