// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include "stator/batches/batch_lines.h"
#include "stator/batches/multipart.h"
#include "stator/io/read_file.h"
#include "stator/json/writer.h"
#include "stator/text/percent.h"

namespace stator::batches {
namespace {

using api::ApiError;
using api::ApiResult;
using Kind = Entry::Kind;

constexpr std::string_view kFiles = "/v1/files";
constexpr std::string_view kBatches = "/v1/batches";
constexpr uint32_t kListMax = 10'000;
constexpr size_t kFilenameBytesMax = 512;
constexpr int64_t kHour = 3600;
constexpr int64_t kWindowHoursMax = 168;

constexpr auto kEndpoints = std::to_array<std::string_view>(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank",
     "/v1/score", "/v1/classify", "/v1/pooling", "/v1/messages"});
constexpr auto kPurposes = std::to_array<std::string_view>(
    {"assistants", "batch", "fine-tune", "vision", "user_data", "evals"});

ApiError invalid(std::string param, std::string_view text) {
  return api::validation_error(std::move(param), text);
}
ApiError missing(Kind kind, std::string_view id) {
  return ApiError(Error(Code::kNotFound, fmt::format("No such {} object: {}",
                                                     kind == Kind::kFile ? "File" : "Batch", id)),
                  "id");
}

/// A parameter of the query, decoded; empty: not there.
std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.substr(0, pair.find('=')) == name) {
      const size_t equals = pair.find('=');
      return equals == std::string_view::npos ? "" : text::percent_decode(pair.substr(equals + 1));
    }
  }
  return {};
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? std::optional(value)
                                                                             : std::nullopt;
}

/// One page of a list: {"object":"list","data":[…],"first_id","last_id","has_more"}.
ApiResult<ApiReply> list(const ApiCall& call, const BatchStore& store, Kind kind) {
  const std::string limit_text = query_value(call.query, "limit");
  const auto limit =
      limit_text.empty() ? (kind == Kind::kFile ? kListMax : 20) : number_of(limit_text);
  if (!limit || *limit < 1 || *limit > kListMax) {
    return invalid("limit", fmt::format("limit must be from 1 to {}", kListMax));
  }
  std::vector<const Entry*> entries = store.list(kind);
  const std::string purpose = query_value(call.query, "purpose");
  std::erase_if(entries, [&](const Entry* entry) {
    return entry->owner != call.owner ||
           (!purpose.empty() && entry->object.text_at({"purpose"}) != purpose);
  });
  const std::string order = query_value(call.query, "order");
  if (!order.empty() && order != "asc" && order != "desc") {
    return invalid("order", "order must be asc or desc");
  }
  if (order == "asc") {
    std::ranges::reverse(entries);
  }
  if (const std::string after = query_value(call.query, "after"); !after.empty()) {
    const auto at = std::ranges::find(entries, after, &Entry::id);
    if (at == entries.end()) {
      return invalid("after", "after must be the id of an entry of this list");
    }
    entries.erase(entries.begin(), at + 1);
  }
  const bool more = entries.size() > static_cast<size_t>(*limit);
  entries.resize(std::min(entries.size(), static_cast<size_t>(*limit)));
  ApiReply reply;
  json::Writer json(reply.body);
  json.begin_object().key("object").value("list").key("data").begin_array();
  for (const Entry* entry : entries) {
    json.raw(json::to_text(entry->object));
  }
  json.end_array().key("first_id");
  entries.empty() ? json.null() : json.value(entries.front()->id());
  json.key("last_id");
  entries.empty() ? json.null() : json.value(entries.back()->id());
  json.key("has_more").value(more).end_object();
  return reply;
}

ApiResult<int64_t> expiry_seconds(std::string_view anchor, std::optional<int64_t> seconds,
                                  std::string_view param) {
  if (anchor != "created_at" || !seconds || *seconds < kHour || *seconds > 720 * kHour) {
    return invalid(
        std::string(param),
        fmt::format("{} must have the anchor created_at and 3600 to 2592000 seconds", param));
  }
  return *seconds;
}

ApiResult<ApiReply> upload(const ApiCall& call, BatchStore& store, int64_t now_s) {
  STATOR_TRY(const auto parts, parse_form(call.content_type, call.body));
  const FormPart* file = nullptr;
  std::string_view purpose;
  std::string_view anchor;
  std::optional<int64_t> seconds;
  bool expires = false;
  for (const FormPart& part : parts) {
    if (part.name == "file") {
      file = &part;
    } else if (part.name == "purpose") {
      purpose = part.content;
    } else if (part.name == "expires_after[anchor]") {
      expires = true;
      anchor = part.content;
    } else if (part.name == "expires_after[seconds]") {
      expires = true;
      seconds = number_of(part.content);
    } else {
      return invalid(part.name.substr(0, 64),
                     fmt::format("{} is not a field of a file", part.name.substr(0, 64)));
    }
  }
  if (file == nullptr || file->filename.empty()) {
    return invalid("file", "file is required and must have a name");
  }
  if (file->filename.size() > kFilenameBytesMax) {
    return invalid("file",
                   fmt::format("the file's name must have at most {} bytes", kFilenameBytesMax));
  }
  if (std::ranges::find(kPurposes, purpose) == kPurposes.end()) {
    return invalid("purpose", fmt::format("purpose must be one of {}", fmt::join(kPurposes, ", ")));
  }
  int64_t expires_s = 0;
  if (expires) {
    STATOR_TRY(const int64_t keep, expiry_seconds(anchor, seconds, "expires_after"));
    expires_s = now_s + keep;
  }
  STATOR_TRY(const Entry* added, store.add_file({.owner = call.owner,
                                                 .filename = file->filename,
                                                 .purpose = std::string(purpose),
                                                 .content = file->content,
                                                 .expires_s = expires_s},
                                                now_s));
  return ApiReply{.body = json::to_text(added->object)};
}

ApiResult<ApiReply> delete_file(BatchStore& store, const Entry& file) {
  const std::string id(file.id());
  for (const Entry* batch : store.list(Kind::kBatch)) {
    if (is_open(*batch) && batch->object.text_at({"input_file_id"}) == id) {
      return ApiError(
          Error(Code::kInvalidArgument, fmt::format("{} is the input of {}, which still runs: "
                                                    "cancel that first",
                                                    id, batch->id())),
          "id");
    }
  }
  STATOR_CHECK(store.erase(id));
  ApiReply reply;
  json::Writer(reply.body)
      .begin_object()
      .key("id")
      .value(id)
      .key("object")
      .value("file")
      .key("deleted")
      .value(true)
      .end_object();
  return reply;
}

/// "24h" → seconds.
std::optional<int64_t> window_seconds(std::string_view text) {
  const auto hours =
      text.ends_with('h') ? number_of(text.substr(0, text.size() - 1)) : std::nullopt;
  return hours && *hours >= 1 && *hours <= kWindowHoursMax ? std::optional(*hours * kHour)
                                                           : std::nullopt;
}

json::Value errors_json(const std::vector<LineError>& errors) {
  json::Value data = json::Value::array();
  for (const LineError& error : errors) {
    json::Value item = json::Value::object();
    item["code"] = error.code;
    item["message"] = error.message;
    item["param"] = error.param.empty() ? json::Value() : json::Value(error.param);
    item["line"] = error.line == 0 ? json::Value() : json::Value(error.line);
    data.push_back(std::move(item));
  }
  json::Value out = json::Value::object();
  out["object"] = "list";
  out["data"] = std::move(data);
  return out;
}

ApiResult<json::Value> checked_metadata(const json::Value* metadata) {
  if (metadata == nullptr || metadata->is_null()) {
    return json::Value();
  }
  if (!metadata->is_object() || metadata->size() > 16) {
    return invalid("metadata", "metadata must be an object of at most 16 strings");
  }
  for (const json::Member& member : metadata->members()) {
    if (!member.value.is_string() || member.key.size() > 256 || member.value.text().size() > 2048) {
      return invalid("metadata",
                     "metadata must be an object of at most 16 strings, of at most 64 "
                     "characters in their names and 512 in their values");
    }
  }
  return *metadata;
}

/// The object of a new batch, before its lines are looked at.
ApiResult<Entry> new_batch(const json::Value& body, const ApiCall& call, const BatchConfig& config,
                           int64_t now_s) {
  const std::string_view endpoint = body.text_at({"endpoint"});
  if (std::ranges::find(kEndpoints, endpoint) == kEndpoints.end()) {
    return invalid("endpoint",
                   fmt::format("endpoint must be one of {}", fmt::join(kEndpoints, ", ")));
  }
  const auto window = window_seconds(body.text_at({"completion_window"}));
  if (!window) {
    return invalid("completion_window",
                   fmt::format("completion_window must be 24h, or another number of hours up to {}",
                               kWindowHoursMax));
  }
  STATOR_TRY(json::Value metadata, checked_metadata(body.find("metadata")));
  Entry entry{.kind = Kind::kBatch, .object = json::Value::object(), .owner = call.owner};
  entry.output_keep_s =
      std::chrono::duration_cast<std::chrono::seconds>(config.output_keep).count();
  if (const json::Value* keep = body.find("output_expires_after");
      keep != nullptr && !keep->is_null()) {
    const json::Value* seconds = keep->find("seconds");
    STATOR_TRY(entry.output_keep_s,
               expiry_seconds(keep->text_at({"anchor"}),
                              seconds == nullptr ? std::nullopt : seconds->as_int64(),
                              "output_expires_after"));
  }
  json::Value& object = entry.object;
  object["id"] = nullptr;
  object["object"] = "batch";
  object["endpoint"] = endpoint;
  object["errors"] = nullptr;
  object["input_file_id"] = body.text_at({"input_file_id"});
  object["completion_window"] = body.text_at({"completion_window"});
  object["status"] = "validating";
  object["output_file_id"] = nullptr;
  object["error_file_id"] = nullptr;
  object["created_at"] = now_s;
  for (const std::string_view key :
       {"in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at",
        "cancelling_at", "cancelled_at"}) {
    object[key] = nullptr;
  }
  object["expires_at"] = now_s + *window;
  object["request_counts"]["total"] = 0;
  object["request_counts"]["completed"] = 0;
  object["request_counts"]["failed"] = 0;
  object["metadata"] = std::move(metadata);
  return entry;
}

ApiResult<ApiReply> create(const ApiCall& call, BatchStore& store, const BatchConfig& config,
                           int64_t now_s) {
  STATOR_TRY(const json::Value body, json::parse(call.body));
  if (!body.is_object()) {
    return invalid("", "the body must be a JSON object");
  }
  STATOR_TRY(Entry entry, new_batch(body, call, config, now_s));
  const std::string_view file_id = body.text_at({"input_file_id"});
  const Entry* const file = store.find(Kind::kFile, file_id, call.owner);
  if (file == nullptr) {
    return invalid("input_file_id",
                   fmt::format("input_file_id names no file: '{}'", file_id.substr(0, 128)));
  }
  if (file->object.text_at({"purpose"}) != "batch") {
    return invalid("input_file_id", "the file must have been uploaded with the purpose batch");
  }
  const auto open_count = std::ranges::count_if(store.list(Kind::kBatch),
                                                [](const Entry* batch) { return is_open(*batch); });
  if (static_cast<uint32_t>(open_count) >= config.batches_max) {
    return ApiError(Error(Code::kTooLarge,
                          "too many batches run (batches.batches_max): wait for "
                          "one to end, or cancel one"));
  }
  STATOR_TRY(const std::string content,
             io::read_file(store.path_of(file_id), config.file_bytes_max));
  const LineCheck check =
      check_lines(content, entry.object.text_at({"endpoint"}), config.lines_max);
  entry.object["id"] = store.make_id("batch_");
  if (check.errors.empty()) {
    entry.object["status"] = "in_progress";
    entry.object["in_progress_at"] = now_s;
    entry.object["request_counts"]["total"] = check.lines.size();
  } else {
    entry.object["status"] = "failed";
    entry.object["failed_at"] = now_s;
    entry.object["errors"] = errors_json(check.errors);
  }
  ApiReply reply{.body = json::to_text(entry.object)};
  STATOR_CHECK(store.save(std::move(entry)));
  return reply;
}

ApiResult<ApiReply> cancel(BatchStore& store, const Entry& batch, int64_t now_s) {
  const std::string_view status = batch.status();
  if (status != "in_progress" && status != "cancelling") {
    return ApiError(Error(Code::kInvalidArgument,
                          fmt::format("Cannot cancel a batch with status '{}'.", status)));
  }
  Entry changed = batch;
  changed.object["status"] = "cancelling";
  changed.object["cancelling_at"] = now_s;
  ApiReply reply{.body = json::to_text(changed.object)};
  STATOR_CHECK(store.save(std::move(changed)));
  return reply;
}

ApiResult<ApiReply> answer_file(const ApiCall& call, BatchStore& store, std::string_view rest,
                                const BatchConfig& config) {
  const bool content = rest.ends_with("/content");
  const std::string id = text::percent_decode(content ? rest.substr(0, rest.size() - 8) : rest);
  const Entry* const file = store.find(Kind::kFile, id, call.owner);
  if (file == nullptr) {
    return missing(Kind::kFile, id.substr(0, 128));
  }
  if (call.method == "DELETE") {
    return delete_file(store, *file);
  }
  if (!content) {
    return ApiReply{.body = json::to_text(file->object)};
  }
  STATOR_TRY(std::string bytes,
             io::read_file(store.path_of(id), std::max<uint64_t>(config.folder_bytes_max, 1)));
  return ApiReply{.content_type = "application/octet-stream", .body = std::move(bytes)};
}

ApiResult<ApiReply> answer_batch(const ApiCall& call, BatchStore& store, std::string_view rest,
                                 int64_t now_s) {
  const bool cancels = rest.ends_with("/cancel");
  const std::string id = text::percent_decode(cancels ? rest.substr(0, rest.size() - 7) : rest);
  const Entry* const batch = store.find(Kind::kBatch, id, call.owner);
  if (batch == nullptr) {
    return missing(Kind::kBatch, id.substr(0, 128));
  }
  return cancels ? cancel(store, *batch, now_s)
                 : ApiResult<ApiReply>(ApiReply{.body = json::to_text(batch->object)});
}

/// What stands behind `base` and a slash; nothing if `path` is not below it.
std::optional<std::string_view> below(std::string_view path, std::string_view base) {
  if (!path.starts_with(base) || path.size() < base.size() + 2 || path[base.size()] != '/') {
    return std::nullopt;
  }
  return path.substr(base.size() + 1);
}

}  // namespace

bool is_batch_path(std::string_view path) {
  return path == kFiles || path == kBatches || below(path, kFiles) || below(path, kBatches);
}

std::string_view methods_of(std::string_view path) {
  if (path == kFiles || path == kBatches) {
    return "GET, POST";
  }
  if (const auto file = below(path, kFiles)) {
    const size_t slash = file->find('/');
    return slash == std::string_view::npos     ? "GET, DELETE"
           : file->substr(slash) == "/content" ? "GET"
                                               : "";
  }
  if (const auto batch = below(path, kBatches)) {
    const size_t slash = batch->find('/');
    return slash == std::string_view::npos     ? "GET"
           : batch->substr(slash) == "/cancel" ? "POST"
                                               : "";
  }
  return "";
}

ApiResult<ApiReply> answer_call(const ApiCall& call, BatchStore& store, const BatchConfig& config,
                                int64_t now_s) {
  if (call.path == kFiles) {
    return call.method == "POST" ? upload(call, store, now_s) : list(call, store, Kind::kFile);
  }
  if (call.path == kBatches) {
    return call.method == "POST" ? create(call, store, config, now_s)
                                 : list(call, store, Kind::kBatch);
  }
  if (const auto file = below(call.path, kFiles)) {
    return answer_file(call, store, *file, config);
  }
  return answer_batch(call, store, below(call.path, kBatches).value_or(""), now_s);
}

}  // namespace stator::batches
