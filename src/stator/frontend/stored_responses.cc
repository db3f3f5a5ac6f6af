// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stored_responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "stator/api/responses_partial.h"
#include "stator/api/responses_request.h"
#include "stator/frontend/request_record.h"
#include "stator/frontend/responses_answer.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/text/percent.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using api::ApiError;
using api::ResponseStatus;

constexpr std::string_view kPrefix = "/v1/responses/";
constexpr std::string_view kCancel = "/cancel";
constexpr std::string_view kInputItems = "/input_items";
constexpr Duration kPollInterval = 10ms;
constexpr size_t kPollBytesMax = size_t{256} << 10;
constexpr uint32_t kItemsDefault = 20;
constexpr uint32_t kItemsMax = 100;

/// The id in a path, and what follows it.
struct Target {
  std::string id;
  std::string_view action;  ///< empty, kCancel or kInputItems
  bool known = false;
};

Target target_of(std::string_view path) {
  Target target;
  if (!path.starts_with(kPrefix)) {
    return target;
  }
  std::string_view rest = path.substr(kPrefix.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  target.id = text::percent_decode(rest.substr(0, slash));
  target.action = rest.substr(slash);
  target.known = !target.id.empty() && (target.action.empty() || target.action == kCancel ||
                                        target.action == kInputItems);
  return target;
}

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name && equals != std::string_view::npos) {
      return text::percent_decode(pair.substr(equals + 1));
    }
  }
  return {};
}

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? std::optional(value)
                                                                             : std::nullopt;
}

/// All items that a response was made from, oldest first: those of earlier turns, too.
std::vector<std::string> items_of(const std::vector<responses::ResponseStore::Entry>& chain) {
  std::vector<std::string> items;
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto own = api::list_input_items(chain[i]->input_json, chain[i]->id);
    items.insert(items.end(), own.begin(), own.end());
    const auto output = json::parse("[" + chain[i]->output_json + "]");
    if (i + 1 < chain.size() && output) {
      for (const json::Value& item : output->elements()) {
        items.push_back(json::to_text(item));
      }
    }
  }
  return items;
}

std::string id_of(std::string_view item) {
  const auto value = json::parse(item);
  return value ? std::string(value->text_at({"id"})) : std::string();
}

void start_events(net::HttpExchange& exchange) {
  const std::array<net::HttpHeader, 2> headers{net::HttpHeader{"cache-control", "no-cache"},
                                               net::HttpHeader{"x-accel-buffering", "no"}};
  exchange.start_stream(200, kEventStream, headers);
}

}  // namespace

std::string owner_of(const net::HttpRequest& request, const FrontendConfig& config) {
  if (const std::string_view known = tenant_of(request); !known.empty()) {
    return std::string(known);
  }
  const bool trusted = config.trusts_header_hints() && may_route(request);
  return trusted ? std::string(request.header("x-tenant-id").value_or("")) : std::string();
}

// ---- background responses

StoredResponses::Run::Run(StoredResponses& owner_in, const AnswerSpec& spec)
    : owner(owner_in),
      frame(response_frame(spec)),
      entry(response_entry(spec)),
      exchange(owner_in.shard_, {}, *this) {}

void StoredResponses::Run::on_answer(int status_in, std::span<const net::HttpHeader>) {
  status = status_in;
}

void StoredResponses::Run::on_bytes(std::string_view bytes) {
  if (status == 200) {
    live->append(bytes);
  } else {
    refusal += bytes;
  }
}

void StoredResponses::Run::on_end(End end) {
  if (!live->over()) {
    const auto body = json::parse(refusal);
    const std::string_view message = body ? body->text_at({"message"}) : std::string_view();
    if (end == End::kBroken) {
      settle(ResponseStatus::kCancelled, {});
    } else {
      settle(ResponseStatus::kFailed, message.empty() ? "the response could not be made" : message);
    }
  }
  if (const auto known = owner.runs_.find(entry.id); known != owner.runs_.end()) {
    owner.ended_.push_back(std::move(known->second));
    owner.runs_.erase(known);
  }
}

void StoredResponses::Run::settle(ResponseStatus how, std::string_view message) {
  entry.status = how;
  entry.response_json.clear();
  entry.events = live->events();
  if (how == ResponseStatus::kCancelled) {
    entry.output_json = api::partial_output(entry.events);
  }
  append_response(entry.response_json, frame,
                  {.status = how,
                   .output_json = entry.output_json,
                   .error_code = "server_error",
                   .error_message = message});
  const std::string json = entry.response_json;
  const std::string id = entry.id;
  owner.store_.put(std::move(entry), owner.now_s());
  entry.id = id;
  live->end(json);
  owner.store_.remove_live(id);
}

StoredResponses::StoredResponses(net::Shard& shard, responses::ResponseStore& store,
                                 const FrontendConfig& config)
    : shard_(shard), store_(store), config_(config) {}

StoredResponses::~StoredResponses() {
  stop();
}

net::HttpExchange& StoredResponses::begin(net::HttpExchange& client, const AnswerSpec& spec) {
  auto run = std::make_shared<Run>(*this, spec);
  run->exchange.request().set_notes(client.request().notes());  // it is the same request
  std::weak_ptr<Run> weak = run;
  run->live =
      std::make_shared<responses::LiveResponse>(spec.id, spec.owner, [weak, &shard = shard_] {
        const auto stop = [weak] {
          if (const auto found = weak.lock()) {
            found->exchange.cancel();
          }
        };
        if (shard.on_loop()) {
          stop();
        } else {
          static_cast<void>(shard.post(stop));  // full: the client asks again
        }
      });
  std::string queued;
  append_response(queued, run->frame, {.status = ResponseStatus::kQueued});
  run->live->set_response_json(queued);
  run->entry.status = ResponseStatus::kQueued;
  run->entry.response_json = queued;
  store_.put(run->entry, now_s());
  store_.add_live(run->live);
  runs_.emplace(spec.id, run);
  if (spec.stream) {
    start_events(client);
    follow(client, run->live, true, 0);
  } else {
    client.respond_with(200, kJson, std::move(queued), answer_headers(spec));
  }
  return run->exchange;
}

// ---- endpoints

std::string_view StoredResponses::methods_of(std::string_view path) {
  const Target target = target_of(path);
  if (!target.known) {
    return "";
  }
  return target.action.empty() ? "GET, DELETE" : target.action == kCancel ? "POST" : "GET";
}

bool StoredResponses::answer(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  const Target target = target_of(request.path());
  if (!target.known) {
    return false;
  }
  if (target.action.empty() && request.method() == "GET") {
    retrieve(exchange, target.id);
  } else if (target.action.empty() && request.method() == "DELETE") {
    remove(exchange, target.id);
  } else if (target.action == kCancel && request.method() == "POST") {
    cancel(exchange, target.id);
  } else if (target.action == kInputItems && request.method() == "GET") {
    list_input(exchange, target.id);
  } else {
    return false;
  }
  return true;
}

void StoredResponses::refuse(net::HttpExchange& exchange, const ApiError& error) {
  respond_error(exchange, error, {.overload_status = config_.overload_status}, config_.retry_after);
}

void StoredResponses::not_found(net::HttpExchange& exchange, std::string_view id) {
  refuse(exchange, {Error(Code::kNotFound,
                          fmt::format("Response with id '{}' not found.", id.substr(0, 128))),
                    "id"});
}

void StoredResponses::retrieve(net::HttpExchange& exchange, std::string_view id) {
  const std::string owner = owner_of(exchange.request(), config_);
  const std::string_view query = exchange.request().query();
  const std::string stream = query_value(query, "stream");
  const bool streams = stream == "true";
  if (!streams && !stream.empty() && stream != "false") {
    refuse(exchange, api::validation_error("stream", "stream must be true or false"));
    return;
  }
  const std::string after = query_value(query, "starting_after");
  const auto number = number_of(after);
  if (!after.empty() && (!number || !streams)) {
    refuse(exchange, api::validation_error("starting_after",
                                           "starting_after must be the number of an event, and "
                                           "needs stream=true"));
    return;
  }
  const uint64_t first = number ? *number + 1 : 0;
  const auto live = store_.find_live(id, owner);
  if (live != nullptr && !live->over()) {
    if (streams) {
      start_events(exchange);
      follow(exchange, live, true, first);
    } else {
      exchange.respond_with(200, kJson, live->response_json());
    }
    return;
  }
  const auto stored = store_.find(id, owner, now_s());
  if (stored == nullptr) {
    not_found(exchange, id);
  } else if (streams) {
    stream_stored(exchange, *stored, first);
  } else {
    exchange.respond(200, kJson, stored->response_json);
  }
}

void StoredResponses::stream_stored(net::HttpExchange& exchange,
                                    const responses::StoredResponse& response, uint64_t first) {
  if (response.events.empty()) {
    refuse(exchange, api::validation_error("stream",
                                           "stream is for responses made with background: true; "
                                           "the events of others are not kept"));
    return;
  }
  std::string out;
  for (uint64_t i = first; i < response.events.size(); ++i) {
    responses::append_event(out, response.events[i]);
  }
  start_events(exchange);
  exchange.write(out);
  exchange.finish();
}

void StoredResponses::cancel(net::HttpExchange& exchange, std::string_view id) {
  const std::string owner = owner_of(exchange.request(), config_);
  if (const auto live = store_.find_live(id, owner)) {
    live->cancel();
    follow(exchange, live, false, 0);
    return;
  }
  const auto stored = store_.find(id, owner, now_s());
  if (stored == nullptr) {
    not_found(exchange, id);
  } else if (!api::is_over(stored->status) && store_.ask_cancel(id)) {
    exchange.respond(200, kJson, stored->response_json);
  } else if (stored->events.empty() && stored->status != ResponseStatus::kCancelled) {
    refuse(exchange,
           {Error(Code::kInvalidArgument, "Cannot cancel a synchronous response."), "id"});
  } else {
    exchange.respond(200, kJson, stored->response_json);
  }
}

void StoredResponses::remove(net::HttpExchange& exchange, std::string_view id) {
  const std::string owner = owner_of(exchange.request(), config_);
  if (const auto live = store_.find_live(id, owner); live != nullptr && !live->over()) {
    refuse(exchange,
           {Error(Code::kInvalidArgument, "the response is in progress: cancel it first"), "id"});
    return;
  }
  if (!store_.erase(id, owner, now_s())) {
    not_found(exchange, id);
    return;
  }
  std::string body;
  json::Writer(body)
      .begin_object()
      .key("id")
      .value(id)
      .key("object")
      .value("response")
      .key("deleted")
      .value(true)
      .end_object();
  exchange.respond(200, kJson, body);
}

void StoredResponses::list_input(net::HttpExchange& exchange, std::string_view id) {
  const std::string_view query = exchange.request().query();
  const std::string owner = owner_of(exchange.request(), config_);
  if (store_.find(id, owner, now_s()) == nullptr) {
    not_found(exchange, id);
    return;
  }
  const std::string limit_text = query_value(query, "limit");
  const auto limit = limit_text.empty() ? kItemsDefault : number_of(limit_text);
  const std::string order = query_value(query, "order");
  if (!limit || *limit < 1 || *limit > kItemsMax) {
    refuse(exchange,
           api::validation_error("limit", fmt::format("limit must be from 1 to {}", kItemsMax)));
    return;
  }
  if (!order.empty() && order != "asc" && order != "desc") {
    refuse(exchange, api::validation_error("order", "order must be asc or desc"));
    return;
  }
  auto chain = store_.chain(id, owner, now_s());
  if (!chain) {
    refuse(exchange, std::move(chain.error()));
    return;
  }
  std::vector<std::string> items = items_of(*chain);
  if (order != "asc") {
    std::ranges::reverse(items);
  }
  if (const std::string after = query_value(query, "after"); !after.empty()) {
    const auto at = std::ranges::find(items, after, id_of);
    if (at == items.end()) {
      refuse(exchange, api::validation_error("after", "after must be the id of an input item"));
      return;
    }
    items.erase(items.begin(), at + 1);
  }
  const bool more = items.size() > *limit;
  items.resize(std::min<size_t>(items.size(), *limit));
  std::string body;
  json::Writer json(body);
  json.begin_object().key("object").value("list").key("data").begin_array();
  for (const std::string& item : items) {
    json.raw(item);
  }
  json.end_array();
  for (const auto& [key, at] : {std::pair{"first_id", size_t{0}}, {"last_id", items.size() - 1}}) {
    json.key(key);
    items.empty() ? json.null() : json.value(id_of(items[at]));
  }
  json.key("has_more").value(more).end_object();
  exchange.respond_with(200, kJson, std::move(body));
}

// ---- followers

void StoredResponses::follow(net::HttpExchange& exchange,
                             std::shared_ptr<const responses::LiveResponse> live, bool streams,
                             uint64_t first) {
  auto owned = std::make_unique<Follower>();
  Follower* const follower = owned.get();
  follower->owner = this;
  follower->exchange = &exchange;
  follower->live = std::move(live);
  follower->streams = streams;
  follower->next_event = first;
  exchange.set_observer(follower);
  followers_.emplace(follower, std::move(owned));
  poll(follower);
}

void StoredResponses::poll(Follower* follower) {
  net::HttpExchange& exchange = *follower->exchange;
  const bool over = follower->live->over();
  if (follower->streams && !exchange.above_high_water()) {
    std::string out;
    const uint64_t next = follower->live->read(follower->next_event, kPollBytesMax, out);
    const bool complete = over && out.size() < kPollBytesMax;
    follower->next_event = next;
    exchange.write(out);
    if (complete) {
      exchange.set_observer(nullptr);
      exchange.finish();
      drop(follower);
      return;
    }
  } else if (!follower->streams && over) {
    exchange.set_observer(nullptr);
    exchange.respond_with(200, kJson, follower->live->response_json());
    drop(follower);
    return;
  }
  follower->timer = shard_.after(kPollInterval, [this, follower] { poll(follower); });
}

void StoredResponses::drop(Follower* follower) {
  followers_.erase(follower);
}

void StoredResponses::sweep() {
  ended_.clear();
  if (shard_.index() == 0) {
    store_.tick(now_s());
  }
}

void StoredResponses::stop() {
  for (auto& [follower, owned] : followers_) {
    owned->exchange->set_observer(nullptr);
    if (owned->streams) {
      owned->exchange->abort();
    } else {
      refuse(*owned->exchange, Error(Code::kUnavailable, "the server is shutting down, retry"));
    }
  }
  followers_.clear();
  ended_.clear();
}

}  // namespace stator::frontend
