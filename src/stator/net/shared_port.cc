// SPDX-License-Identifier: Apache-2.0
#include "stator/net/shared_port.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/io/unix_socket.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/unix_socket.h"
#include "stator/net/detail/watch.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

using detail::FileDescriptor;

// What processes that share a port say to each other.
constexpr char kGiveSockets = 'G';
constexpr char kHereTheyAre = 'S';
constexpr char kAccepting = 'A';

constexpr int kAnswerTimeoutMs = 1000;
// The next head has taken the name a moment after the last one gave it up.
constexpr Duration kRetry = std::chrono::milliseconds(10);

std::string line_name(const std::string& host, uint16_t port) {
  return fmt::format("stator-port/{}/{}:{}", ::geteuid(), host, port);
}

/// What another process hands out.
struct Inheritance {
  FileDescriptor line;
  std::vector<FileDescriptor> sockets;
};

/// kNotFound when nobody is there.
Result<Inheritance> inherit(const std::string& name, uint16_t port) {
  Inheritance got;
  STATOR_TRY(got.line, detail::connect_unix(name));
  pollfd readable = {got.line.get(), POLLIN, 0};
  detail::UnixMessage message;
  if (!detail::send_unix(got.line.get(), kGiveSockets) ||
      ::poll(&readable, 1, kAnswerTimeoutMs) != 1 ||
      detail::receive_unix(got.line.get(), message) != detail::UnixState::kMessage ||
      message.word != kHereTheyAre || message.passed.empty()) {
    return Error(Code::kNotFound, "who serves the port does not hand it out");
  }
  for (const FileDescriptor& socket : message.passed) {
    STATOR_TRY(const uint16_t listens_on, detail::listening_port(socket.get()));
    if (listens_on != port) {
      return Error(Code::kInvalidArgument, "a passed socket listens on another port");
    }
  }
  got.sockets = std::move(message.passed);
  return got;
}

}  // namespace

class SharedPort::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::string name, uint16_t port, std::vector<FileDescriptor> sockets, FileDescriptor head,
       Metrics& metrics)
      : name_(std::move(name)),
        port_(port),
        sockets_(std::move(sockets)),
        head_fd_(std::move(head)),
        joined_(head_fd_.open()),
        members_gauge_(metrics.gauge("stator_http_port_members",
                                     "other processes this one hands its port to")),
        handed_out_(metrics.counter("stator_http_port_handed_out_total",
                                    "times the listening sockets were passed on")) {}

  uint16_t port() const { return port_; }
  bool joined() const { return joined_; }
  bool others_accept() const { return others_accept_.load(std::memory_order_relaxed); }
  const std::vector<FileDescriptor>& sockets() const { return sockets_; }

  void attach(Shard& shard) {
    shard_ = &shard;
    if (head_fd_.open()) {
      follow(std::exchange(head_fd_, {}));
    } else {
      take_place();
    }
  }

  void announce_accepting() {
    accepting_ = true;
    if (head_) {
      detail::send_unix(head_->fd(), kAccepting);
    }
  }

  void leave() {
    if (std::exchange(left_, true)) {
      return;
    }
    retry_.cancel();
    shard_ = nullptr;
    drop(listener_);
    drop(head_);
    for (PeerPtr& member : members_) {
      drop(member);
    }
    members_.clear();
    sockets_.clear();
    note();
  }

 private:
  /// A socket to or from other processes that share the port. What it does when it is readable may
  /// make it go.
  class Peer final : public detail::WatchUser, public std::enable_shared_from_this<Peer> {
   public:
    using Use = void (Impl::*)(Peer&);
    Peer(std::weak_ptr<Impl> owner, Shard& shard, Use use)
        : owner_(std::move(owner)), use_(use), socket_(shard.loop()) {}
    ~Peer() override = default;
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    void start(FileDescriptor fd) {
      socket_.open(std::move(fd)).ignore("a port that is not shared any more");
      wait();
    }
    int fd() const { return socket_.fd(); }
    void close() { socket_.close(); }
    void on_readable() override {
      if (const auto owner = owner_.lock()) {
        ((*owner).*use_)(*this);
      }
      if (socket_.is_open()) {
        wait();
      }
    }

    bool accepts = false;

   private:
    // One message is read at a time.
    void wait() { socket_.wait_readable_again(shared_from_this()); }

    const std::weak_ptr<Impl> owner_;
    const Use use_;
    detail::Watch socket_;
  };
  using PeerPtr = std::shared_ptr<Peer>;  // shared with its wait in the loop

  static void drop(PeerPtr& peer) {
    if (peer != nullptr) {
      std::exchange(peer, nullptr)->close();
    }
  }

  void note() {
    const auto accepts = [](const auto& member) { return member->accepts; };
    others_accept_.store(head_ != nullptr || std::ranges::any_of(members_, accepts),
                         std::memory_order_relaxed);
    members_gauge_.set(static_cast<double>(members_.size()));
  }

  PeerPtr watch(FileDescriptor fd, Peer::Use use) {
    auto peer = std::make_shared<Peer>(weak_from_this(), *shard_, use);
    peer->start(std::move(fd));
    return peer;
  }

  /// The head if nobody is, else behind who is.
  void take_place() {
    if (auto bound = detail::bind_unix(name_)) {
      listener_ = watch(std::move(*bound), &Impl::on_joiner);
      return note();
    }
    auto connected = detail::connect_unix(name_);
    if (connected) {
      return follow(std::move(*connected));
    }
    if (connected.error().code() == Code::kPermissionDenied) {
      log::warn("net", "the port cannot be handed over", {{"error", connected.error().message()}});
      return note();
    }
    note();
    retry_ = shard_->after(kRetry, [this] { take_place(); });
  }

  void follow(FileDescriptor head) {
    head_ = watch(std::move(head), &Impl::on_head);
    if (accepting_) {
      detail::send_unix(head_->fd(), kAccepting);
    }
    note();
  }

  void on_head(Peer& head) {
    detail::UnixMessage ignored;
    if (detail::receive_unix(head.fd(), ignored) == detail::UnixState::kEnded) {
      drop(head_);
      take_place();
    }
  }

  void on_joiner(Peer& listener) {
    auto fd = detail::accept_unix(listener.fd());
    if (!fd) {
      return;
    }
    if (members_.size() >= kMembersMax) {
      log::warn("net", "too many processes share the port", {{"port", port_}});
      return;
    }
    members_.push_back(watch(std::move(*fd), &Impl::on_member));
    note();
  }

  void on_member(Peer& member) {
    detail::UnixMessage message;
    const detail::UnixState state = detail::receive_unix(member.fd(), message);
    if (state == detail::UnixState::kEnded) {
      member.close();
      std::erase_if(members_, [&](const PeerPtr& known) { return known.get() == &member; });
      return note();
    }
    if (state == detail::UnixState::kMessage && message.word == kGiveSockets) {
      std::vector<int> fds;
      for (const FileDescriptor& socket : sockets_) {
        fds.push_back(socket.get());
      }
      if (detail::send_unix(member.fd(), kHereTheyAre, fds)) {
        handed_out_.add();
        log::info("net", "another process joins the port", {{"port", port_}});
      }
    } else if (state == detail::UnixState::kMessage && message.word == kAccepting) {
      member.accepts = true;
      note();
    }
  }

  const std::string name_;
  const uint16_t port_;
  std::vector<FileDescriptor> sockets_;
  FileDescriptor head_fd_;  // until attach()
  const bool joined_;
  const Gauge members_gauge_;
  const Counter handed_out_;

  Shard* shard_ = nullptr;  // null: not attached, or left
  bool accepting_ = false;
  bool left_ = false;
  PeerPtr listener_;  // of the head
  PeerPtr head_;      // of those behind it
  std::vector<PeerPtr> members_;
  Timer retry_;
  std::atomic<bool> others_accept_{false};
};

Result<std::unique_ptr<SharedPort>> SharedPort::open(const Options& options, Metrics& metrics) {
  uint16_t port = options.port;
  std::vector<FileDescriptor> sockets;
  FileDescriptor head;
  if (options.join && port != 0) {
    auto inherited = inherit(line_name(options.host, port), port);
    if (inherited) {
      head = std::move(inherited->line);
      sockets = std::move(inherited->sockets);
    } else if (inherited.error().code() != Code::kNotFound) {
      return std::move(inherited.error());
    }
  }
  if (sockets.empty()) {
    const uint32_t count = std::min<uint32_t>(options.sockets, io::kPassedMax);
    for (uint32_t i = 0; i < count; ++i) {
      const auto sharing = i == 0 ? detail::Sharing::kExclusive : detail::Sharing::kJoin;
      STATOR_TRY(detail::ListenSocket socket, detail::listen_tcp(options.host, port, sharing));
      port = socket.port;
      sockets.push_back(std::move(socket.fd));
    }
  }
  return std::make_unique<SharedPort>(std::make_shared<Impl>(
      line_name(options.host, port), port, std::move(sockets), std::move(head), metrics));
}

SharedPort::SharedPort(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedPort::~SharedPort() {
  leave();
}

uint16_t SharedPort::port() const {
  return impl_->port();
}
bool SharedPort::joined() const {
  return impl_->joined();
}

Result<std::vector<detail::ListenSocket>> SharedPort::sockets_of(uint32_t shard,
                                                                 uint32_t shards) const {
  const auto& all = impl_->sockets();
  std::vector<detail::ListenSocket> own;
  size_t at = shard % all.size();
  do {
    FileDescriptor copy(::fcntl(all[at].get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.open()) {
      return Error(Code::kIo, "copying a listening socket: " + detail::error_text(errno));
    }
    own.push_back({.fd = std::move(copy), .port = port()});
    at += shards;
  } while (at < all.size());
  return own;
}

void SharedPort::attach(Shard& shard) {
  impl_->attach(shard);
}
void SharedPort::announce_accepting() {
  impl_->announce_accepting();
}
bool SharedPort::others_accept() const {
  return impl_->others_accept();
}
void SharedPort::leave() {
  impl_->leave();
}

}  // namespace stator::net
