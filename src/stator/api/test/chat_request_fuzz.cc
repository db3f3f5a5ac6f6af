// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>

#include "stator/api/error_body.h"
#include "stator/api/request_parser.h"
#include "stator/core/assert.h"
#include "stator/text/utf8.h"

// Any bytes are either a request whose slices are themselves JSON, or an error with a valid body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::api;
  std::string body(reinterpret_cast<const char*>(data), size);
  const auto result = parse_chat_request(body, {.guided_decoding = size % 2 == 0});
  if (!result.has_value()) {
    std::string out;
    const int status = append_error_body(out, result.error());
    STATOR_ASSERT(status == 400 || status == 501, "parse errors are the client's");
    STATOR_ASSERT(stator::text::is_valid_utf8(out), "error bodies are UTF-8");
    return 0;
  }
  std::string again = R"({"model":"m","messages":)" + result->chat.messages_json + "}";
  STATOR_ASSERT(parse_chat_request(again, {}).has_value(), "a slice parses like the whole");
  return 0;
}
