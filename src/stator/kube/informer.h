// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/kube/client.h"
#include "stator/net/thread.h"

namespace stator::kube {

/// What changed in the copy: `before` is null for a new object, and for a changed one if that was
/// not asked for; `after` is null for one that is gone.
using OnChange = std::function<void(const json::Value* before, const json::Value* after)>;

/// A copy of the objects of one kind, kept by a thread that lists them and then watches, from the
/// version it has seen on; after a gap (410) it lists again. A server that is away for long leaves
/// the copy as it was. Objects are kept as compact text and without managedFields: some 2 KiB each.
/// Thread-safe.
class Informer {
 public:
  /// `trim` may drop what nobody needs from an object before it is kept.
  struct Options {
    Selection selection = {};
    std::function<void(json::Value&)> trim = {};
    std::function<std::string(const json::Value&)> index_key = {};  ///< for find_indexed()
    OnChange on_change = {};    ///< on the informer's thread, one at a time
    bool gives_before = false;  ///< on_change also gets what a changed object was
    /// The copy has become complete: after the changes of the first list, on the same thread.
    std::function<void()> on_synced = {};
  };
  Informer(Client& client, Resource resource, Options options);
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;
  /// The client must have been stopped: this waits for the thread.
  ~Informer();

  const Resource& resource() const { return resource_; }
  /// The first list is complete, or the server does not serve this kind.
  bool is_synced() const { return synced_.load(); }
  bool is_served() const { return served_.load(); }

  std::optional<json::Value> get(const ObjectName& name) const;
  /// Every object of a namespace ("" for all) that `wanted` accepts, in order of their names.
  std::vector<json::Value> find(const std::string& space,
                                const std::function<bool(const json::Value&)>& wanted) const;
  /// The objects whose index_key is this.
  std::vector<json::Value> find_indexed(const std::string& key) const;
  size_t size() const;

 private:
  void run();
  Status list_all(std::string& version);
  Status on_event(WatchEvent event);
  void put(json::Value object);
  void drop(const ObjectName& name);
  void unindex(const ObjectName& name, const std::string& key);  ///< under mutex_
  bool pause();
  void become_synced();

  Client& client_;
  Resource resource_;
  Options options_;
  std::atomic<bool> synced_{false};
  std::atomic<bool> served_{true};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  struct Kept {
    std::string text;
    std::string key;
  };
  std::map<ObjectName, Kept> objects_;
  std::map<std::string, std::set<ObjectName>> index_;
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  Duration back_off_{};
  net::Thread thread_;  // last: starts when all else is there
};

}  // namespace stator::kube
