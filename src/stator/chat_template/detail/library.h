// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/detail/object.h"

namespace stator::chat_template::detail {

// What a template can call, by name; null where there is no such thing.

const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
MethodSet find_methods(std::string_view name);
const FunctionObject* find_global(std::string_view name);
/// Of `dict.fromkeys`, the only global with a method.
const Method* find_function_method(const FunctionObject& function, std::string_view name);

// The tables behind find_filter and find_methods, one per source file.
std::span<const Filter> text_filters();
std::span<const Filter> value_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> html_filters();
std::span<const Method> string_methods();
std::span<const Method> list_methods();
std::span<const Method> dict_methods();

}  // namespace stator::chat_template::detail
