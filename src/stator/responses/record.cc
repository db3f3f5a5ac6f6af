// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/record.h"

#include <cstdlib>
#include <utility>

#include "stator/json/cursor.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/text/utf8.h"

namespace stator::responses {
namespace {

using api::ResponseStatus;

constexpr uint32_t kDepthMax = 256;
// Of an entry beside its texts.
constexpr size_t kEntryBytes = 256;

ResponseStatus status_of(std::string_view name) {
  for (uint8_t i = 0; i <= static_cast<uint8_t>(ResponseStatus::kCancelled); ++i) {
    if (api::describe(static_cast<ResponseStatus>(i)) == name) {
      return static_cast<ResponseStatus>(i);
    }
  }
  return ResponseStatus::kFailed;
}

void read_events(json::Cursor& json, std::vector<std::string>& events) {
  json.enter_array();
  std::string_view raw;
  while (json.next_element() && json.skip(raw)) {
    events.emplace_back(raw);
  }
}

}  // namespace

size_t StoredResponse::bytes() const {
  size_t sum = kEntryBytes + id.size() + owner.size() + previous_id.size() + input_json.size() +
               output_json.size() + response_json.size();
  for (const std::string& event : events) {
    sum += event.size() + sizeof(std::string);
  }
  return sum;
}

std::string put_record(const StoredResponse& response) {
  std::string out;
  out.reserve(response.bytes() + kEntryBytes);
  json::Writer json(out);
  json.begin_object().key("op").value("put").key("id").value(response.id);
  json.key("owner").value(response.owner).key("previous").value(response.previous_id);
  json.key("status").value(api::describe(response.status));
  json.key("expires").value(response.expires_s);
  json.key("input").raw(response.input_json.empty() ? "null" : response.input_json);
  json.key("output").raw("[" + response.output_json + "]");
  json.key("response").raw(response.response_json.empty() ? "null" : response.response_json);
  json.key("events").begin_array();
  for (const std::string& event : response.events) {
    json.raw(event);
  }
  json.end_array().end_object();
  return out;
}

std::string erase_record(std::string_view id) {
  std::string out;
  json::Writer(out).begin_object().key("op").value("erase").key("id").value(id).end_object();
  return out;
}

Record read_record(std::string_view text) {
  Record record;
  json::Cursor json(text, kDepthMax);
  std::string_view key;
  std::string_view raw;
  std::string key_storage;
  std::string storage;
  json.enter_object();
  while (json.next_key(key, key_storage)) {
    std::string* into = key == "op"         ? &record.op
                        : key == "id"       ? &record.response.id
                        : key == "owner"    ? &record.response.owner
                        : key == "previous" ? &record.response.previous_id
                                            : nullptr;
    if (into != nullptr) {
      json.read_string(raw, storage);
      *into = raw;
    } else if (key == "events") {
      read_events(json, record.response.events);
    } else if (key == "status") {
      json.read_string(raw, storage);
      record.response.status = status_of(raw);
    } else {
      json.skip(raw);
      if (key == "expires") {
        record.response.expires_s = std::strtoll(std::string(raw).c_str(), nullptr, 10);
      } else if (key == "output" && raw.starts_with('[')) {
        record.response.output_json = raw.substr(1, raw.size() - 2);
      } else if (key == "input" && raw != "null") {
        record.response.input_json = raw;
      } else if (key == "response" && raw != "null") {
        record.response.response_json = raw;
      }
    }
  }
  if (!json.finish() || !text::is_valid_utf8(text)) {
    record.op.clear();
  }
  return record;
}

void mark_interrupted(StoredResponse& response) {
  auto object = json::parse(response.response_json);
  if (!object || !object->is_object()) {
    return;
  }
  (*object)["status"] = "failed";
  json::Value error = json::Value::object();
  error["code"] = "server_error";
  error["message"] = "the server was restarted while this response was made: ask again";
  (*object)["error"] = std::move(error);
  response.status = ResponseStatus::kFailed;
  response.response_json = json::to_text(*object);
  response.events.clear();
}

}  // namespace stator::responses
