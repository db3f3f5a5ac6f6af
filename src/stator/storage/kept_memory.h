// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::storage {

/// Memory that outlives the process that uses it: a small process holds memfds, each under a name,
/// and gives them to one user at a time over a Unix socket. An engine that crashes finds what it
/// had put there.
///
///   keeper: serve_kept_memory({.socket = path}, stop);
///   engine: STATOR_TRY(KeptMemory memory, KeptMemory::take(path, "model-0", 256 << 20));
///
/// The user's connection is the lock: it ends with its process, however that ends. A name asked for
/// with another size starts anew, zeroed.
/// Wire (one packet each way, little-endian): "STKEEP1\0", bytes u64, name (1 … 200 bytes) →
/// status u8 (0: a memfd comes with it; 1: in use; 2: refused, no room), fresh u8.
class KeptMemory {
 public:
  /// kAlreadyExists: another process uses the name. kOverloaded: the keeper's limit. kUnavailable:
  /// nobody listens there.
  static Result<KeptMemory> take(const std::string& socket, std::string_view name, uint64_t bytes);
  KeptMemory() = default;
  KeptMemory(KeptMemory&& other) noexcept;
  KeptMemory& operator=(KeptMemory&& other) noexcept;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory();

  std::span<std::byte> bytes() { return {data_, bytes_}; }
  bool fresh() const { return fresh_; }  ///< nobody has written there yet

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool fresh_ = true;
  io::FileDescriptor line_;  // open as long as it is used
};

struct KeeperOptions {
  std::string socket;      ///< path of the Unix socket; made with mode 0600
  uint64_t bytes_max = 0;  ///< of all names together; 0: three quarters of the memory
  Duration idle{};         ///< ends after so long without a user; zero: never
};
/// Serves until `stop`, which is asked five times a second, or until idle for too long.
/// kAlreadyExists: another keeper serves there.
Status serve_kept_memory(const KeeperOptions& options, const std::function<bool()>& stop,
                         Clock& clock);

}  // namespace stator::storage
