// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_shape.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>

#include "stator/io/read_file.h"

namespace stator::perf {
namespace {

constexpr uint64_t kSizeMax = 1ULL << 24;

class ConfigReader {
 public:
  ConfigReader(simdjson::dom::object fields, std::string_view name)
      : fields_(fields), name_(name) {}

  bool has(std::string_view field) const {
    simdjson::dom::element element;
    return fields_[field].get(element) == simdjson::SUCCESS && !element.is_null();
  }
  Result<uint32_t> size(std::string_view field) const {
    uint64_t value = 0;
    if (fields_[field].get(value) != simdjson::SUCCESS || value == 0 || value > kSizeMax) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("'{}': {} must be a whole number from 1 to {}", name_, field, kSizeMax));
    }
    return static_cast<uint32_t>(value);
  }

 private:
  simdjson::dom::object fields_;
  std::string_view name_;
};

Result<ModelShape> read_fields(const ConfigReader& config) {
  ModelShape shape;
  STATOR_TRY(shape.layers, config.size("num_hidden_layers"));
  STATOR_TRY(shape.hidden, config.size("hidden_size"));
  STATOR_TRY(shape.heads, config.size("num_attention_heads"));
  STATOR_TRY(shape.vocabulary, config.size("vocab_size"));
  shape.kv_heads = shape.heads;
  if (config.has("num_key_value_heads")) {
    STATOR_TRY(shape.kv_heads, config.size("num_key_value_heads"));
  }
  shape.head_dim = std::max(1U, shape.hidden / shape.heads);
  if (config.has("head_dim")) {
    STATOR_TRY(shape.head_dim, config.size("head_dim"));
  }
  for (const std::string_view field : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    if (config.has(field)) {
      STATOR_TRY(shape.experts, config.size(field));
      STATOR_TRY(shape.experts_per_token, config.size("num_experts_per_tok"));
    }
  }
  const bool own = shape.experts > 0 && config.has("moe_intermediate_size");
  STATOR_TRY(shape.intermediate, config.size(own ? "moe_intermediate_size" : "intermediate_size"));
  return shape;
}

}  // namespace

Result<ModelShape> parse_model_shape(std::string_view json, std::string_view name) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) {
    return Error(Code::kInvalidArgument, fmt::format("'{}': expected a JSON object", name));
  }
  simdjson::dom::object nested;
  const bool is_nested = root["text_config"].get(nested) == simdjson::SUCCESS;
  return read_fields(ConfigReader(is_nested ? nested : root, name));
}

Result<ModelShape> read_model_shape(const std::string& path) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file)) {
    file /= "config.json";
  }
  STATOR_TRY(const std::string text, io::read_file(file));
  return parse_model_shape(text, file.string());
}

}  // namespace stator::perf
