// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stator/chat_template/detail/arguments.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {

/// Header of the values that only a running template makes.
struct Object {
  enum class Type : uint8_t {
    kNamespace,
    kLoop,
    kMacro,
    kMethod,    ///< `text.strip`: a function with its receiver
    kFunction,  ///< a global such as range
    kCycler,
    kJoiner,
    kRange,
  };
  Type type;
};

namespace detail {

struct MacroStmt;
struct ForStmt;
struct Frame;

using GlobalFunction = Value (*)(Interpreter&, const CallArguments&);

struct NamespaceObject : Object {
  DictData* attributes;
};

struct LoopObject : Object {
  ListData* items;
  uint32_t index0;
  uint32_t depth0;
  Value changed;  ///< last arguments of loop.changed(); missing before the first call
  const ForStmt* statement;
  Frame* frame;
};

struct MacroObject : Object {
  const MacroStmt* declaration;
  Frame* closure;
};

struct MethodObject : Object {
  Value self;
  const Method* method;
};

struct FunctionObject : Object {
  GlobalFunction function;
  std::string_view name;
  Signature signature;
};

struct CyclerObject : Object {
  std::span<Value> items;
  uint32_t position;
};

/// range(): bounded, so its elements can be listed whenever they are walked.
struct RangeObject : Object {
  int64_t start;
  int64_t stop;  ///< as given, for printing
  int64_t step;
  uint32_t size;

  int64_t at(int64_t index) const { return start + index * step; }
};

struct JoinerObject : Object {
  Value separator;
  bool used;
};

}  // namespace detail
}  // namespace stator::chat_template
