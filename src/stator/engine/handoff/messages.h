// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/storage/block_name.h"

namespace stator::engine::handoff {

/// Proof that a taker was sent by the frontend: drawn for each hand-off.
using Token = std::array<std::byte, 16>;

/// What a prefill worker of ours offers, as Handoff::payload carries it: JSON.
struct Invitation {
  std::string agent;     ///< of the giver, for its messages
  uint64_t epoch = 0;    ///< its life: a claim for another one is refused
  std::string metadata;  ///< of the giver's transfer agent
  Token token{};
  storage::Digest space{};  ///< of its blocks
  uint32_t blocks = 0;      ///< that it will give, if all goes well
  uint64_t block_bytes = 0;
  uint32_t lease_ms = 0;  ///< from the end of the prompt on
};
std::string encode(const Invitation& invitation);
/// kCorrupt, and what is wrong.
Result<Invitation> decode_invitation(std::string_view payload);

/// Why a giver gives nothing, or nothing more. Label values of metrics, see describe().
enum class Verdict : uint8_t {
  kComplete,   ///< all there is was given
  kUnknown,    ///< no such hand-off here
  kSecond,     ///< it was claimed before
  kLate,       ///< its lease is over
  kEpoch,      ///< meant for another life of the giver
  kForeign,    ///< another namespace, or a wrong token
  kCancelled,  ///< its request was cancelled or failed
  kClosing,    ///< the giver stops
};
inline constexpr uint8_t kVerdicts = 8;
std::string_view describe(Verdict verdict);

/// A block that lies ready: in slot `slot` of the giver's staging memory.
struct Ready {
  uint32_t slot = 0;
  uint32_t crc = 0;         ///< CRC-32C of its bytes
  storage::Digest check{};  ///< BlockName::check: namespace, owner, all tokens up to its end
  friend bool operator==(const Ready&, const Ready&) = default;
};

/// What giver and taker tell each other, as notifications of their agents. One struct for all: each
/// kind uses the members named at it.
///
///   taker                                    giver
///     ── kClaim(epoch, token, space, text) ──►      once per hand-off, within its lease
///     ◄── kGranted · kRefused(verdict) ──
///     ◄── kReady(base, first, ready) ──             as blocks are computed
///     ── kAlive ──► ◄── kAlive ──                   while it waits
///     ◄── kEnd(first = all, verdict) ──            may overtake the last kReady
///     ── kFetched(first = taken) ──►                the giver forgets it
struct Message {
  enum class Kind : uint8_t { kClaim = 1, kGranted, kRefused, kReady, kAlive, kEnd, kFetched };
  Kind kind = Kind::kAlive;
  uint64_t id = 0;  ///< Handoff::id
  uint64_t epoch = 0;
  Token token{};
  storage::Digest space{};
  std::string text;   ///< kClaim: the taker's transfer metadata
  uint64_t base = 0;  ///< address of slot 0 at the giver
  uint32_t first = 0;
  Verdict verdict = Verdict::kComplete;
  std::vector<Ready> ready;
  friend bool operator==(const Message&, const Message&) = default;
};
/// At most so many blocks in one message: it fits into a datagram.
inline constexpr size_t kReadyMax = 1024;
std::string encode(const Message& message);
/// kCorrupt for anything that encode() did not write.
Result<Message> decode_message(std::string_view bytes);

}  // namespace stator::engine::handoff
