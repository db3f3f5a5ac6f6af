// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/adapter_loader.h"

#include <utility>

#include "stator/engine/core/lazy_adapters.h"

namespace stator::engine {

bool AdapterLoader::needs(std::string_view name) const {
  const auto* const lazy = dynamic_cast<const LazyAdapters*>(source_.get());
  return lazy != nullptr && !name.empty() && lazy->needs_loading(name);
}

void AdapterLoader::load(std::string name, Done done) {
  jobs_.add([this, name = std::move(name), done = std::move(done)](net::JobThread::Turn turn) {
    done(turn == net::JobThread::Turn::kRun ? source_->find(name) : nullptr);
  });
}

}  // namespace stator::engine
