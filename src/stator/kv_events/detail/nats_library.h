// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <nats/nats.h>

#include <memory>
#include <string_view>

#include "stator/core/result.h"

// What the files that use libnats share.

namespace stator::kv_events::detail {

template <typename T, void (*kDestroy)(T*)>
struct NatsDestroyer {
  void operator()(T* object) const { kDestroy(object); }
};
template <typename T, void (*kDestroy)(T*)>
using NatsOwned = std::unique_ptr<T, NatsDestroyer<T, kDestroy>>;

using NatsMessage = NatsOwned<natsMsg, natsMsg_Destroy>;

inline Error nats_error(natsStatus status, std::string_view doing) {
  const bool too_large = status == NATS_MAX_PAYLOAD;
  return {too_large ? Code::kTooLarge : Code::kUnavailable,
          fmt::format("NATS: {}: {}", doing, natsStatus_GetText(status))};
}

inline std::string_view nats_view(const char* text) {
  return text == nullptr ? std::string_view() : text;
}

inline std::string_view payload_of(const natsMsg* message) {
  return {natsMsg_GetData(message), static_cast<size_t>(natsMsg_GetDataLength(message))};
}

}  // namespace stator::kv_events::detail
