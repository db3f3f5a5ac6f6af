// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::engine::cpu {

/// How the vectors of a text's tokens become one.
enum class Pooling : uint8_t { kCls, kMean, kMax, kLast };

/// What stands behind the last layer.
enum class HeadActivation : uint8_t { kNone, kSigmoid, kSoftmax };

/// What config.json and the files of sentence-transformers beside it say about a model that does
/// not generate.
struct PoolingSpec {
  enum class Family : uint8_t {
    kBert,     ///< BertModel and its like: encoders with token types
    kRoberta,  ///< RobertaModel, XLMRobertaModel: positions begin behind the padding's
    kDecoder,  ///< LlamaModel, Qwen2Model, …: causal
  };
  Family family = Family::kBert;
  std::string architecture;
  bool classifies = false;  ///< it has a classification head: probabilities or scores, no vectors
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  uint32_t tokens_max = 0;          ///< of sentence_bert_config.json; 0: what the model allows
  std::vector<std::string> labels;  ///< of classifiers, by index
  HeadActivation activation = HeadActivation::kSoftmax;
};

/// Texts of the files; empty: there is none.
struct PoolingFiles {
  std::string config;         ///< config.json
  std::string modules;        ///< modules.json
  std::string pooling;        ///< config.json of the folder that modules.json names, "1_Pooling"
  std::string sentence_bert;  ///< sentence_bert_config.json
  std::string cross_encoder;  ///< config_sentence_transformers.json
};
Result<PoolingFiles> read_pooling_files(const std::string& folder);

/// None: the model generates. With `wanted` "embed" a model that could generate is one that embeds,
/// by its last token; "generate" is always none. kUnsupported for an architecture that neither
/// generates nor is known here; kCorrupt names file and field.
Result<std::optional<PoolingSpec>> parse_pooling_spec(const PoolingFiles& files,
                                                      std::string_view wanted);

/// JSON of a file; kCorrupt names it.
Result<json::Value> parse_file(std::string_view text, std::string_view name);

}  // namespace stator::engine::cpu
