// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/index_snapshot_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/router/index/index_service.h"

namespace stator::frontend {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);
constexpr uint64_t kSnapshotBytesMax = 64ULL << 30;  // far beyond an index that fits in memory

/// Whose parts a file has, in this order.
std::array<router::RouterService*, 2> routers_of(const ServedModel& model) {
  return {model.router.get(), &model.prefill->prefill()};
}

}  // namespace

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
  STATOR_TRY(const auto file, io::read_file_if_present(config_.snapshot_path, kSnapshotBytesMax));
  if (!file || file->empty()) {  // an empty one was made for us, or a disk was full
    return {};
  }
  auto snapshots = router::decode_snapshots(*file);
  if (!snapshots && snapshots.error().code() == Code::kInvalidArgument) {
    return std::move(snapshots.error());
  }
  if (!snapshots) {
    unreadable_.add();
    log::warn("router", "the index snapshot is not used; workers will report again what they hold",
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
    log::warn("router", "the index snapshot is not used; workers will report again what they hold",
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
  if (const Status written = io::replace_file(config_.snapshot_path, file); !written) {
    write_failures_.add();
    log::warn("router", written.error().message());
    return;
  }
  written_.add();
  bytes_.set(static_cast<double>(file.size()));
}

}  // namespace stator::frontend
