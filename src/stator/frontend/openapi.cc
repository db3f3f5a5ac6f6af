// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/api/field_catalog.h"
#include "stator/frontend/openapi_shapes.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/json/writer.h"

namespace stator::frontend {
namespace {

using api::BodyKind;

/// What is said of an operation beside its body's fields.
struct Operation {
  std::string_view method;
  std::string_view path;
  std::string_view summary;
  std::string_view answer;   ///< Shape of a JSON answer; empty: none has JSON
  std::string_view request;  ///< Shape of the body; empty: of the field catalog, or no body
};

constexpr auto kOperations = std::to_array<Operation>({
    {"POST", "/", "Text in and out, as text-generation-inference", "TgiText", "TgiRequest"},
    {"GET", "/busy_threshold", "When workers count as too busy", "ThresholdList", ""},
    {"POST", "/busy_threshold", "Change when workers count as too busy", "Thresholds",
     "SetThresholds"},
    {"POST", "/classify", "Classes of texts", "ClassList", ""},
    {"POST", "/detokenize", "Token ids to text", "Prompt", ""},
    {"GET", "/docs", "The routes, for people", "", ""},
    {"POST", "/embed", "Vectors of texts, as text-embeddings-inference", "Vectors", ""},
    {"POST", "/embed_all", "Vectors of tokens, as text-embeddings-inference", "Vectors", ""},
    {"POST", "/generate", "Token ids in and out, as SGLang; text, as text-generation-inference",
     "TokensOrText", "TokensOrTextRequest"},
    {"POST", "/generate_stream", "The same as events, as text-generation-inference", "",
     "TgiRequest"},
    {"GET", "/health", "Whether requests can be served", "Health", ""},
    {"POST", "/inference/v1/generate", "Token ids in and out, as vLLM", "VllmTokens",
     "VllmTokensRequest"},
    {"GET", "/info", "The model, as Hugging Face's servers describe theirs", "ServerInfo", ""},
    {"GET", "/live", "Whether the process runs", "Health", ""},
    {"GET", "/metrics", "Metrics as Prometheus reads them", "", ""},
    {"GET", "/openapi.json", "This document", "Document", ""},
    {"GET", "/ping", "Whether requests can be served, in a word", "Health", ""},
    {"POST", "/pooling", "Vectors of texts, as a model's pooler gives them", "PoolingList", ""},
    {"POST", "/predict", "Classes of texts, as text-embeddings-inference", "Predictions", ""},
    {"GET", "/ready", "Whether requests can be served, in a word", "Health", ""},
    {"GET", "/receipts/{id}", "Why a request went to its worker", "Receipt", ""},
    {"POST", "/rerank", "Documents by how well they answer", "Ranking", ""},
    {"POST", "/score", "How alike two texts are", "ScoreList", ""},
    {"POST", "/similarity", "How alike sentences are, as text-embeddings-inference", "Numbers", ""},
    {"POST", "/tokenize", "Text or conversation to token ids", "TokenCount", ""},
    {"GET", "/v1/batches", "Batches of requests", "BatchList", ""},
    {"POST", "/v1/batches", "Run a file of requests in the background", "Batch", "NewBatch"},
    {"GET", "/v1/batches/{id}", "One batch", "Batch", ""},
    {"POST", "/v1/batches/{id}/cancel", "Cancel a batch", "Batch", ""},
    {"POST", "/v1/chat/completions", "Chat completion, as OpenAI", "ChatCompletion", ""},
    {"POST", "/v1/classify", "Classes of texts", "ClassList", ""},
    {"POST", "/v1/completions", "Text completion, as OpenAI", "Completion", ""},
    {"POST", "/v1/embeddings", "Embeddings, as OpenAI", "EmbeddingList", ""},
    {"GET", "/v1/files", "Files of requests and results", "FileList", ""},
    {"POST", "/v1/files", "Upload a file", "File", "NewFile"},
    {"DELETE", "/v1/files/{id}", "Delete a file", "Deletion", ""},
    {"GET", "/v1/files/{id}", "One file", "File", ""},
    {"GET", "/v1/files/{id}/content", "The bytes of a file", "", ""},
    {"POST", "/v1/messages", "Messages, as Anthropic", "Message", "MessagesRequest"},
    {"POST", "/v1/messages/count_tokens", "Tokens of a conversation, as Anthropic", "InputTokens",
     "CountRequest"},
    {"GET", "/v1/models", "The models that are served", "ModelList", ""},
    {"GET", "/v1/models/{id}", "One model", "ModelOrReadiness", ""},
    {"GET", "/v1/models/{id}/ready", "Whether a model can be asked, and who serves it",
     "ModelOrReadiness", ""},
    {"POST", "/v1/pooling", "Vectors of texts, as a model's pooler gives them", "PoolingList", ""},
    {"POST", "/v1/rerank", "Documents by how well they answer", "Ranking", ""},
    {"POST", "/v1/responses", "Responses, as OpenAI", "Response", "ResponsesRequest"},
    {"POST", "/v1/responses/compact", "Shorten a conversation", "Compaction", "CompactRequest"},
    {"POST", "/v1/responses/input_tokens", "Tokens of an input", "InputTokens", "ResponsesRequest"},
    {"DELETE", "/v1/responses/{id}", "Delete a stored response", "Deletion", ""},
    {"GET", "/v1/responses/{id}", "A stored response, or its events", "Response", ""},
    {"POST", "/v1/responses/{id}/cancel", "Cancel a background response", "Response", ""},
    {"GET", "/v1/responses/{id}/input_items", "What a response was made from", "ItemList", ""},
    {"POST", "/v1/score", "How alike two texts are", "ScoreList", ""},
    {"GET", "/v2", "The server, as KServe", "InferenceServer", ""},
    {"POST", "/v2/embed", "Vectors of texts, as Cohere", "CohereEmbeddings", ""},
    {"GET", "/v2/health/live", "Whether the process runs", "InferenceHealth", ""},
    {"GET", "/v2/health/ready", "Whether requests can be served", "InferenceHealth", ""},
    {"GET", "/v2/models/{id}", "A model's tensors", "InferenceModel", ""},
    {"GET", "/v2/models/{id}/config", "A model's configuration, as Triton", "InferenceModel", ""},
    {"POST", "/v2/models/{id}/generate", "Text in and out, as Triton", "GeneratedText",
     "GenerateRequest"},
    {"POST", "/v2/models/{id}/generate_stream", "The same as events", "", "GenerateRequest"},
    {"POST", "/v2/models/{id}/infer", "Tensors in and out", "Inference", "InferRequest"},
    {"GET", "/v2/models/{id}/ready", "Whether a model can be asked", "InferenceHealth", ""},
    {"POST", "/v2/rerank", "Documents by how well they answer, as Cohere", "Ranking", ""},
    {"GET", "/version", "Of this server", "ServerVersion", ""},
});

/// Parameters in queries.
struct Query {
  std::string_view method;
  std::string_view path;
  std::string_view name;
  std::string_view schema;
};
constexpr std::string_view kText = R"({"type":"string"})";
// A parameter without a value is as good as none.
constexpr std::string_view kOrder = R"({"enum":["asc","desc",""]})";
constexpr std::string_view kListLimit =
    R"({"anyOf":[{"type":"integer","minimum":1,"maximum":10000},{"const":""}]})";

constexpr auto kQueries = std::to_array<Query>({
    {"GET", "/health", "model", kText},
    {"GET", "/receipts/{id}", "format", kText},
    {"GET", "/v1/batches", "limit", kListLimit},
    {"GET", "/v1/batches", "order", kOrder},
    {"GET", "/v1/batches", "after", kText},
    {"GET", "/v1/files", "limit", kListLimit},
    {"GET", "/v1/files", "order", kOrder},
    {"GET", "/v1/files", "after", kText},
    {"GET", "/v1/files", "purpose", kText},
    {"GET", "/v1/responses/{id}", "stream", R"({"anyOf":[{"type":"boolean"},{"const":""}]})"},
    {"GET", "/v1/responses/{id}", "starting_after",
     R"({"anyOf":[{"type":"integer","minimum":0},{"const":""}]})"},
    {"GET", "/v1/responses/{id}/input_items", "limit",
     R"({"anyOf":[{"type":"integer","minimum":1,"maximum":100},{"const":""}]})"},
    {"GET", "/v1/responses/{id}/input_items", "order", kOrder},
    {"GET", "/v1/responses/{id}/input_items", "after", kText},
});

const Operation* find_operation(std::string_view method, std::string_view path) {
  const auto* const found = std::ranges::find_if(kOperations, [&](const Operation& operation) {
    return operation.method == method && operation.path == path;
  });
  return found == kOperations.end() ? nullptr : found;
}

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
static_assert(static_cast<size_t>(BodyKind::kTeiSimilarity) -
                  static_cast<size_t>(BodyKind::kEmbeddings) ==
              static_cast<size_t>(api::PoolKind::kTeiSimilarity));

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

void write_reference(json::Writer& json, std::string_view shape) {
  json.begin_object().key("schema").begin_object().key("$ref");
  json.value(fmt::format("#/components/schemas/{}", shape)).end_object().end_object();
}

/// Types of an answer that is not JSON, or not always.
std::vector<std::string_view> other_types(const Operation& operation) {
  const std::string_view path = operation.path;
  if (path == "/metrics") {
    return {"text/plain", "application/openmetrics-text"};
  }
  if (path == "/docs") {
    return {"text/html"};
  }
  if (path.starts_with("/receipts/")) {
    return {"text/plain"};
  }
  const auto pool = find_pool_route(path);
  const bool may_be_bytes = pool == api::PoolKind::kEmbeddings || pool == api::PoolKind::kPooling;
  if (may_be_bytes || path.ends_with("/content") || path.ends_with("/infer")) {
    return {"application/octet-stream"};
  }
  const bool streams = path.ends_with("/completions") || path == "/v1/messages" || path == "/" ||
                       path == "/generate" || path == "/generate_stream" ||
                       path == "/inference/v1/generate" || path == "/v1/responses" ||
                       path.ends_with("/generate_stream");
  if (streams || (path == "/v1/responses/{id}" && operation.method == "GET")) {
    return {"text/event-stream"};
  }
  return {};
}

void write_answer(json::Writer& json, const Operation& operation) {
  json.begin_object().key("description").value("The answer").key("content").begin_object();
  if (!operation.answer.empty()) {
    json.key("application/json");
    write_reference(json, operation.answer);
  }
  for (const std::string_view type : other_types(operation)) {
    json.key(type).begin_object().end_object();
  }
  json.end_object().end_object();
}

std::string_view error_shape(std::string_view path) {
  if (path.starts_with("/v1/messages")) {
    return "MessagesError";
  }
  return path.starts_with("/v2") && !find_pool_route(path) ? "InferenceError" : "Error";
}

struct Problem {
  std::string_view status;
  std::string_view meaning;
  bool of_posts = false;  ///< only where a body is sent
};

constexpr auto kProblems = std::to_array<Problem>({
    {"400", "The request is malformed or breaks a rule"},
    {"401", "The key is missing or unknown"},
    {"403", "The key does not allow this"},
    {"404", "There is no such route, model or object"},
    {"413", "The body is too large", true},
    {"415", "The body is not JSON", true},
    {"429", "The client's budget is used up; Retry-After says for how long"},
    {"501", "What is asked for exists elsewhere, not here; asking again changes nothing", true},
    {"503", "Nothing can be served now, or too much is asked; Retry-After says when to ask again"},
    {"default", "Another error"},
});

void write_errors(json::Writer& json, const Operation& operation) {
  for (const Problem& problem : kProblems) {
    if (problem.of_posts && operation.method != "POST") {
      continue;
    }
    json.key(problem.status).begin_object().key("description").value(problem.meaning);
    json.key("content").begin_object().key("application/json");
    const bool says_state = problem.status == "503" && operation.method == "GET";
    if (says_state) {
      json.raw(R"({"schema":{"type":"object"}})");
    } else {
      write_reference(json, error_shape(operation.path));
    }
    json.end_object().end_object();
  }
}

void write_parameters(json::Writer& json, const Operation& operation) {
  json.key("parameters").begin_array();
  if (operation.path.contains("{id}")) {
    json.raw(R"({"name":"id","in":"path","required":true,"schema":{"type":"string"}})");
  }
  for (const Query& query : kQueries) {
    if (query.method == operation.method && query.path == operation.path) {
      json.begin_object().key("name").value(query.name).key("in").value("query");
      json.key("schema").raw(query.schema).end_object();
    }
  }
  json.end_array();
}

void write_body(json::Writer& json, const Operation& operation) {
  const auto body = body_of(operation.path);
  if (operation.request.empty() && !body) {
    return;
  }
  json.key("requestBody").begin_object().key("required").value(true).key("content");
  json.begin_object().key(operation.path == "/v1/files" ? "multipart/form-data"
                                                        : "application/json");
  if (operation.request.empty()) {
    json.begin_object().key("schema").raw(api::body_schema(*body)).end_object();
  } else {
    write_reference(json, operation.request);
  }
  json.end_object().end_object();
}

/// A row that nobody described, which a test forbids, is listed all the same.
void write_operation(json::Writer& json, const RouteRow& row, std::string_view method) {
  const Operation* const known = find_operation(row.method, row.path);
  const Operation operation =
      known == nullptr ? Operation{.method = row.method, .path = row.path} : *known;
  json.begin_object().key("operationId").value(operation_id(method, row.path));
  if (!operation.summary.empty()) {
    json.key("summary").value(operation.summary);
  }
  write_parameters(json, operation);
  if (method == "post") {
    write_body(json, operation);
  }
  json.key("responses").begin_object().key("200");
  write_answer(json, operation);
  write_errors(json, operation);
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
  json.key("components").begin_object().key("schemas").begin_object();
  for (const Shape& shape : list_shapes()) {
    json.key(shape.name).raw(shape.json);
  }
  json.end_object().end_object().end_object();
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
    const Operation* const known = find_operation(row.method, row.path);
    out += known == nullptr ? std::string_view() : known->summary;
    out += "</td></tr>";
  }
  return out + "</table></html>\n";
}

}  // namespace stator::frontend
