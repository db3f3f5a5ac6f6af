// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/detail/object.h"

namespace stator::chat_template::detail {

// What a template can call, by name; null where there is no such thing.

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
struct MethodEntry {
  std::string_view name;
  Method function;
};

FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
MethodSet find_methods(std::string_view name);
const FunctionObject* find_global(std::string_view name);
/// Of `dict.fromkeys`, the only global with a method.
Method find_function_method(const FunctionObject& function, std::string_view name);

// The tables behind find_filter and find_methods, one per source file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> value_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> html_filters();
std::span<const MethodEntry> string_methods();
std::span<const MethodEntry> list_methods();
std::span<const MethodEntry> dict_methods();

}  // namespace stator::chat_template::detail
