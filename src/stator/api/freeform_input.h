// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stator::api {

/// Models call custom (freeform) tools as functions with one string, {"input":"…"}: this takes the
/// text out of such arguments while they are written, in pieces cut anywhere.
///
///   FreeformInput input;
///   for each piece: text += input.feed(piece);
///   text += input.finish();
///
/// Arguments of another shape are handed on as they stand, by finish(). What an escape or a
/// surrogate pair lacks is waited for. Time is linear in the arguments, which are kept only as long
/// as their shape is not known.
class FreeformInput {
 public:
  /// What became certain of the text.
  std::string feed(std::string_view piece);
  /// What is left at the end.
  std::string finish();

 private:
  enum class State : uint8_t { kHead, kText, kOver, kForeign };

  State state_ = State::kHead;
  std::string waiting_;  // arguments from where they were not understood yet
};

/// The other way round: the arguments of a call whose text is the JSON string `input_json`, as a
/// JSON string.
std::string freeform_arguments(std::string_view input_json);

}  // namespace stator::api
