// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/kserve/grpc_form.h"

#include <fmt/format.h>

#include <google/protobuf/stubs/logging.h>

#include <array>
#include <utility>

#include "stator/json/writer.h"
#include "stator/proto/kserve/v2/inference.pb.h"
#include "stator/protocols/kserve/kserve.h"
#include "stator/protocols/kserve/raw_tensor.h"

namespace stator::protocols::kserve {
namespace {

using api::ApiError;
using api::ApiResult;
using api::ApiStatus;

/// libprotobuf writes a line for every string that is no UTF-8, with which clients could fill the
/// operator's log: it is silent from the first message on. They are told by a status.
template <typename Message>
bool parse(Message& message, std::string_view bytes) {
  static const google::protobuf::LogSilencer silence;
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

constexpr auto kMethods = std::to_array<std::pair<std::string_view, Method>>({
    {"ServerLive", Method::kServerLive},
    {"ServerReady", Method::kServerReady},
    {"ModelReady", Method::kModelReady},
    {"ServerMetadata", Method::kServerMetadata},
    {"ModelMetadata", Method::kModelMetadata},
    {"ModelConfig", Method::kModelConfig},
    {"ModelInfer", Method::kModelInfer},
    {"ModelStreamInfer", Method::kModelStreamInfer},
});

constexpr const char* kFinalResponse = "triton_final_response";

ApiError not_a_message() {
  return ApiError(Error(Code::kInvalidArgument, "the message is none of this method"));
}

std::string to_json(const ::inference::InferParameter& parameter) {
  std::string text;
  json::Writer json(text);
  switch (parameter.parameter_choice_case()) {
    case ::inference::InferParameter::kBoolParam:
      json.value(parameter.bool_param());
      break;
    case ::inference::InferParameter::kInt64Param:
      json.value(int64_t{parameter.int64_param()});
      break;
    case ::inference::InferParameter::kStringParam:
      json.value(std::string_view(parameter.string_param()));
      break;
    case ::inference::InferParameter::kDoubleParam:
      json.value(parameter.double_param());
      break;
    case ::inference::InferParameter::kUint64Param:
      json.value(uint64_t{parameter.uint64_param()});
      break;
    case ::inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      json.null();
      break;
  }
  return text;
}

void take_contents(InputTensor& tensor, const ::inference::InferTensorContents& contents) {
  tensor.texts.assign(contents.bytes_contents().begin(), contents.bytes_contents().end());
  for (const bool flag : contents.bool_contents()) {
    tensor.integers.push_back(flag ? 1 : 0);
  }
  tensor.integers.insert(tensor.integers.end(), contents.int_contents().begin(),
                         contents.int_contents().end());
  tensor.integers.insert(tensor.integers.end(), contents.int64_contents().begin(),
                         contents.int64_contents().end());
}

ApiStatus read_inputs(InferRequest& request, const ::inference::ModelInferRequest& message) {
  const bool raw = message.raw_input_contents_size() > 0;
  if (raw && message.raw_input_contents_size() != message.inputs_size()) {
    return ApiError(Error(Code::kInvalidArgument,
                          fmt::format("raw_input_contents has {} elements for {} inputs",
                                      message.raw_input_contents_size(), message.inputs_size())),
                    "raw_input_contents");
  }
  for (int i = 0; i < message.inputs_size(); ++i) {
    const auto& input = message.inputs(i);
    InputTensor tensor{.name = input.name(),
                       .datatype = input.datatype(),
                       .shape = {input.shape().begin(), input.shape().end()},
                       .texts = {},
                       .integers = {}};
    if (raw) {
      STATOR_CHECK(read_raw(tensor, message.raw_input_contents(i)));
    } else {
      take_contents(tensor, input.contents());
      if (element_count(tensor) != tensor.texts.size() + tensor.integers.size()) {
        return ApiError(
            Error(Code::kInvalidArgument,
                  fmt::format("input '{}': its contents do not fit its shape", tensor.name)),
            tensor.name);
      }
    }
    request.inputs.push_back(std::move(tensor));
  }
  return {};
}

void fill(::inference::ModelInferResponse& response, const InferRequest& request,
          std::string_view model) {
  response.set_model_name(std::string(model.empty() ? std::string_view(request.model) : model));
  response.set_model_version(std::string(kModelVersion));
  response.set_id(request.id);
}

/// Raw contents, which clients of every version read.
void fill_outputs(::inference::ModelInferResponse& response, const InferRequest& request,
                  const GenerateAnswer& answer) {
  for (const OutputTensor& tensor : make_outputs(request, answer)) {
    auto& output = *response.add_outputs();
    output.set_name(std::string(tensor.name));
    output.set_datatype(std::string(tensor.datatype));
    output.add_shape(static_cast<int64_t>(tensor.texts.size() + tensor.ids.size()));
    append_raw(*response.add_raw_output_contents(), tensor);
  }
}

template <typename List>
void fill_tensors(List& list, const std::vector<TensorFact>& facts) {
  for (const TensorFact& fact : facts) {
    auto& tensor = *list.Add();
    tensor.set_name(std::string(fact.name));
    tensor.set_datatype(std::string(fact.datatype));
    tensor.add_shape(fact.size);
  }
}

::inference::DataType type_of(std::string_view datatype) {
  return datatype == "BYTES"  ? ::inference::TYPE_STRING
         : datatype == "BOOL" ? ::inference::TYPE_BOOL
                              : ::inference::TYPE_INT32;
}

}  // namespace

std::optional<Method> find_method(std::string_view path) {
  if (!path.starts_with(kGrpcService)) {
    return std::nullopt;
  }
  const std::string_view wanted = path.substr(kGrpcService.size());
  for (const auto& [name, method] : kMethods) {
    if (wanted == name) {
      return method;
    }
  }
  return std::nullopt;
}

ApiResult<InferRequest> read_grpc_infer(std::string_view bytes) {
  ::inference::ModelInferRequest message;
  if (!parse(message, bytes)) {
    return not_a_message();
  }
  InferRequest request{.model = message.model_name(),
                       .version = message.model_version(),
                       .id = message.id(),
                       .parameters = {},
                       .inputs = {},
                       .outputs = {}};
  for (const auto& [name, value] : message.parameters()) {
    request.parameters.emplace_back(name, to_json(value));
  }
  for (const auto& output : message.outputs()) {
    request.outputs.push_back({.name = output.name(), .binary = true});
  }
  STATOR_CHECK(read_inputs(request, message));
  return request;
}

ApiResult<ModelName> read_model_name(std::string_view bytes) {
  ::inference::ModelReadyRequest message;  // all these have the same two fields
  if (!parse(message, bytes)) {
    return not_a_message();
  }
  return ModelName{message.name(), message.version()};
}

std::string write_live(bool live) {
  ::inference::ServerLiveResponse message;
  message.set_live(live);
  return message.SerializeAsString();
}

std::string write_server_metadata() {
  ::inference::ServerMetadataResponse message;
  message.set_name(std::string(kPlatform));
  message.set_version(std::string(kServerVersion));
  message.add_extensions("model_configuration");
  return message.SerializeAsString();
}

std::string write_model_metadata(std::string_view model) {
  ::inference::ModelMetadataResponse message;
  message.set_name(std::string(model));
  message.add_versions(std::string(kModelVersion));
  message.set_platform(std::string(kPlatform));
  fill_tensors(*message.mutable_inputs(), input_facts());
  fill_tensors(*message.mutable_outputs(), output_facts());
  return message.SerializeAsString();
}

std::string write_model_config(std::string_view model) {
  ::inference::ModelConfigResponse message;
  ::inference::ModelConfig& config = *message.mutable_config();
  config.set_name(std::string(model));
  config.set_platform(std::string(kPlatform));
  config.set_backend(std::string(kPlatform));
  config.mutable_model_transaction_policy()->set_decoupled(true);
  for (const TensorFact& fact : input_facts()) {
    ::inference::ModelInput& input = *config.add_input();
    input.set_name(std::string(fact.name));
    input.set_data_type(type_of(fact.datatype));
    input.add_dims(fact.size);
    input.set_optional(fact.optional);
  }
  for (const TensorFact& fact : output_facts()) {
    ::inference::ModelOutput& output = *config.add_output();
    output.set_name(std::string(fact.name));
    output.set_data_type(type_of(fact.datatype));
    output.add_dims(fact.size);
  }
  return message.SerializeAsString();
}

std::string write_infer_response(const InferRequest& request, const GenerateAnswer& answer) {
  ::inference::ModelInferResponse message;
  fill(message, request, answer.model);
  fill_outputs(message, request, answer);
  return message.SerializeAsString();
}

std::string write_stream_part(const InferRequest& request, const StreamPart& part) {
  ::inference::ModelStreamInferResponse message;
  ::inference::ModelInferResponse& response = *message.mutable_infer_response();
  fill(response, request, part.answer == nullptr ? std::string_view() : part.answer->model);
  if (part.answer != nullptr) {
    fill_outputs(response, request, *part.answer);
  }
  if (part.final) {
    (*response.mutable_parameters())[kFinalResponse].set_bool_param(*part.final);
  }
  return message.SerializeAsString();
}

std::string write_stream_error(const InferRequest& request, std::string_view text) {
  ::inference::ModelStreamInferResponse message;
  message.set_error_message(std::string(text));
  fill(*message.mutable_infer_response(), request, {});
  return message.SerializeAsString();
}

}  // namespace stator::protocols::kserve
