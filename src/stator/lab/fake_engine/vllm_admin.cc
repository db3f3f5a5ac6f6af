// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/vllm_service.h"

namespace stator::fake_engine {
namespace {

/// Adapters at once; a real server's --max-loras is of this order.
constexpr size_t kAdaptersMax = 64;

std::string query_value(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=') {
      return std::string(pair.substr(key.size() + 1));
    }
  }
  return {};
}

void load_adapter(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const auto body = read_vllm_body(exchange.request().body());
  if (!body) {
    respond_error(exchange, context, body.error());
    return;
  }
  const std::string name = read_text(*body, "lora_name").value_or("");
  const std::string path = read_text(*body, "lora_path").value_or("");
  if (name.empty() || path.empty()) {
    respond_error(exchange, context,
                  {.message = "Both 'lora_name' and 'lora_path' must be provided.",
                   .type = "InvalidUserInput",
                   .param = {}});
    return;
  }
  if (!context.config.lora) {
    respond_error(exchange, context,
                  {.status = 500,
                   .message = "Call to add_lora method failed: Worker failed with error 'LoRA is "
                              "not enabled. Use --enable-lora to enable LoRA.', please check the "
                              "stack trace above for the root cause",
                   .type = "InternalServerError",
                   .param = {}});
    return;
  }
  const bool known = std::ranges::find(state.names, name) != state.names.end();
  if (known && !read_flag(*body, "load_inplace")) {
    respond_error(exchange, context,
                  {.message = fmt::format("The lora adapter '{}' has already been loaded. If you "
                                          "want to load the adapter in place, set 'load_inplace' "
                                          "to True.",
                                          name),
                   .type = "InvalidUserInput",
                   .param = {}});
    return;
  }
  // The fake reads no adapter; a path that says so is one that does not exist.
  if (path.starts_with("/nonexistent") || state.names.size() > kAdaptersMax) {
    respond_error(
        exchange, context,
        {.status = 404,
         .message = fmt::format("Loading lora {} failed: No adapter found for {}", name, path),
         .type = "NotFoundError",
         .param = {}});
    return;
  }
  if (!known) {
    state.names.push_back(name);
    state.adapter_paths.push_back(path);
  }
  exchange.respond(200, "", fmt::format("Success: LoRA adapter '{}' added successfully.", name));
}

void unload_adapter(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const auto body = read_vllm_body(exchange.request().body());
  if (!body) {
    respond_error(exchange, context, body.error());
    return;
  }
  const std::string name = read_text(*body, "lora_name").value_or("");
  const auto found = std::find(state.names.begin() + 1, state.names.end(), name);
  if (found == state.names.end()) {
    respond_error(exchange, context,
                  {.status = 404,
                   .message = fmt::format("The lora adapter '{}' cannot be found.", name),
                   .type = "NotFoundError",
                   .param = {}});
    return;
  }
  state.adapter_paths.erase(state.adapter_paths.begin() + (found - state.names.begin()));
  state.names.erase(found);
  exchange.respond(200, "", fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
}

void abort_requests(ServerContext& context, net::HttpExchange& exchange, bool dev_route) {
  const auto body = read_vllm_body(exchange.request().body());
  if (!body) {
    respond_error(exchange, context, body.error());
    return;
  }
  const auto ids = read_texts(*body, "request_ids");
  size_t aborted = 0;
  if (ids.empty() && dev_route) {
    aborted = context.answers.abort("");
  }
  for (const std::string& id : ids) {
    aborted += id.empty() ? 0 : context.answers.abort(id);
  }
  if (dev_route) {
    respond_json(exchange, 200, fmt::format(R"({{"status":"ok","aborted":{}}})", aborted));
  } else {
    respond_empty(exchange);
  }
}

void reset_cache(ServerContext& context, net::HttpExchange& exchange) {
  bool busy = false;
  for (uint32_t rank = 0; rank < context.host.ranks(); ++rank) {
    busy |= context.host.load(rank).kv_used_blocks > 0;
  }
  if (!busy) {
    context.host.reset_cache();
  }
  respond_json(exchange, 200, busy ? R"({"success":false})" : R"({"success":true})");
}

void go_to_sleep(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const std::string level = query_value(exchange.request().query(), "level");
  const std::string mode = query_value(exchange.request().query(), "mode");
  state.sleep_level = level == "2" ? 2 : 1;
  if (mode.empty() || mode == "abort") {
    context.answers.abort("");
  }
  context.host.reset_cache();  // the KV memory is given up
  respond_empty(exchange);
}

}  // namespace

bool handle_vllm_admin(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const std::string_view method = exchange.request().method();
  const std::string_view path = exchange.request().path();
  const bool dev = context.config.dev_mode;
  const auto flag = [](std::string_view name, bool value) {
    return fmt::format(R"({{"{}":{}}})", name, value);
  };
  if (method == "POST" && path == "/v1/load_lora_adapter") {
    load_adapter(context, state, exchange);
  } else if (method == "POST" && path == "/v1/unload_lora_adapter") {
    unload_adapter(context, state, exchange);
  } else if (method == "POST" && path == "/inference/v1/abort_requests" &&
             context.config.scale_out) {
    abort_requests(context, exchange, false);
  } else if (!dev) {
    return false;
  } else if (method == "POST" && path == "/abort_requests") {
    abort_requests(context, exchange, true);
  } else if (method == "POST" && path == "/reset_prefix_cache") {
    reset_cache(context, exchange);
  } else if (method == "POST" && (path == "/reset_mm_cache" || path == "/reset_encoder_cache")) {
    respond_empty(exchange);
  } else if (method == "POST" && path == "/sleep") {
    go_to_sleep(context, state, exchange);
  } else if (method == "POST" && path == "/wake_up") {
    state.sleep_level = 0;
    respond_empty(exchange);
  } else if (method == "GET" && path == "/is_sleeping") {
    respond_json(exchange, 200, flag("is_sleeping", state.sleep_level > 0));
  } else if (method == "POST" && (path == "/pause" || path == "/resume")) {
    state.paused = path == "/pause";
    respond_json(exchange, 200,
                 state.paused ? R"({"status":"paused"})" : R"({"status":"resumed"})");
  } else if (method == "GET" && path == "/is_paused") {
    respond_json(exchange, 200, flag("is_paused", state.paused));
  } else {
    return false;
  }
  return true;
}

}  // namespace stator::fake_engine
