// SPDX-License-Identifier: Apache-2.0
#include "stator/core/lazy_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "stator/core/assert.h"

namespace stator {
namespace {

std::string complaint(const LazyLibrary& library) {
  const char* const why = dlerror();
  return fmt::format("{} is needed now and does not load ({}): install the package {}",
                     library.file, why == nullptr ? "unknown" : why, library.package);
}

}  // namespace

void load_library(const LazyLibrary& library) {
  // Both are idempotent: two threads at once store the same addresses.
  void* const handle = dlopen(library.file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  STATOR_ASSERT(handle != nullptr, complaint(library));
  for (size_t i = 0; i < library.count; ++i) {
    void* const function = dlsym(handle, library.names[i]);
    STATOR_ASSERT(function != nullptr, complaint(library));
    library.functions[i].store(function, std::memory_order_release);
  }
}

}  // namespace stator
