// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "stator/core/hash.h"
#include "stator/engine/cpu/quantized.h"
#include "stator/io/mapped_file.h"
#include "stator/json/value.h"

namespace stator::engine::cpu {
namespace {

constexpr size_t kConfigBytesMax = 1U << 20U;
constexpr std::string_view kPrefix = "base_model.model.";

Error unsupported(std::string_view what) {
  return {Code::kUnsupported, fmt::format("LoRA adapter: {}", what)};
}
Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("LoRA adapter: {}", what)};
}

/// Part of adapter_config.json.
struct LoraConfig {
  double rank = 0;
  double alpha = 0;
  bool by_root = false;                               ///< alpha / √r rather than alpha / r
  std::vector<std::pair<std::string, double>> ranks;  ///< of modules, by the end of their names
  std::vector<std::pair<std::string, double>> alphas;

  static double pick(const std::vector<std::pair<std::string, double>>& patterns,
                     std::string_view module, double fallback) {
    for (const auto& [pattern, value] : patterns) {
      const bool at_dot =
          module.size() > pattern.size() && module[module.size() - pattern.size() - 1] == '.';
      if (module == pattern || (module.ends_with(pattern) && at_dot) ||
          (pattern.starts_with('^') && module == std::string_view(pattern).substr(1))) {
        return value;
      }
    }
    return fallback;
  }
};

bool is_true(const json::Value& root, std::string_view key) {
  const json::Value* found = root.find(key);
  return found != nullptr && found->as_bool().value_or(false);
}

Result<double> number(const json::Value& root, std::string_view key) {
  const json::Value* found = root.find(key);
  const std::optional<double> value =
      found != nullptr ? found->as_double() : std::optional<double>();
  if (!value || !std::isfinite(*value) || *value <= 0) {
    return corrupt(fmt::format("adapter_config.json: {} is not a number above 0", key));
  }
  return *value;
}

Result<std::vector<std::pair<std::string, double>>> patterns(const json::Value& root,
                                                             std::string_view key) {
  std::vector<std::pair<std::string, double>> out;
  const json::Value* found = root.find(key);
  if (found == nullptr || !found->is_object()) {
    return out;
  }
  for (const auto& member : found->members()) {
    STATOR_TRY(const double value, number(*found, member.key));
    std::string name;  // PEFT takes them for regular expressions
    for (size_t i = 0; i < member.key.size(); ++i) {
      const bool escaped_dot = std::string_view(member.key).substr(i).starts_with("\\.");
      if (!escaped_dot && std::string_view("\\*+?()[]{}|$").contains(member.key[i])) {
        return unsupported(
            fmt::format("{} '{}' is a regular expression; supported are names and ends of names",
                        key, member.key.substr(0, 128)));
      }
      i += escaped_dot ? 1 : 0;
      name += member.key[i];
    }
    out.emplace_back(std::move(name), value);
  }
  return out;
}

Result<LoraConfig> read_config(std::string_view text) {
  STATOR_TRY(const json::Value root, json::parse(text), "reading adapter_config.json");
  if (const auto type = root.text_at({"peft_type"}); !type.empty() && type != "LORA") {
    return unsupported(fmt::format("peft_type '{}'; supported is LORA", type.substr(0, 64)));
  }
  for (const std::string_view key : {"use_dora", "fan_in_fan_out", "use_qalora", "lora_bias"}) {
    if (is_true(root, key)) {
      return unsupported(fmt::format("{} is true, which the CPU engine does not compute", key));
    }
  }
  if (const auto bias = root.text_at({"bias"}); !bias.empty() && bias != "none") {
    return unsupported(fmt::format("bias '{}'; supported is none", bias.substr(0, 64)));
  }
  for (const std::string_view key : {"modules_to_save", "trainable_token_indices",
                                     "alora_invocation_tokens", "target_parameters"}) {
    const json::Value* found = root.find(key);
    if (found != nullptr && (found->size() > 0 || found->is_string())) {
      return unsupported(fmt::format(
          "{} is set; read are matrices of linear layers and of the embedding only", key));
    }
  }
  // These change the weights of the model, too.
  const std::string_view start = root.text_at({"init_lora_weights"});
  for (const std::string_view way : {"pissa", "olora", "corda", "loftq"}) {
    if (start.starts_with(way)) {
      return unsupported(fmt::format(
          "init_lora_weights '{}' changed the model's own weights; save the adapter with PEFT's "
          "path_initial_model_for_weight_conversion, which turns it into a plain one",
          start.substr(0, 64)));
    }
  }
  LoraConfig config{.by_root = is_true(root, "use_rslora")};
  STATOR_TRY(config.rank, number(root, "r"));
  STATOR_TRY(config.alpha, number(root, "lora_alpha"));
  STATOR_TRY(config.ranks, patterns(root, "rank_pattern"));
  STATOR_TRY(config.alphas, patterns(root, "alpha_pattern"));
  return config;
}

/// Rows of each head as GGUF orders them: element i of the lower half, then that of the upper one.
std::vector<std::byte> pair_rows(std::span<const std::byte> rows, size_t row, size_t head_dim) {
  std::vector<std::byte> out(rows.size());
  for (size_t i = 0; i * row < rows.size(); ++i) {
    const size_t head = i / head_dim * head_dim;
    const size_t from = head + i % 2 * (head_dim / 2) + (i - head) / 2;
    std::ranges::copy(rows.subspan(from * row, row), out.begin() + static_cast<ptrdiff_t>(i * row));
  }
  return out;
}

/// A module of the model: which matrices it is, and their sizes.
struct Module {
  enum class Kind : uint8_t { kLayer, kExpert, kEmbedding, kHead };
  Kind kind = Kind::kLayer;
  uint32_t layer = 0;
  uint32_t expert = 0;
  std::vector<LoraTarget> targets;  ///< on top of each other
  std::vector<uint64_t> outputs;    ///< of each
  uint64_t inputs = 0;
};

/// Takes "NUMBER." off the front.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

/// A projection by its name within a layer, or within an expert of it as if that were the MLP.
Status find_projection(std::string_view name, const ModelConfig& model, Module& out) {
  const uint64_t query = uint64_t{model.heads} * model.head_dim;
  const uint64_t key = uint64_t{model.kv_heads} * model.head_dim;
  const uint64_t hidden = model.hidden_size;
  const bool dense = model.experts.count == 0 || model.experts.dense_layers[out.layer];
  const bool whole = out.kind == Module::Kind::kLayer;
  const bool mlp = dense || !whole;
  const uint64_t inner = whole ? model.intermediate_size : model.experts.inner_size;
  const bool fused = model.query_key_value_fused;
  const bool joined = model.gate_up_fused;
  using enum LoraTarget;
  struct Row {
    std::string_view name;
    bool there;
    std::vector<LoraTarget> targets;
    std::vector<uint64_t> outputs;
    uint64_t inputs;
  };
  const std::vector<Row> rows = {
      {"self_attn.q_proj", whole && !fused, {kQuery}, {query}, hidden},
      {"self_attn.k_proj", whole && !fused, {kKey}, {key}, hidden},
      {"self_attn.v_proj", whole && !fused, {kValue}, {key}, hidden},
      {"self_attn.qkv_proj", whole && fused, {kQuery, kKey, kValue}, {query, key, key}, hidden},
      {"self_attn.o_proj", whole, {kOutput}, {hidden}, query},
      {"mlp.gate", !mlp, {kRouter}, {model.experts.count}, hidden},
      {"mlp.gate_proj", mlp && !joined, {kGate}, {inner}, hidden},
      {"mlp.up_proj", mlp && !joined, {kUp}, {inner}, hidden},
      {"mlp.gate_up_proj", mlp && joined, {kGate, kUp}, {inner, inner}, hidden},
      {"mlp.down_proj", mlp, {kDown}, {hidden}, inner}};
  const auto found = std::ranges::find(rows, name, &Row::name);
  if (found == rows.end() || !found->there) {
    return unsupported("no such projection");
  }
  out.targets = found->targets;
  out.outputs = found->outputs;
  out.inputs = found->inputs;
  return {};
}

Status find_in_layer(std::string_view name, const ModelConfig& model, Module& out) {
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!name.starts_with(kExperts)) {
    return find_projection(name, model, out);
  }
  std::string_view module = name.substr(kExperts.size());
  const auto expert = take_number(module);
  // gpt-oss has all experts in one tensor.
  if (!expert || *expert >= model.experts.count || model.experts.dense_layers[out.layer] ||
      model.activation == Activation::kClampedSwiglu) {
    return unsupported("no such expert");
  }
  out.kind = Module::Kind::kExpert;
  out.expert = *expert;
  return find_projection(fmt::format("mlp.{}", module), model, out);
}

Result<Module> find_module(std::string_view name, const ModelConfig& model) {
  if (name == "model.embed_tokens") {
    return Module{.kind = Module::Kind::kEmbedding,
                  .targets = {},
                  .outputs = {model.hidden_size},
                  .inputs = model.vocab_size};
  }
  if (name == "lm_head") {
    return Module{.kind = Module::Kind::kHead,
                  .targets = {},
                  .outputs = {model.vocab_size},
                  .inputs = model.hidden_size};
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (name.starts_with(kLayers)) {
    std::string_view rest = name.substr(kLayers.size());
    const auto layer = take_number(rest);
    Module out{.layer = layer.value_or(0), .targets = {}, .outputs = {}};
    if (layer && *layer < model.layers && find_in_layer(rest, model, out)) {
      return out;
    }
  }
  return unsupported(fmt::format(
      "module '{}' is not one the CPU engine adapts; they are self_attn.{{q,k,v,o}}_proj and "
      "mlp.{{gate,up,down}}_proj{} of the layers 0 to {}, model.embed_tokens and lm_head",
      name.substr(0, 128),
      model.experts.count == 0 ? "" : ", mlp.gate and mlp.experts.N.{gate,up,down}_proj",
      model.layers - 1));
}

struct Halves {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
  bool of_embedding = false;
};

/// "base_model.model.X.lora_A.weight" → half A of module X.
Result<FlatMap<std::string, Halves>> pair_up(const TensorMap& tensors) {
  FlatMap<std::string, Halves> modules;
  for (const auto& [name, tensor] : tensors) {
    std::string_view module = name;
    if (!module.starts_with(kPrefix)) {
      return unsupported(fmt::format("tensor '{}' does not begin with '{}'", name, kPrefix));
    }
    module.remove_prefix(kPrefix.size());
    const size_t at = module.rfind(".lora_");
    const std::string_view half = at == module.npos ? "" : module.substr(at + 1);
    const bool of_embedding = half.starts_with("lora_embedding_");
    const bool is_a = half == "lora_A.weight" || half == "lora_A.default.weight" ||
                      half == "lora_embedding_A" || half == "lora_embedding_A.default";
    const bool is_b = half == "lora_B.weight" || half == "lora_B.default.weight" ||
                      half == "lora_embedding_B" || half == "lora_embedding_B.default";
    if (!is_a && !is_b) {
      return unsupported(fmt::format(
          "tensor '{}' is no matrix lora_A or lora_B of a linear layer or embedding", name));
    }
    if (tensor.shape.size() != 2 || (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 &&
                                     tensor.dtype != Dtype::kBf16)) {
      return corrupt(fmt::format("tensor '{}' is no matrix of F32, F16 or BF16", name));
    }
    Halves& halves = modules[std::string(module.substr(0, at))];
    (is_a ? halves.a : halves.b) = &tensor;
    halves.of_embedding = of_embedding;
  }
  return modules;
}

Status check_sizes(std::string_view name, const Halves& halves, const Module& module,
                   uint64_t rank) {
  if (halves.a == nullptr || halves.b == nullptr) {
    return corrupt(fmt::format("module '{}' has no matrix {}", name,
                               halves.a == nullptr ? "lora_A" : "lora_B"));
  }
  if (halves.of_embedding != (module.kind == Module::Kind::kEmbedding)) {
    return corrupt(
        fmt::format("module '{}' is {} embedding", name, halves.of_embedding ? "no" : "an"));
  }
  uint64_t outputs = 0;
  for (const uint64_t count : module.outputs) {
    outputs += count;
  }
  if (halves.a->shape[0] != rank || halves.b->shape[1] != rank) {
    return corrupt(
        fmt::format("module '{}' has rank {} (lora_A) and {} (lora_B), "
                    "adapter_config.json says r = {}",
                    name, halves.a->shape[0], halves.b->shape[1], rank));
  }
  if (halves.a->shape[1] != module.inputs || halves.b->shape[0] != outputs) {
    return corrupt(
        fmt::format("module '{}' maps {} inputs to {} outputs, the model's has {} and {}", name,
                    halves.a->shape[1], halves.b->shape[0], module.inputs, outputs));
  }
  return {};
}

Status add_embedding(const Halves& halves, float scale, LoraEmbedding& out) {
  const uint64_t rank = halves.a->shape[0];
  const uint64_t vocabulary = halves.a->shape[1];
  const auto padded = static_cast<uint64_t>(round_up_lanes(static_cast<int64_t>(rank)));
  const std::vector<float> by_rank = to_floats(*halves.a);
  out.a.assign(vocabulary * padded, 0.0F);
  for (uint64_t r = 0; r < rank; ++r) {
    for (uint64_t token = 0; token < vocabulary; ++token) {
      out.a[token * padded + r] = by_rank[r * vocabulary + token];
    }
  }
  STATOR_TRY(out.b, PackedMatrix::pack({halves.b, 1}));
  out.scale = scale;
  return {};
}

Status add_module(const Halves& halves, const Module& module, float scale, size_t paired_dim,
                  LoraAdapter& out) {
  out.bytes += halves.a->bytes.size() + halves.b->bytes.size();
  if (module.kind == Module::Kind::kEmbedding) {
    return add_embedding(halves, scale, out.embedding);
  }
  LoraPairs* pairs = module.kind == Module::Kind::kExpert
                         ? &out.experts[module.layer][module.expert]
                         : &out.layers[module.layer];
  const size_t row = row_bytes(halves.b->dtype, halves.b->shape[1]);
  uint64_t first = 0;
  for (size_t i = 0; i < module.outputs.size(); ++i) {
    LoraPair& pair = module.kind == Module::Kind::kHead
                         ? out.head
                         : (*pairs)[static_cast<size_t>(module.targets[i])];
    TensorView b{.dtype = halves.b->dtype,
                 .shape = {module.outputs[i], halves.b->shape[1]},
                 .bytes = halves.b->bytes.subspan(first * row, module.outputs[i] * row)};
    first += module.outputs[i];
    std::vector<std::byte> paired;
    if (paired_dim != 0 && !module.targets.empty() &&
        (module.targets[i] == LoraTarget::kQuery || module.targets[i] == LoraTarget::kKey)) {
      paired = pair_rows(b.bytes, row, paired_dim);
      b.bytes = paired;
    }
    STATOR_TRY(pair.a, PackedMatrix::pack({halves.a, 1}));
    STATOR_TRY(pair.b, PackedMatrix::pack({&b, 1}));
    pair.scale = scale;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const LoraAdapter>> make_lora(std::string_view config_json,
                                                     const TensorMap& tensors,
                                                     const ModelConfig& model, uint32_t rank_max) {
  STATOR_TRY(const LoraConfig config, read_config(config_json));
  STATOR_TRY(const auto modules, pair_up(tensors));
  if (modules.empty()) {
    return corrupt("adapter_model.safetensors holds no matrix");
  }
  std::vector<std::string_view> names;
  for (const auto& [name, halves] : modules) {
    names.push_back(name);
  }
  std::ranges::sort(names);
  auto out = std::make_shared<LoraAdapter>();
  out->layers.resize(model.layers);
  out->experts.resize(model.layers);
  uint64_t digest = xxh3_64(std::as_bytes(std::span(config_json)));
  for (const std::string_view name : names) {
    const Halves& halves = modules.find(name)->second;
    STATOR_TRY(const Module module, find_module(name, model));
    const double rank = LoraConfig::pick(config.ranks, name, config.rank);
    const double alpha = LoraConfig::pick(config.alphas, name, config.alpha);
    if (rank != std::floor(rank)) {
      return corrupt(fmt::format("module '{}' has rank {}, which is no whole number", name, rank));
    }
    if (rank > rank_max) {
      return unsupported(fmt::format("module '{}' has rank {}, which is above --max-lora-rank {}",
                                     name, rank, rank_max));
    }
    STATOR_CHECK(check_sizes(name, halves, module, static_cast<uint64_t>(rank)));
    if (module.kind == Module::Kind::kExpert) {
      out->experts[module.layer].resize(model.experts.count);
    }
    const double divisor = config.by_root ? std::sqrt(rank) : rank;
    STATOR_CHECK(add_module(halves, module, static_cast<float>(alpha / divisor),
                            model.query_key_paired ? model.head_dim : 0, *out));
    out->rank = std::max(out->rank, static_cast<uint32_t>(rank));
    for (const TensorView* half : {halves.a, halves.b}) {
      const std::string line = fmt::format("{:016x}{}{:016x}", digest, name, xxh3_64(half->bytes));
      digest = xxh3_64(std::as_bytes(std::span(line)));
    }
  }
  out->digest = fmt::format("{:016x}", digest);
  return out;
}

Result<std::shared_ptr<const LoraAdapter>> load_lora(const std::string& folder,
                                                     const ModelConfig& model, uint32_t rank_max) {
  const std::string context = fmt::format("loading LoRA adapter {}", folder);
  STATOR_TRY(const io::MappedFile config, io::MappedFile::open(folder + "/adapter_config.json"),
             context);
  if (config.bytes().size() > kConfigBytesMax) {
    return corrupt(
        fmt::format("{}/adapter_config.json is larger than {} bytes", folder, kConfigBytesMax));
  }
  const std::string path = folder + "/adapter_model.safetensors";
  STATOR_TRY(const io::MappedFile weights, io::MappedFile::open(path), context);
  STATOR_TRY(const std::vector<TensorInfo> infos, parse_safetensors_header(weights.bytes(), path),
             context);
  TensorMap tensors;
  for (const TensorInfo& info : infos) {
    tensors.emplace(
        info.name, TensorView{.dtype = info.dtype,
                              .shape = info.shape,
                              .bytes = weights.bytes().subspan(info.begin, info.end - info.begin)});
  }
  const std::string_view text(reinterpret_cast<const char*>(config.bytes().data()),
                              config.bytes().size());
  STATOR_TRY(std::shared_ptr<const LoraAdapter> out, make_lora(text, tensors, model, rank_max),
             context);
  return out;
}

}  // namespace stator::engine::cpu
