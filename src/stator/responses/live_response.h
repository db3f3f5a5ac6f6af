// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/mutex.h"

namespace stator::responses {

/// A background response while it is made: what its generation wrote so far, for clients that come
/// to look or to follow.
///
/// L1  Event n is the n-th that was written; events stay until the response is over.
/// L2  After over() nothing is added.
///
/// Written on the loop of its shard, read by any thread.
class LiveResponse {
 public:
  /// `cancel` runs on the thread that asks and must be harmless when the response is over.
  LiveResponse(std::string id, std::string owner, std::function<void()> cancel)
      : id_(std::move(id)), owner_(std::move(owner)), cancel_(std::move(cancel)) {}
  LiveResponse(const LiveResponse&) = delete;
  LiveResponse& operator=(const LiveResponse&) = delete;

  const std::string& id() const { return id_; }
  const std::string& owner() const { return owner_; }

  /// Whole frames of an event stream; comments are left out.
  void append(std::string_view frames);
  /// `response_json`: the object as it will stay.
  void end(std::string response_json);

  void cancel() const { cancel_(); }
  bool over() const;
  /// The object as it is now.
  std::string response_json() const;
  void set_response_json(std::string json);
  /// Appends frames from event `first` on to `out`, at most about `bytes_max`. Returns the number
  /// of the event after them.
  uint64_t read(uint64_t first, size_t bytes_max, std::string& out) const;
  /// Data of all events.
  std::vector<std::string> events() const;

 private:
  const std::string id_;
  const std::string owner_;
  const std::function<void()> cancel_;
  mutable Mutex mutex_;
  std::vector<std::string> events_ STATOR_GUARDED_BY(mutex_);  // their data
  std::string response_json_ STATOR_GUARDED_BY(mutex_);
  bool over_ STATOR_GUARDED_BY(mutex_) = false;
};

/// One event as a frame of a stream: its name is the `type` that its data begins with.
void append_event(std::string& out, std::string_view data);

}  // namespace stator::responses
