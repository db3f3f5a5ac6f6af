// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/kserve/http_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/protocols/kserve/kserve.h"
#include "stator/protocols/kserve/raw_tensor.h"

namespace stator::protocols::kserve {
namespace {

using api::ApiError;
using api::ApiResult;
using api::ApiStatus;

ApiError wrong(std::string field, std::string_view what) {
  return ApiError(Error(Code::kInvalidArgument, fmt::format("{} {}", field, what)),
                  std::move(field));
}

void read_parameters(InferRequest& request, const json::Value& object) {
  for (const json::Member& member : object.members()) {
    if (member.key == "binary_data_output") {
      request.binary_outputs = member.value.as_bool().value_or(false);
    } else {
      request.parameters.emplace_back(member.key, json::to_text(member.value));
    }
  }
}

/// Elements of `data`, which may be nested as the shape is.
ApiStatus read_data(InputTensor& tensor, const json::Value& data, const std::string& field) {
  for (const json::Value& element : data.elements()) {
    if (element.is_array()) {
      STATOR_CHECK(read_data(tensor, element, field));
    } else if (const auto text = element.as_string(); text && tensor.datatype == "BYTES") {
      tensor.texts.emplace_back(*text);
    } else if (const auto flag = element.as_bool(); flag && tensor.datatype == "BOOL") {
      tensor.integers.push_back(*flag ? 1 : 0);
    } else if (const auto whole = element.as_int64(); whole && tensor.datatype.starts_with("INT")) {
      tensor.integers.push_back(*whole);
    } else {
      return wrong(field + ".data", fmt::format("has elements that are no {}", tensor.datatype));
    }
  }
  return {};
}

ApiStatus check_count(const InputTensor& tensor, const std::string& field) {
  const auto count = element_count(tensor);
  if (!count || *count != tensor.texts.size() + tensor.integers.size()) {
    return wrong(field + ".data", "does not fit the shape");
  }
  return {};
}

ApiResult<InputTensor> read_input(const json::Value& object, const std::string& field,
                                  std::string_view& binary) {
  InputTensor tensor{.name = std::string(object.text_at({"name"})),
                     .datatype = std::string(object.text_at({"datatype"})),
                     .shape = {},
                     .texts = {},
                     .integers = {}};
  if (tensor.name.empty() || tensor.datatype.empty()) {
    return wrong(field, "must have a name, a datatype and a shape");
  }
  for (const json::Value& size : object.at("shape").elements()) {
    tensor.shape.push_back(size.as_int64().value_or(-1));
  }
  if (const json::Value* size = object.find_at({"parameters", "binary_data_size"})) {
    const uint64_t bytes = size->as_uint64().value_or(UINT64_MAX);
    if (bytes > binary.size()) {
      return wrong(field + ".parameters.binary_data_size", "is more than follows the JSON");
    }
    STATOR_CHECK(read_raw(tensor, binary.substr(0, bytes)));
    binary.remove_prefix(bytes);
    return tensor;
  }
  if (!object.at("data").is_array()) {
    return wrong(field + ".data", "is required: an array, or binary data behind the JSON");
  }
  STATOR_CHECK(read_data(tensor, object.at("data"), field));
  STATOR_CHECK(check_count(tensor, field));
  return tensor;
}

void write_outputs(json::Writer& json, std::string& binary,
                   const std::vector<OutputTensor>& outputs) {
  json.key("outputs").begin_array();
  for (const OutputTensor& tensor : outputs) {
    json.begin_object().key("name").value(tensor.name).key("datatype").value(tensor.datatype);
    json.key("shape").begin_array().value(tensor.texts.size() + tensor.ids.size()).end_array();
    if (tensor.binary) {
      const size_t before = binary.size();
      append_raw(binary, tensor);
      json.key("parameters").begin_object();
      json.key("binary_data_size").value(binary.size() - before).end_object();
    } else {
      json.key("data").begin_array();
      for (const std::string_view text : tensor.texts) {
        json.value(text);
      }
      for (const TokenId id : tensor.ids) {
        json.value(id);
      }
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
}

void write_tensors(json::Writer& json, const std::vector<TensorFact>& facts) {
  json.begin_array();
  for (const TensorFact& fact : facts) {
    json.begin_object().key("name").value(fact.name).key("datatype").value(fact.datatype);
    json.key("shape").begin_array().value(fact.size).end_array().end_object();
  }
  json.end_array();
}

void write_config_tensors(json::Writer& json, const std::vector<TensorFact>& facts, bool inputs) {
  json.begin_array();
  for (const TensorFact& fact : facts) {
    const std::string_view type = fact.datatype == "BYTES" ? "STRING" : fact.datatype;
    json.begin_object().key("name").value(fact.name);
    json.key("data_type").value(fmt::format("TYPE_{}", type));
    json.key("dims").begin_array().value(fact.size).end_array();
    if (inputs) {
      json.key("optional").value(fact.optional);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

ApiResult<InferRequest> read_http_infer(std::string_view body, std::optional<size_t> json_bytes) {
  if (json_bytes.value_or(0) > body.size()) {
    return wrong(std::string(kJsonBytesHeader), "is more than the body has");
  }
  const size_t head = json_bytes.value_or(body.size());
  std::string_view binary = body.substr(head);
  auto parsed = json::parse(body.substr(0, head));
  if (!parsed) {
    return ApiError(std::move(parsed.error()).with_code(Code::kInvalidArgument));
  }
  const json::Value& object = *parsed;
  if (!object.at("inputs").is_array()) {
    return wrong("inputs", "is required: an array of tensors");
  }
  InferRequest request;
  request.id = object.text_at({"id"});
  read_parameters(request, object.at("parameters"));
  size_t index = 0;
  for (const json::Value& input : object.at("inputs").elements()) {
    STATOR_TRY(InputTensor tensor, read_input(input, fmt::format("inputs[{}]", index++), binary));
    request.inputs.push_back(std::move(tensor));
  }
  if (!binary.empty()) {
    return wrong("inputs", fmt::format("leave {} bytes behind the JSON unused", binary.size()));
  }
  for (const json::Value& output : object.at("outputs").elements()) {
    const json::Value* wish = output.find_at({"parameters", "binary_data"});
    request.outputs.push_back(
        {.name = std::string(output.text_at({"name"})),
         .binary = wish == nullptr ? request.binary_outputs : wish->as_bool().value_or(false)});
  }
  return request;
}

HttpBody write_http_infer(const InferRequest& request, const GenerateAnswer& answer) {
  HttpBody body;
  std::string binary;
  json::Writer json(body.bytes);
  json.begin_object();
  if (!request.id.empty()) {
    json.key("id").value(request.id);
  }
  json.key("model_name").value(answer.model).key("model_version").value(kModelVersion);
  write_outputs(json, binary, make_outputs(request, answer));
  json.end_object();
  if (!binary.empty()) {
    body.json_bytes = body.bytes.size();
    body.bytes += binary;
  }
  return body;
}

void append_server_metadata(std::string& out) {
  json::Writer json(out);
  json.begin_object().key("name").value(kPlatform).key("version").value(kServerVersion);
  json.key("extensions").begin_array();
  for (const std::string_view extension :
       {"binary_tensor_data", "generate", "model_configuration"}) {
    json.value(extension);
  }
  json.end_array().end_object();
}

void append_model_metadata(std::string& out, std::string_view model) {
  json::Writer json(out);
  json.begin_object().key("name").value(model);
  json.key("versions").begin_array().value(kModelVersion).end_array();
  json.key("platform").value(kPlatform).key("inputs");
  write_tensors(json, input_facts());
  json.key("outputs");
  write_tensors(json, output_facts());
  json.end_object();
}

void append_model_config(std::string& out, std::string_view model) {
  json::Writer json(out);
  json.begin_object().key("name").value(model).key("platform").value(kPlatform);
  json.key("backend").value(kPlatform).key("max_batch_size").value(0).key("input");
  write_config_tensors(json, input_facts(), true);
  json.key("output");
  write_config_tensors(json, output_facts(), false);
  json.key("model_transaction_policy").begin_object().key("decoupled").value(true).end_object();
  json.end_object();
}

}  // namespace stator::protocols::kserve
