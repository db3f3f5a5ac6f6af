// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/index_snapshot_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "stator/core/log.h"
#include "stator/router/index/index_service.h"

namespace stator::frontend {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);

Error io_error(std::string_view what, const std::string& path) {
  return {Code::kIo,
          fmt::format("cannot {} '{}': {}", what, path, std::generic_category().message(errno))};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) {
      return io_error("write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return ::fsync(fd) == 0 ? Status() : io_error("sync", path);
}

/// Whose parts a file has, in this order.
std::array<router::RouterService*, 2> routers_of(const ServedModel& model) {
  return {model.router.get(), &model.prefill->prefill()};
}

/// Nothing when there is no such file.
Result<std::optional<std::string>> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    return errno == ENOENT ? Result<std::optional<std::string>>(std::nullopt)
                           : io_error("open", path);
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(Code::kInvalidArgument, fmt::format("'{}' is not a regular file", path));
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno != EINTR) {
      return io_error("read", path);
    }
    if (count == 0) {
      bytes.resize(at);  // became shorter meanwhile: the checksum will tell
    }
    at += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  return std::optional(std::move(bytes));
}

}  // namespace

Status write_file_atomically(const std::string& path, std::string_view bytes) {
  const std::string partial = fmt::format("{}.{}.partial", path, ::getpid());
  Status written;
  {
    const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.get() < 0) {
      return io_error("create", partial);
    }
    written = write_all(file.get(), bytes, partial);
  }
  if (written && std::rename(partial.c_str(), path.c_str()) != 0) {
    written = io_error("put in place", path);
  }
  if (!written) {
    (void)::unlink(partial.c_str());
  }
  return written;
}

Result<std::unique_ptr<IndexSnapshotService>> IndexSnapshotService::open(
    const router::IndexConfig& config, const Clock& clock, Metrics& metrics) {
  auto service =
      std::unique_ptr<IndexSnapshotService>(new IndexSnapshotService(config, clock, metrics));
  STATOR_CHECK(service->read(), "router.snapshot (flag --router-snapshot)");
  return service;
}

IndexSnapshotService::IndexSnapshotService(const router::IndexConfig& config, const Clock& clock,
                                           Metrics& metrics)
    : config_(config),
      clock_(clock),
      written_(metrics.counter("stator_router_snapshots_written_total",
                               "snapshots of the KV index written to the file")),
      write_failures_(metrics.counter("stator_router_snapshot_write_failures_total",
                                      "snapshots of the KV index that could not be written")),
      unreadable_(metrics.counter("stator_router_snapshots_unusable_total",
                                  "snapshots of the KV index that were damaged or did not fit")),
      bytes_(metrics.gauge("stator_router_snapshot_bytes", "size of the last snapshot written")),
      opened_at_(clock.now()) {}

IndexSnapshotService::~IndexSnapshotService() {
  stop();
}

Status IndexSnapshotService::read() {
  STATOR_TRY(const auto file, read_file(config_.snapshot_path));
  if (!file) {
    return {};
  }
  auto snapshots = router::decode_snapshots(*file);
  if (!snapshots && snapshots.error().code() == Code::kInvalidArgument) {
    return std::move(snapshots.error());
  }
  if (!snapshots) {
    unreadable_.add();
    log::warn("router", "the index snapshot is not used; workers will tell again what they hold",
              {{"file", config_.snapshot_path}, {"why", snapshots.error().message()}});
    return {};
  }
  const MutexLock lock(mutex_);
  waiting_ = std::move(*snapshots);
  return {};
}

void IndexSnapshotService::restore(const ServedModel& model) {
  for (router::RouterService* router : routers_of(model)) {
    restore(model, *router);
  }
}

void IndexSnapshotService::restore(const ServedModel& model, router::RouterService& router) {
  router::IndexSnapshot part;
  {
    const MutexLock lock(mutex_);
    const auto known = std::ranges::find(waiting_, model.name, &router::IndexSnapshot::model);
    if (known == waiting_.end()) {
      return;
    }
    part = std::move(*known);
    waiting_.erase(known);
  }
  const Status restored = part.block_size == model.block_size
                              ? router.index().restore(part.content)
                              : Error(Code::kInvalidArgument, "its blocks have another size now");
  if (!restored) {
    unreadable_.add();
    log::warn("router", "the index snapshot is not used; workers will tell again what they hold",
              {{"model", model.name}, {"why", restored.error().message()}});
    return;
  }
  log::info("router", "index restored from the snapshot",
            {{"model", model.name}, {"blocks", router.index().holder_blocks()}});
}

void IndexSnapshotService::start(Models models) {
  models_ = std::move(models);
  thread_ = net::Thread("index-snapshot", [this] { loop(); });
}

void IndexSnapshotService::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  save();
}

void IndexSnapshotService::loop() {
  TimePoint saved_at = clock_.now();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) {
        wake_.wait_for(lock, kTick);
      }
      if (stopping_) {
        return;
      }
      if (clock_.now() - opened_at_ > config_.snapshot_grace) {
        waiting_.clear();
      }
    }
    for (const auto& model : models_()) {
      for (router::RouterService* router : routers_of(*model)) {
        router->index().tick();
      }
    }
    if (clock_.now() - saved_at >= config_.snapshot_interval) {
      save();
      saved_at = clock_.now();
    }
  }
}

void IndexSnapshotService::save() {
  std::vector<router::IndexSnapshot> parts;
  for (const auto& model : models_()) {
    for (router::RouterService* router : routers_of(*model)) {
      parts.push_back({model->name, model->block_size, router->index().save()});
    }
  }
  {
    const MutexLock lock(mutex_);
    parts.insert(parts.end(), waiting_.begin(), waiting_.end());
  }
  const std::string file = router::encode_snapshots(parts);
  if (const Status written = write_file_atomically(config_.snapshot_path, file); !written) {
    write_failures_.add();
    log::warn("router", written.error().message());
    return;
  }
  written_.add();
  bytes_.set(static_cast<double>(file.size()));
}

}  // namespace stator::frontend
