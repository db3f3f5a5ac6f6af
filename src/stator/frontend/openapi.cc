// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/openapi.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/api/field_catalog.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/json/writer.h"

namespace stator::frontend {
namespace {

using api::BodyKind;

struct Described {
  std::string_view path;
  std::string_view summary;
};

constexpr auto kSummaries = std::to_array<Described>({
    {"/busy_threshold", "When workers count as too busy"},
    {"/detokenize", "Token ids to text"},
    {"/docs", "The routes, for people"},
    {"/generate", "Token ids in and out, as SGLang"},
    {"/health", "Whether requests can be served"},
    {"/inference/v1/generate", "Token ids in and out, as vLLM"},
    {"/live", "Whether the process runs"},
    {"/metrics", "Metrics as Prometheus reads them"},
    {"/openapi.json", "This document"},
    {"/ready", "Whether requests can be served, in a word"},
    {"/receipts/{id}", "Why a request went to its worker"},
    {"/tokenize", "Text or conversation to token ids"},
    {"/v1/chat/completions", "Chat completion, as OpenAI"},
    {"/v1/completions", "Text completion, as OpenAI"},
    {"/v1/messages", "Messages, as Anthropic"},
    {"/v1/models", "The models that are served"},
    {"/v1/models/{id}", "One model; with /ready behind it, who serves it"},
});

std::optional<BodyKind> body_of(std::string_view path) {
  constexpr auto kBodies = std::to_array<std::pair<std::string_view, BodyKind>>({
      {"/v1/chat/completions", BodyKind::kChat},
      {"/v1/completions", BodyKind::kCompletion},
      {"/tokenize", BodyKind::kTokenize},
      {"/detokenize", BodyKind::kDetokenize},
  });
  const auto* const known = std::ranges::find(kBodies, path, &decltype(kBodies)::value_type::first);
  if (known != kBodies.end()) {
    return known->second;
  }
  const auto pool = find_pool_route(path);
  if (!pool) {
    return std::nullopt;
  }
  return static_cast<BodyKind>(static_cast<size_t>(BodyKind::kEmbeddings) +
                               static_cast<size_t>(*pool));
}
static_assert(static_cast<size_t>(BodyKind::kPooling) -
                  static_cast<size_t>(BodyKind::kEmbeddings) ==
              static_cast<size_t>(api::PoolKind::kPooling));

std::string_view summary_of(std::string_view path) {
  const auto* const known = std::ranges::find(kSummaries, path, &Described::path);
  return known == kSummaries.end() ? std::string_view() : known->summary;
}

/// "post /v1/chat/completions" → "post_v1_chat_completions".
std::string operation_id(std::string_view method, std::string_view path) {
  std::string id(method);
  for (const char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      id.push_back(c);
    } else if (id.back() != '_') {
      id.push_back('_');
    }
  }
  return id;
}

std::string_view answer_types(std::string_view path) {
  if (path == "/metrics") {
    return R"({"text/plain":{}})";
  }
  if (path == "/docs") {
    return R"({"text/html":{}})";
  }
  if (path.starts_with("/receipts/")) {
    return R"({"application/json":{},"text/plain":{}})";
  }
  const auto pool = find_pool_route(path);
  if (pool) {
    return R"({"application/json":{"schema":{"type":"object"}},"application/octet-stream":{}})";
  }
  if (path.ends_with("/completions") || path.ends_with("/messages") ||
      path.ends_with("/generate") || path.ends_with("/responses")) {
    return R"({"application/json":{"schema":{"type":"object"}},"text/event-stream":{}})";
  }
  return R"({"application/json":{"schema":{"type":"object"}}})";
}

void write_operation(json::Writer& json, const RouteRow& row, std::string_view method) {
  json.begin_object().key("operationId").value(operation_id(method, row.path));
  if (const std::string_view summary = summary_of(row.path); !summary.empty()) {
    json.key("summary").value(summary);
  }
  if (row.path.ends_with("{id}")) {
    json.key("parameters")
        .raw(R"([{"name":"id","in":"path","required":true,"schema":{"type":"string"}}])");
  }
  if (method == "post") {
    json.key("requestBody").begin_object().key("required").value(true).key("content");
    json.begin_object().key("application/json").begin_object().key("schema");
    if (const auto body = body_of(row.path)) {
      json.raw(api::body_schema(*body));
    } else {
      json.raw(R"({"type":"object"})");
    }
    json.end_object().end_object().end_object();
  }
  json.key("responses").begin_object();
  json.key("200").begin_object().key("description").value("The answer").key("content");
  json.raw(answer_types(row.path)).end_object();
  json.key("default").raw(
      R"({"description":"An error","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Error"}}}})");
  json.end_object().end_object();
}

}  // namespace

std::string make_openapi(std::span<const RouteRow> routes) {
  std::map<std::string_view, std::vector<const RouteRow*>> paths;
  for (const RouteRow& row : routes) {
    paths[row.path].push_back(&row);
  }
  std::string out;
  json::Writer json(out);
  json.begin_object().key("openapi").value("3.1.0");
  json.key("info").raw(R"({"title":"Stator","version":"1"})");
  json.key("paths").begin_object();
  for (const auto& [path, rows] : paths) {
    json.key(path).begin_object();
    for (const RouteRow* row : rows) {
      std::string method(row->method);
      std::ranges::transform(method, method.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      json.key(method);
      write_operation(json, *row, method);
    }
    json.end_object();
  }
  json.end_object();
  json.key("components")
      .raw(R"({"schemas":{"Error":{"type":"object","properties":{"error":{"type":"object"},)"
           R"("message":{"type":"string"}}}}})");
  json.end_object();
  return out;
}

std::string make_docs_page(std::span<const RouteRow> routes) {
  std::string out =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Stator</title>"
      "<h1>Stator</h1><p>For machines: <a href=\"/openapi.json\">openapi.json</a></p><table>";
  for (const RouteRow& row : routes) {  // all of it our own text
    out += "<tr><td>";
    out += row.method;
    out += "</td><td><code>";
    out += row.path;
    out += "</code></td><td>";
    out += summary_of(row.path);
    out += "</td></tr>";
  }
  return out + "</table></html>\n";
}

}  // namespace stator::frontend
