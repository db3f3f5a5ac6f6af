// SPDX-License-Identifier: Apache-2.0
#include "stator/app/operator_wishes.h"

#include <fmt/format.h>

#include <utility>

#include "stator/core/log.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"

namespace stator::app {
namespace {

using engine::adapters::Control;
using session::OperatorDone;
using session::OperatorReply;
using session::OperatorWish;

constexpr std::string_view kJson = "application/json";
constexpr size_t kNameBytesMax = 256;
constexpr size_t kPathBytesMax = 4096;

Error wrong(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

std::string text_member(const json::Value& object, std::string_view key) {
  return std::string(object.text_at({key}));
}

Result<json::Value> read_body(std::string_view body) {
  auto value = json::parse(body.empty() ? "{}" : body);
  if (!value || !value->is_object()) {
    return wrong("the body must be a JSON object");
  }
  return value;
}

/// What engines read themselves: a folder or a hub name.
Result<std::string> path_of(const json::Value& body) {
  std::string path = text_member(body, "lora_path");
  if (const json::Value* source = body.find("source"); source != nullptr && path.empty()) {
    path = source->is_object() ? text_member(*source, "uri") : "";
  }
  for (const std::string_view scheme : {"file://", "hf://"}) {
    if (path.starts_with(scheme)) {
      path.erase(0, scheme.size());
      break;
    }
  }
  if (path.empty() || path.size() > kPathBytesMax || path.contains("://")) {
    return wrong(
        "lora_path (or source.uri) must be a folder that the engine server sees, file:///FOLDER or "
        "hf://ORG/NAME");
  }
  return path;
}

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || name.contains('/')) {
    return wrong(fmt::format("lora_name must have 1 to {} bytes, none of them /", kNameBytesMax));
  }
  return {};
}

Result<Control> read_load(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::LoadAdapter load{.name = text_member(body, "lora_name"), .path = {}};
  STATOR_CHECK(check_name(load.name));
  STATOR_TRY(load.path, path_of(body));
  return Control(std::move(load));
}

Result<Control> read_unload(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::UnloadAdapter unload{text_member(body, "lora_name")};
  STATOR_CHECK(check_name(unload.name));
  return Control(std::move(unload));
}

Result<Control> read_sleep(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::Sleep sleep;
  if (const json::Value* given = body.find("level")) {
    const auto level = given->as_int64();
    if (level != 1 && level != 2) {
      return wrong("level must be 1 (weights stay in host memory) or 2 (they are dropped)");
    }
    sleep.level = static_cast<uint32_t>(*level);
  }
  return Control(sleep);
}

OperatorReply reply_of(const Status& outcome) {
  if (outcome) {
    return {};
  }
  return {.status = static_cast<uint32_t>(outcome.error().info().http_status),
          .message = std::string(outcome.error().message())};
}

}  // namespace

OperatorWish wish_of(const net::HttpRequest& request) {
  return {.method = std::string(request.method() == "HEAD" ? "GET" : request.method()),
          .path = std::string(request.path()),
          .body = std::string(request.body())};
}

std::optional<Result<Control>> read_control(const OperatorWish& wish) {
  const std::string_view path = wish.path;
  if (wish.method == "DELETE" && path.starts_with(kLorasPath) &&
      path.size() > kLorasPath.size() + 1) {
    return Control(
        engine::adapters::UnloadAdapter{std::string(path.substr(kLorasPath.size() + 1))});
  }
  if (wish.method != "POST") {
    return std::nullopt;
  }
  if (path == kLorasPath || path == "/v1/load_lora_adapter") {
    return read_load(wish.body);
  }
  if (path == "/v1/unload_lora_adapter") {
    return read_unload(wish.body);
  }
  if (path == "/engine/sleep") {
    return read_sleep(wish.body);
  }
  if (path == "/engine/wake_up") {
    return Control(engine::adapters::WakeUp{});
  }
  if (path == "/engine/reset_prefix_cache") {
    return Control(engine::adapters::ResetPrefixCache{});
  }
  return std::nullopt;
}

WishTarget::WishTarget(const WorkerHost::Worker& worker)
    : id(worker.record.key.worker),
      engine(worker.engine.get()),
      server(worker.server),
      own(worker.own.get()) {}

std::vector<std::string> WishTarget::adapters() const {
  if (server != nullptr) {
    return server->adapters();
  }
  return own != nullptr ? own->adapters() : std::vector<std::string>();
}

bool WishTarget::up() const {
  return server == nullptr || server->healthy();
}

bool WishTarget::asleep() const {
  return (server != nullptr && server->asleep()) || (own != nullptr && own->asleep());
}

void WishTarget::carry_out(const OperatorWish& wish, OperatorDone done) const {
  if (wish.method == "GET" && wish.path == kLorasPath) {
    done({.adapters = adapters()});
    return;
  }
  const auto control = read_control(wish);
  if (!control) {
    done({.status = 404,
          .message = fmt::format("nothing answers {} {} here", wish.method, wish.path)});
  } else if (!*control) {
    done(reply_of(control->error().clone()));
  } else {
    carry_out(**control, std::move(done));
  }
}

void WishTarget::carry_out(const Control& control, OperatorDone done) const {
  if (server != nullptr) {
    server->control(control,
                    [done = std::move(done)](const Status& outcome) { done(reply_of(outcome)); });
  } else if (own != nullptr) {
    done(reply_of(own->carry_out(control)));
  } else if (std::holds_alternative<engine::adapters::ResetPrefixCache>(control)) {
    engine->reset_prefix_cache();
    done({});
  } else {
    done(reply_of(Error(Code::kUnsupported, fmt::format("engine '{}' has no {}",
                                                        engine->info().kind, to_string(control)))));
  }
}

std::string render_adapters(const std::map<std::string, std::vector<WorkerId>>& holders) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("loras").begin_array();
  for (const auto& [name, workers] : holders) {
    json.begin_object().key("lora_name").value(name).key("workers").begin_array();
    for (const WorkerId worker : workers) {
      json.value(worker.value());
    }
    json.end_array().end_object();
  }
  json.end_array().key("count").value(holders.size()).end_object();
  return body;
}

Status WishBoard::begin(net::HttpExchange& exchange, const OperatorWish& wish,
                        const std::vector<Asked>& asked) {
  if (wishes_.size() >= kOpenMax) {
    return Error(Code::kOverloaded,
                 fmt::format("{} wishes of operators are open; ask again later", kOpenMax));
  }
  auto owned = std::make_unique<Wish>();
  owned->exchange = &exchange;
  owned->lists = wish.method == "GET";
  owned->open = asked.size();
  for (const Asked& one : asked) {
    owned->replies.emplace_back(one.id, OperatorReply());
  }
  exchange.set_observer(owned.get());
  const uint64_t id = ++last_;
  wishes_.emplace(id, std::move(owned));
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].ask(wish, [this, id, i](OperatorReply reply) { post(id, i, std::move(reply)); });
  }
  return {};
}

/// Any thread.
void WishBoard::post(uint64_t wish, size_t index, OperatorReply reply) {
  if (!shard_.post([this, wish, index, reply = std::move(reply)]() mutable {
        collect(wish, index, std::move(reply));
      })) {
    log::info("operator", "closing: an operator's wish ends without an answer");
  }
}

void WishBoard::collect(uint64_t id, size_t index, OperatorReply reply) {
  const auto found = wishes_.find(id);
  Wish& wish = *found->second;
  wish.replies[index].second = std::move(reply);
  if (--wish.open > 0) {
    return;
  }
  if (wish.exchange != nullptr) {
    wish.exchange->set_observer(nullptr);
    answer(wish);
  }
  wishes_.erase(found);
}

void WishBoard::answer(Wish& wish) {
  int status = 200;
  std::string workers;
  json::Writer json(workers);
  json.begin_object().key("workers").begin_array();
  std::map<std::string, std::vector<WorkerId>> holders;
  for (const auto& [worker, reply] : wish.replies) {
    const bool done = reply.status == 200;
    json.begin_object().key("worker_id").value(worker.value());
    json.key("status").value(done ? "done" : "failed");
    if (!done) {
      json.key("message").value(reply.message);
      status = status == 200 ? static_cast<int>(reply.status) : status;
    }
    json.end_object();
    for (const std::string& name : reply.adapters) {
      holders[name].push_back(worker);
    }
  }
  json.end_array().end_object();
  // A worker that has no adapters because it knows none is no failure of the list.
  const bool lists = wish.lists && (status == 200 || status == 501);
  wish.exchange->respond(lists ? 200 : status, kJson, lists ? render_adapters(holders) : workers);
}

}  // namespace stator::app
