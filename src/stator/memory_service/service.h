// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/memory_service/layout.h"
#include "stator/memory_service/messages.h"
#include "stator/memory_service/ownership.h"

namespace stator::memory_service {

struct ServiceOptions {
  std::string socket;      ///< path of a Unix socket, made with mode 0600
  uint64_t bytes_max = 0;  ///< of all allocations
  uint32_t clients_max = 256;
};

/// Owns memory for others: a writer allocates and fills it, commits, and readers map it; when the
/// writer crashes before that, everything is freed, and what was committed stays for whoever comes
/// next. The connected socket is the lock. It never looks into the memory: it holds memfds.
///
/// V1  A connection holds the lock at most once; when it closes, whatever the reason, the lock is
///     free.
/// V2  At most clients_max connections, each with one request in its buffer; beyond, it is closed.
/// Home thread: who calls turn().
class Service {
 public:
  /// kUnavailable: the socket cannot be made; another service listens there.
  static Result<std::unique_ptr<Service>> open(const ServiceOptions& options, Clock& clock);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Waits for news, at most so long, and answers.
  void turn(Duration most);
  Ownership::State state() const { return ownership_.state(); }
  size_t clients() const { return clients_.size(); }
  uint64_t bytes() const { return layout_.bytes(); }

 private:
  struct Client {
    io::FileDescriptor socket;
    std::string received;
    std::optional<TimePoint> lock_by;   // waits for the lock until then
    std::optional<Message> allocation;  // waits for room
    TimePoint room_by;
  };
  Service(ServiceOptions options, io::FileDescriptor listener, Clock& clock);

  void accept_one();
  bool hear(ClientId id, Client& client);
  void answer(ClientId id, Client& client, const Message& asked);
  void shake_hands(ClientId id, Client& client, const Message& asked);
  Result<Message> serve(ClientId id, const Message& asked, int& descriptor);
  Result<Message> change(const Message& asked);
  Result<Message> look(const Message& asked, int& descriptor);
  Result<Message> commit(ClientId id, const Message& asked);
  void try_allocation(Client& client, TimePoint now);
  void expire(TimePoint now);
  void settle();
  bool send(const Client& client, const Message& message, int descriptor = -1) const;
  void refuse(const Client& client, const Error& error) const;

  const ServiceOptions options_;
  Clock& clock_;
  const io::FileDescriptor listener_;
  Ownership ownership_;
  Layout layout_;
  ClientId last_client_ = 0;
  std::map<ClientId, Client> clients_;
};

}  // namespace stator::memory_service
