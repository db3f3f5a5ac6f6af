// SPDX-License-Identifier: Apache-2.0
// What endpoints say of themselves, and how it bears on the choice.
#include <algorithm>
#include <cmath>

#include "stator/epp/pool.h"

namespace stator::epp {
namespace {

constexpr double kTokensMax = 1e9;

uint32_t to_tokens(double count) {
  return static_cast<uint32_t>(std::clamp(count, 0.0, kTokensMax));
}

bool has_adapter(const ServerLoad& load, std::string_view model) {
  return std::ranges::find(load.adapters, model) != load.adapters.end();
}

}  // namespace

std::vector<std::string> EndpointPool::addresses() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> addresses;
  for (const auto& [address, known] : by_address_) {
    addresses.push_back(address);
  }
  return addresses;
}

/// One booking for all that an endpoint has from others. How long their prompts are nobody says:
/// as long as those that came to us.
router::ReplicaBooking EndpointPool::booking_of_others(WorkerId id, const ServerLoad& load,
                                                       int64_t ours) const {
  const double all = load.waiting + load.running;
  const double share = (all - static_cast<double>(ours)) / all;
  const double mean = mean_tokens_.load(std::memory_order_relaxed);
  const double held = load.cache_usage && load.cache_blocks > 0
                          ? *load.cache_usage * load.cache_blocks * config_.block_size
                          : load.running * mean;
  router::ReplicaBooking booking{.worker = {id, 0}, .block_size = config_.block_size};
  booking.prefill_tokens = to_tokens(load.waiting * share * mean);
  booking.prompt_tokens = to_tokens(held * share) + booking.prefill_tokens;
  booking.prefill_completed = booking.prefill_tokens == 0;
  return booking;
}

void EndpointPool::set_server_load(const std::string& address, std::optional<ServerLoad> load) {
  std::shared_ptr<router::RouterService> router;
  WorkerId id{0};
  int64_t ours = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) {
      return;
    }
    router = found->second.endpoint.is_prefill ? prefills_ : answers_;
    id = found->second.id;
    ours = found->second.ours->load(std::memory_order_relaxed);
  }
  if (load && load->adapters_max > 0) {
    knows_adapters_.store(true, std::memory_order_relaxed);
  }
  router::LoadLease foreign;
  if (load && load->waiting + load->running >= static_cast<double>(ours) + 1) {
    if (auto lease = router->book_for_replica(booking_of_others(id, *load, ours))) {
      foreign = std::move(*lease);
    }
  }
  const MutexLock lock(mutex_);
  const auto found = by_address_.find(address);
  if (found != by_address_.end() && found->second.id == id) {
    std::swap(found->second.foreign, foreign);  // the one before goes with `foreign`
    found->second.load = std::move(load);
  }
}

PoolAverages EndpointPool::averages() const {
  const MutexLock lock(mutex_);
  PoolAverages sums;
  for (const auto& [address, known] : by_address_) {
    if (!known.load || known.endpoint.is_prefill) {
      continue;
    }
    const double usage = known.load->cache_usage.value_or(0);
    ++sums.told;
    sums.waiting += known.load->waiting;
    sums.running += known.load->running;
    sums.cache_usage += usage;
    sums.saturation += std::max(known.load->waiting / std::max(config_.queue_max, 1.0),
                                usage / std::max(config_.cache_usage_max, 0.01));
  }
  const auto count = static_cast<double>(std::max<size_t>(sums.told, 1));
  return {.told = sums.told,
          .waiting = sums.waiting / count,
          .running = sums.running / count,
          .cache_usage = sums.cache_usage / count,
          .saturation = sums.saturation / count};
}

bool EndpointPool::is_saturated(const Known& known) const {
  return known.load && (known.load->waiting > config_.queue_max ||
                        known.load->cache_usage.value_or(0) > config_.cache_usage_max);
}

/// Whether nobody who may be asked has room for what may as well be refused.
bool EndpointPool::sheds(const PickRequest& request, const std::vector<WorkerId>& allowed,
                         bool restricted) const {
  return request.priority < 0 &&
         std::ranges::all_of(
             by_address_,
             [&](const auto& entry) {
               const Known& known = entry.second;
               const bool may = !restricted || std::ranges::binary_search(allowed, known.id);
               return known.endpoint.is_prefill || !may || is_saturated(known);
             });
}

/// Requests for a LoRA adapter go where it is, else where there is room for one more; where neither
/// holds, or the servers do not speak of adapters, anywhere.
void EndpointPool::prefer_adapter(std::string_view model, std::vector<WorkerId>& allowed,
                                  bool& restricted) const {
  std::vector<WorkerId> holders;
  std::vector<WorkerId> with_room;
  bool is_adapter = false;
  for (const auto& [address, known] : by_address_) {
    if (!known.load || known.load->adapters_max == 0 || known.endpoint.is_prefill) {
      continue;
    }
    const bool holds = has_adapter(*known.load, model);
    is_adapter = is_adapter || holds;
    const bool may = !restricted || std::ranges::binary_search(allowed, known.id);
    if (!may || is_saturated(known)) {
      continue;
    }
    if (holds) {
      holders.push_back(known.id);
    } else if (known.load->adapters.size() < known.load->adapters_max) {
      with_room.push_back(known.id);
    }
  }
  std::vector<WorkerId>& preferred = holders.empty() ? with_room : holders;
  if (is_adapter && !preferred.empty()) {
    std::ranges::sort(preferred);
    allowed = std::move(preferred);
    restricted = true;
  }
}

Result<std::vector<WorkerId>> EndpointPool::candidates(const PickRequest& request,
                                                       bool& restricted) const {
  if (by_address_.size() == prefill_count_) {
    return Error(Code::kUnavailable, "no endpoint is ready");
  }
  std::vector<WorkerId> allowed = allowed_by(request, restricted);
  if (restricted && allowed.empty()) {
    return Error(Code::kUnavailable, "no endpoint of the gateway's subset is ready");
  }
  if (sheds(request, allowed, restricted)) {
    return Error(Code::kOverloaded,
                 "all endpoints are saturated, and the request's priority is below 0");
  }
  if (request.forced.empty() && knows_adapters_.load(std::memory_order_relaxed)) {
    prefer_adapter(request.model, allowed, restricted);
  }
  return allowed;
}

}  // namespace stator::epp
