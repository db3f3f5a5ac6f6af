// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/service.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "stator/core/log.h"
#include "stator/io/unix_socket.h"
#include "stator/memory_service/socket.h"

namespace stator::memory_service {
namespace {

constexpr Duration kRoomRetry = std::chrono::milliseconds(500);
constexpr uint64_t kWaitMaxMs = 24ULL * 3600 * 1000;
constexpr int kBacklog = 64;
constexpr timeval kSendLimit = {.tv_sec = 1, .tv_usec = 0};

Duration milliseconds(uint64_t count) {
  return std::chrono::milliseconds(std::min(count, kWaitMaxMs));
}

/// What only the writer may ask for.
bool changes(Message::Kind kind) {
  return kind == Message::Kind::kAllocate || kind == Message::Kind::kFree ||
         kind == Message::Kind::kPut || kind == Message::Kind::kErase ||
         kind == Message::Kind::kCommit;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::open(const ServiceOptions& options, Clock& clock) {
  if (connect_socket(options.socket)) {
    return Error(Code::kAlreadyExists,
                 fmt::format("a memory service listens at {} already", options.socket));
  }
  STATOR_TRY(auto listener, io::listen_unix(options.socket, SOCK_STREAM | SOCK_NONBLOCK, kBacklog));
  return std::unique_ptr<Service>(new Service(options, std::move(listener), clock));
}

Service::Service(ServiceOptions options, io::FileDescriptor listener, Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      listener_(std::move(listener)),
      layout_(options_.bytes_max) {}

Service::~Service() {
  ::unlink(options_.socket.c_str());
}

void Service::turn(Duration most) {
  std::vector<pollfd> all = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  std::vector<ClientId> ids;
  bool room_wanted = false;
  for (const auto& [id, client] : clients_) {
    all.push_back({.fd = client.socket.get(), .events = POLLIN, .revents = 0});
    ids.push_back(id);
    room_wanted = room_wanted || client.allocation || client.lock_by;
  }
  const Duration wait = room_wanted ? std::min(most, kRoomRetry) : most;
  ::poll(all.data(), all.size(),
         static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count()));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (all[i + 1].revents != 0 && !hear(ids[i], clients_.at(ids[i]))) {
      clients_.erase(ids[i]);
      ownership_.disconnect(ids[i]);  // V1
      settle();
    }
  }
  if (all[0].revents != 0) {
    accept_one();
  }
  expire(clock_.now());
}

void Service::accept_one() {
  io::FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.open() && clients_.size() < options_.clients_max) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
    clients_[++last_client_].socket = std::move(socket);
  }
}

/// False: it is gone, or talks nonsense.
bool Service::hear(ClientId id, Client& client) {
  std::array<char, 65'536> buffer{};
  const ssize_t got = ::recv(client.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got <= 0) {
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
  client.received.append(buffer.data(), static_cast<size_t>(got));
  while (client.received.size() >= 4) {
    const uint32_t size = read_length(client.received);
    if (size > Message::kBytesMax) {
      return false;
    }
    if (client.received.size() < size + size_t{4}) {
      return true;
    }
    const auto asked = decode_message(std::string_view(client.received).substr(4, size));
    client.received.erase(0, size + size_t{4});
    if (!asked || client.allocation || client.lock_by) {  // V2: one request at a time
      log::warn("memory_service", "a client's message is refused, and it is disconnected",
                {{"reason", asked ? "the last one is not answered" : asked.error().message()}});
      return false;
    }
    answer(id, client, *asked);
  }
  return true;
}

void Service::answer(ClientId id, Client& client, const Message& asked) {
  if (asked.kind == Message::Kind::kHandshake) {
    shake_hands(id, client, asked);
    return;
  }
  if (changes(asked.kind) && !ownership_.writes(id)) {
    refuse(client, Error(Code::kPermissionDenied, "only the writer changes the layout"));
    return;
  }
  if (asked.kind == Message::Kind::kAllocate) {
    client.allocation = asked;
    client.room_by = clock_.now() + milliseconds(asked.number);
    try_allocation(client, clock_.now());
    return;
  }
  int descriptor = -1;
  auto done = serve(id, asked, descriptor);
  if (!done) {
    refuse(client, done.error());
  } else {
    send(client, *done, descriptor);
  }
  settle();
}

void Service::shake_hands(ClientId id, Client& client, const Message& asked) {
  if (ownership_.writes(id) || ownership_.reads(id)) {
    refuse(client, Error(Code::kAlreadyExists, "this connection has the lock already"));
    return;
  }
  const Ownership::Answer answer = ownership_.connect(id, asked.mode);
  if (answer == Ownership::Answer::kRefused) {
    refuse(client, Error(Code::kOverloaded, "too many wait for the lock"));
  } else if (answer == Ownership::Answer::kWaits) {
    client.lock_by = clock_.now() + milliseconds(asked.number);
  } else {
    settle();
    send(client, {.number = answer == Ownership::Answer::kWriter ? 1U : 0U});
  }
}

Result<Message> Service::serve(ClientId id, const Message& asked, int& descriptor) {
  switch (asked.kind) {
    case Message::Kind::kFree:
    case Message::Kind::kPut:
    case Message::Kind::kErase:
      return change(asked);
    case Message::Kind::kCommit:
      return commit(id, asked);
    case Message::Kind::kRuntimeState:
      return Message{.bytes = layout_.bytes(),
                     .number = clients_.size(),
                     .text = std::string(to_string(ownership_.state()))};
    default:
      break;
  }
  if (!ownership_.writes(id) && !ownership_.reads(id)) {
    return Error(Code::kPermissionDenied, "a handshake comes first");
  }
  return look(asked, descriptor);
}

Result<Message> Service::change(const Message& asked) {
  if (asked.kind == Message::Kind::kFree) {
    STATOR_CHECK(layout_.free(asked.id));
    return Message{};
  }
  if (asked.kind == Message::Kind::kPut) {
    STATOR_CHECK(layout_.put(asked.text, asked.place));
    return Message{};
  }
  return Message{.number = layout_.erase(asked.text) ? 1U : 0U};
}

Result<Message> Service::look(const Message& asked, int& descriptor) {
  Message out;
  switch (asked.kind) {
    case Message::Kind::kExport: {
      descriptor = layout_.descriptor(asked.id);
      if (descriptor < 0) {
        return Error(Code::kNotFound, fmt::format("there is no allocation {}", asked.id));
      }
      for (const Allocation& one : layout_.list()) {
        out.bytes = one.id == asked.id ? one.mapped_bytes : out.bytes;
      }
      return out;
    }
    case Message::Kind::kList:
      out.allocations = layout_.list();
      break;
    case Message::Kind::kKeys:
      out.keys = layout_.keys();
      break;
    case Message::Kind::kGet: {
      auto place = layout_.get(asked.text);
      if (!place) {
        return Error(Code::kNotFound, fmt::format("there is no '{}'", asked.text));
      }
      out.place = std::move(*place);
      break;
    }
    case Message::Kind::kStateHash:
      out.number = layout_.hash();
      break;
    default:
      return Error(Code::kInvalidArgument, "this is no request");
  }
  if (encode(out).size() > Message::kBytesMax) {
    return Error(Code::kTooLarge, "the answer is longer than a message: ask for single keys");
  }
  return out;
}

Result<Message> Service::commit(ClientId id, const Message& asked) {
  STATOR_CHECK(layout_.check());
  ownership_.commit(id, asked.number == 1);
  return Message{.number = layout_.hash()};
}

/// Answers when there is room, when there never will be, or when time is up.
void Service::try_allocation(Client& client, TimePoint now) {
  const auto made = layout_.allocate(client.allocation->bytes, client.allocation->text);
  if (made) {
    send(client, {.id = made->id, .bytes = made->mapped_bytes, .number = made->slot});
  } else if (made.error().code() == Code::kOverloaded && now < client.room_by) {
    return;
  } else {
    refuse(client, made.error());
  }
  client.allocation.reset();
}

void Service::expire(TimePoint now) {
  for (auto& [id, client] : clients_) {
    if (client.allocation) {
      try_allocation(client, now);
    }
    if (client.lock_by && now >= *client.lock_by) {
      client.lock_by.reset();
      ownership_.disconnect(id);
      refuse(client, Error(Code::kDeadline,
                           fmt::format("the lock is taken: {}", to_string(ownership_.state()))));
    }
  }
  settle();
}

/// What the last changes of the lock mean for memory and for those who wait.
void Service::settle() {
  if (ownership_.take_cleared()) {
    layout_.clear();
  }
  for (const Ownership::Granted& granted : ownership_.take_granted()) {
    const auto client = clients_.find(granted.client);
    if (client != clients_.end()) {
      client->second.lock_by.reset();
      send(client->second, {.number = granted.writes ? 1U : 0U});
    }
  }
}

bool Service::send(const Client& client, const Message& message, int descriptor) const {
  return send_message(client.socket.get(), message, descriptor);
}

void Service::refuse(const Client& client, const Error& error) const {
  send(client, {.kind = Message::Kind::kError,
                .number = static_cast<uint64_t>(error.code()),
                .text = std::string(error.message().substr(0, Layout::kTextMax))});
}

}  // namespace stator::memory_service
