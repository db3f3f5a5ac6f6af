// SPDX-License-Identifier: Apache-2.0
// What servers answer, in pieces, and bodies that tokens are put into: the usage does not depend on
// where a stream is cut, a body that was JSON stays JSON, and loads are numbers that can be.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/epp/pool.h"
#include "stator/epp/server_load.h"
#include "stator/epp/test/read_usage.h"
#include "stator/epp/token_data.h"
#include "stator/json/value.h"

using namespace stator;
using namespace stator::epp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string_view type : {"application/json", "text/event-stream"}) {
    const TokenUsage whole = read_usage(type, text, size + 1);
    const TokenUsage cut = read_usage(type, text, 7);
    const bool is_same =
        whole.prompt == cut.prompt && whole.output == cut.output && whole.cached == cut.cached;
    STATOR_ASSERT(is_same, "a cut changes nothing");
  }
  constexpr std::array kTokens = {TokenId{1}, TokenId{22}};
  std::string body(text);
  if (add_token_data(body, kTokens)) {
    const auto changed = json::parse(body);  // bytes that are no UTF-8 pass by: the server's affair
    STATOR_ASSERT(changed.has_value() || !json::parse(text), "what was JSON stays JSON");
    STATOR_ASSERT(!changed || changed->find("nvext") != nullptr, "the tokens are there");
  } else {
    STATOR_ASSERT(body == text, "what is left alone is as it was");
  }
  if (const auto facts = read_request(text)) {
    STATOR_ASSERT(facts->model_at + facts->model_size <= size, "the model stands in the body");
  }
  if (const auto load = read_server_load(text)) {
    STATOR_ASSERT(load->waiting >= 0 && load->running >= 0, "counts are no debts");
    const double usage = load->cache_usage.value_or(0);
    STATOR_ASSERT(usage >= 0 && usage <= 1, "usage is a share");
    STATOR_ASSERT(load->adapters.size() <= 1000, "the list is bounded");
  }
  return 0;
}
