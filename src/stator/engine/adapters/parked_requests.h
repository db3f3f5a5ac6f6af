// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/engine/adapters/adapter_commands.h"
#include "stator/engine/adapters/first_use.h"
#include "stator/engine/adapters/upkeep.h"

namespace stator::engine::adapters {

/// Requests that wait until their server has loaded an adapter, which it is asked to do when the
/// first one comes: they are in flight, and in no stream. The adapter's thread, but for names().
class ParkedRequests {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Their adapter is there. Within a turn of the streams.
    virtual void on_unparked(std::vector<Submit> requests) = 0;
    /// It will not come.
    virtual void on_park_failed(std::vector<Submit> requests, const Error& why) = 0;
  };
  /// Upkeep, which asks the server, and owner outlive it.
  ParkedRequests(FirstUse first_use, std::string url, Upkeep& upkeep, Owner& owner)
      : first_use_(std::move(first_use)), url_(std::move(url)), upkeep_(upkeep), owner_(owner) {}
  ParkedRequests(const ParkedRequests&) = delete;
  ParkedRequests& operator=(const ParkedRequests&) = delete;

  /// Whether adapters are loaded when they are asked for.
  bool enabled() const { return first_use_.enabled(); }
  /// Of those that could be. Any thread.
  std::vector<std::string> names() const { return first_use_.names(); }

  /// True: the request was taken, and waits.
  bool park(Submit& submit);
  /// True: it waited, and does no longer.
  bool drop(SessionId session, inference::RequestKey key);
  void drop_session(SessionId session);
  /// All that wait.
  std::vector<Submit> take_all();

 private:
  void load(std::string name, std::string path);
  void on_loaded(const std::string& name, Status loaded);

  FirstUse first_use_;
  const std::string url_;
  Upkeep& upkeep_;
  Owner& owner_;
  FlatMap<std::string, std::vector<Submit>> waiting_;  // by adapter, until the server has answered
};

}  // namespace stator::engine::adapters
