// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/arguments.h"

#include <string>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/operators.h"

namespace stator::chat_template::detail {

void charge_text(Interpreter& interpreter, size_t bytes) {
  constexpr size_t kBytesPerStep = 64;
  interpreter.charge(bytes / kBytesPerStep);
}

const Value* CallArguments::get(size_t index, std::string_view name) const {
  if (index < positional.size()) {
    return &positional[index];
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      return &named[i];
    }
  }
  return nullptr;
}

int64_t CallArguments::get_int(size_t index, std::string_view name, int64_t otherwise) const {
  const Value* value = get(index, name);
  if (value == nullptr) {
    return otherwise;
  }
  if (const auto integer = as_integer(*value)) {
    return *integer;
  }
  fail_operand("argument '" + std::string(name) + "' must be an integer, not", *value);
}

bool CallArguments::get_bool(size_t index, std::string_view name, bool otherwise) const {
  const Value* value = get(index, name);
  return value == nullptr ? otherwise : value->truthy();
}

std::string_view CallArguments::get_text(size_t index, std::string_view name,
                                         std::string_view otherwise) const {
  const Value* value = get(index, name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_string()) {
    fail_operand("argument '" + std::string(name) + "' must be a string, not", *value);
  }
  return value->text();
}

const Value& CallArguments::require(size_t index, std::string_view name,
                                    std::string_view function) const {
  const Value* value = get(index, name);
  if (value == nullptr) {
    fail(std::string(function) + "() is missing its argument '" + std::string(name) + "'");
  }
  return *value;
}

void Signature::check_all(std::string_view function, const CallArguments& arguments) const {
  const std::string call = std::string(function) + "()";
  const size_t given = arguments.positional.size();
  if (given > positional_max_ && positional_max_ != kAnyNumber) {
    fail(call + " takes at most " + std::to_string(positional_max_) + " argument(s), not " +
         std::to_string(given));
  }
  for (const std::string_view name : arguments.names) {
    const size_t at = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    const bool known = by_name_ && at < count_;
    if (known && at < given) {
      fail(call + " got multiple values for argument '" + std::string(name) + "'");
    }
    if (!known && !any_names_) {
      fail(call + " got an unexpected keyword argument '" + std::string(name) + "'");
    }
  }
  for (size_t i = given; i < required_; ++i) {
    const bool is_named =
        by_name_ && std::ranges::find(arguments.names, names_[i]) != arguments.names.end();
    if (!is_named) {
      fail(call + " is missing its argument '" + std::string(names_[i]) + "'");
    }
  }
}

}  // namespace stator::chat_template::detail
