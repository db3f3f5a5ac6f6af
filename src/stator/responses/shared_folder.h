// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/responses/record.h"

namespace stator::responses {

/// A folder in which several processes keep their responses: a file each, in one of 256 folders by
/// the hash of its id. A local one, or one of a shared file system.
///
///   STATOR_TRY(auto folder, SharedFolder::open("/mnt/responses"));
///   STATOR_TRY(auto stamp, folder.write(response));
///   STATOR_TRY(auto found, folder.read("resp_…"));   // at any process
///
/// F1  A reader sees a file whole or not at all. Files are not synced: a power cut may take those
///     of the last seconds.
/// F2  An id that is none of ours ("resp_" and hexadecimal digits) has no file.
/// F3  Who makes a response in the background touches its file; one that nobody touched for
///     kSilenceMax s has failed.
///
/// Thread-safe: it holds nothing but the path.
class SharedFolder {
 public:
  static constexpr int64_t kSilenceMax = 90;
  static constexpr uint32_t kParts = 256;

  /// Which content a file has.
  struct Stamp {
    int64_t changed_ns = 0;
    uint64_t bytes = 0;
    uint64_t file = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Found {
    StoredResponse response;
    Stamp stamp;
  };

  /// Creates what is missing. kIo where nothing can be written.
  static Result<SharedFolder> open(std::string path);

  Result<Stamp> write(const StoredResponse& response) const;
  /// Nothing: there is no such response. kIo, kCorrupt.
  Result<std::optional<Found>> read(std::string_view id, int64_t now_s) const;
  /// Nothing: there is no such file.
  std::optional<Stamp> stamp(std::string_view id) const;
  void erase(std::string_view id) const;
  void touch(std::string_view id) const;
  /// Leaves a note that who makes this one takes; false where there is no such file.
  bool ask_cancel(std::string_view id) const;
  bool take_cancel(std::string_view id) const;
  /// Removes the oldest of one of the kParts folders: what was written before `oldest_s`, and what
  /// is more than `files_max` files or `bytes_max` bytes. Returns how many went.
  size_t sweep(uint32_t part, int64_t oldest_s, size_t files_max, uint64_t bytes_max) const;

 private:
  explicit SharedFolder(std::string path) : path_(std::move(path)) {}
  std::string path_of(std::string_view id) const;  // empty: F2

  std::string path_;
};

}  // namespace stator::responses
