// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "stator/kube/client.h"
#include "stator/kube/informer.h"

namespace stator::kube {

/// Whether `live` has all that `desired` says: what others added does not count.
bool covers(const json::Value& live, const json::Value& desired);

/// Sets a condition in `conditions`; the time of its last change moves only when its status does.
void set_condition(json::Value& conditions, const json::Value* before, json::Value condition);

/// A merge patch that makes `before` (null: nothing) into `after`: what is gone is null.
json::Value diff_as_merge_patch(const json::Value& before, const json::Value& after);

/// What happened to an object, told once it did.
struct Happening {
  bool is_warning = false;
  std::string reason;
  std::string note;
};
/// An events.k8s.io/v1 Event about `object`; its note is cut at the API's bound.
json::Value make_event(const json::Value& object, const Happening& happening,
                       const std::string& instance, const std::string& now_micro);

/// Takes a field out of an object by a path as API servers write it:
/// .spec.containers[name="main"].x, .spec.list[2]. Whether it was there.
bool erase_path(json::Value& object, std::string_view path);

/// Writes the children of controllers: none that is as it should be. Remembers one hash for each
/// child that exists. Thread-safe.
class ChildWriter {
 public:
  ChildWriter(Client& client, std::string manager)
      : client_(client), manager_(std::move(manager)) {}

  /// Server-side apply, unless `copies` already has all of the child, or had after the last time.
  /// Null copies: applied once as long as the child stays the same.
  /// Fields that this server's version of a built-in kind does not have are left out, and named in
  /// `ignored`: their owner keeps them for a server that knows them.
  Status apply(const json::Value& child, const Informer* copies,
               std::vector<std::string>* ignored = nullptr);
  /// Status by a merge patch of what differs from the object's own status. Gone objects are fine.
  Status write_status(const json::Value& object, const json::Value& status);

 private:
  Result<json::Value> write(const Resource& resource, json::Value child,
                            std::vector<std::string>* ignored);
  struct Applied {
    std::string hash;
    int64_t generation = 0;
  };
  Client& client_;
  std::string manager_;
  std::mutex mutex_;
  std::map<std::string, Applied> applied_;  ///< by kind and name
};

}  // namespace stator::kube
