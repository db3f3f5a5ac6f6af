// SPDX-License-Identifier: Apache-2.0
#include "stator/media/resolver_service.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace stator::media {
namespace {

struct InfoDeleter {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

std::optional<IpAddress> address_of(const sockaddr& socket) {
  IpAddress address;
  const void* raw = &socket;
  if (socket.sa_family == AF_INET) {
    std::memcpy(address.bytes.data(), &static_cast<const sockaddr_in*>(raw)->sin_addr, 4);
    return address;
  }
  if (socket.sa_family == AF_INET6) {
    address.length = 16;
    std::memcpy(address.bytes.data(), &static_cast<const sockaddr_in6*>(raw)->sin6_addr, 16);
    return address;
  }
  return std::nullopt;
}

Result<std::vector<IpAddress>> ask_system(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) {
    return Error(Code::kInvalidArgument, "the URL's host is not known");
  }
  const std::unique_ptr<addrinfo, InfoDeleter> owned(list);
  std::vector<IpAddress> addresses;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    const auto address = address_of(*info->ai_addr);
    if (address && std::ranges::find(addresses, *address) == addresses.end() &&
        addresses.size() < Resolver::kAddressesMax) {
      addresses.push_back(*address);
    }
  }
  if (addresses.empty()) {
    return Error(Code::kInvalidArgument, "the URL's host has no address");
  }
  return addresses;
}

}  // namespace

Resolver::Resolver(std::function<void()> on_answer, Lookup lookup)
    : on_answer_(std::move(on_answer)), lookup_(lookup ? std::move(lookup) : Lookup(ask_system)) {
  for (size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back("media-dns", [this] { run(); });
  }
}

Resolver::~Resolver() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  wake_.notify_all();
}

void Resolver::post(uint64_t id, std::string host) {
  {
    const MutexLock lock(mutex_);
    queue_.emplace_back(id, std::move(host));
  }
  wake_.notify_one();
}

void Resolver::drop(uint64_t id) {
  const MutexLock lock(mutex_);
  std::erase_if(queue_, [id](const auto& entry) { return entry.first == id; });
}

std::vector<Resolver::Answer> Resolver::take_answers() {
  const MutexLock lock(mutex_);
  return std::exchange(answers_, {});
}

void Resolver::run() {
  while (true) {
    std::pair<uint64_t, std::string> next;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) {
        wake_.wait(lock);
      }
      if (stopping_) {
        return;
      }
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    auto addresses = lookup_(next.second);
    {
      const MutexLock lock(mutex_);
      answers_.push_back({.id = next.first, .addresses = std::move(addresses)});
    }
    on_answer_();
  }
}

}  // namespace stator::media
