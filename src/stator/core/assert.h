// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <string_view>

namespace stator {

/// Prints the broken invariant and aborts. Called by STATOR_ASSERT only.
[[noreturn]] void assertion_failed(std::string_view expression, std::string_view message,
                                   std::source_location where) noexcept;

/// Counts and logs (once per place) something suspicious but survivable. Called by STATOR_EXPECT.
void expectation_failed(std::string_view expression, std::string_view message,
                        std::source_location where) noexcept;

/// How many expectations failed in this process so far; exported as a metric, asserted 0 in tests.
unsigned long expectation_failures() noexcept;

}  // namespace stator

// A broken invariant is a bug: on in every build. The message cites the invariant: "I3: …".
#define STATOR_ASSERT(condition, message)                                               \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      ::stator::assertion_failed(#condition, message, std::source_location::current()); \
    }                                                                                   \
  } while (false)

#define STATOR_EXPECT(condition, message)                                                 \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::stator::expectation_failed(#condition, message, std::source_location::current()); \
    }                                                                                     \
  } while (false)
