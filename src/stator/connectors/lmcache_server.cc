// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/lmcache_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "stator/core/log.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/transfer/socket_io.h"

namespace stator::connectors {
namespace {

constexpr std::string_view kNames[] = {"put", "get", "exist", "list", "health"};

/// Waits for the next message for as long as it takes. False: the peer is gone.
bool wait_for_message(int socket) {
  pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, -1) == 1 && (one.revents & POLLIN) != 0;
}

bool send_answer(int socket, LmCode code, const LmMeta& meta = {},
                 std::span<const std::byte> value = {}) {
  return transfer::send_all(socket, encode_lm_answer(code, meta), value);
}

}  // namespace

Result<std::unique_ptr<LmcacheServer>> LmcacheServer::open(const LmcacheServerOptions& options,
                                                           storage::CacheService& cache,
                                                           Metrics& metrics) {
  uint16_t port = options.port;
  io::FileDescriptor listener = transfer::listen_tcp(options.host, port);
  if (!listener.open()) {
    return Error(Code::kIo, fmt::format("--lmcache-listen {}:{} cannot be listened on: an IPv4 "
                                        "address of this host and a free port are needed",
                                        options.host, options.port));
  }
  return std::unique_ptr<LmcacheServer>(
      new LmcacheServer(options, cache, metrics, std::move(listener), port));
}

LmcacheServer::LmcacheServer(const LmcacheServerOptions& options, storage::CacheService& cache,
                             Metrics& metrics, io::FileDescriptor listener, uint16_t port)
    : options_(options),
      values_(cache),
      listener_(std::move(listener)),
      port_(port),
      open_(metrics.gauge("stator_kv_lmcache_connections", "open connections of LMCache clients")),
      refused_(metrics.counter("stator_kv_lmcache_refused_total",
                               "connections closed at once: too many are open")),
      bad_(metrics.counter("stator_kv_lmcache_bad_messages_total",
                           "connections closed because of what they sent")) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    requests_[i] = metrics.counter("stator_kv_lmcache_requests_total",
                                   "requests of LMCache clients", {{"op", std::string(kNames[i])}});
  }
  acceptor_ = net::Thread("kv-lm-accept", [this] { accept_all(); });
}

LmcacheServer::~LmcacheServer() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    const MutexLock lock(mutex_);
    for (const Connection& one : connections_) {
      ::shutdown(one.socket.get(), SHUT_RDWR);
    }
    room_.notify_all();
  }
  std::list<Connection> closing;
  {
    const MutexLock lock(mutex_);
    closing.swap(connections_);
  }
}

void LmcacheServer::accept_all() {
  while (!stopping_) {
    io::FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.open()) {
      if (stopping_ || !wait_for_message(listener_.get())) {
        return;
      }
      continue;
    }
    transfer::set_up_socket(socket.get(), kStall);
    std::list<Connection> ended;  // joined without the lock
    const MutexLock lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      if (it->done) {
        ended.splice(ended.end(), connections_, it);
      }
      it = next;
    }
    open_.set(static_cast<double>(connections_.size()));
    if (connections_.size() >= options_.connections_max) {
      refused_.add();
      log::warn("store", "a connection of LMCache is refused: too many are open",
                {{"connections_max", options_.connections_max}});
      continue;
    }
    Connection& made = connections_.emplace_back();
    made.socket = std::move(socket);
    open_.set(static_cast<double>(connections_.size()));
    made.thread = net::Thread("kv-lm", [this, &made] {
      serve(made.socket.get());
      ::shutdown(made.socket.get(), SHUT_RDWR);
      made.done = true;
    });
  }
}

void LmcacheServer::serve(int socket) {
  std::array<std::byte, LmRequest::kBytes> head{};
  while (!stopping_ && wait_for_message(socket)) {
    if (!transfer::receive_all(socket, head)) {
      return;
    }
    const auto request = decode_lm_request(head, LmcacheValues::kValueBytesMax);
    if (!request) {
      bad_.add();
      log::warn("store", "a connection of LMCache is closed: it sent no request of LMCache's");
      return;
    }
    requests_[static_cast<size_t>(request->command) - 1].add();
    if (!(request->command == LmCommand::kPut ? take(socket, *request)
                                              : answer(socket, *request))) {
      return;
    }
  }
}

bool LmcacheServer::answer(int socket, const LmRequest& request) {
  switch (request.command) {
    case LmCommand::kExist:
      return send_answer(socket, values_.has(request.key) ? LmCode::kSuccess : LmCode::kFail);
    case LmCommand::kHealth:
      return send_answer(socket, LmCode::kSuccess);
    case LmCommand::kGet: {
      const auto value = values_.get(request.key);
      return value ? send_answer(socket, LmCode::kSuccess, value->meta, value->bytes())
                   : send_answer(socket, LmCode::kFail);
    }
    default:
      return send_answer(socket, LmCode::kFail);
  }
}

/// A put; its client waits for no answer, so one that cannot be kept is only logged.
bool LmcacheServer::take(int socket, const LmRequest& request) {
  const auto bytes = static_cast<uint64_t>(request.meta.length);
  if (!reserve(bytes)) {
    return false;
  }
  const storage::AlignedBuffer value(std::max<uint64_t>(bytes, 1));
  const auto whole = value.bytes().first(bytes);
  const bool received = transfer::receive_all(socket, whole);
  if (received) {
    const Status put = values_.put(request.key, request.meta, whole);
    if (!put && put.error().code() != Code::kAlreadyExists) {
      log::warn("store", "a value of LMCache is not kept",
                {{"key", request.key}, {"reason", put.error().message()}});
    }
  }
  give_back(bytes);
  return received;
}

bool LmcacheServer::reserve(uint64_t bytes) {
  MutexLock lock(mutex_);
  while (!stopping_ && receiving_bytes_ > 0 &&
         receiving_bytes_ + bytes > options_.receiving_bytes_max) {
    room_.wait(lock);
  }
  receiving_bytes_ += stopping_ ? 0 : bytes;
  return !stopping_;
}

void LmcacheServer::give_back(uint64_t bytes) {
  const MutexLock lock(mutex_);
  receiving_bytes_ -= bytes;
  room_.notify_all();
}

}  // namespace stator::connectors
