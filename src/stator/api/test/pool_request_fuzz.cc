// SPDX-License-Identifier: Apache-2.0
#include "stator/api/pool_request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "stator/core/assert.h"

// Any bytes parse or are refused, as any of the kinds; what parsed keeps the limits.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::api;
  for (const PoolKind kind : {PoolKind::kEmbeddings, PoolKind::kRerank, PoolKind::kScore,
                              PoolKind::kClassify, PoolKind::kPooling}) {
    std::string body(reinterpret_cast<const char*>(data), size);
    const auto call = parse_pool_call(body, kind, {});
    if (!call.has_value()) {
      STATOR_ASSERT(call.error().code() == stator::Code::kInvalidArgument, "refusals are 400");
      continue;
    }
    STATOR_ASSERT(call->inputs.size() <= kMaxRerankDocuments, "as many inputs as are taken");
    STATOR_ASSERT(call->inputs.empty() == call->chat.has_value(), "texts or a conversation");
    for (const PoolInput& input : call->inputs) {
      STATOR_ASSERT(!std::visit([](const auto& value) { return value.empty(); }, input),
                    "inputs are not empty");
    }
  }
  return 0;
}
