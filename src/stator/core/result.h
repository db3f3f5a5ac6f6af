// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/error_code.h"

namespace stator {

/// What anything that can fail for outside reasons returns (a peer, a user, a file, the OS).
///
///   Result<Config> load(const Path& path) {
///     STATOR_TRY(std::string text, read_file(path), "reading the configuration");
///     if (text.empty()) return Error(Code::kInvalidArgument, "config file is empty: " + path);
///     return parse(text);
///   }
///
/// Bugs of ours are not errors: they are STATOR_ASSERT. Messages speak to an operator and name the
/// thing to change. Log or return, never both.

/// A failed outcome: code, text, where it was made, and the chain of contexts added on the way up.
/// One pointer wide, move-only (an error is handled once); `clone()` where a copy is really meant.
class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message,
        std::source_location where = std::source_location::current());

  Error(Error&&) noexcept = default;
  Error& operator=(Error&&) noexcept = default;
  Error(const Error&) = delete;
  Error& operator=(const Error&) = delete;
  ~Error() = default;

  Code code() const { return state_->code; }
  const CodeInfo& info() const { return describe(state_->code); }
  /// Contexts and message, outermost first: "loading model demo: reading config.json: no such
  /// file".
  const std::string& message() const { return state_->message; }
  const std::source_location& where() const { return state_->where; }
  /// "invalid_argument: temperature must be …", for logs and test failures.
  std::string to_string() const;

  /// Prepends `context + ": "`; returns itself for `return std::move(error).with_context(…)`.
  Error&& with_context(std::string_view context) &&;
  /// The same message under another code, for a boundary that must reclassify.
  Error&& with_code(Code code) &&;
  Error clone() const;

 private:
  struct State {
    Code code;
    std::string message;
    std::source_location where;
  };
  explicit Error(const State& state) : state_(std::make_unique<State>(state)) {}
  std::unique_ptr<State> state_;  // never null except when moved from
};

template <typename T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
  Result(Error error)  // NOLINT(google-explicit-constructor): `return Error(…)` must read naturally
      : std::expected<T, Error>(std::unexpect, std::move(error)) {}
  /// Drops the outcome on purpose. `why` is for the reader.
  void ignore([[maybe_unused]] std::string_view why) const {}
};

template <>
class [[nodiscard]] Result<void> : public std::expected<void, Error> {
 public:
  using std::expected<void, Error>::expected;
  Result(Error error)  // NOLINT(google-explicit-constructor): as above
      : std::expected<void, Error>(std::unexpect, std::move(error)) {}
  void ignore([[maybe_unused]] std::string_view why) const {}
};

using Status = Result<void>;

}  // namespace stator

#define STATOR_CONCAT_INNER(a, b) a##b
#define STATOR_CONCAT(a, b) STATOR_CONCAT_INNER(a, b)

// Evaluates `expression`, returns its error (with optional context) or goes on with `target`
// initialised from its value. They are statements that declare a variable, so they also work in
// coroutines (the _CO_ form), where expression-statements with co_await would not.
#define STATOR_TRY_IMPL(result, return_keyword, target, expression, ...)             \
  auto result = (expression);                                                        \
  if (!result.has_value()) [[unlikely]] {                                            \
    return_keyword std::move(result.error()) __VA_OPT__(.with_context(__VA_ARGS__)); \
  }                                                                                  \
  target = std::move(*result)

#define STATOR_TRY(target, expression, ...) \
  STATOR_TRY_IMPL(STATOR_CONCAT(stator_try_, __LINE__), return, target, expression, __VA_ARGS__)
#define STATOR_CO_TRY(target, expression, ...) \
  STATOR_TRY_IMPL(STATOR_CONCAT(stator_try_, __LINE__), co_return, target, expression, __VA_ARGS__)

/// The same for a Status: nothing to assign.
#define STATOR_CHECK(expression, ...)                                                \
  do {                                                                               \
    auto stator_check = (expression);                                                \
    if (!stator_check.has_value()) [[unlikely]] {                                    \
      return std::move(stator_check.error()) __VA_OPT__(.with_context(__VA_ARGS__)); \
    }                                                                                \
  } while (false)
#define STATOR_CO_CHECK(expression, ...)                                                \
  do {                                                                                  \
    auto stator_check = (expression);                                                   \
    if (!stator_check.has_value()) [[unlikely]] {                                       \
      co_return std::move(stator_check.error()) __VA_OPT__(.with_context(__VA_ARGS__)); \
    }                                                                                   \
  } while (false)
