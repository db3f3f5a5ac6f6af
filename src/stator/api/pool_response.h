// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/pool_request.h"
#include "stator/api/response.h"

namespace stator::api {

// Whole answers to pooling requests, appended to `out`. Numbers are written where they will stand:
// base64 is made in the body itself.

/// Rows of one input; `values` has rows × width numbers.
struct PoolRow {
  std::span<const float> values;
  uint32_t width = 0;
  bool is_matrix = false;  ///< one row per token: a list of lists
};

struct PoolFrame {
  ResponseIdentity identity;
  uint32_t prompt_tokens = 0;
  PoolEncoding encoding = PoolEncoding::kFloat;
};

/// {"object":"list","model","data":[{"object":"embedding","index","embedding"}],"usage"}
void append_embeddings(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows);
/// {"id","object":"list","created","model","data":[{"index","object":"pooling","data"}],"usage"}
void append_pooling(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows);
/// {"id",…,"data":[{"index","label","probs","num_classes"}],"usage"}; a class without a label has
/// null.
void append_classes(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows,
                    std::span<const std::string> labels);
/// {"id",…,"data":[{"index","object":"score","score"}],"usage"}
void append_scores(std::string& out, const PoolFrame& frame, std::span<const float> scores);

struct RankedDocument {
  size_t index = 0;
  float score = 0;
  std::optional<std::string_view> text;  ///< none: not asked for, or given as token ids
};
/// {"id","model","usage","meta","results":[{"index","relevance_score"[,"document":{"text"}]}]}
void append_ranking(std::string& out, const PoolFrame& frame,
                    std::span<const RankedDocument> documents);

// Of text-embeddings-inference.
/// [{"index","score"[,"text"]}]
void append_tei_ranking(std::string& out, std::span<const RankedDocument> documents);
/// [[…],…], of matrices [[[…],…],…]
void append_vectors(std::string& out, std::span<const PoolRow> rows);
/// [{"score","label"},…], the likeliest first, in a list where it is a batch; a class without a
/// label is called by its number.
void append_predictions(std::string& out, std::span<const PoolRow> rows,
                        std::span<const std::string> labels, bool is_batch);
/// […]
void append_numbers(std::string& out, std::span<const float> numbers);

struct CohereAnswer {
  CohereForms forms;
  std::span<const std::string_view> texts;
};
/// Cohere's: {"id","embeddings":{"float":[…],…},"texts","meta","response_type"}
void append_cohere_embeddings(std::string& out, const PoolFrame& frame,
                              std::span<const PoolRow> rows, const CohereAnswer& answer);

/// The numbers themselves, little-endian f32.
void append_binary(std::string& out, std::span<const PoolRow> rows);
/// What stands in the header `metadata` of such an answer: JSON without line breaks.
std::string binary_metadata(const PoolFrame& frame, std::span<const PoolRow> rows);

/// Cuts to `dimensions` and gives what is left the length 1 again.
void shorten(std::vector<float>& values, uint32_t width, uint32_t dimensions);

}  // namespace stator::api
