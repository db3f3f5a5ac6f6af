// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/vllm.h"
#include "stator/json/writer.h"

namespace stator::engine::adapters {
namespace {

// FastAPI's body for a route that is not there.
constexpr std::string_view kNoRoute = R"({"detail":"Not Found"})";

std::string adapter_body(std::string_view name, std::string_view path) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("lora_name").value(name);
  if (!path.empty()) {
    json.key("lora_path").value(path);
  }
  json.end_object();
  return body;
}

/// What the server has to be started with to have the route.
std::string_view needed_for(const Control& control) {
  if (std::holds_alternative<Sleep>(control) || std::holds_alternative<WakeUp>(control)) {
    return "VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode";
  }
  return std::holds_alternative<ResetPrefixCache>(control)
             ? "VLLM_SERVER_DEV_MODE=1"
             : "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora";
}

}  // namespace

EngineCall lower_vllm_control(const Control& control) {
  if (const auto* load = std::get_if<LoadAdapter>(&control)) {
    return {.path = "/v1/load_lora_adapter", .body = adapter_body(load->name, load->path)};
  }
  if (const auto* unload = std::get_if<UnloadAdapter>(&control)) {
    return {.path = "/v1/unload_lora_adapter", .body = adapter_body(unload->name, "")};
  }
  if (const auto* sleep = std::get_if<Sleep>(&control)) {
    // What runs may finish: nothing new comes.
    return {.path = fmt::format("/sleep?level={}&mode=wait", sleep->level)};
  }
  return {.path = std::holds_alternative<WakeUp>(control) ? "/wake_up" : "/reset_prefix_cache"};
}

Status read_vllm_control(const Control& control, int status, std::string_view body) {
  const bool adapter = std::holds_alternative<LoadAdapter>(control) ||
                       std::holds_alternative<UnloadAdapter>(control);
  if ((status == 404 && body == kNoRoute) ||
      (adapter && status == 500 && body.contains("LoRA is not enabled"))) {
    return Error(Code::kUnsupported, fmt::format("this vLLM cannot {}: start it with {}",
                                                 to_string(control), needed_for(control)));
  }
  if (status != 200) {
    const bool there = status == 400 && body.contains("already been loaded");
    Error error = to_error("vllm", status, body);
    return there ? std::move(error).with_code(Code::kAlreadyExists) : std::move(error);
  }
  JsonReader reader;
  if (std::holds_alternative<ResetPrefixCache>(control) && !body.empty()) {
    STATOR_TRY(const JsonObject answer, reader.read_object(body, "/reset_prefix_cache"));
    if (!is_true(answer, "success")) {
      return Error(Code::kUnavailable,
                   "vllm did not reset its prefix cache: running requests hold blocks, try again "
                   "when it is idle");
    }
  }
  return {};
}

}  // namespace stator::engine::adapters
