// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/sglang_adapters.h"

#include <fmt/format.h>

#include "stator/core/hash.h"
#include "stator/json/writer.h"
#include "stator/lab/fake_engine/json_read.h"

namespace stator::fake_engine {
namespace {

/// Adapters at once; a real server's --max-loaded-loras is of this order.
constexpr size_t kAdaptersMax = 64;

/// Why a change is refused; empty: it was done.
std::string change(const FakeConfig& config, SglangAdapters& adapters, bool load,
                   const json::Value& body) {
  const std::string name = read_text(body, "lora_name").value_or("");
  const std::string path = read_text(body, "lora_path").value_or("");
  if (!config.lora) {
    return "LoRA is not enabled. Please set `--enable-lora` to enable LoRA.";
  }
  if (!load) {
    return adapters.erase(name) > 0
               ? ""
               : fmt::format("LoRA adapter with name {} does not exist.", name);
  }
  if (adapters.contains(name)) {
    return fmt::format("LoRA adapter with name {} already exists.", name);
  }
  if (path.starts_with("/nonexistent") || adapters.size() >= kAdaptersMax) {
    return fmt::format("Failed to load LoRA adapter {}: {} is not there", name, path);
  }
  adapters.emplace(name, path);
  return "";
}

}  // namespace

void change_sglang_adapters(const FakeConfig& config, SglangAdapters& adapters,
                            std::string_view path, net::HttpExchange& exchange) {
  const bool load = path == "/load_lora_adapter";
  const auto body = parse_body(exchange.request().body());
  const std::string refusal = change(config, adapters, load, body.object);
  std::string out;
  json::Writer json(out);
  json.begin_object().key("success").value(refusal.empty()).key("error_message").value(refusal);
  json.key("loaded_adapters").begin_object();
  for (const auto& [name, where] : adapters) {
    json.key_escaped(name).value(where);
  }
  json.end_object().end_object();
  exchange.respond(refusal.empty() ? 200 : 400, "application/json", out);
}

bool apply_sglang_adapter(const SglangAdapters& adapters, PlainRequest& request) {
  const std::string& name = request.spec.owner.lora_name;
  if (name.empty()) {
    return true;
  }
  request.spec.altered ^= xxh3_64(std::string_view(name));
  return adapters.contains(name);
}

}  // namespace stator::fake_engine
