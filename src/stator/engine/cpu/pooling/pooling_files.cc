// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/pooling_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "stator/io/read_file.h"

namespace stator::engine::cpu {
namespace {

namespace fs = std::filesystem;
using Family = PoolingSpec::Family;

constexpr size_t kFileBytesMax = size_t{16} << 20;
constexpr size_t kLabelsMax = 4096;

/// Empty if it does not exist.
Result<std::string> read_optional(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return std::string();
  }
  return io::read_file(path, kFileBytesMax);
}

struct Architecture {
  std::string_view name;
  Family family;
  bool classifies;
};
constexpr auto kArchitectures = std::to_array<Architecture>({
    {"BertModel", Family::kBert, false},
    {"BertForSequenceClassification", Family::kBert, true},
    {"RobertaModel", Family::kRoberta, false},
    {"RobertaForSequenceClassification", Family::kRoberta, true},
    {"XLMRobertaModel", Family::kRoberta, false},
    {"XLMRobertaForSequenceClassification", Family::kRoberta, true},
    {"CamembertModel", Family::kRoberta, false},
    {"LlamaModel", Family::kDecoder, false},
    {"MistralModel", Family::kDecoder, false},
    {"Qwen2Model", Family::kDecoder, false},
    {"Qwen3Model", Family::kDecoder, false},
    {"LlamaForSequenceClassification", Family::kDecoder, true},
    {"MistralForSequenceClassification", Family::kDecoder, true},
    {"Qwen2ForSequenceClassification", Family::kDecoder, true},
    {"Qwen3ForSequenceClassification", Family::kDecoder, true},
});

constexpr std::string_view kCausalSuffix = "ForCausalLM";

/// Which of the modules is the pooling, as a folder; empty: none.
std::string_view pooling_folder(const json::Value& modules) {
  for (const json::Value& module : modules.elements()) {
    if (module.text_at({"type"}).ends_with("Pooling")) {
      return module.text_at({"path"});
    }
  }
  return {};
}

bool has_module(const json::Value& modules, std::string_view suffix) {
  return std::ranges::any_of(modules.elements(), [&](const json::Value& module) {
    return module.text_at({"type"}).ends_with(suffix);
  });
}

bool flag(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->as_bool().value_or(false);
}

Result<Pooling> read_pooling(const json::Value& pooling) {
  const std::string_view mode = pooling.text_at({"pooling_mode"});  // newer files
  if (mode == "cls" || flag(pooling, "pooling_mode_cls_token")) {
    return Pooling::kCls;
  }
  if (mode == "mean" || flag(pooling, "pooling_mode_mean_tokens")) {
    return Pooling::kMean;
  }
  if (mode == "max" || flag(pooling, "pooling_mode_max_tokens")) {
    return Pooling::kMax;
  }
  if (mode == "lasttoken" || flag(pooling, "pooling_mode_lasttoken")) {
    return Pooling::kLast;
  }
  return Error(Code::kUnsupported,
               "the pooling mode of modules.json is not supported by the CPU engine; supported are "
               "cls, mean, max and lasttoken");
}

Status read_sentence_transformers(const PoolingFiles& files, PoolingSpec& spec) {
  if (!files.modules.empty()) {
    STATOR_TRY(const json::Value modules, parse_file(files.modules, "modules.json"));
    spec.normalize = has_module(modules, "Normalize");
    if (!pooling_folder(modules).empty() && files.pooling.empty()) {
      return Error(Code::kNotFound,
                   fmt::format("modules.json names {}/config.json, which is not there: how vectors "
                               "are pooled is not known; fetch the model again",
                               pooling_folder(modules)));
    }
    if (has_module(modules, "Dense")) {
      return Error(Code::kUnsupported,
                   "modules.json: a Dense module is not supported by the CPU engine");
    }
  }
  if (!files.pooling.empty()) {
    STATOR_TRY(const json::Value pooling, parse_file(files.pooling, "the pooling's config.json"));
    STATOR_TRY(spec.pooling, read_pooling(pooling));
  }
  if (!files.sentence_bert.empty()) {
    STATOR_TRY(const json::Value config,
               parse_file(files.sentence_bert, "sentence_bert_config.json"));
    const json::Value* most = config.find("max_seq_length");
    spec.tokens_max =
        most == nullptr
            ? 0
            : static_cast<uint32_t>(std::min<uint64_t>(most->as_uint64().value_or(0), UINT32_MAX));
  }
  return {};
}

/// id2label, else as many as num_labels says, named as transformers names them.
Status read_labels(const json::Value& config, PoolingSpec& spec) {
  const json::Value* names = config.find("id2label");
  const json::Value* count = config.find("num_labels");
  size_t labels = 2;
  if (names != nullptr && names->is_object() && names->size() > 0) {
    labels = names->size();
  } else if (count != nullptr) {
    labels = static_cast<size_t>(count->as_uint64().value_or(0));
  }
  if (labels == 0 || labels > kLabelsMax) {
    return Error(Code::kCorrupt,
                 fmt::format("config.json: {} labels, must be 1 … {}", labels, kLabelsMax));
  }
  for (size_t i = 0; i < labels; ++i) {
    const json::Value* name = names == nullptr ? nullptr : names->find(std::to_string(i));
    spec.labels.push_back(name != nullptr && name->is_string() ? std::string(name->text())
                                                               : fmt::format("LABEL_{}", i));
  }
  const bool several = config.text_at({"problem_type"}) == "multi_label_classification";
  spec.activation = labels == 1 || several ? HeadActivation::kSigmoid : HeadActivation::kSoftmax;
  return {};
}

/// Cross-encoders may say that their raw score is meant.
Status read_activation(const json::Value& config, const PoolingFiles& files, PoolingSpec& spec) {
  std::string_view name = config.text_at({"sbert_ce_default_activation_function"});
  if (name.empty()) {
    name = config.text_at({"sentence_transformers", "activation_fn"});
  }
  json::Value more;
  if (name.empty() && !files.cross_encoder.empty()) {
    STATOR_TRY(more, parse_file(files.cross_encoder, "config_sentence_transformers.json"));
    name = more.text_at({"activation_fn"});
  }
  if (name.ends_with("Identity")) {
    spec.activation = HeadActivation::kNone;
  } else if (name.ends_with("Sigmoid")) {
    spec.activation = HeadActivation::kSigmoid;
  }
  return {};
}

}  // namespace

Result<json::Value> parse_file(std::string_view text, std::string_view name) {
  auto value = json::parse(text);
  if (!value) {
    return std::move(value.error()).with_code(Code::kCorrupt).with_context(std::string(name));
  }
  return value;
}

Result<PoolingFiles> read_pooling_files(const std::string& folder) {
  const fs::path root(folder);
  PoolingFiles files;
  STATOR_TRY(files.config, read_optional(root / "config.json"));
  STATOR_TRY(files.modules, read_optional(root / "modules.json"));
  STATOR_TRY(files.sentence_bert, read_optional(root / "sentence_bert_config.json"));
  STATOR_TRY(files.cross_encoder, read_optional(root / "config_sentence_transformers.json"));
  if (!files.modules.empty()) {
    STATOR_TRY(const json::Value modules, parse_file(files.modules, "modules.json"));
    const fs::path path(pooling_folder(modules));
    if (path.is_absolute() || std::ranges::find(path, "..") != path.end()) {
      return Error(Code::kCorrupt, "modules.json: the path of a module leads out of the folder");
    }
    if (!path.empty()) {
      STATOR_TRY(files.pooling, read_optional(root / path / "config.json"));
    }
  }
  return files;
}

Result<std::optional<PoolingSpec>> parse_pooling_spec(const PoolingFiles& files,
                                                      std::string_view wanted) {
  if (files.config.empty() || wanted == "generate") {
    return std::optional<PoolingSpec>();
  }
  STATOR_TRY(const json::Value config, parse_file(files.config, "config.json"));
  const json::Value* all = config.find("architectures");
  const std::string name(all == nullptr || all->size() == 0 ? "" : all->elements()[0].text());
  PoolingSpec spec{.architecture = name};
  if (name.ends_with(kCausalSuffix)) {
    // A generating model's folder may be one for sentence-transformers, too: then it is for that.
    if (files.pooling.empty() && wanted != "embed") {
      return std::optional<PoolingSpec>();
    }
    spec.family = Family::kDecoder;
  } else {
    const auto* const known = std::ranges::find(kArchitectures, name, &Architecture::name);
    if (known == kArchitectures.end()) {
      return std::optional<PoolingSpec>();  // the reader of generating models names what it lacks
    }
    spec.family = known->family;
    spec.classifies = known->classifies;
  }
  // Without files of sentence-transformers: as vLLM does it.
  spec.pooling = spec.family == Family::kDecoder ? Pooling::kLast : Pooling::kCls;
  STATOR_CHECK(read_sentence_transformers(files, spec));
  if (spec.classifies) {
    STATOR_CHECK(read_labels(config, spec));
    STATOR_CHECK(read_activation(config, files, spec));
  }
  return std::optional(std::move(spec));
}

}  // namespace stator::engine::cpu
