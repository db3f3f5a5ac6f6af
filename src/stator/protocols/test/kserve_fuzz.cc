// SPDX-License-Identifier: Apache-2.0
// KServe's requests as clients send them: messages of gRPC, bodies of /infer with binary tensors
// behind the JSON, bodies of /generate. The first byte tells which. What is accepted has tensors of
// the size they say, and becomes a request that the one pipeline reads or refuses by name.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/json/value.h"
#include "stator/protocols/kserve/grpc_form.h"
#include "stator/protocols/kserve/http_form.h"
#include "stator/protocols/kserve/kserve.h"

namespace {

namespace kserve = stator::protocols::kserve;

/// "/v2/models/m/generate" and its body.
void generate(std::string body) {
  const std::string path = "/v2/models/m/generate";
  const auto reading =
      kserve::kProtocol.read(body, {.limits = {.guided_decoding = true}, .path = path});
  if (reading) {
    const auto& options = reading->request.options;
    STATOR_ASSERT(!options.nvext.token_data.empty() || options.nvext.use_raw_prompt,
                  "there is a prompt");
    STATOR_ASSERT(options.n == 1 && reading->echo != nullptr, "one answer, with its echo");
  } else {
    STATOR_ASSERT(!reading.error().message().empty(), "refusals say why");
  }
}

void infer(const kserve::InferRequest& request) {
  for (const kserve::InputTensor& tensor : request.inputs) {
    STATOR_ASSERT(tensor.texts.empty() || tensor.integers.empty(), "elements of one kind");
  }
  const auto call = kserve::to_generate(request);
  if (!call) {
    STATOR_ASSERT(!call.error().message().empty(), "refusals say why");
    return;
  }
  STATOR_ASSERT(stator::json::parse(call->body).has_value(), "what is passed on is JSON");
  generate(call->body);
  kserve::GenerateAnswer answer{.model = "m", .text = "t", .finish_reason = "stop"};
  answer.ids = std::vector<stator::TokenId>{1, 2};
  static_cast<void>(kserve::write_infer_response(request, answer));
  const kserve::HttpBody body = kserve::write_http_infer(request, answer);
  const std::string_view bytes = body.bytes;
  STATOR_ASSERT(stator::json::parse(bytes.substr(0, body.json_bytes.value_or(bytes.size()))),
                "answers begin with JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t json_bytes = static_cast<size_t>(data[1]) << 8U | data[2];
  switch (data[0] % 4) {
    case 0:
      if (const auto request = kserve::read_grpc_infer(bytes)) {
        infer(*request);
      }
      static_cast<void>(kserve::read_model_name(bytes));
      break;
    case 1:
      if (const auto request = kserve::read_http_infer(bytes, std::nullopt)) {
        infer(*request);
      }
      break;
    case 2:
      if (const auto request = kserve::read_http_infer(bytes, json_bytes)) {
        infer(*request);
      }
      break;
    default:
      generate(std::string(bytes));
  }
  return 0;
}
