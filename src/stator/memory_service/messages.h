// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/memory_service/layout.h"
#include "stator/memory_service/ownership.h"

namespace stator::memory_service {

/// What client and service tell each other over a Unix stream socket: four bytes of length, big
/// endian, then MessagePack, an array of the kind and its fields. One struct for all: each kind
/// uses the members named at it. A request has one answer, kOk or kError, but for kHandshake, whose
/// answer comes when the lock is given.
struct Message {
  static constexpr uint32_t kBytesMax = 1U << 20;
  enum class Kind : uint8_t {
    kHandshake = 1,  ///< mode, number: milliseconds to wait at most → number: 1 writes, 0 reads
    kAllocate,       ///< bytes, tag, number: milliseconds to wait for room → id, bytes
    kExport,         ///< id → bytes, with the descriptor
    kFree,           ///< id
    kList,           ///< → allocations
    kPut,            ///< key, place
    kGet,            ///< key → place
    kErase,          ///< key → number: 1, it was there
    kKeys,           ///< → keys
    kCommit,         ///< number: 1 goes on as a reader → number: the layout's hash
    kStateHash,      ///< → number: the layout's hash
    kRuntimeState,   ///< → text: EMPTY, RW, COMMITTED, RO; number: clients; bytes: allocated
    kOk,
    kError,  ///< number: a Code; text
  };
  Kind kind = Kind::kOk;
  Mode mode = Mode::kRead;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;
  std::string text;  ///< tag, key or error
  Place place;
  std::vector<Allocation> allocations;
  std::vector<std::string> keys;
};
/// With its length in front.
std::string encode(const Message& message);
/// Without the length. kCorrupt for what encode() did not write.
Result<Message> decode_message(std::string_view bytes);

}  // namespace stator::memory_service
