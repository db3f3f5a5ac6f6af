// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/epp/server_load.h"
#include "stator/json/value.h"
#include "stator/kv/event.h"
#include "stator/router/receipt.h"
#include "stator/router/router_service.h"

namespace stator::epp {

/// A model server that requests can be sent to.
struct Endpoint {
  std::string address;        ///< ip:port
  bool is_prefill = false;    ///< computes prompts for others, and answers nobody
  std::string instance = {};  ///< how Dynamo's workers know it; empty: not
  std::string events = {};    ///< tcp://ip:port of its KV events; empty: PoolConfig says, or none
  std::string rank = {};      ///< data-parallel rank of that instance; empty: it is the only one
  bool operator==(const Endpoint&) const = default;
};

/// Endpoints as a file says them: lines or a list of ip:port, or of {address, role: prefill,
/// instance, dp_rank, events}, alone or under "endpoints". kInvalidArgument names what is wrong.
Result<std::vector<Endpoint>> read_endpoints(const json::Value& document);

/// Another model that requests for one get, by weight: an InferenceModelRewrite.
struct RewriteTarget {
  std::string model;
  uint32_t weight = 1;
};
using Rewrites = std::map<std::string, std::vector<RewriteTarget>, std::less<>>;

/// Of the same file, "rewrites": {model: target} or {model: [{model, weight}]}. kInvalidArgument.
Result<Rewrites> read_rewrites(const json::Value& document);

/// Of the same file, "objectives": {name: priority}; empty where there are none. kInvalidArgument.
Result<std::map<std::string, double, std::less<>>> read_objectives(const json::Value& document);

/// What a request asks for, as far as choosing depends on it.
struct PickRequest {
  std::string_view request_id;
  std::string_view model;
  std::string_view prompt;  ///< text whose beginning may be cached somewhere; verbatim JSON will do
  /// The prompt's blocks and its tokens where somebody has counted them; else the text's are used.
  const std::vector<blocks::SequenceHash>* sequences = nullptr;
  uint32_t tokens = 0;
  std::optional<std::vector<std::string>> subset;  ///< ip:port or ip; empty list: nobody
  std::vector<std::string> forced;                 ///< by a test; beats the subset
  double priority = 0;
};

/// One request in a count that is shared with whoever reads it, until this is gone.
class RequestCount {
 public:
  RequestCount() noexcept = default;
  explicit RequestCount(std::shared_ptr<std::atomic<int64_t>> count) : count_(std::move(count)) {
    count_->fetch_add(1, std::memory_order_relaxed);
  }
  RequestCount(RequestCount&&) noexcept = default;
  RequestCount& operator=(RequestCount&& other) noexcept {
    release();
    count_ = std::move(other.count_);
    return *this;
  }
  RequestCount(const RequestCount&) = delete;
  RequestCount& operator=(const RequestCount&) = delete;
  ~RequestCount() { release(); }
  void release() noexcept {
    if (count_ != nullptr) {
      count_->fetch_sub(1, std::memory_order_relaxed);
      count_.reset();
    }
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> count_;  // shared with the pool; null: counted nowhere
};

/// The choice, with the load it means booked until this is gone.
struct Pick {
  std::string endpoint;  ///< "ip:port[,ip:port…]"
  std::string instance;
  std::string rank;
  std::string prefill;  ///< "ip:port"; empty: the endpoint does it
  std::string prefill_instance;
  std::string prefill_rank;
  double hit_ratio = 0;  ///< of the prompt's blocks, what the endpoint has
  router::LoadLease lease;
  router::LoadLease prefill_lease;
  RequestCount count;  ///< at the endpoint
};

/// Who tells a pool what endpoints have cached. Implementations are thread-safe.
class EndpointEvents {
 public:
  virtual ~EndpointEvents() = default;
  /// Follows an endpoint's KV events from now on, or no more. `events`: tcp://ip:port.
  virtual void follow(WorkerId id, const std::string& events) = 0;
  virtual void unfollow(WorkerId id) = 0;
};

struct PoolConfig {
  uint32_t block_size = 16;     ///< tokens of a block, as the endpoints have it
  bool follows_events = false;  ///< what is cached is heard from endpoints, not guessed
  uint16_t event_port = 0;      ///< of endpoints that name none; 0: they have none
  /// An endpoint with more requests waiting, or that much of its cache in use, is saturated: where
  /// all are, requests of negative priority are shed.
  double queue_max = 5;
  double cache_usage_max = 0.8;
};

/// What endpoints that answer say of themselves, on average.
struct PoolAverages {
  size_t told = 0;  ///< endpoints that say something; 0: the rest means nothing
  double waiting = 0;
  double running = 0;
  double cache_usage = 0;
  double saturation = 0;  ///< 1: as full as PoolConfig allows
};

/// The endpoints there are, and the routers over them: one for those that answer, one for those
/// that compute prompts. Where a prompt's beginning may be cached is remembered from our own
/// choices. Thread-safe.
class EndpointPool {
 public:
  static Result<std::unique_ptr<EndpointPool>> create(const Clock& clock, Metrics& metrics,
                                                      const PoolConfig& config = {});
  /// Before the first endpoint: who hears of their KV events.
  void listen_by(std::shared_ptr<EndpointEvents> events);
  /// Before the first endpoint: whom to tell what is booked, and what others booked.
  void announce_to(std::shared_ptr<router::LoadAnnouncer> announcer);
  std::optional<router::LoadLease> book_for_replica(const router::ReplicaBooking& booking);
  void set_load_stale(bool stale);
  /// What an endpoint has cached or dropped; of unknown ones nothing.
  void apply(WorkerId id, const std::vector<kv::KvEvent>& events);

  void set_endpoints(const std::vector<Endpoint>& endpoints);
  std::vector<std::string> addresses() const;
  /// What an endpoint said when its metrics were read, or nothing: it did not answer. Requests that
  /// it has from others count as load from now on, and adapters are looked for where they are. One
  /// thread at a time for an address.
  void set_server_load(const std::string& address, std::optional<ServerLoad> load);
  PoolAverages averages() const;
  /// Priorities of InferenceObjectives by name: what a gateway's x-gateway-inference-objective
  /// says.
  void set_objectives(std::map<std::string, double, std::less<>> priorities);
  /// 0 for an objective that nobody has heard of.
  double priority_of(std::string_view objective) const;
  void set_rewrites(Rewrites rewrites);
  /// The model that a request for `model` is for; by weight, equal for equal request ids.
  std::string rewrite_of(std::string_view model, std::string_view request_id) const;
  size_t size() const;
  /// Chosen and not yet at their end, here and at other pickers of the pool.
  int64_t active_requests() const { return answers_->active_requests(); }
  bool has_synced() const;

  /// kUnavailable: nobody is there or allowed (503); kOverloaded: all are full (429).
  Result<Pick> pick(const PickRequest& request);

 private:
  struct Known {
    Endpoint endpoint;
    WorkerId id;
    // Shared with the picks there.
    std::shared_ptr<std::atomic<int64_t>> ours = std::make_shared<std::atomic<int64_t>>(0);
    std::optional<ServerLoad> load = {};
    router::LoadLease foreign = {};  ///< what it has of others
  };
  EndpointPool(const PoolConfig& config, std::shared_ptr<router::RouterService> answers,
               std::shared_ptr<router::RouterService> prefills);
  void change_endpoints(const std::vector<Endpoint>& endpoints,
                        std::vector<std::pair<WorkerId, std::string>>& begun,
                        std::vector<WorkerId>& ended) STATOR_REQUIRES(mutex_);
  std::string events_of(const Endpoint& endpoint) const;
  std::vector<WorkerId> allowed_by(const PickRequest& request, bool& restricted) const
      STATOR_REQUIRES(mutex_);
  bool is_saturated(const Known& known) const;
  bool sheds(const PickRequest& request, const std::vector<WorkerId>& allowed,
             bool restricted) const STATOR_REQUIRES(mutex_);
  void prefer_adapter(std::string_view model, std::vector<WorkerId>& allowed,
                      bool& restricted) const STATOR_REQUIRES(mutex_);
  /// Whom a request may be sent to; `restricted`: nobody else. Errors as of pick().
  Result<std::vector<WorkerId>> candidates(const PickRequest& request, bool& restricted) const
      STATOR_REQUIRES(mutex_);
  router::ReplicaBooking booking_of_others(WorkerId id, const ServerLoad& load, int64_t ours) const;

  const PoolConfig config_;
  std::shared_ptr<router::RouterService> answers_;   // shared with its tickets
  std::shared_ptr<router::RouterService> prefills_;  // shared with its tickets
  mutable Mutex mutex_;
  std::map<std::string, Known> by_address_ STATOR_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> by_id_ STATOR_GUARDED_BY(mutex_);
  std::map<std::string, double, std::less<>> objectives_ STATOR_GUARDED_BY(mutex_);
  Rewrites rewrites_ STATOR_GUARDED_BY(mutex_);
  std::shared_ptr<EndpointEvents> events_ STATOR_GUARDED_BY(mutex_);  // null: nobody listens
  size_t prefill_count_ STATOR_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> knows_adapters_{false};  ///< an endpoint has spoken of adapters
  std::atomic<uint32_t> mean_tokens_{512};   ///< of the prompts that came, the last ones most
  bool synced_ STATOR_GUARDED_BY(mutex_) = false;
};

/// The prompt of a chat or completion request, verbatim: its messages, or its text. Empty for
/// bodies of other endpoints. kInvalidArgument for a body that is no JSON object.
struct RequestFacts {
  std::string model;
  /// Where in the body the model's value stands, quotes included; 0 and 0: it names none.
  size_t model_at = 0;
  size_t model_size = 0;
  std::string prompt;
  bool stream = false;
};
Result<RequestFacts> read_request(std::string_view body);

}  // namespace stator::epp
