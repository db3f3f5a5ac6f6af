// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/memory_service/layout.h"
#include "stator/memory_service/messages.h"

namespace stator::memory_service {

/// An engine's side of a memory service: takes the lock, allocates or finds memory, and maps it at
/// addresses that stay, also while it is not mapped.
///
///   auto writer = Client::connect("/run/stator/memory", Mode::kWriteOrRead, 60s);
///   if ((*writer)->writes()) {
///     const Allocation a = *(*writer)->allocate(bytes, "weights");
///     load_into(*(*writer)->map(a.id));
///     (*writer)->put("layer.0", {.allocation = a.id, .bytes = bytes});
///     (*writer)->commit(true);                 // others may read; so may this one
///   }
///   (*writer)->unmap_all();  …sleep…  (*writer)->remap_all();   // at the same addresses
///
/// Blocks. One thread at a time. The lock ends with this.
class Client {
 public:
  /// kDeadline: the lock was not free in time. kUnavailable: no service.
  static Result<std::unique_ptr<Client>> connect(const std::string& socket, Mode mode,
                                                 Duration wait);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool writes() const { return writes_; }
  /// Waits so long for room. kOverloaded: there was none.
  Result<Allocation> allocate(uint64_t bytes, const std::string& tag, Duration wait = {});
  Status free(uint64_t id);
  Status put(const std::string& key, const Place& place);
  Result<Place> get(const std::string& key);
  Result<std::vector<std::string>> keys();
  Result<std::vector<Allocation>> list();
  /// Ends writing; with `stays` this goes on as a reader. kInvalidArgument: a key points nowhere.
  Result<uint64_t> commit(bool stays);
  Result<uint64_t> state_hash();
  /// "EMPTY", "RW", "COMMITTED", "RO".
  Result<std::string> runtime_state();

  /// The allocation's bytes, at an address that stays until this is gone. Readers may not write.
  Result<std::span<std::byte>> map(uint64_t id);
  /// Gives up the memory and the lock, and keeps the addresses.
  void unmap_all();
  /// Takes the lock as a reader again and maps all at the same addresses. kInvalidArgument: the
  /// layout is another one now (stale): load anew.
  Status remap_all(Duration wait);

 private:
  struct Mapping {
    std::byte* address = nullptr;
    size_t bytes = 0;
  };
  explicit Client(std::string socket) : socket_path_(std::move(socket)) {}
  Status take_lock(Mode mode, Duration wait);
  Result<Message> ask(const Message& message, io::FileDescriptor* descriptor = nullptr);
  Status place(uint64_t id, Mapping& mapping);

  const std::string socket_path_;
  io::FileDescriptor socket_;
  bool writes_ = false;
  uint64_t hash_ = 0;  // when it was unmapped
  std::map<uint64_t, Mapping> mappings_;
};

}  // namespace stator::memory_service
