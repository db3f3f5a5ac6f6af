// SPDX-License-Identifier: Apache-2.0
#include "stator/api/pool_response.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "stator/json/writer.h"

namespace stator::api {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are sent as they lie in memory");

// The longest f32 in JSON, "-1.17549435e-38", and its comma.
constexpr size_t kFloatTextBytes = 17;

void append_base64(std::string& out, std::span<const float> values) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  // Pairs of digits: one look-up for 12 bits.
  static const auto kPairs = [] {
    std::array<std::array<char, 2>, 4096> pairs{};
    for (size_t i = 0; i < pairs.size(); ++i) {
      pairs[i] = {kDigits[i >> 6], kDigits[i & 63]};
    }
    return pairs;
  }();
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  const size_t size = values.size() * sizeof(float);
  const size_t start = out.size();
  out.resize(start + (size + 2) / 3 * 4);
  char* to = out.data() + start;
  size_t i = 0;
  for (; i + 3 <= size; i += 3, to += 4) {
    const uint32_t bits = (uint32_t{bytes[i]} << 16) | (uint32_t{bytes[i + 1]} << 8) | bytes[i + 2];
    std::memcpy(to, kPairs[bits >> 12].data(), 2);
    std::memcpy(to + 2, kPairs[bits & 4095].data(), 2);
  }
  if (i < size) {
    const bool two = i + 2 == size;
    const uint32_t bits =
        (uint32_t{bytes[i]} << 16) | (two ? uint32_t{bytes[i + 1]} << 8 : uint32_t{0});
    std::memcpy(to, kPairs[bits >> 12].data(), 2);
    to[2] = two ? kDigits[(bits >> 6) & 63] : '=';
    to[3] = '=';
  }
}

void write_numbers(json::Writer& json, std::span<const float> values) {
  json.begin_array();
  for (const float value : values) {
    json.value(value);
  }
  json.end_array();
}

void write_row(std::string& out, json::Writer& json, const PoolRow& row, PoolEncoding encoding) {
  if (encoding == PoolEncoding::kBase64) {
    json.raw("\"");
    append_base64(out, row.values);
    out.push_back('"');
  } else if (!row.is_matrix) {
    write_numbers(json, row.values);
  } else {
    json.begin_array();
    for (size_t at = 0; at < row.values.size(); at += row.width) {
      write_numbers(json, row.values.subspan(at, row.width));
    }
    json.end_array();
  }
}

void reserve(std::string& out, std::span<const PoolRow> rows, PoolEncoding encoding) {
  size_t numbers = 0;
  for (const PoolRow& row : rows) {
    numbers += row.values.size();
  }
  const size_t text = encoding == PoolEncoding::kFloat ? numbers * kFloatTextBytes
                                                       : numbers * sizeof(float) * 4 / 3;
  out.reserve(out.size() + text + rows.size() * 64 + 512);
}

void write_usage(json::Writer& json, const PoolFrame& frame) {
  json.key("usage").begin_object();
  json.key("prompt_tokens").value(frame.prompt_tokens);
  json.key("total_tokens").value(frame.prompt_tokens);
  json.end_object();
}

void write_head(json::Writer& json, const PoolFrame& frame) {
  json.key("id").value(frame.identity.id);
  json.key("object").value("list");
  json.key("created").value(frame.identity.created_s);
  json.key("model").value(frame.identity.model);
}

}  // namespace

void append_embeddings(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows) {
  reserve(out, rows, frame.encoding);
  json::Writer json(out);
  json.begin_object();
  json.key("object").value("list");
  json.key("model").value(frame.identity.model);
  json.key("data").begin_array();
  for (size_t i = 0; i < rows.size(); ++i) {
    json.begin_object().key("object").value("embedding").key("index").value(i).key("embedding");
    write_row(out, json, rows[i], frame.encoding);
    json.end_object();
  }
  json.end_array();
  write_usage(json, frame);
  json.end_object();
}

void append_pooling(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows) {
  reserve(out, rows, frame.encoding);
  json::Writer json(out);
  json.begin_object();
  write_head(json, frame);
  json.key("data").begin_array();
  for (size_t i = 0; i < rows.size(); ++i) {
    json.begin_object().key("index").value(i).key("object").value("pooling").key("data");
    write_row(out, json, rows[i], frame.encoding);
    json.end_object();
  }
  json.end_array();
  write_usage(json, frame);
  json.end_object();
}

void append_classes(std::string& out, const PoolFrame& frame, std::span<const PoolRow> rows,
                    std::span<const std::string> labels) {
  reserve(out, rows, PoolEncoding::kFloat);
  json::Writer json(out);
  json.begin_object();
  write_head(json, frame);
  json.key("data").begin_array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> probabilities = rows[i].values;
    const auto best =
        static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
    json.begin_object().key("index").value(i).key("label");
    if (best < labels.size()) {
      json.value(labels[best]);
    } else {
      json.null();
    }
    json.key("probs");
    write_numbers(json, probabilities);
    json.key("num_classes").value(probabilities.size()).end_object();
  }
  json.end_array();
  write_usage(json, frame);
  json.end_object();
}

void append_scores(std::string& out, const PoolFrame& frame, std::span<const float> scores) {
  json::Writer json(out);
  json.begin_object();
  write_head(json, frame);
  json.key("data").begin_array();
  for (size_t i = 0; i < scores.size(); ++i) {
    json.begin_object().key("index").value(i).key("object").value("score").key("score");
    json.value(scores[i]).end_object();
  }
  json.end_array();
  write_usage(json, frame);
  json.end_object();
}

void append_ranking(std::string& out, const PoolFrame& frame,
                    std::span<const RankedDocument> documents) {
  json::Writer json(out);
  json.begin_object();
  json.key("id").value(frame.identity.id);
  json.key("model").value(frame.identity.model);
  write_usage(json, frame);
  json.key("meta").raw(R"({"api_version":{"version":"2"},"billed_units":{"search_units":1}})");
  json.key("results").begin_array();
  for (const RankedDocument& document : documents) {
    json.begin_object().key("index").value(document.index);
    json.key("relevance_score").value(document.score);
    if (document.text) {
      json.key("document").begin_object().key("text").value(*document.text).end_object();
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void append_tei_ranking(std::string& out, std::span<const RankedDocument> documents) {
  json::Writer json(out);
  json.begin_array();
  for (const RankedDocument& document : documents) {
    json.begin_object().key("index").value(document.index);
    if (document.text) {
      json.key("text").value(*document.text);
    }
    json.key("score").value(document.score).end_object();
  }
  json.end_array();
}

void append_vectors(std::string& out, std::span<const PoolRow> rows) {
  reserve(out, rows, PoolEncoding::kFloat);
  json::Writer json(out);
  json.begin_array();
  for (const PoolRow& row : rows) {
    write_row(out, json, row, PoolEncoding::kFloat);
  }
  json.end_array();
}

void append_predictions(std::string& out, std::span<const PoolRow> rows,
                        std::span<const std::string> labels, bool is_batch) {
  json::Writer json(out);
  if (is_batch) {
    json.begin_array();
  }
  std::vector<size_t> order;
  for (const PoolRow& row : rows) {
    order.resize(row.values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) {
      return row.values[a] != row.values[b] ? row.values[a] > row.values[b] : a < b;
    });
    json.begin_array();
    for (const size_t at : order) {
      json.begin_object().key("score").value(row.values[at]).key("label");
      json.value(at < labels.size() ? labels[at] : "LABEL_" + std::to_string(at)).end_object();
    }
    json.end_array();
  }
  if (is_batch) {
    json.end_array();
  }
}

void append_numbers(std::string& out, std::span<const float> numbers) {
  json::Writer json(out);
  write_numbers(json, numbers);
}

namespace {

/// Eight numbers to a byte, the first one the highest bit: whether they are above 0.
void write_signs(json::Writer& json, std::span<const float> values, bool is_signed) {
  json.begin_array();
  for (size_t at = 0; at < values.size(); at += 8) {
    int bits = 0;
    for (size_t i = 0; i < 8; ++i) {
      bits = bits << 1 | (at + i < values.size() && values[at + i] > 0 ? 1 : 0);
    }
    json.value(is_signed ? bits - 128 : bits);
  }
  json.end_array();
}

}  // namespace

void append_cohere_embeddings(std::string& out, const PoolFrame& frame,
                              std::span<const PoolRow> rows, const CohereAnswer& answer) {
  reserve(out, rows, PoolEncoding::kFloat);
  json::Writer json(out);
  json.begin_object().key("id").value(frame.identity.id).key("embeddings").begin_object();
  const auto write_all = [&](std::string_view name, bool wanted, const auto& write) {
    if (!wanted) {
      return;
    }
    json.key(name).begin_array();
    for (const PoolRow& row : rows) {
      write(row);
    }
    json.end_array();
  };
  write_all("float", answer.forms.as_float,
            [&](const PoolRow& row) { write_row(out, json, row, PoolEncoding::kFloat); });
  write_all("base64", answer.forms.as_base64,
            [&](const PoolRow& row) { write_row(out, json, row, PoolEncoding::kBase64); });
  write_all("binary", answer.forms.as_binary,
            [&](const PoolRow& row) { write_signs(json, row.values, true); });
  write_all("ubinary", answer.forms.as_ubinary,
            [&](const PoolRow& row) { write_signs(json, row.values, false); });
  json.end_object().key("texts").begin_array();
  for (const std::string_view text : answer.texts) {
    json.value(text);
  }
  json.end_array().key("meta").begin_object();
  json.key("api_version").raw(R"({"version":"2"})");
  json.key("billed_units").begin_object();
  json.key("input_tokens").value(frame.prompt_tokens).key("image_tokens").value(0).end_object();
  json.end_object().key("response_type").value("embeddings_by_type").end_object();
}

void append_binary(std::string& out, std::span<const PoolRow> rows) {
  for (const PoolRow& row : rows) {
    out.append(reinterpret_cast<const char*>(row.values.data()), row.values.size_bytes());
  }
}

std::string binary_metadata(const PoolFrame& frame, std::span<const PoolRow> rows) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  json.key("id").value(frame.identity.id);
  json.key("created").value(frame.identity.created_s);
  json.key("model").value(frame.identity.model);
  json.key("data").begin_array();
  size_t start = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PoolRow& row = rows[i];
    json.begin_object().key("index").value(i).key("embed_dtype").value("float32");
    json.key("endianness").value("little");
    json.key("start").value(start).key("end").value(start + row.values.size_bytes());
    json.key("shape").begin_array();
    if (row.is_matrix) {
      json.value(row.values.size() / row.width);
    }
    json.value(row.is_matrix ? size_t{row.width} : row.values.size());
    json.end_array().end_object();
    start += row.values.size_bytes();
  }
  json.end_array();
  write_usage(json, frame);
  json.end_object();
  return out;
}

void shorten(std::vector<float>& values, uint32_t width, uint32_t dimensions) {
  const size_t rows = values.size() / width;
  for (size_t row = 0; row < rows; ++row) {
    const float* from = values.data() + row * width;
    float* to = values.data() + row * dimensions;
    double sum = 0;
    for (uint32_t i = 0; i < dimensions; ++i) {
      sum += static_cast<double>(from[i]) * from[i];
    }
    const auto factor = static_cast<float>(sum > 0 ? 1 / std::sqrt(sum) : 0);
    for (uint32_t i = 0; i < dimensions; ++i) {
      to[i] = from[i] * factor;
    }
  }
  values.resize(rows * dimensions);
}

}  // namespace stator::api
