// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/kserve/infer.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/protocols/kserve/kserve.h"

namespace stator::protocols::kserve {
namespace {

using api::ApiError;
using api::ApiStatus;

constexpr std::string_view kText = "text_input";
constexpr std::string_view kIds = "input_ids";
constexpr std::string_view kTextOut = "text_output";
constexpr std::string_view kFinishOut = "finish_reason";
constexpr std::string_view kIdsOut = "output_ids";
constexpr std::string_view kWantsFinal = "triton_enable_empty_final_response";

ApiError refused(const InputTensor& tensor, std::string_view what) {
  return ApiError(Error(Code::kInvalidArgument, fmt::format("input '{}': {}", tensor.name, what)),
                  tensor.name);
}

/// One element, in however many dimensions.
bool has_one(const InputTensor& tensor) {
  return std::ranges::all_of(tensor.shape, [](int64_t size) { return size == 1; });
}

ApiStatus check_text(const InputTensor& tensor) {
  if (tensor.datatype != "BYTES") {
    return refused(tensor, fmt::format("is BYTES, not {}", tensor.datatype));
  }
  if (!has_one(tensor) || tensor.texts.size() != 1) {
    return refused(tensor, "has shape [1]: send one request per prompt");
  }
  return {};
}

ApiStatus check_flag(const InputTensor& tensor) {
  if (tensor.datatype != "BOOL") {
    return refused(tensor, fmt::format("is BOOL, not {}", tensor.datatype));
  }
  if (!has_one(tensor) || tensor.integers.size() != 1) {
    return refused(tensor, "has shape [1]");
  }
  return {};
}

ApiStatus check_ids(const InputTensor& tensor) {
  if (tensor.datatype != "INT32" && tensor.datatype != "INT64") {
    return refused(tensor, fmt::format("is INT32 or INT64, not {}", tensor.datatype));
  }
  const bool flat = tensor.shape.size() == 1 || (tensor.shape.size() == 2 && tensor.shape[0] == 1);
  if (!flat || tensor.shape.back() != static_cast<int64_t>(tensor.integers.size())) {
    return refused(tensor, "has shape [tokens] or [1, tokens]");
  }
  if (std::ranges::any_of(tensor.integers, [](int64_t id) { return id < 0 || id > UINT32_MAX; })) {
    return refused(tensor, "holds token ids, which are not negative");
  }
  return {};
}

ApiStatus write_input(json::Writer& json, GenerateCall& call, const InputTensor& tensor) {
  if (tensor.name == kText) {
    STATOR_CHECK(check_text(tensor));
    json.key(kText).value(tensor.texts.front());
  } else if (tensor.name == kIds) {
    STATOR_CHECK(check_ids(tensor));
    json.key(kIds).begin_array();
    for (const int64_t id : tensor.integers) {
      json.value(id);
    }
    json.end_array();
  } else if (tensor.name == "streaming" || tensor.name == "stream") {
    STATOR_CHECK(check_flag(tensor));
    call.stream = tensor.integers.front() != 0;
  } else {
    return refused(tensor, "is not known here: send text_input or input_ids, and streaming");
  }
  return {};
}

ApiStatus check_outputs(const InferRequest& request) {
  for (const RequestedOutput& output : request.outputs) {
    if (output.name != kTextOut && output.name != kFinishOut && output.name != kIdsOut) {
      return ApiError(Error(Code::kInvalidArgument,
                            fmt::format("output '{}' is not known here: there are text_output, "
                                        "finish_reason and output_ids",
                                        output.name)),
                      output.name);
    }
  }
  return {};
}

bool wants(const InferRequest& request, std::string_view name) {
  return std::ranges::find(request.outputs, name, &RequestedOutput::name) != request.outputs.end();
}

}  // namespace

api::ApiResult<GenerateCall> to_generate(const InferRequest& request) {
  if (!request.version.empty() && request.version != kModelVersion) {
    return ApiError(
        Error(Code::kNotFound, fmt::format("model '{}' has no version {}, only {}", request.model,
                                           request.version, kModelVersion)));
  }
  STATOR_CHECK(check_outputs(request));
  GenerateCall call{.model = request.model, .body = {}};
  json::Writer json(call.body);
  json.begin_object().key("model").value(request.model);
  for (const InputTensor& tensor : request.inputs) {
    STATOR_CHECK(write_input(json, call, tensor));
  }
  if (wants(request, kIdsOut)) {
    json.key("return_token_ids").value(true);
  }
  for (const auto& [name, value] : request.parameters) {
    if (name == kWantsFinal) {
      call.wants_final = value == "true";
    } else if (name == "streaming" || name == "stream") {
      call.stream = value == "true";
    } else {
      json.key_escaped(name).raw(value);
    }
  }
  json.end_object();
  return call;
}

Result<GenerateAnswer> read_answer(std::string_view text) {
  STATOR_TRY(const json::Value object, json::parse(text), "reading an answer");
  GenerateAnswer answer{.model = std::string(object.text_at({"model_name"})),
                        .text = std::string(object.text_at({kTextOut})),
                        .finish_reason = std::string(object.text_at({kFinishOut})),
                        .ids = std::nullopt,
                        .error = std::string(object.text_at({"error"}))};
  if (const json::Value* ids = object.find(kIdsOut)) {
    answer.ids.emplace();
    for (const json::Value& id : ids->elements()) {
      answer.ids->push_back(static_cast<TokenId>(id.as_uint64().value_or(0)));
    }
  }
  return answer;
}

std::vector<OutputTensor> make_outputs(const InferRequest& request, const GenerateAnswer& answer) {
  std::vector<OutputTensor> outputs;
  const auto add = [&](std::string_view name, OutputTensor tensor) {
    const auto asked = std::ranges::find(request.outputs, name, &RequestedOutput::name);
    if (!request.outputs.empty() && asked == request.outputs.end()) {
      return;
    }
    tensor.name = name;
    tensor.binary = request.outputs.empty() ? request.binary_outputs : asked->binary;
    outputs.push_back(std::move(tensor));
  };
  add(kTextOut, {.name = {}, .datatype = "BYTES", .texts = {answer.text}, .ids = {}});
  add(kFinishOut, {.name = {}, .datatype = "BYTES", .texts = {answer.finish_reason}, .ids = {}});
  if (answer.ids) {
    add(kIdsOut, {.name = {}, .datatype = "INT32", .texts = {}, .ids = *answer.ids});
  }
  return outputs;
}

const std::vector<TensorFact>& input_facts() {
  static const std::vector<TensorFact> kFacts = {{.name = kText, .datatype = "BYTES"},
                                                 {.name = "streaming", .datatype = "BOOL"},
                                                 {.name = kIds, .datatype = "INT32", .size = -1}};
  return kFacts;
}

const std::vector<TensorFact>& output_facts() {
  static const std::vector<TensorFact> kFacts = {
      {.name = kTextOut, .datatype = "BYTES", .size = -1},
      {.name = kFinishOut, .datatype = "BYTES", .size = -1},
      {.name = kIdsOut, .datatype = "INT32", .size = -1}};
  return kFacts;
}

}  // namespace stator::protocols::kserve
