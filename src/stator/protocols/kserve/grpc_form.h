// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/protocols/kserve/infer.h"

namespace stator::protocols::kserve {

/// Paths of the service's methods are this and the method's name.
inline constexpr std::string_view kGrpcService = "/inference.GRPCInferenceService/";

enum class Method : uint8_t {
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kModelConfig,
  kModelInfer,
  kModelStreamInfer,
};
/// Nothing for a path that is no method's.
std::optional<Method> find_method(std::string_view path);

/// The message of ModelInfer and ModelStreamInfer. kInvalidArgument for what is none.
api::ApiResult<InferRequest> read_grpc_infer(std::string_view message);

/// Name and version in the message of the methods that ask about a model.
struct ModelName {
  std::string name;
  std::string version;
};
api::ApiResult<ModelName> read_model_name(std::string_view message);

// Answers as messages.

std::string write_live(bool live);  ///< of ServerLive, ServerReady and ModelReady
std::string write_server_metadata();
std::string write_model_metadata(std::string_view model);
std::string write_model_config(std::string_view model);
std::string write_infer_response(const InferRequest& request, const GenerateAnswer& answer);

/// One message of ModelStreamInfer.
struct StreamPart {
  const GenerateAnswer* answer = nullptr;  ///< null: an empty last one
  std::optional<bool> final = {};          ///< whether nothing follows for this request
};
std::string write_stream_part(const InferRequest& request, const StreamPart& part);
std::string write_stream_error(const InferRequest& request, std::string_view message);

}  // namespace stator::protocols::kserve
