// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/models.h"

#include <fmt/format.h>

#include <chrono>

#include "stator/json/writer.h"

namespace stator::protocols::anthropic {
namespace {

/// "2025-02-19T00:00:00Z".
std::string rfc3339(int64_t unix_s) {
  using namespace std::chrono;
  const sys_seconds at{seconds(unix_s)};
  const auto day = floor<days>(at);
  const year_month_day date(day);
  const hh_mm_ss time(at - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

void write_model(json::Writer& writer, const api::ModelEntry& model) {
  writer.begin_object().key("type").value("model").key("id").value(model.id);
  writer.key("display_name").value(model.id);
  writer.key("created_at").value(rfc3339(model.created_s));
  if (model.context_window) {
    writer.key("max_input_tokens").value(*model.context_window);
  }
  if (model.max_output_tokens) {
    writer.key("max_tokens").value(*model.max_output_tokens);
  }
  writer.key("lifecycle").value("active");  // the SDKs' type has it without a default
  writer.end_object();
}

void write_id(json::Writer& writer, std::string_view key, std::span<const api::ModelEntry> models,
              bool first) {
  writer.key(key);
  if (models.empty()) {
    writer.null();
  } else {
    writer.value(first ? models.front().id : models.back().id);
  }
}

}  // namespace

void append_model_list(std::string& out, std::span<const api::ModelEntry> models) {
  json::Writer writer(out);
  writer.begin_object().key("data").begin_array();
  for (const api::ModelEntry& model : models) {
    write_model(writer, model);
  }
  writer.end_array().key("has_more").value(false);
  write_id(writer, "first_id", models, true);
  write_id(writer, "last_id", models, false);
  writer.end_object();
}

void append_model(std::string& out, const api::ModelEntry& model) {
  json::Writer writer(out);
  write_model(writer, model);
}

}  // namespace stator::protocols::anthropic
