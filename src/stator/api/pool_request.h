// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/api/request_parser.h"

namespace stator::api {

// Requests that generate nothing: POST /v1/embeddings, /rerank (Jina's, Cohere's and vLLM's
// shapes), /score, /classify and /pooling (vLLM's), /v2/embed (Cohere's), /embed, /embed_all,
// /predict and /similarity (text-embeddings-inference's). docs/reference/embeddings.md lists the
// fields.

enum class PoolKind : uint8_t {
  kEmbeddings,
  kRerank,
  kScore,
  kClassify,
  kPooling,
  kCohereEmbed,
  kTeiEmbed,
  kTeiEmbedAll,
  kTeiPredict,
  kTeiSimilarity,
};

inline constexpr size_t kMaxPoolInputs = 2048;        ///< of one request; OpenAI's own limit
inline constexpr size_t kMaxRerankDocuments = 10000;  ///< Cohere's
inline constexpr uint32_t kMaxDimensions = 65536;

/// A text, or its token ids.
using PoolInput = std::variant<std::string, std::vector<TokenId>>;

/// How numbers are spelled.
enum class PoolEncoding : uint8_t {
  kFloat,      ///< JSON numbers
  kBase64,     ///< little-endian f32 in base64
  kBytes,      ///< the body is little-endian f32, a header `metadata` says what is where
  kBytesOnly,  ///< the same without the header
};

/// Forms of one vector in Cohere's answers, as a set.
struct CohereForms {
  bool as_float = false;
  bool as_base64 = false;  ///< of little-endian f32
  bool as_binary = false;  ///< signs, eight to a byte, which is signed
  bool as_ubinary = false;
};

struct PoolCall {
  PoolKind kind = PoolKind::kEmbeddings;
  std::string model;
  /// What is embedded or classified; of rerank the documents, of score the second texts. Not empty,
  /// unless `chat` is used.
  std::vector<PoolInput> inputs;
  /// Of rerank the query, of score the first texts: one, or as many as `inputs`. Else empty.
  std::vector<PoolInput> queries;
  /// Embeddings, classify and pooling of a conversation instead of `inputs`.
  std::optional<ChatInput> chat;
  PoolEncoding encoding = PoolEncoding::kFloat;
  std::optional<uint32_t> dimensions;
  /// Tokens kept of each text, -1 = as many as the model takes; none = a longer one is an error.
  std::optional<int64_t> truncate_prompt_tokens;
  std::optional<uint32_t> max_tokens_per_document;  ///< rerank
  bool add_special_tokens = true;
  bool activate = true;  ///< softmax, sigmoid or normalisation, as the task has it
  std::optional<uint32_t> top_n;
  std::optional<bool> return_documents;
  std::string task;  ///< of pooling, by name; empty: the model's own
  CohereForms forms;
  bool in_tei_words = false;     ///< of rerank: text-embeddings-inference asks
  bool is_batch = true;          ///< false: one text, answered without a list around it
  bool truncates_begin = false;  ///< what is cut off is the beginning
  int32_t priority = 0;
  std::vector<std::string> ignored_fields;
};

/// Errors as parse_chat_request: 400 that names the field; never 501, which makes SDKs try again.
ApiResult<PoolCall> parse_pool_call(std::string& body, PoolKind kind, const ParseLimits& limits);

/// Where the texts stand.
struct PoolFieldNames {
  std::string_view queries;  ///< empty: there are none
  std::string_view inputs;
};
PoolFieldNames field_names(PoolKind kind);

/// Root keys that requests of this kind may have, sorted.
std::vector<std::string_view> pool_fields(PoolKind kind);

}  // namespace stator::api
