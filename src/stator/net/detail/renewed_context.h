// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/detail/ssl_context.h"

namespace stator::net::detail {

/// A TLS context as its files are now: whoever rotates certificates replaces them, and the next
/// connection has the new ones. Files that cannot be used, or that are only half replaced, leave
/// the context before in place, with one log line. Thread-safe; looking costs a stat per file.
class RenewedContext {
 public:
  /// Makes a context of the files; errors name the one that cannot be used.
  using Load = std::function<Result<SslContext>()>;

  /// Errors of the first `load`. `files` are looked at for changes.
  static Result<std::unique_ptr<RenewedContext>> create(std::vector<std::filesystem::path> files,
                                                        Load load);

  /// For a connection that begins now.
  std::shared_ptr<SSL_CTX> current() const;

 private:
  /// What tells a file from one that took its place; zeros: it is not there.
  struct Stamp {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  RenewedContext(std::vector<std::filesystem::path> files, Load load)
      : files_(std::move(files)), load_(std::move(load)) {}
  std::vector<Stamp> look() const;

  const std::vector<std::filesystem::path> files_;
  const Load load_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<SSL_CTX> context_ STATOR_GUARDED_BY(mutex_);  // shared with callers
  mutable std::vector<Stamp> seen_ STATOR_GUARDED_BY(mutex_);           // usable or not
};

}  // namespace stator::net::detail
