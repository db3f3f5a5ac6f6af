// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/io/file_descriptor.h"
#include "stator/io/read_file.h"
#include "stator/net/thread.h"
#include "stator/transfer/backend.h"
#include "stator/transfer/copy.h"

namespace stator::transfer {
namespace {

constexpr size_t kMessageMax = 65'536;
constexpr size_t kCopyAtOnce = size_t{2} << 20;  // between two looks at `canceled`
constexpr size_t kPiecesAtOnce = 1024;           // of a system call: IOV_MAX
constexpr size_t kCopiesBetweenLooks = 64;       // at the clock; 2 MiB each at most

std::string boot_id() {
  const auto text = io::read_file("/proc/sys/kernel/random/boot_id");
  return text ? text->substr(0, text->find('\n')) : std::string();
}

/// When the process began, in ticks: with its id a name that is not given twice. 0: it is gone.
uint64_t start_of(pid_t pid) {
  const auto text = io::read_file(fmt::format("/proc/{}/stat", pid));
  const size_t behind_name = text ? text->rfind(')') : std::string::npos;
  if (behind_name == std::string::npos) {
    return 0;
  }
  std::string_view rest = std::string_view(*text).substr(behind_name + 2);
  for (int field = 3; field < 22; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) {
      return 0;
    }
    rest.remove_prefix(space + 1);
  }
  uint64_t start = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), start);
  return start;
}

/// Address of an abstract socket.
socklen_t fill(sockaddr_un& address, std::string_view name) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

/// A peer's memfd in our address space.
struct Mapping {
  Mapping(std::byte* data_in, size_t bytes_in) : data(data_in), bytes(bytes_in) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data, bytes); }
  std::byte* data;
  size_t bytes;
};

enum class Way : uint8_t { kMapped, kAcross };

/// The backends of this process by their sockets' names: a peer that says it is in this process
/// must be one of them, or its addresses would be anything of ours.
struct Neighbours {
  Mutex mutex;
  std::map<std::string, Host*, std::less<>> hosts STATOR_GUARDED_BY(mutex);
  static Neighbours& of_this_process() {
    static Neighbours all;
    return all;
  }
};

/// Memory of processes on this host: a peer's shared arenas are mapped once and copied to and from
/// ("shm"); other memory, and all of it for "cma", goes through process_vm_readv() and writev(),
/// which need the same user and what Yama allows. The peer's processor does nothing. Notifications
/// are datagrams.
class ShmBackend final : public Backend {
 public:
  ShmBackend(Host& host, Clock& clock, Way way, io::FileDescriptor socket, std::string socket_name)
      : host_(host),
        clock_(clock),
        way_(way),
        plan_(calibrated_copy(clock)),
        socket_(std::move(socket)),
        socket_name_(std::move(socket_name)),
        receiver_("transfer-shm", [this] { receive(); }) {
    self_->pid = ::getpid();
    Neighbours& neighbours = Neighbours::of_this_process();
    const MutexLock lock(neighbours.mutex);
    neighbours.hosts.emplace(socket_name_, &host_);
  }
  ~ShmBackend() override {
    {
      Neighbours& neighbours = Neighbours::of_this_process();
      const MutexLock lock(neighbours.mutex);
      neighbours.hosts.erase(socket_name_);
    }
    stopping_ = true;
    sockaddr_un self{};
    const socklen_t length = fill(self, socket_name_);
    ::sendto(socket_.get(), "", 0, 0, reinterpret_cast<sockaddr*>(&self), length);
    receiver_.join();
  }

  std::string_view type() const override { return way_ == Way::kMapped ? "shm" : "cma"; }
  bool supports(MemType local, MemType remote) const override {
    return local == MemType::kDram && remote == MemType::kDram;
  }
  bool supports_remote() const override { return true; }
  bool only_copies() const override { return true; }
  std::string connection() const override {
    return fmt::format("{};{};{};{}", boot_id(), ::getpid(), start_of(::getpid()), socket_name_);
  }

  Outcome connect(const Metadata& peer, std::string_view connection) override {
    std::vector<std::string> parts(1);
    for (const char c : connection) {
      c == ';' ? static_cast<void>(parts.emplace_back()) : parts.back().push_back(c);
    }
    auto made = std::make_shared<Known>();
    Known& known = *made;
    if (parts.size() != 4 || parts[0] != boot_id() ||
        std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), known.pid).ec !=
            std::errc() ||
        std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), known.start).ec !=
            std::errc()) {
      return Outcome::kNotSupported;  // another host
    }
    known.socket = parts[3];
    if (known.pid != ::getpid() && start_of(known.pid) == known.start) {
      const auto process = static_cast<int>(::syscall(SYS_pidfd_open, known.pid, 0));
      // The process that had started then, if it is still there now that it cannot be mistaken.
      if (process >= 0 && start_of(known.pid) == known.start) {
        known.process = io::FileDescriptor(process);
      } else if (process >= 0) {
        ::close(process);
      }
    }
    const MutexLock lock(mutex_);
    peers_.insert_or_assign(peer.agent, std::move(made));
    return Outcome::kSuccess;
  }
  void disconnect(std::string_view peer) override {
    const MutexLock lock(mutex_);
    if (const auto found = peers_.find(peer); found != peers_.end()) {
      peers_.erase(found);
    }
  }

  Ended run(const Job& job) override {
    const std::shared_ptr<Known> peer = find(job.peer);
    if (peer == nullptr) {
      return {.outcome = Outcome::kNotFound, .failed_pair = 0, .cause = "unknown peer"};
    }
    if (peer->pid != ::getpid() && !is_alive(*peer)) {
      return {.outcome = Outcome::kRemoteDisconnect, .failed_pair = 0, .cause = "the peer is gone"};
    }
    size_t next = 0;
    Cursor cursor;
    for (size_t copies = 0; next < job.pairs.size(); ++copies) {
      // A look at the clock takes as long as a copy of some hundred bytes.
      if (*job.canceled || (copies % kCopiesBetweenLooks == 0 && clock_.now() > job.deadline)) {
        return {.outcome = Outcome::kCanceled,
                .failed_pair = next,
                .cause = *job.canceled ? "canceled" : "its deadline passed"};
      }
      const size_t first = next;
      if (const Outcome moved = move(job, next, *peer, cursor); moved != Outcome::kSuccess) {
        return {
            .outcome = moved,
            .failed_pair = first,
            .cause = moved == Outcome::kNotAllowed
                         ? "the peer's memory may not be touched: it is not registered there, or "
                           "the system forbids it (use memory of allocate(), or the same user: "
                           "kernel.yama.ptrace_scope)"
                         : "the peer is gone"};
      }
    }
    return {};
  }

  Outcome notify(std::string_view peer, std::string_view message) override {
    const std::shared_ptr<Known> known = peer.empty() ? nullptr : find(peer);
    if (known == nullptr) {
      return Outcome::kNotFound;
    }
    std::string datagram = fmt::format("{}\n{}", host_.name(), message);
    if (datagram.size() > kMessageMax) {
      return Outcome::kInvalidParam;
    }
    sockaddr_un address{};
    const socklen_t length = fill(address, known->socket);
    const ssize_t sent = ::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL,
                                  reinterpret_cast<sockaddr*>(&address), length);
    return sent == static_cast<ssize_t>(datagram.size()) ? Outcome::kSuccess
                                                         : Outcome::kRemoteDisconnect;
  }

 private:
  struct Known {
    pid_t pid = 0;
    uint64_t start = 0;
    std::string socket;
    io::FileDescriptor process{};  // readable once it ended; none: ask /proc
    Mutex mutex{};
    /// By the peer's descriptor; they stay as long as this.
    std::map<int32_t, std::unique_ptr<const Mapping>> mappings STATOR_GUARDED_BY(mutex){};
  };

  /// Shared with transfers under way; "": this agent. Null: unknown.
  std::shared_ptr<Known> find(std::string_view peer) {
    const MutexLock lock(mutex_);
    if (peer.empty()) {
      return self_;
    }
    const auto found = peers_.find(peer);
    return found == peers_.end() ? nullptr : found->second;
  }

  static bool is_alive(const Known& peer) {
    if (!peer.process.open()) {
      return start_of(peer.pid) == peer.start;
    }
    pollfd ended{.fd = peer.process.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ended, 1, 0) == 0;
  }

  /// An agent of this process with that socket has registered the region.
  static bool is_neighbours(const Known& peer, const Region& region) {
    Neighbours& neighbours = Neighbours::of_this_process();
    const MutexLock lock(neighbours.mutex);
    const auto found = neighbours.hosts.find(peer.socket);
    return found != neighbours.hosts.end() && found->second->allows(region.key, region.desc);
  }

  /// The peer's region that was last copied from or to, as it is mapped here.
  struct Cursor {
    const Region* region = nullptr;
    const Mapping* mapping = nullptr;
  };

  /// Moves the pair `next`, and what follows it, and sets `next` behind them.
  Outcome move(const Job& job, size_t& next, Known& peer, Cursor& cursor) {
    const Pair pair = job.pairs[next];
    if (way_ == Way::kAcross && peer.pid != ::getpid()) {
      return move_across(job, next, peer.pid);
    }
    if (peer.pid == ::getpid()) {
      if (pair.remote_region != nullptr && cursor.region != pair.remote_region &&
          !is_neighbours(peer, *pair.remote_region)) {
        return Outcome::kNotAllowed;
      }
      cursor.region = pair.remote_region;
      copy(job, next, reinterpret_cast<std::byte*>(pair.remote.addr), UINT64_MAX);
      return Outcome::kSuccess;
    }
    if (cursor.region != pair.remote_region) {
      cursor = {.region = pair.remote_region, .mapping = map(peer, *pair.remote_region)};
    }
    if (const Mapping* const mapping = cursor.mapping; mapping != nullptr) {
      const uint64_t offset =
          pair.remote_region->shared_offset + (pair.remote.addr - pair.remote_region->desc.addr);
      if (offset <= mapping->bytes && pair.remote.len <= mapping->bytes - offset) {
        copy(job, next, mapping->data + offset, mapping->bytes - offset);
        return Outcome::kSuccess;
      }
    }
    return move_across(job, next, peer.pid);
  }

  /// Copies the pair `next`, with those that lie right behind it on both sides, at most 2 MiB and
  /// `room` together, and sets `next` behind them. A larger pair is copied alone, piece by piece.
  void copy(const Job& job, size_t& next, std::byte* remote, uint64_t room) {
    const Pair first = job.pairs[next];
    uint64_t bytes = first.local.len;
    for (++next; next < job.pairs.size(); ++next) {
      const Pair pair = job.pairs[next];
      if (pair.local.addr != first.local.addr + bytes ||
          pair.remote.addr != first.remote.addr + bytes ||
          pair.remote_region != first.remote_region || bytes + pair.local.len > kCopyAtOnce ||
          bytes + pair.local.len > room) {
        break;
      }
      bytes += pair.local.len;
    }
    auto* const local = reinterpret_cast<std::byte*>(first.local.addr);
    std::byte* const target = job.op == Op::kWrite ? remote : local;
    const std::byte* const source = job.op == Op::kWrite ? local : remote;
    for (uint64_t at = 0; at < bytes && !*job.canceled; at += kCopyAtOnce) {
      const size_t count = std::min<uint64_t>(kCopyAtOnce, bytes - at);
      copy_bytes({target + at, count}, {source + at, count}, plan_);
    }
  }

  /// Null: it is no shared memory, or none that the peer cannot make shorter under our hands.
  static const Mapping* map(Known& peer, const Region& region) {
    if (region.shared_fd < 0) {
      return nullptr;
    }
    const MutexLock lock(peer.mutex);
    if (const auto known = peer.mappings.find(region.shared_fd); known != peer.mappings.end()) {
      return known->second.get();
    }
    const io::FileDescriptor fd(::open(
        fmt::format("/proc/{}/fd/{}", peer.pid, region.shared_fd).c_str(), O_RDWR | O_CLOEXEC));
    struct stat stat{};
    if (!fd.open() || ::fstat(fd.get(), &stat) != 0 ||
        (::fcntl(fd.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
      return nullptr;
    }
    const auto bytes = static_cast<size_t>(stat.st_size);
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (data == MAP_FAILED) {
      return nullptr;
    }
    (void)::madvise(data, bytes, MADV_HUGEPAGE);  // as its owner's, where the system allows it
    auto mapping = std::make_unique<const Mapping>(static_cast<std::byte*>(data), bytes);
    return peer.mappings.emplace(region.shared_fd, std::move(mapping)).first->second.get();
  }

  /// Pairs of at most 2 MiB together by one system call; a larger one alone, piece by piece.
  static Outcome move_across(const Job& job, size_t& next, pid_t pid) {
    std::vector<iovec> local;
    std::vector<iovec> remote;
    uint64_t bytes = 0;
    size_t end = next;
    for (; end < job.pairs.size() && local.size() < kPiecesAtOnce &&
           (bytes == 0 || bytes + job.pairs[end].local.len <= kCopyAtOnce);
         ++end) {
      const Pair pair = job.pairs[end];
      local.push_back({reinterpret_cast<void*>(pair.local.addr), pair.local.len});
      remote.push_back({reinterpret_cast<void*>(pair.remote.addr), pair.remote.len});
      bytes += pair.local.len;
    }
    // Both lists have pieces of equal length, so they stay in step.
    size_t piece = 0;
    while (piece < local.size() && !*job.canceled) {
      iovec here = local[piece];
      iovec there = remote[piece];
      const bool large = here.iov_len > kCopyAtOnce;
      here.iov_len = there.iov_len = std::min(here.iov_len, kCopyAtOnce);
      const iovec* const mine = large ? &here : &local[piece];
      const iovec* const theirs = large ? &there : &remote[piece];
      const size_t count = large ? 1 : local.size() - piece;
      const ssize_t moved = job.op == Op::kWrite
                                ? ::process_vm_writev(pid, mine, count, theirs, count, 0)
                                : ::process_vm_readv(pid, mine, count, theirs, count, 0);
      if (moved <= 0) {
        return moved < 0 && errno == EPERM ? Outcome::kNotAllowed : Outcome::kRemoteDisconnect;
      }
      for (auto left = static_cast<size_t>(moved); left > 0;) {
        const size_t step = std::min(left, local[piece].iov_len);
        for (iovec* const part : {&local[piece], &remote[piece]}) {
          part->iov_base = static_cast<std::byte*>(part->iov_base) + step;
          part->iov_len -= step;
        }
        left -= step;
        piece += local[piece].iov_len == 0 ? 1 : 0;
      }
    }
    next = end;
    return Outcome::kSuccess;
  }

  void receive() {
    std::string buffer(kMessageMax, '\0');
    while (!stopping_) {
      const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        continue;
      }
      const std::string_view datagram(buffer.data(), static_cast<size_t>(got));
      const size_t line = datagram.find('\n');
      if (line != std::string_view::npos) {
        host_.deliver(std::string(datagram.substr(0, line)),
                      std::string(datagram.substr(line + 1)));
      }
    }
  }

  Host& host_;
  Clock& clock_;
  const Way way_;
  const CopyPlan plan_;
  const io::FileDescriptor socket_;
  const std::string socket_name_;
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Known>, std::less<>> peers_  // shared with transfers
      STATOR_GUARDED_BY(mutex_);
  const std::shared_ptr<Known> self_ = std::make_shared<Known>();
  net::Thread receiver_;
};

std::unique_ptr<Backend> make(Host& host, Clock& clock, Way way, std::string& cause) {
  const std::string name =
      fmt::format("stator-transfer-{}-{:016x}", way == Way::kMapped ? "shm" : "cma", host.epoch());
  io::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t length = fill(address, name);
  if (!socket.open() || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    cause = std::strerror(errno);
    return nullptr;
  }
  return std::make_unique<ShmBackend>(host, clock, way, std::move(socket), name);
}

}  // namespace

std::unique_ptr<Backend> make_shm_backend(Host& host, const Params& /*params*/, Clock& clock,
                                          std::string& cause) {
  return make(host, clock, Way::kMapped, cause);
}

std::unique_ptr<Backend> make_cma_backend(Host& host, const Params& /*params*/, Clock& clock,
                                          std::string& cause) {
  return make(host, clock, Way::kAcross, cause);
}

}  // namespace stator::transfer
