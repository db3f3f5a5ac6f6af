// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

class Interpreter;

/// Evaluated arguments of a call, filter or test.
struct CallArguments {
  std::span<const Value> positional;
  std::span<const std::string_view> names;
  std::span<const Value> named;

  /// The argument at `index` or of `name`; null when not given.
  const Value* get(size_t index, std::string_view name) const;
  /// The same with defaults for plain types; wrong types throw.
  int64_t get_int(size_t index, std::string_view name, int64_t otherwise) const;
  bool get_bool(size_t index, std::string_view name, bool otherwise) const;
  std::string_view get_text(size_t index, std::string_view name, std::string_view otherwise) const;
  /// As get, but throws when missing. `function` is for the message.
  const Value& require(size_t index, std::string_view name, std::string_view function) const;
};

/// The parameters of a filter, test, method or global, behind what it is applied to, as Python
/// writes them: "old new count=" takes two or three arguments, also by name. "/" at the end: none
/// of them by name; "*": the ones behind it only by name; "*args" and "**kwargs": any others.
class Signature {
 public:
  consteval Signature(const char* text) {  // NOLINT(google-explicit-constructor): rows of tables
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(' '), rest.size());
      add(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }

  /// Throws where Python would refuse the arguments of a call of `function`.
  void check(std::string_view function, const CallArguments& arguments) const {
    const size_t given = arguments.positional.size();
    if (!arguments.names.empty() || given < required_ || given > positional_max_) [[unlikely]] {
      check_all(function, arguments);
    }
  }

 private:
  static constexpr uint8_t kAnyNumber = 255;

  consteval void add(std::string_view part) {
    if (part == "*args") {
      positional_max_ = kAnyNumber;
    } else if (part == "**kwargs") {
      any_names_ = true;
    } else if (part == "*") {
      names_only_ = true;
    } else if (part == "/") {
      by_name_ = false;
    } else {
      const bool optional = part.ends_with('=');
      names_[count_++] = part.substr(0, part.size() - (optional ? 1 : 0));
      required_ += optional ? 0 : 1;
      positional_max_ += names_only_ ? 0 : 1;
    }
  }

  void check_all(std::string_view function, const CallArguments& arguments) const;

  std::array<std::string_view, 5> names_{};
  uint8_t count_ = 0;
  uint8_t required_ = 0;  // the first ones
  uint8_t positional_max_ = 0;
  bool names_only_ = false;
  bool by_name_ = true;
  bool any_names_ = false;
};

/// Texts below this are free. Any use of a longer one counts by its size.
inline constexpr size_t kFreeTextBytes = 1024;
void charge_text(Interpreter& interpreter, size_t bytes);

/// A filter, test or method as a template sees it.
template <typename Function>
struct Callable {
  std::string_view name;
  Function function;
  Signature signature = "";

  auto operator()(Interpreter& interpreter, const Value& self,
                  const CallArguments& arguments) const {
    signature.check(name, arguments);
    const bool wide = self.kind() == Kind::kBigInt;  // reading its digits takes longer
    if ((wide || self.is_string()) && self.text().size() > kFreeTextBytes) [[unlikely]] {
      charge_text(interpreter, self.text().size() * (wide ? 8 : 1));
    }
    return function(interpreter, self, arguments);
  }
};
using Filter = Callable<Value (*)(Interpreter&, Value input, const CallArguments&)>;
using Test = Callable<bool (*)(Interpreter&, const Value&, const CallArguments&)>;
using Method = Filter;  ///< the input is the receiver

}  // namespace stator::chat_template::detail
