// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/endpoint_events.h"

#include <fmt/format.h>

#include <map>

#include "stator/core/log.h"
#include "stator/core/mutex.h"

namespace stator::epp {
namespace {

class FollowedEndpoints final : public EndpointEvents {
 public:
  FollowedEndpoints(services::EventFeeds& feeds, EndpointPool& pool, uint32_t block_size,
                    uint16_t replay_port)
      : feeds_(feeds), pool_(pool), block_size_(block_size), replay_port_(replay_port) {}

  void follow(WorkerId id, const std::string& events) override {
    services::FeedSpec spec{
        .worker = {id, 0}, .endpoint = events, .replay_endpoint = {}, .block_size = block_size_};
    if (replay_port_ != 0) {
      spec.replay_endpoint =
          fmt::format("{}:{}", events.substr(0, events.rfind(':')), replay_port_);
    }
    auto feed =
        feeds_.open(spec, [this, id](std::vector<kv::KvEvent> heard) { pool_.apply(id, heard); });
    if (!feed) {
      log::warn("epp", feed.error().message(), {{"events", events}});
      return;
    }
    const MutexLock lock(mutex_);
    open_[id.value()] = std::move(*feed);
  }

  void unfollow(WorkerId id) override {
    std::unique_ptr<services::EventFeed> gone;  // ends without the lock: it waits for its thread
    {
      const MutexLock lock(mutex_);
      if (const auto found = open_.find(id.value()); found != open_.end()) {
        gone = std::move(found->second);
        open_.erase(found);
      }
    }
  }

 private:
  services::EventFeeds& feeds_;
  EndpointPool& pool_;
  const uint32_t block_size_;
  const uint16_t replay_port_;
  Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<services::EventFeed>> open_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<EndpointEvents> follow_endpoints(services::EventFeeds& feeds, EndpointPool& pool,
                                                 uint32_t block_size, uint16_t replay_port) {
  return std::make_shared<FollowedEndpoints>(feeds, pool, block_size, replay_port);
}

}  // namespace stator::epp
