// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/file_discovery.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/discovery/detail/discovery_metrics.h"
#include "stator/discovery/detail/lease_table.h"
#include "stator/discovery/detail/record_folder.h"
#include "stator/discovery/detail/record_registration.h"
#include "stator/discovery/view_hub.h"
#include "stator/net/thread.h"

namespace stator::discovery {
namespace {
using detail::RecordFolder;

constexpr int kRegisterLockAttempts = 100;
constexpr std::string_view kFolder = "instances";
constexpr std::string_view kLogTarget = "discovery";

struct FileMetrics : detail::DiscoveryMetrics {
  explicit FileMetrics(Metrics& metrics)
      : detail::DiscoveryMetrics(metrics),
        stale_removed(metrics.counter("stator_runtime_discovery_stale_removed_total",
                                      "records of dead owners removed")),
        foreign_records(metrics.counter("stator_runtime_discovery_foreign_records_total",
                                        "records ignored because another user wrote them")) {}
  Counter stale_removed;
  Counter foreign_records;
};

/// The folder is the truth. Notices of inotify say which files to look at again; every third of the
/// TTL, and when notices were lost, it is read whole.
class FileDiscovery final : public Discovery, public detail::RecordKeeper {
 public:
  FileDiscovery(FileDiscoveryOptions options, detail::RecordFolder folder, int stop_fd,
                const Clock& clock, Metrics& metrics)
      : options_(std::move(options)),
        clock_(clock),
        metrics_(metrics),
        stop_fd_(stop_fd),
        folder_(std::move(folder)),
        leases_(options_.lease_ttl) {
    refresh_all(Contents::kAll);
    thread_ = net::Thread("discovery", [this] { run(); });
  }
  FileDiscovery(const FileDiscovery&) = delete;
  FileDiscovery& operator=(const FileDiscovery&) = delete;
  ~FileDiscovery() override {
    stopping_ = true;
    const uint64_t one = 1;
    if (::write(stop_fd_, &one, sizeof(one)) != sizeof(one)) {
      metrics_.errors.add();  // the thread notices within a third of the TTL
    }
    thread_.join();
    ::close(stop_fd_);
  }

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override;
  std::vector<InstanceRecord> list(const InstanceQuery& query) override { return hub_.list(query); }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return hub_.watch(std::move(query), shard, listener);
  }

  Status update(InstanceRecord record) override STATOR_EXCLUDES(mutex_) {
    const std::string name = detail::RecordFolder::encode_name(record.key.to_string());
    {
      const MutexLock lock(mutex_);
      const auto owned = owned_.find(name);
      if (owned == owned_.end() || owned->second.incarnation != record.incarnation) {
        return Error(Code::kNotFound,
                     fmt::format("{} is not registered here any more", record.key.to_string()));
      }
      std::string content = to_json(record);
      STATOR_CHECK(folder_.write(name, content));
      owned->second.content = std::move(content);
    }
    refresh({name});
    return {};
  }

  void withdraw(const InstanceKey& key, Incarnation incarnation) override STATOR_EXCLUDES(mutex_) {
    const std::string name = detail::RecordFolder::encode_name(key.to_string());
    {
      const MutexLock lock(mutex_);
      const auto owned = owned_.find(name);
      if (owned == owned_.end() || owned->second.incarnation != incarnation) {
        return;
      }
      owned_.erase(owned);
      // A newer life may have published over us: remove only what is ours.
      const auto record = read_record(name);
      if (record.has_value() && record->incarnation == incarnation) {
        folder_.remove(name);
      }
    }
    refresh({name});
  }

 private:
  struct Owned {
    Incarnation incarnation;
    std::string content;
  };
  /// What a file held when last looked at; `record` is null until it has parsed once, `told` while
  /// the view lacks it.
  struct Cached {
    uint64_t inode = 0;    // of the file that was read
    uint64_t scan = 0;     // that found it last
    bool foreign = false;  // another user's, and the log says so
    std::string content;
    std::shared_ptr<const InstanceRecord> record;
    std::shared_ptr<const InstanceRecord> told;
  };
  /// Which files to read: owners touch theirs all the time, but a record that is published is
  /// another file. Only a notice tells of one that was written in place.
  enum class Contents : uint8_t { kOfOtherFiles, kAll };

  void run();
  void renew() STATOR_EXCLUDES(mutex_);
  void sweep() STATOR_EXCLUDES(mutex_);
  void refresh_all(Contents contents) STATOR_EXCLUDES(mutex_);
  void refresh(const std::vector<std::string>& names) STATOR_EXCLUDES(mutex_);
  void look_at(const detail::RecordFolder::File& file, Contents contents,
               std::vector<InstanceChange>& changes) STATOR_REQUIRES(mutex_);
  void load(const detail::RecordFolder::File& file, Cached& cached) STATOR_REQUIRES(mutex_);
  void ignore(const detail::RecordFolder::File& file, Cached& cached,
              std::vector<InstanceChange>& changes) STATOR_REQUIRES(mutex_);
  void tell(Cached& cached, std::shared_ptr<const InstanceRecord> record,
            std::vector<InstanceChange>& changes) STATOR_REQUIRES(mutex_);
  void publish(std::vector<InstanceChange> changes) STATOR_REQUIRES(mutex_);
  Status take(const InstanceRecord& record) STATOR_REQUIRES(mutex_);
  Result<InstanceRecord> read_record(const std::string& name) const STATOR_REQUIRES(mutex_);

  const FileDiscoveryOptions options_;
  const Clock& clock_;
  const FileMetrics metrics_;
  const int stop_fd_;
  ViewHub hub_;

  Mutex mutex_;  // held for file calls too: all of them are short, none is on a shard's loop
  detail::RecordFolder folder_ STATOR_GUARDED_BY(mutex_);
  detail::LeaseTable leases_ STATOR_GUARDED_BY(mutex_);
  FlatMap<std::string, Owned> owned_ STATOR_GUARDED_BY(mutex_);    // by file name
  FlatMap<std::string, Cached> cached_ STATOR_GUARDED_BY(mutex_);  // by file name
  uint64_t scan_ STATOR_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> stopping_{false};
  net::Thread thread_;
};

Result<std::unique_ptr<Registration>> FileDiscovery::register_instance(InstanceRecord record) {
  STATOR_CHECK(validate(record));
  const std::string name = detail::RecordFolder::encode_name(record.key.to_string());
  {
    const MutexLock lock(mutex_);
    STATOR_CHECK(take(record));
  }
  refresh({name});
  return std::make_unique<detail::RecordRegistration>(*this, record);
}

Status FileDiscovery::take(const InstanceRecord& record) {
  const std::string name = detail::RecordFolder::encode_name(record.key.to_string());
  STATOR_TRY(const detail::RecordFolder::Lock folder_lock, folder_.lock(kRegisterLockAttempts));
  const auto present = read_record(name);
  if (present.has_value()) {
    STATOR_CHECK(detail::check_free(*present, record));
  }
  std::string content = to_json(record);
  STATOR_CHECK(folder_.write(name, content));
  owned_[name] = Owned{record.incarnation, std::move(content)};
  return {};
}

Result<InstanceRecord> FileDiscovery::read_record(const std::string& name) const {
  STATOR_TRY(const std::string content, folder_.read(name));
  return parse_instance_record(content);
}

void FileDiscovery::run() {
  const auto period = std::chrono::ceil<std::chrono::milliseconds>(
      std::max<Duration>(options_.lease_ttl / 3, std::chrono::milliseconds(1)));
  TimePoint renew_at = clock_.now() + period;
  int watch_fd = -1;
  {
    const MutexLock lock(mutex_);
    watch_fd = folder_.watch_fd();
  }
  while (!stopping_) {
    std::array<pollfd, 2> fds = {pollfd{watch_fd, POLLIN, 0}, pollfd{stop_fd_, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(renew_at - clock_.now());
    const int64_t wait_ms = std::clamp<int64_t>(left.count(), 0, period.count());
    ::poll(fds.data(), fds.size(), static_cast<int>(wait_ms));
    detail::RecordFolder::Noticed noticed;
    {
      const MutexLock lock(mutex_);
      noticed = folder_.drain_watch();
    }
    if (noticed.overflow) {
      metrics_.resyncs.add();
    }
    const bool due = clock_.now() >= renew_at;
    if (due) {
      renew();
      renew_at = clock_.now() + period;
    }
    if (!noticed.overflow) {
      refresh(noticed.names);
    }
    if (due || noticed.overflow) {
      refresh_all(noticed.overflow ? Contents::kAll : Contents::kOfOtherFiles);
    }
    if (due) {
      sweep();
    }
  }
}

void FileDiscovery::renew() {
  const MutexLock lock(mutex_);
  for (const auto& [name, owned] : owned_) {
    const Status touched = folder_.touch(name);
    if (touched.has_value()) {
      continue;
    }
    if (touched.error().code() != Code::kNotFound) {
      metrics_.errors.add();
      continue;
    }
    // Swept while we were stopped, or deleted by hand: we are alive, so say so again.
    metrics_.leases_lost.add();
    if (!folder_.write(name, owned.content).has_value()) {
      metrics_.errors.add();
    }
  }
}

void FileDiscovery::sweep() {
  const MutexLock lock(mutex_);
  const auto expired = leases_.expired(clock_.now());
  if (expired.empty()) {
    return;
  }
  const auto folder_lock = folder_.lock(1);
  if (!folder_lock.has_value()) {
    return;  // somebody else is at it; the next round looks again
  }
  for (const auto& [name, modified] : expired) {
    if (!owned_.contains(name)) {
      folder_.remove_stale(name, modified);
      metrics_.stale_removed.add();
    }
  }
}

void FileDiscovery::refresh_all(Contents contents) {
  const MutexLock lock(mutex_);
  const auto files = folder_.scan();
  if (!files.has_value()) {
    metrics_.errors.add();
    log::warn(kLogTarget, "the last view stays", {{"error", files.error().message()}});
    return;
  }
  ++scan_;
  leases_.begin_scan();
  std::vector<InstanceChange> changes;
  for (const detail::RecordFolder::File& file : *files) {
    look_at(file, contents, changes);
  }
  leases_.end_scan();
  absl::erase_if(cached_, [&](auto& entry) STATOR_REQUIRES(mutex_) {
    const bool gone = entry.second.scan != scan_;
    if (gone) {
      tell(entry.second, nullptr, changes);
    }
    return gone;
  });
  publish(std::move(changes));
}

void FileDiscovery::refresh(const std::vector<std::string>& names) {
  const MutexLock lock(mutex_);
  std::vector<InstanceChange> changes;
  for (const std::string& name : names) {
    const auto file = folder_.find(name);
    if (file.has_value()) {
      look_at(*file, Contents::kAll, changes);
      continue;
    }
    leases_.forget(name);
    if (const auto known = cached_.find(name); known != cached_.end()) {
      tell(known->second, nullptr, changes);
      cached_.erase(known);
    }
  }
  publish(std::move(changes));
}

void FileDiscovery::look_at(const detail::RecordFolder::File& file, Contents contents,
                            std::vector<InstanceChange>& changes) {
  Cached& cached = cached_[file.name];
  cached.scan = scan_;
  if (!folder_.trusts(file)) {
    ignore(file, cached, changes);
    return;
  }
  cached.foreign = false;
  if (contents == Contents::kAll || cached.inode != file.inode) {
    load(file, cached);
  }
  const detail::LeaseTable::Times times{clock_.now(), clock_.wall_now()};
  const bool live = leases_.observe(file.name, file.modified, times) || owned_.contains(file.name);
  tell(cached, live ? cached.record : nullptr, changes);
}

void FileDiscovery::ignore(const detail::RecordFolder::File& file, Cached& cached,
                           std::vector<InstanceChange>& changes) {
  if (!std::exchange(cached.foreign, true)) {
    metrics_.foreign_records.add();
    log::warn(kLogTarget,
              "a discovery record of another user is ignored: run all processes that share the "
              "folder as one user",
              {{"uid", file.owner}, {"file", (options_.root / kFolder / file.name).string()}});
  }
  leases_.forget(file.name);
  tell(cached, nullptr, changes);
}

void FileDiscovery::tell(Cached& cached, std::shared_ptr<const InstanceRecord> record,
                         std::vector<InstanceChange>& changes) {
  if (cached.told != record) {
    changes.push_back({(record != nullptr ? record : cached.told)->key, record});
    cached.told = std::move(record);
  }
}

void FileDiscovery::publish(std::vector<InstanceChange> changes) {
  hub_.apply(std::move(changes));
  metrics_.instances.set(static_cast<double>(hub_.size()));
}

void FileDiscovery::load(const detail::RecordFolder::File& file, Cached& cached) {
  auto content = folder_.read(file.name);
  if (!content.has_value()) {
    metrics_.errors.add();
    return;
  }
  cached.inode = file.inode;
  if (*content == cached.content) {
    return;
  }
  cached.content = std::move(*content);
  auto record = parse_instance_record(cached.content);
  if (record.has_value() &&
      detail::RecordFolder::encode_name(record->key.to_string()) != file.name) {
    record = Error(Code::kCorrupt, "it names another instance than its file");
  }
  if (!record.has_value()) {
    metrics_.bad_records.add();
    log::warn(kLogTarget, "bad record, keeping its previous value",
              {{"file", file.name}, {"error", record.error().message()}});
    return;
  }
  cached.record = std::make_shared<const InstanceRecord>(std::move(*record));
}

}  // namespace

Result<std::unique_ptr<Discovery>> open_file_discovery(FileDiscoveryOptions options,
                                                       const Clock& clock, Metrics& metrics) {
  STATOR_TRY(detail::RecordFolder folder,
             detail::RecordFolder::open(options.root, std::string(kFolder)));
  const int stop_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0) {
    return Error(Code::kIo, "file discovery: no descriptor left, raise the limit on open files");
  }
  return std::make_unique<FileDiscovery>(std::move(options), std::move(folder), stop_fd, clock,
                                         metrics);
}

}  // namespace stator::discovery
