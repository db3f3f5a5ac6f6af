// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/pooling/pool_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "stator/api/pool_response.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;
using api::PoolEncoding;
using api::PoolRow;
using inference::PoolAnswer;
using inference::PoolTask;

/// "embd-", "rerank-", …: as vLLM begins its ids.
std::string_view id_prefix(api::PoolKind kind) {
  switch (kind) {
    case api::PoolKind::kEmbeddings:
    case api::PoolKind::kCohereEmbed:
      return "embd-";
    case api::PoolKind::kRerank:
      return "rerank-";
    case api::PoolKind::kScore:
      return "score-";
    case api::PoolKind::kClassify:
      return "classify-";
    default:
      return "pool-";
  }
}

Error contradiction(std::string text) {
  return Error(Code::kUnavailable, std::move(text))
      .with_context("the worker's answer does not fit the request, retry");
}

/// Whether each sequence got as many rows as it must.
Status check(const PoolPart& part, const PoolAnswer& answer) {
  const size_t sequences = part.pool.lengths.size();
  if (answer.width == 0 || answer.values.size() % answer.width != 0) {
    return contradiction(
        fmt::format("{} numbers in rows of {}", answer.values.size(), answer.width));
  }
  const size_t rows = answer.values.size() / answer.width;
  if (part.pool.task == PoolTask::kTokenEmbed) {
    const uint64_t told = std::accumulate(answer.rows.begin(), answer.rows.end(), uint64_t{0});
    return answer.rows.size() == sequences && told == rows
               ? Status()
               : contradiction(fmt::format("{} rows for {} sequences", rows, sequences));
  }
  if (rows != sequences || (part.pool.task == PoolTask::kScore && answer.width != 1)) {
    return contradiction(
        fmt::format("{} rows of {} for {} sequences", rows, answer.width, sequences));
  }
  return {};
}

/// The rows of all sequences, as views into the answers.
std::vector<PoolRow> rows_of(const PoolPlan& plan, const std::vector<PoolAnswer>& answers) {
  std::vector<PoolRow> rows;
  rows.reserve(plan.sequences);
  const bool is_matrix = plan.task == PoolTask::kTokenEmbed;
  for (const PoolAnswer& answer : answers) {
    size_t at = 0;
    const size_t count = is_matrix ? answer.rows.size() : answer.values.size() / answer.width;
    for (size_t i = 0; i < count; ++i) {
      const size_t numbers = answer.width * (is_matrix ? answer.rows[i] : size_t{1});
      rows.push_back({.values = std::span(answer.values).subspan(at, numbers),
                      .width = answer.width,
                      .is_matrix = is_matrix});
      at += numbers;
    }
  }
  return rows;
}

float cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0;
  double a_square = 0;
  double b_square = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    a_square += static_cast<double>(a[i]) * a[i];
    b_square += static_cast<double>(b[i]) * b[i];
  }
  const double length = std::sqrt(a_square * b_square);
  return length > 0 ? static_cast<float>(dot / length) : 0;
}

std::vector<float> scores_of(const PoolPlan& plan, std::span<const PoolRow> rows) {
  std::vector<float> scores;
  if (plan.compared_queries == 0) {
    for (const PoolRow& row : rows) {
      scores.push_back(row.values[0]);
    }
    return scores;
  }
  const auto queries = rows.first(plan.compared_queries);
  const auto documents = rows.subspan(plan.compared_queries);
  for (size_t i = 0; i < documents.size(); ++i) {
    scores.push_back(cosine(queries[queries.size() == 1 ? 0 : i].values, documents[i].values));
  }
  return scores;
}

void append_ranked(std::string& out, const PoolPlan& plan, const api::PoolFrame& frame,
                   std::span<const float> scores) {
  std::vector<api::RankedDocument> documents;
  documents.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    documents.push_back({.index = i, .score = scores[i], .text = std::nullopt});
    if (i < plan.call.inputs.size()) {
      if (const auto* text = std::get_if<std::string>(&plan.call.inputs[i])) {
        documents.back().text = *text;
      }
    }
  }
  std::ranges::sort(documents, [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  if (plan.call.top_n && *plan.call.top_n < documents.size()) {
    documents.resize(*plan.call.top_n);
  }
  if (plan.call.in_tei_words) {
    append_tei_ranking(out, documents);
  } else {
    append_ranking(out, frame, documents);
  }
}

/// With the texts that were sent, where all of them are texts.
void append_cohere(std::string& out, const PoolPlan& plan, const api::PoolFrame& frame,
                   std::span<const PoolRow> rows) {
  std::vector<std::string_view> texts;
  for (const api::PoolInput& input : plan.call.inputs) {
    if (const auto* text = std::get_if<std::string>(&input)) {
      texts.push_back(*text);
    }
  }
  append_cohere_embeddings(out, frame, rows, {.forms = plan.call.forms, .texts = texts});
}

bool is_binary(const PoolPlan& plan) {
  return plan.call.encoding == PoolEncoding::kBytes ||
         plan.call.encoding == PoolEncoding::kBytesOnly;
}

/// Of vectors and of /pooling: everything that has an encoding.
PoolBody encoded_body(const PoolPlan& plan, const api::PoolFrame& frame,
                      std::span<const PoolRow> rows) {
  PoolBody body;
  if (is_binary(plan)) {
    body.content_type = "application/octet-stream";
    append_binary(body.text, rows);
    if (plan.call.encoding == PoolEncoding::kBytes) {
      body.metadata = binary_metadata(frame, rows);
    }
  } else if (plan.call.kind == api::PoolKind::kEmbeddings) {
    append_embeddings(body.text, frame, rows);
  } else {
    append_pooling(body.text, frame, rows);
  }
  return body;
}

}  // namespace

ApiResult<PoolBody> make_pool_body(const PoolPlan& plan, std::vector<PoolAnswer> answers) {
  uint64_t counted = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    PoolAnswer& answer = answers[i];
    STATOR_CHECK(check(plan.parts[i], answer));
    counted += answer.prompt_tokens;
    if (const auto wanted = plan.call.dimensions; wanted && *wanted > answer.width) {
      return api::validation_error(
          "dimensions",
          fmt::format("dimensions is {}, but the model's vectors have {}", *wanted, answer.width));
    } else if (wanted && *wanted < answer.width) {
      api::shorten(answer.values, answer.width, *wanted);
      answer.width = *wanted;
    }
  }
  const std::string id = std::string(id_prefix(plan.call.kind)) + plan.request_id;
  const api::PoolFrame frame{
      .identity = {.id = id,
                   .model = plan.adapter.empty() ? plan.model->name : plan.adapter,
                   .created_s = plan.created_s},
      .prompt_tokens = counted > 0 ? static_cast<uint32_t>(std::min<uint64_t>(counted, UINT32_MAX))
                                   : plan.prompt_tokens,
      .encoding = plan.call.encoding};
  const std::vector<PoolRow> rows = rows_of(plan, answers);
  PoolBody body;
  switch (plan.call.kind) {
    case api::PoolKind::kRerank:
      append_ranked(body.text, plan, frame, scores_of(plan, rows));
      return body;
    case api::PoolKind::kScore:
      append_scores(body.text, frame, scores_of(plan, rows));
      return body;
    case api::PoolKind::kClassify:
      append_classes(body.text, frame, rows, plan.model->pool.labels);
      return body;
    case api::PoolKind::kCohereEmbed:
      append_cohere(body.text, plan, frame, rows);
      return body;
    case api::PoolKind::kTeiEmbed:
    case api::PoolKind::kTeiEmbedAll:
      append_vectors(body.text, rows);
      return body;
    case api::PoolKind::kTeiPredict:
      append_predictions(body.text, rows, plan.model->pool.labels, plan.call.is_batch);
      return body;
    case api::PoolKind::kTeiSimilarity:
      api::append_numbers(body.text, scores_of(plan, rows));
      return body;
    default:
      return encoded_body(plan, frame, rows);
  }
}

size_t pool_body_bytes(const PoolPlan& plan, const std::vector<PoolAnswer>& answers) {
  size_t numbers = 0;
  for (const PoolAnswer& answer : answers) {
    numbers += answer.values.size();
  }
  constexpr size_t kTextBytes = 12;  // of a number in JSON, about
  const bool as_text =
      plan.call.encoding == PoolEncoding::kFloat && (plan.call.kind != api::PoolKind::kRerank);
  return numbers * (as_text ? kTextBytes : sizeof(float));
}

}  // namespace stator::frontend
