// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "stator/blocks/block_hash.h"
#include "stator/core/hash.h"
#include "stator/json/cursor.h"
#include "stator/router/index/index_service.h"

namespace stator::epp {
namespace {

using json::Value;

// A block of 64 bytes of text is about 16 tokens.
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kBytesPerToken = 4;

bool is_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return false;
  }
  const std::string_view port = text.substr(colon + 1);
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), number);
  return failed == std::errc() && end == port.data() + port.size() && number > 0 && number < 65536;
}

Status add_endpoint(const Value& entry, std::vector<Endpoint>& endpoints) {
  Endpoint endpoint;
  if (entry.is_string()) {
    endpoint.address = entry.text();
  } else {
    endpoint.address = entry.text_at({"address"});
    endpoint.is_prefill = entry.text_at({"role"}) == "prefill";
    endpoint.instance = entry.find("instance") == nullptr ? "" : entry.find("instance")->text();
    endpoint.events = entry.text_at({"events"});
    endpoint.rank = entry.at("dp_rank").text();
  }
  if (!is_address(endpoint.address)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("endpoints: '{}' is not ip:port", endpoint.address));
  }
  endpoints.push_back(std::move(endpoint));
  return {};
}

/// Text as pseudo tokens of four bytes: equal beginnings give equal blocks.
std::vector<blocks::SequenceHash> hashes_of(std::string_view text, uint32_t& tokens) {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / kBytesPerToken);
  for (size_t i = 0; i + kBytesPerToken <= text.size(); i += kBytesPerToken) {
    uint32_t word = 0;
    for (size_t b = 0; b < kBytesPerToken; ++b) {
      word |= static_cast<uint32_t>(static_cast<unsigned char>(text[i + b])) << (8 * b);
    }
    ids.push_back(TokenId{word});
  }
  tokens = static_cast<uint32_t>(ids.size()) + 1;
  std::vector<blocks::SequenceHash> sequences;
  blocks::extend_sequences(ids, kBlockTokens, blocks::hash_seed({}, {}), sequences);
  return sequences;
}

constexpr int64_t kWeightMax = 1'000'000;
/// A prompt's share in the mean length of prompts.
constexpr uint32_t kMeanShare = 16;

/// The content of a string as it stands in a document.
std::string unquoted(std::string_view raw) {
  json::Cursor cursor(raw, 1);
  std::string_view value;
  std::string storage;
  cursor.read_string(value, storage);
  return std::string(value);
}

router::RouterConfig router_config(const PoolConfig& pool) {
  router::RouterConfig config;
  config.index.kind = pool.follows_events ? "chain" : "ttl";
  return config;
}

/// The same for all pickers of a pool: they tell each other of bookings by it.
WorkerId id_of(std::string_view address) {
  constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
  return WorkerId((xxh3_64(address) & kMask) | 1);
}

}  // namespace

Result<std::vector<Endpoint>> read_endpoints(const Value& document) {
  std::vector<Endpoint> endpoints;
  const Value* list = document.is_object() ? document.find("endpoints") : &document;
  if (list == nullptr) {
    return Error(Code::kInvalidArgument, "endpoints: the file has no list 'endpoints'");
  }
  if (list->is_string()) {  // lines of a text file
    std::string_view text = list->text();
    while (!text.empty()) {
      const size_t begin = std::min(text.find_first_not_of(" ,\n\t"), text.size());
      text.remove_prefix(begin);
      const size_t end = std::min(text.find_first_of(" ,\n\t"), text.size());
      if (end > 0) {
        STATOR_CHECK(add_endpoint(Value(text.substr(0, end)), endpoints));
      }
      text.remove_prefix(end);
    }
    return endpoints;
  }
  for (const Value& entry : list->elements()) {
    STATOR_CHECK(add_endpoint(entry, endpoints));
  }
  return endpoints;
}

Result<std::map<std::string, double, std::less<>>> read_objectives(const Value& document) {
  std::map<std::string, double, std::less<>> priorities;
  const Value* list = document.find("objectives");
  if (list == nullptr) {
    return priorities;
  }
  for (const json::Member& objective : list->members()) {
    const auto priority = objective.value.as_double();
    if (!priority) {
      return Error(Code::kInvalidArgument,
                   fmt::format("objectives: the priority of '{}' is no number", objective.key));
    }
    priorities.emplace(objective.key, *priority);
  }
  return priorities;
}

Result<Rewrites> read_rewrites(const Value& document) {
  Rewrites rewrites;
  const Value* list = document.find("rewrites");
  if (list == nullptr) {
    return rewrites;
  }
  for (const json::Member& rewrite : list->members()) {
    std::vector<RewriteTarget>& targets = rewrites[rewrite.key];
    if (rewrite.value.is_string()) {
      targets.push_back({.model = std::string(rewrite.value.text())});
    }
    for (const Value& target : rewrite.value.elements()) {
      const int64_t weight =
          target.find("weight") == nullptr ? 1 : target.find("weight")->as_int64().value_or(-1);
      if (weight < 0 || weight > kWeightMax) {
        return Error(Code::kInvalidArgument,
                     fmt::format("rewrites: a weight of '{}' must be from 0 to {}", rewrite.key,
                                 kWeightMax));
      }
      targets.push_back({.model = std::string(target.text_at({"model"})),
                         .weight = static_cast<uint32_t>(weight)});
    }
    const bool is_named = std::ranges::all_of(
        targets, [](const RewriteTarget& target) { return !target.model.empty(); });
    if (targets.empty() || !is_named) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("rewrites: '{}' needs a model, or a list of {{model, weight}}", rewrite.key));
    }
  }
  return rewrites;
}

EndpointPool::EndpointPool(const PoolConfig& config, std::shared_ptr<router::RouterService> answers,
                           std::shared_ptr<router::RouterService> prefills)
    : config_(config), answers_(std::move(answers)), prefills_(std::move(prefills)) {}

Result<std::unique_ptr<EndpointPool>> EndpointPool::create(const Clock& clock, Metrics& metrics,
                                                           const PoolConfig& config) {
  static router::ReceiptLog receipts(64);
  STATOR_TRY(auto answers, router::RouterService::create(router_config(config), "pool", clock,
                                                         metrics, receipts));
  STATOR_TRY(auto prefills,
             router::RouterService::create(router_config(config), "pool", clock, metrics, receipts,
                                           router::RouterService::Pool::kPrefill));
  return std::unique_ptr<EndpointPool>(
      new EndpointPool(config, std::move(answers), std::move(prefills)));
}

void EndpointPool::set_endpoints(const std::vector<Endpoint>& endpoints) {
  std::shared_ptr<EndpointEvents> events;
  std::vector<std::pair<WorkerId, std::string>> begun;
  std::vector<WorkerId> ended;
  {
    const MutexLock lock(mutex_);
    events = events_;
    change_endpoints(endpoints, begun, ended);
  }
  if (events == nullptr) {
    return;
  }
  // Without the lock: what ends waits for its thread, which may be telling us something.
  for (const WorkerId id : ended) {
    events->unfollow(id);
  }
  for (const auto& [id, where] : begun) {
    events->follow(id, where);
  }
}

void EndpointPool::change_endpoints(const std::vector<Endpoint>& endpoints,
                                    std::vector<std::pair<WorkerId, std::string>>& begun,
                                    std::vector<WorkerId>& ended) {
  std::set<std::string> present;
  for (const Endpoint& endpoint : endpoints) {
    present.insert(endpoint.address);
    const auto known = by_address_.find(endpoint.address);
    if (known != by_address_.end()) {
      known->second.endpoint.instance = endpoint.instance;
      known->second.endpoint.rank = endpoint.rank;
      continue;
    }
    const WorkerId id = id_of(endpoint.address);
    by_address_.emplace(endpoint.address, Known{.endpoint = endpoint, .id = id});
    by_id_.emplace(id.value(), endpoint.address);
    prefill_count_ += endpoint.is_prefill ? 1 : 0;
    (endpoint.is_prefill ? prefills_ : answers_)->add_worker({id, 0});
    if (std::string where = events_of(endpoint); !where.empty()) {
      begun.emplace_back(id, std::move(where));
    }
  }
  for (auto it = by_address_.begin(); it != by_address_.end();) {
    if (present.contains(it->first)) {
      ++it;
      continue;
    }
    const Known& gone = it->second;
    (gone.endpoint.is_prefill ? prefills_ : answers_)->remove_worker({gone.id, 0});
    prefill_count_ -= gone.endpoint.is_prefill ? 1 : 0;
    ended.push_back(gone.id);
    by_id_.erase(gone.id.value());
    it = by_address_.erase(it);
  }
  synced_ = true;
}

/// Where an endpoint tells of its KV blocks; empty: nowhere.
std::string EndpointPool::events_of(const Endpoint& endpoint) const {
  if (!endpoint.events.empty() || config_.event_port == 0) {
    return endpoint.events;
  }
  const std::string& address = endpoint.address;
  return fmt::format("tcp://{}:{}", address.substr(0, address.rfind(':')), config_.event_port);
}

void EndpointPool::listen_by(std::shared_ptr<EndpointEvents> events) {
  const MutexLock lock(mutex_);
  events_ = std::move(events);
}

void EndpointPool::announce_to(std::shared_ptr<router::LoadAnnouncer> announcer) {
  answers_->announce_to(std::move(announcer));
}

std::optional<router::LoadLease> EndpointPool::book_for_replica(
    const router::ReplicaBooking& booking) {
  return answers_->book_for_replica(booking);
}

void EndpointPool::set_load_stale(bool stale) {
  answers_->set_load_stale(stale);
}

void EndpointPool::apply(WorkerId id, const std::vector<kv::KvEvent>& events) {
  bool is_prefill = false;
  {
    const MutexLock lock(mutex_);
    const auto address = by_id_.find(id.value());
    if (address == by_id_.end()) {
      return;
    }
    is_prefill = by_address_.at(address->second).endpoint.is_prefill;
  }
  for (const kv::KvEvent& event : events) {
    (is_prefill ? prefills_ : answers_)->index().apply({id, 0}, event);
  }
}

void EndpointPool::set_rewrites(Rewrites rewrites) {
  const MutexLock lock(mutex_);
  rewrites_ = std::move(rewrites);
}

std::string EndpointPool::rewrite_of(std::string_view model, std::string_view request_id) const {
  const MutexLock lock(mutex_);
  const auto found = rewrites_.find(model);
  uint64_t all = 0;
  if (found != rewrites_.end()) {
    for (const RewriteTarget& target : found->second) {
      all += target.weight;
    }
  }
  if (all == 0) {
    return std::string(model);
  }
  uint64_t at = xxh3_64(request_id) % all;
  for (const RewriteTarget& target : found->second) {
    if (at < target.weight) {
      return target.model;
    }
    at -= target.weight;
  }
  return std::string(model);
}

void EndpointPool::set_objectives(std::map<std::string, double, std::less<>> priorities) {
  const MutexLock lock(mutex_);
  objectives_ = std::move(priorities);
}

double EndpointPool::priority_of(std::string_view objective) const {
  const MutexLock lock(mutex_);
  const auto found = objectives_.find(objective);
  return found == objectives_.end() ? 0 : found->second;
}

size_t EndpointPool::size() const {
  const MutexLock lock(mutex_);
  return by_address_.size() - prefill_count_;
}

bool EndpointPool::has_synced() const {
  const MutexLock lock(mutex_);
  return synced_;
}

/// An entry without a port means all ports of its address.
std::vector<WorkerId> EndpointPool::allowed_by(const PickRequest& request, bool& restricted) const {
  std::vector<WorkerId> allowed;
  restricted = request.subset.has_value() || !request.forced.empty();
  if (!restricted) {
    return allowed;
  }
  const std::vector<std::string>& names = request.forced.empty() ? *request.subset : request.forced;
  for (const auto& [address, known] : by_address_) {
    const std::string host = address.substr(0, address.rfind(':'));
    const bool named = std::ranges::any_of(names, [&](const std::string& name) {
      return name == address || name == host || fmt::format("[{}]", name) == host;
    });
    if (named && !known.endpoint.is_prefill) {
      allowed.push_back(known.id);
    }
  }
  std::ranges::sort(allowed);
  return allowed;
}

Result<Pick> EndpointPool::pick(const PickRequest& request) {
  uint32_t tokens = request.tokens;
  const std::vector<blocks::SequenceHash> of_text = request.sequences == nullptr
                                                        ? hashes_of(request.prompt, tokens)
                                                        : std::vector<blocks::SequenceHash>();
  const auto& sequences = request.sequences == nullptr ? of_text : *request.sequences;
  std::vector<WorkerId> allowed;
  bool restricted = false;
  bool has_prefill = false;
  {
    const MutexLock lock(mutex_);
    has_prefill = prefill_count_ > 0;
    STATOR_TRY(allowed, candidates(request, restricted));
  }
  const uint32_t mean = mean_tokens_.load(std::memory_order_relaxed);
  mean_tokens_.store(mean + (tokens / kMeanShare) - (mean / kMeanShare), std::memory_order_relaxed);
  router::RouteRequest route{
      .request_id = request.request_id,
      .model = request.model,
      .prompt_tokens = tokens,
      .block_size = request.sequences == nullptr ? kBlockTokens : config_.block_size,
      .sequences = sequences,
      .constraints = {.allowed = allowed},
      .tier = router::tier_of(0, request.priority)};
  Pick pick;
  STATOR_TRY(router::Decision decision, answers_->route(route));
  pick.lease = std::move(decision.lease);
  std::optional<router::Decision> prefill;
  if (has_prefill) {
    route.constraints.allowed = {};
    route.holds_blocks = false;
    if (auto chosen = prefills_->route(route)) {  // without one the endpoint computes the prompt
      prefill = std::move(*chosen);
    }
  }
  const MutexLock lock(mutex_);
  const auto address = by_id_.find(decision.worker.worker.value());
  if (address == by_id_.end()) {
    return Error(Code::kUnavailable, "the endpoint has just gone");
  }
  pick.endpoint = address->second;
  pick.instance = by_address_.at(pick.endpoint).endpoint.instance;
  pick.rank = by_address_.at(pick.endpoint).endpoint.rank;
  pick.count = RequestCount(by_address_.at(pick.endpoint).ours);
  if (!sequences.empty()) {
    pick.hit_ratio =
        static_cast<double>(decision.overlap_blocks) / static_cast<double>(sequences.size());
  }
  if (prefill) {
    if (const auto found = by_id_.find(prefill->worker.worker.value()); found != by_id_.end()) {
      pick.prefill = found->second;
      pick.prefill_instance = by_address_.at(pick.prefill).endpoint.instance;
      pick.prefill_rank = by_address_.at(pick.prefill).endpoint.rank;
      pick.prefill_lease = std::move(prefill->lease);
    }
  }
  return pick;
}

Result<RequestFacts> read_request(std::string_view body) {
  constexpr uint32_t kDepthMax = 128;
  RequestFacts facts;
  json::Cursor cursor(body, kDepthMax);
  std::string_view key;
  std::string storage;
  std::string other;
  cursor.enter_object();
  while (cursor.next_key(key, storage)) {
    const std::string name(key);
    std::string_view value;
    if (name == "model" && cursor.peek() == json::Kind::kString) {
      cursor.skip(value);
      facts.model_at = static_cast<size_t>(value.data() - body.data());
      facts.model_size = value.size();
      facts.model = unquoted(value);
    } else if (name == "prompt" && cursor.peek() == json::Kind::kString) {
      cursor.read_string(value, other);
      facts.prompt = value;
    } else if (name == "messages" || name == "prompt" || name == "input" || name == "system" ||
               name == "tools") {
      cursor.skip(value);
      facts.prompt += value;
    } else if (name == "stream" && cursor.peek() == json::Kind::kBool) {
      cursor.read_bool(facts.stream);
    } else {
      cursor.skip();
    }
  }
  if (!cursor.finish()) {
    return Error(Code::kInvalidArgument, fmt::format("the body is not valid JSON at byte {}: {}",
                                                     cursor.position(), cursor.error()));
  }
  return facts;
}

}  // namespace stator::epp
