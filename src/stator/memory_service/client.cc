// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/client.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "stator/memory_service/socket.h"

namespace stator::memory_service {
namespace {

uint64_t milliseconds(Duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(time).count()));
}

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const std::string& socket, Mode mode,
                                                Duration wait) {
  auto made = std::unique_ptr<Client>(new Client(socket));
  STATOR_CHECK(made->take_lock(mode, wait));
  return made;
}

Client::~Client() {
  for (const auto& [id, mapping] : mappings_) {
    ::munmap(mapping.address, mapping.bytes);
  }
}

Status Client::take_lock(Mode mode, Duration wait) {
  STATOR_TRY(socket_, connect_socket(socket_path_));
  STATOR_TRY(const Message granted,
             ask({.kind = Message::Kind::kHandshake, .mode = mode, .number = milliseconds(wait)}));
  writes_ = granted.number == 1;
  return {};
}

Result<Message> Client::ask(const Message& message, io::FileDescriptor* descriptor) {
  io::FileDescriptor came;
  if (!socket_.open() || !send_message(socket_.get(), message)) {
    return Error(Code::kDisconnected, "the memory service is gone");
  }
  STATOR_TRY(Message answer, receive_message(socket_.get(), came));
  if (answer.kind == Message::Kind::kError) {
    const auto code = answer.number < static_cast<uint64_t>(kCodeCount)
                          ? static_cast<Code>(answer.number)
                          : Code::kInternal;
    return Error(code, answer.text);
  }
  if (descriptor != nullptr) {
    *descriptor = std::move(came);
  }
  return answer;
}

Result<Allocation> Client::allocate(uint64_t bytes, const std::string& tag, Duration wait) {
  STATOR_TRY(const Message made, ask({.kind = Message::Kind::kAllocate,
                                      .bytes = bytes,
                                      .number = milliseconds(wait),
                                      .text = tag}));
  return Allocation{.id = made.id,
                    .bytes = bytes,
                    .mapped_bytes = made.bytes,
                    .tag = tag,
                    .slot = static_cast<uint32_t>(made.number)};
}

Status Client::free(uint64_t id) {
  STATOR_TRY([[maybe_unused]] const Message done, ask({.kind = Message::Kind::kFree, .id = id}));
  return {};
}

Status Client::put(const std::string& key, const Place& place) {
  STATOR_TRY([[maybe_unused]] const Message done,
             ask({.kind = Message::Kind::kPut, .text = key, .place = place}));
  return {};
}

Result<Place> Client::get(const std::string& key) {
  STATOR_TRY(Message found, ask({.kind = Message::Kind::kGet, .text = key}));
  return std::move(found.place);
}

Result<std::vector<std::string>> Client::keys() {
  STATOR_TRY(Message found, ask({.kind = Message::Kind::kKeys}));
  return std::move(found.keys);
}

Result<std::vector<Allocation>> Client::list() {
  STATOR_TRY(Message found, ask({.kind = Message::Kind::kList}));
  return std::move(found.allocations);
}

Result<uint64_t> Client::commit(bool stays) {
  STATOR_TRY(const Message done, ask({.kind = Message::Kind::kCommit, .number = stays ? 1U : 0U}));
  writes_ = false;
  return done.number;
}

Result<uint64_t> Client::state_hash() {
  STATOR_TRY(const Message done, ask({.kind = Message::Kind::kStateHash}));
  return done.number;
}

Result<std::string> Client::runtime_state() {
  STATOR_TRY(Message done, ask({.kind = Message::Kind::kRuntimeState}));
  return std::move(done.text);
}

/// Maps the allocation, at the mapping's address if it has one.
Status Client::place(uint64_t id, Mapping& mapping) {
  io::FileDescriptor memory;
  STATOR_TRY(const Message found, ask({.kind = Message::Kind::kExport, .id = id}, &memory));
  if (!memory.open() || (mapping.address != nullptr && mapping.bytes != found.bytes)) {
    return Error(Code::kInvalidArgument, fmt::format("allocation {} is another one now", id));
  }
  const int protection = writes_ ? PROT_READ | PROT_WRITE : PROT_READ;
  const int fixed = mapping.address != nullptr ? MAP_FIXED : 0;
  void* const address =
      ::mmap(mapping.address, found.bytes, protection, MAP_SHARED | fixed, memory.get(), 0);
  if (address == MAP_FAILED) {
    return Error(Code::kUnavailable,
                 fmt::format("mapping {} bytes: {}", found.bytes, std::strerror(errno)));
  }
  mapping = {.address = static_cast<std::byte*>(address), .bytes = found.bytes};
  return {};
}

Result<std::span<std::byte>> Client::map(uint64_t id) {
  Mapping& mapping = mappings_[id];
  if (mapping.address == nullptr) {
    if (Status placed = place(id, mapping); !placed) {
      mappings_.erase(id);
      return std::move(placed.error());
    }
  }
  return std::span(mapping.address, mapping.bytes);
}

void Client::unmap_all() {
  hash_ = state_hash().value_or(0);
  for (const auto& [id, mapping] : mappings_) {
    ::mmap(mapping.address, mapping.bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  socket_ = io::FileDescriptor();
  writes_ = false;
}

Status Client::remap_all(Duration wait) {
  STATOR_CHECK(take_lock(Mode::kRead, wait));
  STATOR_TRY(const uint64_t now, state_hash());
  if (now != hash_) {
    socket_ = io::FileDescriptor();
    return Error(Code::kInvalidArgument,
                 "stale layout: the memory service holds another one than was mapped");
  }
  for (auto& [id, mapping] : mappings_) {
    STATOR_CHECK(place(id, mapping));
  }
  return {};
}

}  // namespace stator::memory_service
