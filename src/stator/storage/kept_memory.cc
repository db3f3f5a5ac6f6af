// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/kept_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/io/io_error.h"
#include "stator/io/unix_socket.h"
#include "stator/storage/keep_request.h"

namespace stator::storage {
namespace {

constexpr size_t kUsersMax = 64;
constexpr int kPollMs = 200;
/// A keeper that does not answer within this time is as good as none.
constexpr timeval kAnswerWait = {.tv_sec = 5, .tv_usec = 0};

enum class Answer : uint8_t { kGiven, kInUse, kNoRoom };

Result<io::FileDescriptor> connect_to(const std::string& socket) {
  auto line = io::connect_unix(socket, SOCK_SEQPACKET);
  if (!line) {
    return Error(line.error().code(), "no keeper of KV memory: " + line.error().message());
  }
  ::setsockopt(line->get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerWait, sizeof kAnswerWait);
  return line;
}

bool answer_with(int line, Answer answer, bool fresh, int memory) {
  const std::array<char, 2> bytes = {static_cast<char>(answer), static_cast<char>(fresh)};
  const std::span<const int> passed = {&memory, memory >= 0 ? size_t{1} : size_t{0}};
  return io::send_passing(line, bytes, passed) == static_cast<ssize_t>(bytes.size());
}

/// What a keeper holds: memory by name, and who uses it.
class Keeper {
 public:
  Keeper(io::FileDescriptor listener, uint64_t bytes_max)
      : listener_(std::move(listener)), bytes_max_(bytes_max) {}

  /// One look at all lines; whether somebody uses memory.
  bool turn() {
    std::vector<pollfd> all = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Line& line : lines_) {
      all.push_back({.fd = line.fd.get(), .events = POLLIN, .revents = 0});
    }
    if (::poll(all.data(), all.size(), kPollMs) > 0) {
      for (size_t i = all.size(); i-- > 1;) {
        if (all[i].revents != 0 && !hear(lines_[i - 1])) {
          lines_.erase(lines_.begin() + static_cast<ptrdiff_t>(i - 1));
        }
      }
      if (all[0].revents != 0) {
        accept_one();
      }
    }
    return std::ranges::any_of(lines_, [](const Line& line) { return !line.name.empty(); });
  }

 private:
  struct Line {
    io::FileDescriptor fd;
    std::string name;  // whose memory it uses; empty: none yet
  };
  struct Memory {
    io::FileDescriptor fd;
    uint64_t bytes = 0;
  };

  void accept_one() {
    io::FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.open() && lines_.size() < kUsersMax) {
      lines_.push_back({.fd = std::move(fd), .name = {}});
    }
  }

  /// False: the line has ended.
  bool hear(Line& line) {
    std::array<std::byte, KeepRequest::kHead + KeepRequest::kNameMax + 1> bytes{};
    const ssize_t got = ::recv(line.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    const auto request = decode_keep_request(
        std::span<const std::byte>(bytes).first(static_cast<size_t>(std::max<ssize_t>(got, 0))));
    if (!line.name.empty() || !request) {
      return false;
    }
    const auto& [wanted, name] = *request;
    if (std::ranges::find(lines_, name, &Line::name) != lines_.end()) {
      answer_with(line.fd.get(), Answer::kInUse, false, -1);
      return false;
    }
    bool fresh = false;
    const Memory* const memory = find_or_make(name, wanted, fresh);
    if (memory == nullptr) {
      answer_with(line.fd.get(), Answer::kNoRoom, false, -1);
      return false;
    }
    line.name = name;
    return answer_with(line.fd.get(), Answer::kGiven, fresh, memory->fd.get());
  }

  const Memory* find_or_make(const std::string& name, uint64_t bytes, bool& fresh) {
    const auto known = memories_.find(name);
    if (known != memories_.end() && known->second.bytes == bytes) {
      return &known->second;
    }
    uint64_t others = 0;
    for (const auto& [other, memory] : memories_) {
      others += other == name ? 0 : memory.bytes;
    }
    if (bytes == 0 || bytes > bytes_max_ || others > bytes_max_ - bytes) {
      return nullptr;
    }
    Memory made{.fd = io::FileDescriptor(::memfd_create("stator-kv-kept", MFD_CLOEXEC)),
                .bytes = bytes};
    if (!made.fd.open() || ::ftruncate(made.fd.get(), static_cast<off_t>(bytes)) != 0) {
      return nullptr;
    }
    fresh = true;
    return &memories_.insert_or_assign(name, std::move(made)).first->second;
  }

  io::FileDescriptor listener_;
  const uint64_t bytes_max_;
  std::vector<Line> lines_;
  std::map<std::string, Memory> memories_;
};

uint64_t usual_limit() {
  struct sysinfo info{};
  ::sysinfo(&info);
  return uint64_t{info.totalram} * info.mem_unit / 4 * 3;
}

}  // namespace

Status serve_kept_memory(const KeeperOptions& options, const std::function<bool()>& stop,
                         Clock& clock) {
  if (connect_to(options.socket)) {
    return Error(Code::kAlreadyExists,
                 fmt::format("another keeper of KV memory serves {}", options.socket));
  }
  STATOR_TRY(auto listener, io::listen_unix(options.socket, SOCK_SEQPACKET, kUsersMax));
  Keeper keeper(std::move(listener), options.bytes_max > 0 ? options.bytes_max : usual_limit());
  log::info("kv", "keeper of KV memory ready", {{"socket", options.socket}});
  TimePoint used = clock.now();
  while (!stop()) {
    if (keeper.turn()) {
      used = clock.now();
    } else if (options.idle > Duration::zero() && clock.now() - used >= options.idle) {
      log::info("kv", "nobody uses the kept KV memory any more: it is given back");
      break;
    }
  }
  ::unlink(options.socket.c_str());
  return {};
}

Result<KeptMemory> KeptMemory::take(const std::string& socket, std::string_view name,
                                    uint64_t bytes) {
  STATOR_TRY(io::FileDescriptor line, connect_to(socket));
  const std::string request = encode(KeepRequest{.bytes = bytes, .name = std::string(name)});
  std::array<char, 2> reply{};
  std::vector<io::FileDescriptor> passed;
  if (::send(line.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0 ||
      io::receive_passed(line.get(), reply, passed) != static_cast<ssize_t>(reply.size())) {
    return Error(Code::kUnavailable,
                 fmt::format("the keeper of KV memory at {} does not answer", socket));
  }
  if (static_cast<Answer>(reply[0]) == Answer::kInUse) {
    return Error(Code::kAlreadyExists,
                 fmt::format("another process uses the kept KV memory '{}' at {}", name, socket));
  }
  if (static_cast<Answer>(reply[0]) != Answer::kGiven || passed.size() != 1) {
    return Error(
        Code::kOverloaded,
        fmt::format("the keeper of KV memory at {} has no room for {} bytes", socket, bytes));
  }
  const int fd = passed.front().get();
  struct stat stat{};
  void* const data = ::fstat(fd, &stat) == 0 && static_cast<uint64_t>(stat.st_size) == bytes
                         ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                         : MAP_FAILED;
  if (data == MAP_FAILED) {
    return Error(Code::kUnavailable, "kept KV memory cannot be mapped");
  }
  KeptMemory out;
  out.data_ = static_cast<std::byte*>(data);
  out.bytes_ = bytes;
  out.fresh_ = reply[1] != 0;
  out.line_ = std::move(line);
  return out;
}

KeptMemory::KeptMemory(KeptMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fresh_(other.fresh_),
      line_(std::move(other.line_)) {}

KeptMemory& KeptMemory::operator=(KeptMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fresh_, other.fresh_);
  std::swap(line_, other.line_);
  return *this;
}

KeptMemory::~KeptMemory() {
  if (data_ != nullptr) {
    ::munmap(data_, bytes_);
  }
}

}  // namespace stator::storage
