// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "stator/blocks/block_hash.h"
#include "stator/json/cursor.h"

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

router::RouterConfig router_config() {
  router::RouterConfig config;
  config.index.kind = "ttl";
  return config;
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

EndpointPool::EndpointPool(std::shared_ptr<router::RouterService> answers,
                           std::shared_ptr<router::RouterService> prefills)
    : answers_(std::move(answers)), prefills_(std::move(prefills)) {}

Result<std::unique_ptr<EndpointPool>> EndpointPool::create(const Clock& clock, Metrics& metrics) {
  static router::ReceiptLog receipts(64);
  STATOR_TRY(auto answers,
             router::RouterService::create(router_config(), "pool", clock, metrics, receipts));
  STATOR_TRY(auto prefills,
             router::RouterService::create(router_config(), "pool", clock, metrics, receipts,
                                           router::RouterService::Pool::kPrefill));
  return std::unique_ptr<EndpointPool>(new EndpointPool(std::move(answers), std::move(prefills)));
}

void EndpointPool::set_endpoints(const std::vector<Endpoint>& endpoints) {
  const MutexLock lock(mutex_);
  std::set<std::string> present;
  for (const Endpoint& endpoint : endpoints) {
    present.insert(endpoint.address);
    const auto known = by_address_.find(endpoint.address);
    if (known != by_address_.end()) {
      known->second.endpoint.instance = endpoint.instance;
      continue;
    }
    const WorkerId id(next_id_++);
    by_address_.emplace(endpoint.address, Known{endpoint, id});
    by_id_.emplace(id.value(), endpoint.address);
    prefill_count_ += endpoint.is_prefill ? 1 : 0;
    (endpoint.is_prefill ? prefills_ : answers_)->add_worker({id, 0});
  }
  for (auto it = by_address_.begin(); it != by_address_.end();) {
    if (present.contains(it->first)) {
      ++it;
      continue;
    }
    const Known& gone = it->second;
    (gone.endpoint.is_prefill ? prefills_ : answers_)->remove_worker({gone.id, 0});
    prefill_count_ -= gone.endpoint.is_prefill ? 1 : 0;
    by_id_.erase(gone.id.value());
    it = by_address_.erase(it);
  }
  synced_ = true;
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
    const bool named = std::ranges::any_of(
        names, [&](const std::string& name) { return name == address || name == host; });
    if (named && !known.endpoint.is_prefill) {
      allowed.push_back(known.id);
    }
  }
  std::ranges::sort(allowed);
  return allowed;
}

Result<Pick> EndpointPool::pick(const PickRequest& request) {
  uint32_t tokens = 0;
  const auto sequences = hashes_of(request.prompt, tokens);
  std::vector<WorkerId> allowed;
  bool restricted = false;
  bool has_prefill = false;
  {
    const MutexLock lock(mutex_);
    allowed = allowed_by(request, restricted);
    has_prefill = prefill_count_ > 0;
    if (by_address_.size() == prefill_count_) {
      return Error(Code::kUnavailable, "no endpoint is ready");
    }
  }
  if (restricted && allowed.empty()) {
    return Error(Code::kUnavailable, "no endpoint of the gateway's subset is ready");
  }
  router::RouteRequest route{.request_id = request.request_id,
                             .model = request.model,
                             .prompt_tokens = tokens,
                             .block_size = kBlockTokens,
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
  if (prefill) {
    if (const auto found = by_id_.find(prefill->worker.worker.value()); found != by_id_.end()) {
      pick.prefill = found->second;
      pick.prefill_instance = by_address_.at(pick.prefill).endpoint.instance;
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
    if ((name == "model" || name == "prompt") && cursor.peek() == json::Kind::kString) {
      cursor.read_string(value, other);
      (name == "model" ? facts.model : facts.prompt) = value;
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
