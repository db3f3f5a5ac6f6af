// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stator/engine/api/adapter.h"
#include "stator/net/job_thread.h"

namespace stator::engine {

/// Reads adapters that are asked for the first time on a thread of its own, one after another, so
/// that neither the engine nor the loop that brought the request waits for files.
/// Threads: load() and stop() from any thread; `done` is called on the loader's, by stop() on the
/// caller's.
class AdapterLoader {
 public:
  /// Null: there is none of that name, or it cannot be read.
  using Done = std::function<void(std::shared_ptr<const Adapter>)>;

  explicit AdapterLoader(std::shared_ptr<const AdapterSource> source)
      : source_(std::move(source)) {}
  AdapterLoader(const AdapterLoader&) = delete;
  AdapterLoader& operator=(const AdapterLoader&) = delete;

  /// Whether the source would read files for it.
  bool needs(std::string_view name) const;
  /// The number of calls that wait is the caller's to bound.
  void load(std::string name, Done done);
  /// Ends the thread; what waits gets null. Idempotent.
  void stop() { jobs_.stop(); }

 private:
  const std::shared_ptr<const AdapterSource> source_;  // shared with the engine's configuration
  net::JobThread jobs_{"adapters"};
};

}  // namespace stator::engine
