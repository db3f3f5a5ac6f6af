// SPDX-License-Identifier: Apache-2.0
#include "stator/core/assert.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace stator {
namespace {
std::atomic<unsigned long> g_expectation_failures{0};
}

void assertion_failed(std::string_view expression, std::string_view message,
                      std::source_location where) noexcept {
  std::fprintf(stderr, "stator: broken invariant at %s:%u: %.*s [%.*s]\n", where.file_name(),
               where.line(), static_cast<int>(message.size()), message.data(),
               static_cast<int>(expression.size()), expression.data());
  std::fflush(stderr);
  std::abort();
}

void expectation_failed(std::string_view expression, std::string_view message,
                        std::source_location where) noexcept {
  // The first failure is printed; the rest only count, so a hot path cannot flood the log.
  if (g_expectation_failures.fetch_add(1, std::memory_order_relaxed) == 0) {
    std::fprintf(stderr, "stator: unexpected at %s:%u: %.*s [%.*s]\n", where.file_name(),
                 where.line(), static_cast<int>(message.size()), message.data(),
                 static_cast<int>(expression.size()), expression.data());
  }
#ifdef STATOR_ABORT_ON_EXPECT
  std::abort();
#endif
}

unsigned long expectation_failures() noexcept {
  return g_expectation_failures.load(std::memory_order_relaxed);
}

}  // namespace stator
