// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/call_writer.h"

#include <cstring>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/parsers/detail/window.h"

namespace stator::parsers {
namespace {

/// White space that may still be dropped; a longer run is text.
constexpr size_t kMaxPendingSpaceBytes = 4096;

/// Eight characters of an id from eight random bytes, all at once: of each byte six bits choose
/// among the 62 letters and digits, 8 and 9 twice as often as the others.
uint64_t id_characters(uint64_t random) {
  constexpr uint64_t kOnes = 0x0101010101010101;  // a byte times this: that byte, eight times
  constexpr uint64_t kTop = 0x80;
  const uint64_t values = random & (0x3F * kOnes);
  const auto at_least = [values](uint64_t bound) {  // 1 in each byte where it holds
    return ((values + (kTop - bound) * kOnes) >> 7) & kOnes;
  };
  constexpr uint64_t kLower = 26;
  constexpr uint64_t kDigits = 52;
  constexpr uint64_t kSurplus = 62;
  return values + 'A' * kOnes + at_least(kLower) * ('a' - 'A' - kLower) -
         at_least(kDigits) * ('a' + kDigits - kLower - '0') - at_least(kSurplus) * 2;
}

}  // namespace

/// White space at the front waits: nobody needs it if no text follows.
void CallWriter::first_text(std::string_view bytes) {
  const size_t space =
      std::min(leading_space(bytes), kMaxPendingSpaceBytes - state_.pending_space.size());
  state_.pending_space.append(bytes.substr(0, space));
  bytes.remove_prefix(space);
  if (bytes.empty()) {
    return;
  }
  release_reasoning();
  out_.add_text(state_.pending_space);
  out_.add_text(bytes);
  state_.pending_space.clear();
  state_.holds_space = false;
  state_.text_started = true;
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

void CallWriter::begin_no_call() {
  STATOR_ASSERT(!state_.open, "W1: one call at a time");
  state_.open = true;
  state_.holds_space = true;
  state_.pending_space.clear();
  state_.muted = true;
}

void CallWriter::begin_call(std::string_view name, std::string_view native_id) {
  begin_no_call();
  name = trim(name);
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
    state_.completed = true;
    out_.end_call(state_.next_index - 1, true);
  }
}

void CallWriter::break_call(Recovery why) {
  STATOR_ASSERT(state_.open, "W1: only an open call breaks");
  state_.open = false;
  recovered(why);
  if (!state_.muted) {
    (why == Recovery::kTruncatedCall ? state_.truncated : state_.broken) = true;
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

std::string_view CallWriter::make_id(IdBuffer& buffer) const {
  constexpr std::string_view kPrefix = "call_";
  constexpr size_t kShort = 9;
  constexpr size_t kLong = 24;
  const bool is_short =
      options_.tools_family != nullptr && options_.tools_family->ids == IdScheme::kAlnum9;
  const std::string_view prefix = is_short ? "" : kPrefix;
  char* const begin = buffer.data() + prefix.size();
  prefix.copy(buffer.data(), prefix.size());
  const uint64_t seed =
      mix64(options_.id_seed ^ ((uint64_t{state_.choice_index} << 32) | state_.next_index));
  for (size_t at = 0; at < kLong; at += sizeof(uint64_t)) {
    const uint64_t characters = id_characters(mix64(seed + at));
    std::memcpy(begin + at, &characters, sizeof(characters));
  }
  return {buffer.data(), prefix.size() + (is_short ? kShort : kLong)};
}

}  // namespace stator::parsers
