// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

namespace stator {

/// A shared library that is loaded when one of its functions is called for the first time.
/// cmake/lazy_library.cmake makes one of these and a jump per function, so that callers include the
/// library's own header and call as ever.
struct LazyLibrary {
  const char* file;               ///< what dlopen is given, "libcurl.so.4"
  const char* package;            ///< Debian's name of what holds it, for the message
  const char* const* names;       ///< of `count` functions
  std::atomic<void*>* functions;  ///< where their addresses go, in the order of `names`
  size_t count;
};

/// Loads the library and fills `functions`. Any thread, any number of times. A library that is
/// absent or lacks a function ends the process with one line that names the package to install: a
/// call into a library has no way to fail otherwise, as at a start without it.
void load_library(const LazyLibrary& library);

}  // namespace stator
