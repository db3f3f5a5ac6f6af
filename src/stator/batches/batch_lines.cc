// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stator/core/flat_map.h"
#include "stator/json/cursor.h"
#include "stator/json/writer.h"
#include "stator/text/utf8.h"

namespace stator::batches {
namespace {

constexpr uint32_t kDepthMax = 128;
constexpr size_t kErrorsMax = 10;  // told of one file

/// The members of a line that count.
struct Members {
  std::string custom_id;
  std::string method;
  std::string url;
  std::string_view body;
  bool streams = false;
};

bool read_text(json::Cursor& json, std::string& into) {
  std::string_view value;
  std::string storage;
  if (json.peek() != json::Kind::kString) {
    return json.skip();
  }
  if (!json.read_string(value, storage)) {
    return false;
  }
  into = value;
  return true;
}

/// Whether a body asks for a stream, which no line of a file can be.
bool asks_for_stream(std::string_view body) {
  json::Cursor json(body, kDepthMax);
  std::string_view key;
  std::string storage;
  bool streams = false;
  json.enter_object();
  while (json.next_key(key, storage)) {
    if (key == "stream" && json.peek() == json::Kind::kBool) {
      json.read_bool(streams);
    } else {
      json.skip();
    }
  }
  return streams;
}

/// Empty: it is a JSON object.
std::string read_members(std::string_view line, Members& members) {
  json::Cursor json(line, kDepthMax);
  if (json.peek() != json::Kind::kObject) {
    return "This line is not a JSON object.";
  }
  json.enter_object();
  std::string_view key;
  std::string storage;
  while (json.next_key(key, storage)) {
    if (key == "custom_id") {
      read_text(json, members.custom_id);
    } else if (key == "method") {
      read_text(json, members.method);
    } else if (key == "url") {
      read_text(json, members.url);
    } else if (key == "body" && json.peek() == json::Kind::kObject) {
      json.skip(members.body);
    } else {
      json.skip();
    }
  }
  if (!json.finish()) {
    return fmt::format("This line is not valid JSON at byte {}: {}.", json.position(),
                       json.error().empty() ? "something follows the object" : json.error());
  }
  members.streams = asks_for_stream(members.body);
  return {};
}

/// What the API requires of a line; an empty code: all is well.
LineError judge(const Members& members, std::string_view endpoint, bool repeated) {
  if (members.custom_id.empty() || members.custom_id.size() > kCustomIdBytesMax) {
    return {"missing_required_parameter",
            fmt::format("custom_id must be a string of 1 to {} bytes.", kCustomIdBytesMax),
            "custom_id"};
  }
  if (repeated) {
    return {"duplicate_custom_id",
            fmt::format("The custom_id '{}' stands in an earlier line, too.", members.custom_id),
            "custom_id"};
  }
  if (members.method != "POST") {
    return {"invalid_method", "method must be POST.", "method"};
  }
  if (members.url != endpoint) {
    return {"mismatched_endpoint", fmt::format("url must be the batch's endpoint, {}.", endpoint),
            "url"};
  }
  if (members.body.empty()) {
    return {"missing_required_parameter", "body must be a JSON object.", "body"};
  }
  if (members.streams) {
    return {"invalid_request", "stream must not be true in a batch.", "body.stream"};
  }
  return {};
}

bool is_json(std::string_view text) {
  json::Cursor json(text, kDepthMax);
  return text::is_valid_utf8(text) && json.skip() && json.finish();
}

}  // namespace

LineCheck check_lines(std::string_view file, std::string_view endpoint, uint32_t lines_max) {
  LineCheck check;
  FlatSet<std::string> seen;
  uint32_t number = 0;
  file.remove_prefix(file.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  while (!file.empty() && check.errors.size() < kErrorsMax) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(file.size(), end + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    Members members;
    LineError error;
    if (!text::is_valid_utf8(line)) {
      error = {"invalid_json_line", "This line is not valid UTF-8.", ""};
    } else if (std::string what = read_members(line, members); !what.empty()) {
      error = {"invalid_json_line", std::move(what), ""};
    } else {
      error = judge(members, endpoint, seen.contains(members.custom_id));
    }
    if (!error.code.empty()) {
      error.line = number;
      check.errors.push_back(std::move(error));
      continue;
    }
    if (check.lines.size() == lines_max) {
      check.errors.push_back(
          {"token_limit_exceeded",
           fmt::format("A batch has at most {} requests (batches.lines_max).", lines_max), "",
           number});
      break;
    }
    seen.insert(members.custom_id);
    check.lines.push_back(
        {static_cast<uint32_t>(check.lines.size()), std::move(members.custom_id), members.body});
  }
  if (check.lines.empty() && check.errors.empty()) {
    check.errors.push_back({"empty_file", "The file has no requests.", "", 0});
  }
  return check;
}

std::string format_result(std::string_view batch_id, const LineResult& result) {
  std::string out;
  out.reserve(result.body.size() + 256);
  json::Writer json(out);
  json.begin_object();
  json.key("id").value(
      fmt::format("batch_req_{}_{}", batch_id.substr(batch_id.find('_') + 1), result.index));
  json.key("custom_id").value(result.custom_id).key("response");
  if (result.status == 0) {
    json.null().key("error").begin_object().key("code").value(result.error_code);
    json.key("message").value(result.error_message).end_object();
  } else {
    json.begin_object().key("status_code").value(result.status);
    json.key("request_id").value(result.request_id).key("body");
    if (is_json(result.body)) {
      json.raw(result.body);
    } else {
      json.value(result.body);
    }
    json.end_object().key("error").null();
  }
  json.end_object();
  // A body is one line as the frontend writes it; a foreign one may not be.
  std::ranges::replace(out, '\n', ' ');
  out += '\n';
  return out;
}

std::string encode_kept(const KeptResult& result) {
  std::string out(sizeof(result.index) + 1, '\0');
  std::memcpy(out.data(), &result.index, sizeof(result.index));
  out[sizeof(result.index)] = result.good ? 1 : 0;
  return out + result.line;
}

Result<KeptResult> decode_kept(std::string_view record) {
  KeptResult result;
  if (record.size() <= sizeof(result.index)) {
    return Error(Code::kCorrupt, "a result of a batch is too short");
  }
  std::memcpy(&result.index, record.data(), sizeof(result.index));
  result.good = record[sizeof(result.index)] != 0;
  result.line = record.substr(sizeof(result.index) + 1);
  return result;
}

}  // namespace stator::batches
