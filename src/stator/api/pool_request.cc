// SPDX-License-Identifier: Apache-2.0
#include "stator/api/pool_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"

namespace stator::api {
namespace {

struct PoolReader {
  FieldReader& in;
  const ParseLimits& limits;
  PoolCall& call;
  ChatInputReader chat;
  bool inputs_seen = false;
  bool queries_seen = false;
};

// ---- texts

size_t inputs_max(PoolKind kind) {
  return kind == PoolKind::kRerank ? kMaxRerankDocuments : kMaxPoolInputs;
}

void add_text(PoolReader& r, const Path& path, std::vector<PoolInput>& out) {
  const auto text = r.in.string(path);
  if (text && text->empty()) {
    r.in.violation(path, "must not be empty");
  } else if (text) {
    out.emplace_back(std::string(*text));
  }
}

void add_tokens(PoolReader& r, const Path& path, std::vector<PoolInput>& out) {
  auto ids = r.in.token_ids(path);
  if (ids && ids->empty()) {
    r.in.violation(path, "must not be empty");
  } else if (ids) {
    out.emplace_back(std::move(*ids));
  }
}

/// {"text": …}, as rerankers take it.
void add_document(PoolReader& r, const Path& path, std::vector<PoolInput>& out) {
  bool found = false;
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "text" && r.in.peek() != json::Kind::kNull) {
      found = true;
      add_text(r, member, out);
    } else {
      r.in.skip();
    }
  });
  if (!found) {
    r.in.violation(path, "must be a string or an object with the string \"text\"");
  }
}

void add_element(PoolReader& r, json::Kind kind, const Path& path, std::vector<PoolInput>& out) {
  const bool ranks = r.call.kind == PoolKind::kRerank || r.call.kind == PoolKind::kScore;
  if (kind == json::Kind::kString) {
    add_text(r, path, out);
  } else if (kind == json::Kind::kArray) {
    add_tokens(r, path, out);
  } else if (kind == json::Kind::kObject && ranks) {
    add_document(r, path, out);
  } else {
    r.in.type_error(path, ranks ? "a string, an object with \"text\" or an array of token ids"
                                : "a string, a token id or an array of token ids");
  }
}

/// string[], int[] (one sequence) or int[][]: the first element tells which.
void read_array(PoolReader& r, const Path& path, std::vector<PoolInput>& out) {
  const bool ranks = r.call.kind == PoolKind::kRerank || r.call.kind == PoolKind::kScore;
  std::vector<TokenId> flat;
  json::Kind kind = json::Kind::kInvalid;
  size_t count = 0;
  const bool present = r.in.array(path, [&](size_t index, const Path& element) {
    const json::Kind found = r.in.peek();
    kind = index == 0 ? found : kind;
    count = index + 1;
    const bool is_document = found == json::Kind::kString || found == json::Kind::kObject;
    if (found != kind && !(ranks && is_document)) {
      r.in.type_error(element, json::describe(kind));
    } else if (kind == json::Kind::kNumber) {
      if (const auto id = r.in.integer<TokenId>(element, 0, UINT32_MAX)) {
        flat.push_back(*id);
      }
    } else if (index < inputs_max(r.call.kind)) {
      add_element(r, found, element, out);
    } else {
      r.in.skip();
    }
  });
  if (present && kind == json::Kind::kInvalid) {
    r.in.violation(path, "must not be empty");
  } else if (kind != json::Kind::kNumber && count > inputs_max(r.call.kind)) {
    r.in.violation(path, fmt::format("has {} elements, at most {} are taken: divide the request",
                                     count, inputs_max(r.call.kind)));
  }
  if (!flat.empty()) {
    out.emplace_back(std::move(flat));
  }
}

/// False for null.
bool read_texts(PoolReader& r, const Path& path, std::vector<PoolInput>& out) {
  out.clear();
  const json::Kind kind = r.in.peek();
  if (kind == json::Kind::kNull) {
    r.in.skip();
    return false;
  }
  if (kind == json::Kind::kArray) {
    read_array(r, path, out);
  } else if (kind == json::Kind::kString) {
    add_text(r, path, out);
  } else {
    r.in.type_error(path, "a string or an array");
  }
  return true;
}

void read_inputs(PoolReader& r, const Path& path) {
  r.inputs_seen = read_texts(r, path, r.call.inputs) || r.inputs_seen;
}
void read_queries(PoolReader& r, const Path& path) {
  r.queries_seen = read_texts(r, path, r.call.queries) || r.queries_seen;
}
void read_query(PoolReader& r, const Path& path) {
  r.call.queries.clear();
  if (r.in.peek() == json::Kind::kNull) {
    r.in.skip();
    return;
  }
  r.queries_seen = true;
  add_element(r, r.in.peek(), path, r.call.queries);
}

// ---- the rest

void read_activation(PoolReader& r, const Path& path) {
  if (const auto value = r.in.boolean(path)) {
    r.call.activate = *value;
  }
}
void read_add_special_tokens(PoolReader& r, const Path& path) {
  r.call.add_special_tokens = r.in.boolean(path).value_or(true);
}
void read_cache_salt(PoolReader& r, const Path& path) {
  // Nothing is cached, so there is nothing to isolate; a bad one is an error all the same.
  const auto salt = r.in.string(path);
  if (salt && (salt->empty() || salt->size() > kMaxCacheSaltBytes)) {
    r.in.violation(path, fmt::format("must have 1 to {} bytes", kMaxCacheSaltBytes));
  }
}
void read_dimensions(PoolReader& r, const Path& path) {
  r.call.dimensions = r.in.integer<uint32_t>(path, 1, kMaxDimensions);
}
void read_embed_dtype(PoolReader& r, const Path& path) {
  const auto name = r.in.string(path);
  if (name && *name != "float32") {
    r.in.violation(path, "must be float32");
  }
}
void read_encoding_format(PoolReader& r, const Path& path) {
  const auto name = r.in.string(path);
  if (!name) {
    return;
  }
  constexpr std::array<std::string_view, 4> kNames = {"float", "base64", "bytes", "bytes_only"};
  const auto* const found = std::ranges::find(kNames, *name);
  const bool is_binary = found != kNames.end() && found >= kNames.begin() + 2;
  if (found == kNames.end() || (is_binary && r.call.kind == PoolKind::kClassify)) {
    r.in.violation(path, "must be one of float, base64, bytes, bytes_only");
    return;
  }
  r.call.encoding = static_cast<PoolEncoding>(found - kNames.begin());
}
void read_endianness(PoolReader& r, const Path& path) {
  const auto name = r.in.string(path);
  if (name && *name != "native" && *name != "little") {
    r.in.violation(path, "must be native or little");
  }
}
void read_max_tokens_per_document(PoolReader& r, const Path& path) {
  r.call.max_tokens_per_document = r.in.integer<uint32_t>(path, 1, UINT32_MAX);
}
void read_model(PoolReader& r, const Path& path) {
  r.call.model = r.in.string(path, Blank::kRefused).value_or("");
}
void read_priority(PoolReader& r, const Path& path) {
  r.call.priority = r.in.integer<int32_t>(path, INT32_MIN, INT32_MAX).value_or(0);
}
void read_return_documents(PoolReader& r, const Path& path) {
  r.call.return_documents = r.in.boolean(path);
}
void read_task(PoolReader& r, const Path& path) {
  r.call.task = r.in.string(path).value_or("");
}
void read_top_n(PoolReader& r, const Path& path) {
  r.call.top_n = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
  if (r.call.top_n == 0U) {
    r.call.top_n.reset();  // vLLM: all
  }
}
void read_truncation(PoolReader& r, const Path& path) {
  r.call.truncate_prompt_tokens = r.in.integer<int64_t>(path, -1, INT32_MAX);
  if (r.call.truncate_prompt_tokens == 0) {
    r.in.violation(path, "must be -1 or at least 1");
  }
}

// ---- Cohere

void read_embedding_types(PoolReader& r, const Path& path) {
  r.call.forms = {};
  const auto names = r.in.strings(path).value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    CohereForms& forms = r.call.forms;
    bool* const form = name == "float"     ? &forms.as_float
                       : name == "base64"  ? &forms.as_base64
                       : name == "binary"  ? &forms.as_binary
                       : name == "ubinary" ? &forms.as_ubinary
                                           : nullptr;
    if (form == nullptr) {
      r.in.violation(path, "must be of float, base64, binary, ubinary");
      return;
    }
    *form = true;
  }
}
/// Without effect where models have no prompts by type; said to the client.
void read_input_type(PoolReader& r, const Path& path) {
  static constexpr auto kTypes = std::to_array<std::string_view>(
      {"classification", "clustering", "image", "search_document", "search_query"});
  const auto type = r.in.string(path);
  if (!type) {
    return;
  }
  if (std::ranges::find(kTypes, *type) == kTypes.end()) {
    r.in.violation(path, fmt::format("is unsupported: Unsupported input_type {}: must be one of {}",
                                     type->substr(0, 64), fmt::join(kTypes, ", ")));
  } else {
    r.call.ignored_fields.emplace_back("input_type");
  }
}
void read_cohere_truncate(PoolReader& r, const Path& path) {
  const std::string_view side = r.in.string(path).value_or("END");
  r.call.truncates_begin = side == "START";
  r.call.truncate_prompt_tokens = side == "NONE" ? std::nullopt : std::optional<int64_t>(-1);
  if (side != "NONE" && side != "START" && side != "END") {
    r.in.violation(path, "must be NONE, START or END");
  }
}
/// "inputs": [{"content": [{"type": "text", "text": …}]}]: the texts of one are one.
void read_contents(PoolReader& r, const Path& path) {
  r.call.inputs.clear();
  r.inputs_seen = r.in.array(path, [&](size_t, const Path& element) {
    std::string text;
    r.in.object(element, [&](std::string_view key, const Path& member) {
      if (key != "content") {
        r.in.skip();
        return;
      }
      r.in.array(member, [&](size_t, const Path& part) {
        r.in.object(part, [&](std::string_view name, const Path& inner) {
          if (name == "text") {
            text += r.in.string(inner).value_or("");
          } else if (name == "type" && r.in.string(inner) != "text") {
            r.in.violation(inner, "must be text: images are not embedded here");
          } else if (name != "type") {
            r.in.skip();
          }
        });
      });
    });
    if (text.empty()) {
      r.in.violation(element, "must have content with a text");
    } else if (r.call.inputs.size() < kMaxPoolInputs) {
      r.call.inputs.emplace_back(std::move(text));
    }
  });
}
void read_images(PoolReader& r, const Path& path) {
  if (const auto value = r.in.any(path); value && *value != "[]") {
    r.in.violation(path, "are not embedded here: send texts");
  }
}

// ---- text-embeddings-inference

void read_tei_truncate(PoolReader& r, const Path& path) {
  r.call.truncate_prompt_tokens =
      r.in.boolean(path) == true ? std::optional<int64_t>(-1) : std::nullopt;
}
void read_tei_direction(PoolReader& r, const Path& path) {
  const std::string_view side = r.in.string(path).value_or("right");
  r.call.truncates_begin = side == "Left" || side == "left";
  if (!r.call.truncates_begin && side != "Right" && side != "right") {
    r.in.violation(path, "must be Left or Right");
  }
}
void read_raw_scores(PoolReader& r, const Path& path) {
  r.call.activate = !r.in.boolean(path).value_or(false);
}
void read_tei_documents(PoolReader& r, const Path& path) {
  r.call.in_tei_words = true;
  read_inputs(r, path);
}
void read_tei_inputs(PoolReader& r, const Path& path) {
  r.call.is_batch = r.in.peek() == json::Kind::kArray;
  read_inputs(r, path);
}
/// A text, [text], or [[text], …]; [text, text] is a pair.
void read_predict_inputs(PoolReader& r, const Path& path) {
  r.call.inputs.clear();
  r.call.is_batch = false;
  r.inputs_seen = true;
  if (r.in.peek() != json::Kind::kArray) {
    add_element(r, r.in.peek(), path, r.call.inputs);
    return;
  }
  const auto refuse_pair = [&](const Path& place) {
    r.in.violation(place, "is a pair of texts: ask POST /rerank for pairs");
  };
  r.in.array(path, [&](size_t index, const Path& element) {
    if (r.in.peek() != json::Kind::kArray) {
      add_element(r, r.in.peek(), element, r.call.inputs);
      if (index > 0) {
        refuse_pair(path);
      }
      return;
    }
    r.call.is_batch = true;
    r.in.array(element, [&](size_t inner, const Path& text) {
      add_element(r, r.in.peek(), text, r.call.inputs);
      if (inner > 0) {
        refuse_pair(element);
      }
    });
  });
  if (r.call.inputs.size() > kMaxPoolInputs) {
    r.in.violation(path, fmt::format("must have at most {} texts", kMaxPoolInputs));
  }
}
/// "inputs": {"source_sentence", "sentences"}
void read_similarity_inputs(PoolReader& r, const Path& path) {
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "source_sentence") {
      read_query(r, member);
    } else if (key == "sentences") {
      read_inputs(r, member);
    } else {
      r.in.skip();
    }
  });
}
void read_similarity_parameters(PoolReader& r, const Path& path) {
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "truncate") {
      read_tei_truncate(r, member);
    } else if (key == "truncation_direction") {
      read_tei_direction(r, member);
    } else {
      r.call.ignored_fields.emplace_back("parameters." + std::string(key.substr(0, 40)));
      r.in.skip();
    }
  });
}

/// A label for the client's own books.
void read_user(PoolReader& r, const Path& path) {
  r.in.has_string(path);
}

using PoolField = Field<PoolReader>;

constexpr auto kTextFields = std::to_array<PoolField>({
    {"activation", read_activation},
    {"add_special_tokens", read_add_special_tokens},
    {"cache_salt", read_cache_salt},
    {"dimensions", read_dimensions},
    {"embed_dtype", read_embed_dtype},
    {"encoding_format", read_encoding_format},
    {"endianness", read_endianness},
    {"input", read_inputs},
    {"model", read_model},
    {"normalize", read_activation},
    {"priority", read_priority},
    {"softmax", read_activation},
    {"truncate_prompt_tokens", read_truncation},
    {"use_activation", read_activation},
    {"user", read_user},
});
static_assert(is_sorted_table<PoolReader>(kTextFields));

constexpr auto kPoolingFields = std::to_array<PoolField>({
    {"activation", read_activation},
    {"add_special_tokens", read_add_special_tokens},
    {"cache_salt", read_cache_salt},
    {"dimensions", read_dimensions},
    {"embed_dtype", read_embed_dtype},
    {"encoding_format", read_encoding_format},
    {"endianness", read_endianness},
    {"input", read_inputs},
    {"model", read_model},
    {"normalize", read_activation},
    {"priority", read_priority},
    {"softmax", read_activation},
    {"task", read_task},
    {"truncate_prompt_tokens", read_truncation},
    {"use_activation", read_activation},
    {"user", read_user},
});
static_assert(is_sorted_table<PoolReader>(kPoolingFields));

constexpr auto kRerankFields = std::to_array<PoolField>({
    {"activation", read_activation},
    {"cache_salt", read_cache_salt},
    {"documents", read_inputs},
    {"max_tokens_per_doc", read_max_tokens_per_document},
    {"model", read_model},
    {"priority", read_priority},
    {"query", read_query},
    {"raw_scores", read_raw_scores},
    {"return_documents", read_return_documents},
    {"return_text", read_return_documents},
    {"texts", read_tei_documents},
    {"top_n", read_top_n},
    {"truncate", read_tei_truncate},
    {"truncate_prompt_tokens", read_truncation},
    {"truncation_direction", read_tei_direction},
    {"use_activation", read_activation},
    {"user", read_user},
});
static_assert(is_sorted_table<PoolReader>(kRerankFields));

constexpr auto kCohereFields = std::to_array<PoolField>({
    {"embedding_types", read_embedding_types},
    {"images", read_images},
    {"input_type", read_input_type},
    {"inputs", read_contents},
    {"max_tokens", read_max_tokens_per_document},
    {"model", read_model},
    {"output_dimension", read_dimensions},
    {"priority", read_priority},
    {"texts", read_inputs},
    {"truncate", read_cohere_truncate},
});
static_assert(is_sorted_table<PoolReader>(kCohereFields));

constexpr auto kTeiEmbedFields = std::to_array<PoolField>({
    {"add_special_tokens", read_add_special_tokens},
    {"dimensions", read_dimensions},
    {"inputs", read_tei_inputs},
    {"model", read_model},
    {"normalize", read_activation},
    {"truncate", read_tei_truncate},
    {"truncation_direction", read_tei_direction},
});
static_assert(is_sorted_table<PoolReader>(kTeiEmbedFields));

constexpr auto kTeiPredictFields = std::to_array<PoolField>({
    {"inputs", read_predict_inputs},
    {"model", read_model},
    {"raw_scores", read_raw_scores},
    {"truncate", read_tei_truncate},
    {"truncation_direction", read_tei_direction},
});
static_assert(is_sorted_table<PoolReader>(kTeiPredictFields));

constexpr auto kTeiSimilarityFields = std::to_array<PoolField>({
    {"inputs", read_similarity_inputs},
    {"model", read_model},
    {"parameters", read_similarity_parameters},
});
static_assert(is_sorted_table<PoolReader>(kTeiSimilarityFields));

constexpr auto kScoreFields = std::to_array<PoolField>({
    {"activation", read_activation},
    {"cache_salt", read_cache_salt},
    {"data_1", read_queries},
    {"data_2", read_inputs},
    {"documents", read_inputs},
    {"items", read_inputs},
    {"model", read_model},
    {"priority", read_priority},
    {"queries", read_queries},
    {"text_1", read_queries},
    {"text_2", read_inputs},
    {"truncate_prompt_tokens", read_truncation},
    {"use_activation", read_activation},
    {"user", read_user},
});
static_assert(is_sorted_table<PoolReader>(kScoreFields));

std::span<const PoolField> table_of(PoolKind kind) {
  switch (kind) {
    case PoolKind::kRerank:
      return kRerankFields;
    case PoolKind::kScore:
      return kScoreFields;
    case PoolKind::kPooling:
      return kPoolingFields;
    case PoolKind::kCohereEmbed:
      return kCohereFields;
    case PoolKind::kTeiEmbed:
    case PoolKind::kTeiEmbedAll:
      return kTeiEmbedFields;
    case PoolKind::kTeiPredict:
      return kTeiPredictFields;
    case PoolKind::kTeiSimilarity:
      return kTeiSimilarityFields;
    case PoolKind::kEmbeddings:
    case PoolKind::kClassify:
      break;
  }
  return kTextFields;
}

bool may_be_chat(PoolKind kind) {
  return kind == PoolKind::kEmbeddings || kind == PoolKind::kClassify || kind == PoolKind::kPooling;
}

/// Compares what `queries` has with what `inputs` has.
bool has_queries(PoolKind kind) {
  return kind == PoolKind::kRerank || kind == PoolKind::kScore || kind == PoolKind::kTeiSimilarity;
}

// ---- rules between fields

void check_texts(PoolReader& r) {
  const PoolKind kind = r.call.kind;
  const PoolFieldNames names = field_names(kind);
  if (r.inputs_seen && r.call.inputs.empty()) {
    r.in.violation(Path(names.inputs), "must not be empty");
  }
  const bool has_chat = !r.chat.chat.messages_json.empty();
  if (may_be_chat(kind)) {
    if (r.inputs_seen == has_chat) {
      r.in.violation(Path("input"), has_chat ? "or messages is required, not both" : "is required",
                     Rank::kRequired);
    }
    return;
  }
  const bool ranks = kind == PoolKind::kRerank;
  if (has_queries(kind) && !r.queries_seen) {
    r.in.violation(Path(names.queries), "is required", Rank::kRequired);
  } else if (has_queries(kind) && r.call.queries.empty()) {
    r.in.violation(Path(names.queries), "must not be empty");
  }
  if (!r.inputs_seen) {
    r.in.violation(Path(names.inputs), "is required", Rank::kRequired);
  }
  const size_t first = r.call.queries.size();
  const size_t second = r.call.inputs.size();
  if (!ranks && first > 1 && first != second) {
    r.in.violation(Path("text_1"),
                   fmt::format("has {} texts and text_2 has {}: they must be one and any number, "
                               "or equally many",
                               first, second));
  }
}

ApiStatus read_pool_call(FieldReader& in, PoolCall& call, const ParseLimits& limits) {
  ChatInput chat;
  PoolReader r{.in = in,
               .limits = limits,
               .call = call,
               .chat = {.in = in, .chat = chat, .depth_max = limits.json_depth_max}};
  const std::span<const PoolField> table = table_of(call.kind);
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!read_known<PoolReader>(table, key, r, path) &&
        !(may_be_chat(call.kind) && read_chat_field(r.chat, key, path))) {
      ignore_field(in, call.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  check_ignored(in, call.ignored_fields, limits);
  check_model(in, call.model, limits);
  check_texts(r);
  CohereForms& forms = call.forms;
  if (!forms.as_base64 && !forms.as_binary && !forms.as_ubinary) {
    forms.as_float = true;
  }
  if (!chat.messages_json.empty()) {
    finish_chat_input(r.chat);
    call.chat = std::move(chat);
  }
  return in.verdict();
}

}  // namespace

PoolFieldNames field_names(PoolKind kind) {
  switch (kind) {
    case PoolKind::kRerank:
      return {"query", "documents"};
    case PoolKind::kScore:
      return {"text_1", "text_2"};
    case PoolKind::kTeiSimilarity:
      return {"inputs.source_sentence", "inputs.sentences"};
    case PoolKind::kCohereEmbed:
      return {"", "texts"};
    case PoolKind::kTeiEmbed:
    case PoolKind::kTeiEmbedAll:
    case PoolKind::kTeiPredict:
      return {"", "inputs"};
    case PoolKind::kEmbeddings:
    case PoolKind::kClassify:
    case PoolKind::kPooling:
      break;
  }
  return {"", "input"};
}

ApiResult<PoolCall> parse_pool_call(std::string& body, PoolKind kind, const ParseLimits& limits) {
  return parse_body<PoolCall>(body, limits, [&](FieldReader& in, PoolCall& call, JsonRepair) {
    call.kind = kind;
    if (kind == PoolKind::kCohereEmbed) {
      call.truncate_prompt_tokens = -1;  // Cohere's default: END
    }
    return read_pool_call(in, call, limits);
  });
}

std::vector<std::string_view> pool_fields(PoolKind kind) {
  std::vector<std::string_view> names;
  for (const PoolField& field : table_of(kind)) {
    names.push_back(field.name);
  }
  if (may_be_chat(kind)) {
    names.emplace_back("messages");
    std::ranges::sort(names);
  }
  return names;
}

}  // namespace stator::api
