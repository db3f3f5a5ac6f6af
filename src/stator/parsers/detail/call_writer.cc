// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/call_writer.h"

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
    out_.begin_call(state_.next_index, native_id.empty() ? make_id() : std::string(native_id),
                    name);
    ++state_.next_index;
  }
}

void CallWriter::arguments(std::string_view json) {
  STATOR_ASSERT(state_.open, "W1: arguments belong to an open call");
  if (!state_.muted) {
    out_.add_arguments(state_.next_index - 1, json);
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

std::string CallWriter::make_id() const {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const IdScheme scheme =
      options_.tools_family == nullptr ? IdScheme::kCall24 : options_.tools_family->ids;
  const bool short_form = scheme == IdScheme::kAlnum9;
  std::string id = short_form ? "" : "call_";
  const size_t length = short_form ? 9 : 24;
  constexpr size_t kCharactersPerWord = 10;  // 62^10 < 2^64
  uint64_t state =
      options_.id_seed ^ mix64((uint64_t{state_.choice_index} << 32) | state_.next_index);
  uint64_t word = 0;
  for (size_t i = 0; i < length; ++i) {
    if (i % kCharactersPerWord == 0) {
      state = mix64(state);
      word = state;
    }
    id += kAlphabet[word % kAlphabet.size()];
    word /= kAlphabet.size();
  }
  return id;
}

}  // namespace stator::parsers
