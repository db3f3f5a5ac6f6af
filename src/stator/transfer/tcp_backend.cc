// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <list>
#include <vector>

#include "stator/core/crc32c.h"
#include "stator/core/mutex.h"
#include "stator/net/thread.h"
#include "stator/transfer/backend.h"
#include "stator/transfer/socket_io.h"

namespace stator::transfer {
namespace {

/// A peer that says nothing for so long is lost.
constexpr Duration kSilenceMax = std::chrono::seconds(2);
/// A peer that has said who it is may say nothing for so long.
constexpr Duration kIdleMax = std::chrono::hours(24);
constexpr size_t kServedMax = 256;  ///< connections of others
constexpr size_t kKeptPerPeer = 4;
/// Reads asked for and not yet answered: their frames fit into any socket buffer.
constexpr size_t kReadsAhead = 64;
constexpr size_t kNotifyMax = 65'536;

std::span<std::byte> memory_at(uint64_t addr, uint64_t len) {
  return {reinterpret_cast<std::byte*>(addr), len};
}

/// A part of a pair that fits into one frame.
struct Part {
  size_t pair = 0;
  uint64_t offset = 0;
  uint32_t len = 0;
};

std::vector<Part> cut(const Pairs& pairs) {
  std::vector<Part> parts;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint64_t len = pairs[i].local.len;
    for (uint64_t at = 0; at < len; at += Frame::kSegmentMax) {
      parts.push_back(
          {.pair = i,
           .offset = at,
           .len = static_cast<uint32_t>(std::min<uint64_t>(Frame::kSegmentMax, len - at))});
    }
  }
  return parts;
}

/// One-sided reads and writes over TCP. Each agent listens; a thread per connection of others
/// answers them, checking key and range of every frame, and closes the connection of one that asks
/// for more than it may.
class TcpBackend final : public Backend {
 public:
  TcpBackend(Host& host, std::string address, io::FileDescriptor listener, uint16_t port,
             Clock& clock)
      : host_(host),
        clock_(clock),
        address_(std::move(address)),
        port_(port),
        listener_(std::move(listener)),
        acceptor_("transfer-tcp", [this] { accept_all(); }) {}
  ~TcpBackend() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      for (const auto& served : served_) {
        ::shutdown(served->fd.get(), SHUT_RDWR);
      }
    }
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    std::list<std::unique_ptr<Served>> served;
    {
      const MutexLock lock(mutex_);
      served.swap(served_);
    }
    for (const auto& one : served) {
      one->thread.join();
    }
  }

  std::string_view type() const override { return "tcp"; }
  /// Who is writing there or reading from there for a peer stops, and its connection ends.
  void detach(MemType /*type*/, const Desc& range) override {
    MutexLock lock(mutex_);
    while (true) {
      bool used = false;
      for (const auto& served : served_) {
        if (served->busy.len > 0 && served->busy.addr < range.addr + range.len &&
            range.addr < served->busy.addr + served->busy.len) {
          used = true;
          ::shutdown(served->fd.get(), SHUT_RDWR);
        }
      }
      if (!used) {
        return;
      }
      idle_.wait(lock);
    }
  }
  bool supports(MemType local, MemType remote) const override {
    return local == MemType::kDram && remote == MemType::kDram;
  }
  bool supports_remote() const override { return true; }
  std::string connection() const override { return address_ + ":" + std::to_string(port_); }

  Outcome connect(const Metadata& peer, std::string_view connection) override {
    const size_t colon = connection.rfind(':');
    if (colon == std::string_view::npos) {
      return Outcome::kMismatch;
    }
    Known known{.host = std::string(connection.substr(0, colon)),
                .port = 0,
                .epoch = peer.epoch,
                .idle = {}};
    const std::string_view port = connection.substr(colon + 1);
    if (std::from_chars(port.data(), port.data() + port.size(), known.port).ec != std::errc()) {
      return Outcome::kMismatch;
    }
    const MutexLock lock(mutex_);
    peers_.insert_or_assign(peer.agent, std::move(known));
    return Outcome::kSuccess;
  }
  void disconnect(std::string_view peer) override {
    const MutexLock lock(mutex_);
    if (const auto found = peers_.find(peer); found != peers_.end()) {
      peers_.erase(found);
    }
  }

  Ended run(const Job& job) override {
    Outcome why = Outcome::kSuccess;
    io::FileDescriptor fd = take(job.peer, why);
    if (!fd.open()) {
      return {.outcome = why, .failed_pair = 0, .cause = "the peer cannot be reached"};
    }
    const Duration left = job.deadline - clock_.now();
    const bool short_of_time = left < kSilenceMax;
    if (short_of_time) {
      limit_silence(fd.get(), std::max<Duration>(left, std::chrono::milliseconds(1)));
    }
    Ended ended = job.op == Op::kWrite ? write(fd.get(), job) : read(fd.get(), job);
    if (ended.outcome == Outcome::kSuccess) {
      if (short_of_time) {
        limit_silence(fd.get(), kSilenceMax);
      }
      give(job.peer, std::move(fd));
    } else if (clock_.now() > job.deadline) {
      ended = {.outcome = Outcome::kCanceled,
               .failed_pair = ended.failed_pair,
               .cause = "its deadline passed"};
    }
    return ended;
  }

  Outcome notify(std::string_view peer, std::string_view message) override {
    if (message.size() > kNotifyMax) {
      return Outcome::kInvalidParam;
    }
    Outcome why = Outcome::kSuccess;
    io::FileDescriptor fd = take(peer, why);
    if (!fd.open()) {
      return why;
    }
    if (!send_notification(fd.get(), message) || !await_ack(fd.get(), why)) {
      return why == Outcome::kSuccess ? Outcome::kRemoteDisconnect : why;
    }
    give(peer, std::move(fd));
    return Outcome::kSuccess;
  }

 private:
  struct Known {
    std::string host;
    uint16_t port = 0;
    uint64_t epoch = 0;
    std::vector<io::FileDescriptor> idle;
  };
  struct Served {
    io::FileDescriptor fd;
    net::Thread thread;
    std::atomic<bool> over{false};
    std::string peer;
    Desc busy;  // what it reads from or writes to; guarded by mutex_
  };
  /// Memory is in use for a peer as long as this lives.
  class Busy {
   public:
    Busy(TcpBackend& backend, Served& served, const Desc& range)
        : backend_(backend), served_(served) {
      const MutexLock lock(backend_.mutex_);
      served_.busy = range;
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() {
      const MutexLock lock(backend_.mutex_);
      served_.busy = {};
      backend_.idle_.notify_all();
    }

   private:
    TcpBackend& backend_;
    Served& served_;
  };

  // The initiator's side.

  io::FileDescriptor take(std::string_view peer, Outcome& why) {
    std::string host;
    uint16_t port = 0;
    Frame hello{.type = Frame::Type::kHello, .len = static_cast<uint32_t>(host_.name().size())};
    {
      const MutexLock lock(mutex_);
      const auto found = peers_.find(peer);
      if (found == peers_.end()) {
        why = Outcome::kNotFound;
        return {};
      }
      if (!found->second.idle.empty()) {
        io::FileDescriptor fd = std::move(found->second.idle.back());
        found->second.idle.pop_back();
        return fd;
      }
      host = found->second.host;
      port = found->second.port;
      hello.epoch = found->second.epoch;
    }
    io::FileDescriptor fd = connect_tcp(host, port, kSilenceMax);
    why = Outcome::kRemoteDisconnect;
    if (!fd.open() || !send_all(fd.get(), encode(hello), std::as_bytes(std::span(host_.name()))) ||
        !await_ack(fd.get(), why)) {
      return {};
    }
    return fd;
  }

  void give(std::string_view peer, io::FileDescriptor fd) {
    const MutexLock lock(mutex_);
    const auto found = peers_.find(peer);
    if (found != peers_.end() && found->second.idle.size() < kKeptPerPeer) {
      found->second.idle.push_back(std::move(fd));
    }
  }

  static bool await_ack(int fd, Outcome& why) {
    Frame answer;
    if (!receive_frame(fd, answer)) {
      why = Outcome::kRemoteDisconnect;
      return false;
    }
    if (answer.type == Frame::Type::kError) {
      why = static_cast<Outcome>(static_cast<int8_t>(answer.addr));
    }
    return answer.type == Frame::Type::kAck;
  }

  static bool send_notification(int fd, std::string_view message) {
    const Frame frame{.type = Frame::Type::kNotify, .len = static_cast<uint32_t>(message.size())};
    return send_all(fd, encode(frame), std::as_bytes(std::span(message)));
  }

  static Ended failed(Outcome outcome, size_t pair) {
    return {.outcome = outcome,
            .failed_pair = pair,
            .cause = outcome == Outcome::kCanceled ? "canceled"
                     : outcome == Outcome::kNotAllowed
                         ? "the peer does not allow it: another registration, or none"
                         : "the peer is gone"};
  }

  bool over(const Job& job) const { return *job.canceled || clock_.now() > job.deadline; }

  Ended write(int fd, const Job& job) {
    const std::vector<Part> parts = cut(job.pairs);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (over(job)) {
        return failed(Outcome::kCanceled, parts[i].pair);
      }
      const Pair pair = job.pairs[parts[i].pair];
      const auto bytes = memory_at(pair.local.addr + parts[i].offset, parts[i].len);
      const Frame frame{.type = Frame::Type::kWrite,
                        .flags = i + 1 == parts.size() ? Frame::kLast : uint8_t{0},
                        .segment = static_cast<uint32_t>(i),
                        .segments = static_cast<uint32_t>(parts.size()),
                        .key = pair.remote_region->key,
                        .addr = pair.remote.addr + parts[i].offset,
                        .len = parts[i].len,
                        .payload_crc = crc32c(bytes)};
      if (!send_all(fd, encode(frame), bytes)) {
        return failed(Outcome::kRemoteDisconnect, parts[i].pair);
      }
    }
    Outcome why = Outcome::kRemoteDisconnect;
    if (!job.notification.empty() && !send_notification(fd, job.notification)) {
      return failed(why, 0);
    }
    // One for the last segment, one for the notification.
    for (int acks = (parts.empty() ? 0 : 1) + (job.notification.empty() ? 0 : 1); acks > 0;
         --acks) {
      if (!await_ack(fd, why)) {
        return failed(why, 0);
      }
    }
    return {};
  }

  Ended read(int fd, const Job& job) {
    const std::vector<Part> parts = cut(job.pairs);
    size_t asked = 0;
    for (size_t done = 0; done < parts.size(); ++done) {
      for (; asked < parts.size() && asked < done + kReadsAhead; ++asked) {
        const Pair pair = job.pairs[parts[asked].pair];
        const Frame frame{.type = Frame::Type::kReadRequest,
                          .request = asked,
                          .key = pair.remote_region->key,
                          .addr = pair.remote.addr + parts[asked].offset,
                          .len = parts[asked].len};
        if (!send_all(fd, encode(frame), {})) {
          return failed(Outcome::kRemoteDisconnect, parts[asked].pair);
        }
      }
      Frame answer;
      if (over(job)) {
        return failed(Outcome::kCanceled, parts[done].pair);
      }
      if (!receive_frame(fd, answer)) {
        return failed(Outcome::kRemoteDisconnect, parts[done].pair);
      }
      if (answer.type == Frame::Type::kError) {
        return failed(static_cast<Outcome>(static_cast<int8_t>(answer.addr)), parts[done].pair);
      }
      if (answer.type != Frame::Type::kReadData || answer.request != done ||
          answer.len != parts[done].len) {
        return failed(Outcome::kMismatch, parts[done].pair);
      }
      const auto place =
          memory_at(job.pairs[parts[done].pair].local.addr + parts[done].offset, parts[done].len);
      if (!receive_all(fd, place)) {
        return failed(Outcome::kRemoteDisconnect, parts[done].pair);
      }
      if (crc32c(place) != answer.payload_crc) {
        return failed(Outcome::kMismatch, parts[done].pair);
      }
    }
    Outcome why = Outcome::kRemoteDisconnect;
    if (!job.notification.empty() &&
        (!send_notification(fd, job.notification) || !await_ack(fd, why))) {
      return failed(why, 0);
    }
    return {};
  }

  // The target's side.

  void accept_all() {
    while (true) {
      io::FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const MutexLock lock(mutex_);
      if (stopping_ || !fd.open()) {
        return;
      }
      std::erase_if(served_, [](const auto& served) { return served->over.load(); });
      if (served_.size() >= kServedMax) {
        continue;  // closed at once
      }
      set_up_socket(fd.get(), kSilenceMax);  // until it has said who it is
      auto served = std::make_unique<Served>();
      served->fd = std::move(fd);
      Served* const one = served.get();
      served_.push_back(std::move(served));
      one->thread = net::Thread("transfer-tcp", [this, one] {
        serve(*one);
        ::shutdown(one->fd.get(), SHUT_RDWR);
        one->over = true;
      });
    }
  }

  bool refuse(int fd, Outcome why) {
    host_.refused(why);
    const Frame frame{.type = Frame::Type::kError,
                      .addr = static_cast<uint8_t>(static_cast<int8_t>(why))};
    static_cast<void>(send_all(fd, encode(frame), {}));
    return false;
  }
  static bool acknowledge(int fd) {
    return send_all(fd, encode(Frame{.type = Frame::Type::kAck}), {});
  }

  void serve(Served& served) {
    Frame frame;
    bool malformed = false;
    while (receive_frame(served.fd.get(), frame, &malformed) && answer(served, frame)) {
    }
    if (malformed) {
      host_.refused(Outcome::kMismatch);
    }
  }

  /// False: the connection ends.
  bool answer(Served& served, const Frame& frame) {
    const int fd = served.fd.get();
    if (served.peer.empty() != (frame.type == Frame::Type::kHello)) {
      return refuse(fd, Outcome::kNotAllowed);
    }
    switch (frame.type) {
      case Frame::Type::kHello: {
        if (frame.len == 0 || frame.len > kNotifyMax) {
          return refuse(fd, Outcome::kMismatch);
        }
        served.peer.resize(frame.len);
        if (!receive_all(fd, std::as_writable_bytes(std::span(served.peer)))) {
          return false;
        }
        if (frame.epoch != host_.epoch()) {  // A4: it means an earlier life of ours
          return refuse(fd, Outcome::kNotFound);
        }
        set_up_socket(fd, kIdleMax);
        return acknowledge(fd);
      }
      case Frame::Type::kWrite:
        return take(served, frame);
      case Frame::Type::kReadRequest:
        return give(served, frame);
      case Frame::Type::kNotify: {
        if (frame.len > kNotifyMax) {
          return refuse(fd, Outcome::kMismatch);
        }
        std::string message(frame.len, '\0');
        if (!receive_all(fd, std::as_writable_bytes(std::span(message)))) {
          return false;
        }
        host_.deliver(served.peer, std::move(message));
        return acknowledge(fd);
      }
      case Frame::Type::kPing:
        return acknowledge(fd);
      default:
        return refuse(fd, Outcome::kInvalidParam);
    }
  }

  /// A peer writes.
  bool take(Served& served, const Frame& frame) {
    const int fd = served.fd.get();
    const Desc range{.addr = frame.addr, .len = frame.len};
    const Busy busy(*this, served, range);  // before it is allowed: see detach()
    if (!host_.allows(frame.key, range)) {
      return refuse(fd, Outcome::kNotAllowed);
    }
    const auto place = memory_at(frame.addr, frame.len);
    if (!receive_all(fd, place)) {
      return false;
    }
    if (crc32c(place) != frame.payload_crc) {
      return refuse(fd, Outcome::kMismatch);
    }
    return (frame.flags & Frame::kLast) == 0 || acknowledge(fd);
  }

  /// A peer reads.
  bool give(Served& served, const Frame& frame) {
    const int fd = served.fd.get();
    const Desc range{.addr = frame.addr, .len = frame.len};
    const Busy busy(*this, served, range);
    if (!host_.allows(frame.key, range)) {
      return refuse(fd, Outcome::kNotAllowed);
    }
    const auto bytes = memory_at(frame.addr, frame.len);
    const Frame data{.type = Frame::Type::kReadData,
                     .request = frame.request,
                     .len = frame.len,
                     .payload_crc = crc32c(bytes)};
    return send_all(fd, encode(data), bytes);
  }

  Host& host_;
  Clock& clock_;
  const std::string address_;
  const uint16_t port_;
  io::FileDescriptor listener_;

  Mutex mutex_;
  std::condition_variable_any idle_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::map<std::string, Known, std::less<>> peers_ STATOR_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Served>> served_ STATOR_GUARDED_BY(mutex_);
  net::Thread acceptor_;
};

}  // namespace

std::unique_ptr<Backend> make_tcp_backend(Host& host, const Params& params, Clock& clock,
                                          std::string& cause) {
  const auto given = params.find("host");
  const std::string address = given == params.end() ? "127.0.0.1" : given->second;
  uint16_t port = 0;
  if (const auto wanted = params.find("port"); wanted != params.end()) {
    const std::string& text = wanted->second;
    if (std::from_chars(text.data(), text.data() + text.size(), port).ec != std::errc()) {
      cause = "port must be a number";
      return nullptr;
    }
  }
  io::FileDescriptor listener = listen_tcp(address, port);
  if (!listener.open()) {
    cause = "cannot listen on " + address + ": give an IPv4 address of this host as `host`";
    return nullptr;
  }
  return std::make_unique<TcpBackend>(host, address, std::move(listener), port, clock);
}

}  // namespace stator::transfer
