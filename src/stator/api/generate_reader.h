// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/api/field_reader.h"
#include "stator/api/request.h"
#include "stator/api/request_parser.h"

namespace stator::api {

/// Reading state of the fields that chat and text completions share. Values land in `options`; what
/// rules relate across fields waits here for `finish_generate_options`.
struct GenerateReader {
  FieldReader& in;
  const ParseLimits& limits;
  GenerateOptions& options;

  uint32_t max_tokens_min = 1;  ///< 0: a prompt may be scored without an answer
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> max_completion_tokens;
  bool stream_options_seen = false;
  bool nvext_dropped = false;
  /// What asks for a shape of the output, with the values' own texts, in the order of the request.
  std::vector<std::pair<std::string, std::string_view>> structured_fields = {};
  std::string root_cache_salt = {};
  std::string nvext_cache_salt = {};
  std::vector<TokenId> stop_ids = {};  ///< ids given inside `stop`
  std::optional<int32_t> root_priority = {};
  std::optional<uint32_t> root_thinking_budget = {};  // thinking_token_budget
  std::optional<uint32_t> root_dp_rank = {};          // data_parallel_rank
  /// Known fields that are accepted and change nothing here, for the client to see.
  std::vector<std::string> without_effect = {};
};

/// Reads the value of a shared root key, or answers false for an unknown one.
bool read_generate_field(GenerateReader& reader, std::string_view key, const Path& path);

/// A cache salt of at most kMaxCacheSaltBytes; empty for null.
std::string read_salt(FieldReader& in, const Path& path);

/// Remembers a root key nobody knows and passes over its value.
void ignore_field(FieldReader& in, std::vector<std::string>& ignored, std::string_view key);

/// For ParseLimits::strict_fields: unknown keys become an error naming them.
void check_ignored(FieldReader& in, const std::vector<std::string>& ignored,
                   const ParseLimits& limits);

/// `model` is required (unless ParseLimits says otherwise) and not blank.
void check_model(FieldReader& in, const std::string& model, const ParseLimits& limits);

/// Remembers a known field that was given and has no effect.
void note_without_effect(GenerateReader& reader, const Path& path);

/// After the last field: merges aliases and checks the rules between fields.
void finish_generate_options(GenerateReader& reader);

/// What a client may name in one list of `nvext`: every worker of a fleet is compared with it.
inline constexpr size_t kRoutingNamesMax = 1024;

/// The value of `nvext`. Unknown keys are violations.
void read_nvext(GenerateReader& reader, const Path& path);

/// Marks `path` as needing a grammar: 501 unless the caller enforces them.
void require_guided_decoding(GenerateReader& reader, const Path& path);

/// Remembers a field of structured::is_source_field for finish_structured_output. Returns the
/// value's own text, empty for null.
std::string_view read_structured_field(GenerateReader& reader, std::string_view key,
                                       const Path& path);

/// Reads the remembered fields into GenerateOptions::structured_output.
void finish_structured_output(GenerateReader& reader);

}  // namespace stator::api
