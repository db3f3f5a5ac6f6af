// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/sglang.h"

#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/raise.h"
#include "stator/json/writer.h"

namespace stator::engine::adapters {

EngineCall lower_sglang_control(const Control& control) {
  EngineCall call{.path = "/flush_cache"};
  if (std::holds_alternative<ResetPrefixCache>(control)) {
    return call;
  }
  json::Writer json(call.body);
  json.begin_object();
  if (const auto* load = std::get_if<LoadAdapter>(&control)) {
    call.path = "/load_lora_adapter";
    json.key("lora_name").value(load->name).key("lora_path").value(load->path);
  } else if (const auto* unload = std::get_if<UnloadAdapter>(&control)) {
    call.path = "/unload_lora_adapter";
    json.key("lora_name").value(unload->name);
  } else {
    call.path = std::holds_alternative<Sleep>(control) ? "/release_memory_occupation"
                                                       : "/resume_memory_occupation";
  }
  json.end_object();
  return call;
}

Status read_sglang_control(const Control& control, int status, std::string_view body) {
  if (status == 200) {
    return {};
  }
  if (std::holds_alternative<ResetPrefixCache>(control)) {
    return Error(Code::kUnavailable, "sglang did not flush its cache: try again when it is idle");
  }
  // {"success":false,"error_message":…} for adapters, the usual forms for the rest.
  JsonReader reader;
  const auto answer = reader.read_object(body, "");
  const std::string text(answer ? text_or(*answer, "error_message", "") : "");
  Error error = to_error("sglang", status, text.empty() ? body : std::string_view(text));
  if (text.contains("not enabled")) {
    return std::move(error).with_code(Code::kUnsupported);
  }
  return text.contains("already") ? std::move(error).with_code(Code::kAlreadyExists)
                                  : std::move(error);
}

}  // namespace stator::engine::adapters
