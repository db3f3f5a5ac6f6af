// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/call_writer.h"

#include <bit>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/parsers/detail/window.h"

namespace stator::parsers {
namespace {

/// White space that may still be dropped; a longer run is text.
constexpr size_t kMaxPendingSpaceBytes = 4096;

}  // namespace

void CallWriter::text(std::string_view bytes) {
  if (state_.holds_space) {
    const size_t space =
        std::min(leading_space(bytes), kMaxPendingSpaceBytes - state_.pending_space.size());
    state_.pending_space.append(bytes.substr(0, space));
    bytes.remove_prefix(space);
    if (bytes.empty()) {
      return;
    }
    release_reasoning();
    out_.add_text(state_.pending_space);
    state_.pending_space.clear();
    state_.holds_space = false;
    state_.text_started = true;
  }
  out_.add_text(bytes);
}

void CallWriter::reasoning(std::string_view bytes) {
  if (options_.force_nonempty_content && !state_.text_started && state_.next_index == 0) {
    state_.held_reasoning.append(bytes);
    return;
  }
  state_.reasoned = state_.reasoned || !bytes.empty();
  out_.add_reasoning(bytes);
}

void CallWriter::release_reasoning() {
  if (!state_.held_reasoning.empty()) {
    state_.reasoned = true;
    out_.add_reasoning(state_.held_reasoning);
    state_.held_reasoning.clear();
  }
}

void CallWriter::begin_call(std::string_view name, std::string_view native_id) {
  STATOR_ASSERT(!state_.open, "W1: one call at a time");
  name = trim(name);
  state_.open = true;
  state_.holds_space = true;
  state_.pending_space.clear();
  state_.muted = true;
  if (name.empty()) {
    recovered(Recovery::kMissingName);
  } else if (name.size() > kMaxCallNameBytes || native_id.size() > kMaxCallNameBytes) {
    recovered(Recovery::kTooLarge);
  } else if (options_.unknown_tools == UnknownTools::kDrop && options_.schemas != nullptr &&
             !options_.schemas->contains(name)) {
    recovered(Recovery::kUnknownTool);
  } else if (!options_.parallel_calls && state_.next_index > 0) {
    recovered(Recovery::kSurplusCall);
  } else {
    state_.muted = false;
    release_reasoning();
    IdBuffer buffer;
    out_.begin_call(state_.next_index, native_id.empty() ? make_id(buffer) : native_id, name);
    ++state_.next_index;
  }
}

void CallWriter::end_call() {
  STATOR_ASSERT(state_.open, "W1: only an open call ends");
  state_.open = false;
  if (!state_.muted) {
    out_.end_call(state_.next_index - 1, true);
  }
}

void CallWriter::break_call(Recovery why) {
  STATOR_ASSERT(state_.open, "W1: only an open call breaks");
  state_.open = false;
  recovered(why);
  if (!state_.muted) {
    state_.truncated = state_.truncated || why == Recovery::kTruncatedCall;
    out_.end_call(state_.next_index - 1, false);
  }
}

void CallWriter::finish() {
  if (state_.next_index == 0 && !state_.reasoned && state_.held_reasoning.empty()) {
    out_.add_text(state_.pending_space);
  } else if (!state_.text_started && state_.next_index == 0) {
    out_.add_text(state_.held_reasoning);
  }
  state_.pending_space.clear();
  state_.held_reasoning.clear();
}

/// Every character comes from 16 bits of its own, so that the compiler makes many at once; each of
/// the 62 is as likely as the others within 0.1 %.
std::string_view CallWriter::make_id(IdBuffer& buffer) const {
  constexpr std::string_view kPrefix = "call_";
  constexpr size_t kCharacters = 24;
  const bool short_form =
      options_.tools_family != nullptr && options_.tools_family->ids == IdScheme::kAlnum9;
  const size_t prefix = short_form ? 0 : kPrefix.size();
  const uint64_t seed =
      mix64(options_.id_seed ^ mix64((uint64_t{state_.choice_index} << 32) | state_.next_index));
  std::array<uint64_t, kCharacters / 4> words;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = mix64(seed + i);
  }
  const auto random = std::bit_cast<std::array<uint16_t, kCharacters>>(words);
  kPrefix.copy(buffer.data(), prefix);
  for (size_t i = 0; i < kCharacters; ++i) {
    const uint32_t digit = (uint32_t{random[i]} * 62) >> 16;  // A-Z, a-z, 0-9
    const uint32_t base = digit < 26 ? 'A' : (digit < 52 ? 'a' - 26U : '0' - 52U);
    buffer[prefix + i] = static_cast<char>(base + digit);
  }
  return {buffer.data(), prefix + (short_form ? 9 : kCharacters)};
}

}  // namespace stator::parsers
