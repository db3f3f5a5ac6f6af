// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/api/api_error.h"
#include "stator/api/request.h"

namespace stator::api {

// From the body of a POST to a validated request struct, or to an error that names the field.
//
//   STATOR_TRY(ChatRequest request, parse_chat_request(body, limits));
//
// Codes: kInvalidArgument (400) for text that is not JSON, wrong types and broken rules;
// kUnsupported (501) for what is known but not available. Messages start with "Validation: " except
// for malformed JSON, whose message carries the byte position.
//
// JSON: strict RFC 8259 with two retries for what agents really send: raw control bytes inside
// strings are escaped, then broken UTF-8 is replaced by U+FFFD. `body` is rewritten when that
// happens and otherwise untouched. Of duplicate keys the last wins. null means absent. Integer
// fields reject fractions, exponents and anything out of range. Pure and thread-safe; time and
// memory are linear in the body, whose size the caller has limited.

inline constexpr uint32_t kMaxLogitBiases = 4096;
/// Of a cache salt, and of a tenant's name, which serves as one. Workers in other processes take no
/// longer ones, so none does.
inline constexpr uint32_t kMaxCacheSaltBytes = 1024;

struct ParseLimits {
  uint32_t json_depth_max = 128;  ///< nesting of arrays and objects; the root is 1
  bool strict_fields = false;     ///< unknown root keys are a 400 instead of being ignored
  bool nvext_enabled = true;      ///< false: `nvext` and the root's cache_salt are dropped
  bool guided_decoding = false;   ///< the caller enforces grammars, so do not answer 501
  uint32_t vocab_size = 0;        ///< token ids must be below it; 0 = unknown here, not checked
  bool model_required = true;     ///< false: a missing `model` stays empty, for a default to apply
};

ApiResult<ChatRequest> parse_chat_request(std::string& body, const ParseLimits& limits);
ApiResult<CompletionRequest> parse_completion_request(std::string& body, const ParseLimits& limits);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string& body, const ParseLimits& limits);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string& body, const ParseLimits& limits);

/// For when the model, and with it the vocabulary, becomes known only after parsing: every id the
/// client named is below `vocab_size`, else 400 naming the field.
ApiStatus check_token_ids(const GenerateOptions& options, uint32_t vocab_size);
ApiStatus check_token_ids(const CompletionRequest& request, uint32_t vocab_size);

}  // namespace stator::api
