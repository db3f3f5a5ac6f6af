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
      if (module == pattern || (module.ends_with(pattern) && at_dot)) {
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
    out.emplace_back(member.key, value);
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
  if (const json::Value* saved = root.find("modules_to_save");
      saved != nullptr && saved->size() > 0) {
    return unsupported("modules_to_save: whole modules of an adapter are not read");
  }
  LoraConfig config{.by_root = is_true(root, "use_rslora")};
  STATOR_TRY(config.rank, number(root, "r"));
  STATOR_TRY(config.alpha, number(root, "lora_alpha"));
  STATOR_TRY(config.ranks, patterns(root, "rank_pattern"));
  STATOR_TRY(config.alphas, patterns(root, "alpha_pattern"));
  return config;
}

/// A module of the model: which matrices of which layer it is, and their sizes.
struct Module {
  uint32_t layer = 0;
  std::vector<LoraTarget> targets;  ///< on top of each other
  std::vector<uint64_t> outputs;    ///< of each
  uint64_t inputs = 0;
};

Result<Module> find_module(std::string_view name, const ModelConfig& model) {
  const auto refuse = [&] {
    return unsupported(fmt::format(
        "module '{}' is not one the CPU engine adapts; they are self_attn.{{q,k,v,o}}_proj "
        "and mlp.{{gate,up,down}}_proj of the layers 0 to {}",
        name.substr(0, 128), model.layers - 1));
  };
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) {
    return refuse();
  }
  std::string_view rest = name.substr(kLayers.size());
  Module out;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.layer);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.' ||
      out.layer >= model.layers) {
    return refuse();
  }
  rest = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  const uint64_t query = uint64_t{model.heads} * model.head_dim;
  const uint64_t key = uint64_t{model.kv_heads} * model.head_dim;
  const uint64_t inner = model.intermediate_size;
  const bool dense = model.experts.count == 0 || model.experts.dense_layers[out.layer];
  using enum LoraTarget;
  struct Row {
    std::string_view name;
    bool there;
    std::vector<LoraTarget> targets;
    std::vector<uint64_t> outputs;
    uint64_t inputs;
  };
  const bool fused = model.query_key_value_fused;
  const bool joined = model.gate_up_fused;
  const std::vector<Row> rows = {
      {"self_attn.q_proj", !fused, {kQuery}, {query}, model.hidden_size},
      {"self_attn.k_proj", !fused, {kKey}, {key}, model.hidden_size},
      {"self_attn.v_proj", !fused, {kValue}, {key}, model.hidden_size},
      {"self_attn.qkv_proj", fused, {kQuery, kKey, kValue}, {query, key, key}, model.hidden_size},
      {"self_attn.o_proj", true, {kOutput}, {model.hidden_size}, query},
      {"mlp.gate_proj", dense && !joined, {kGate}, {inner}, model.hidden_size},
      {"mlp.up_proj", dense && !joined, {kUp}, {inner}, model.hidden_size},
      {"mlp.gate_up_proj", dense && joined, {kGate, kUp}, {inner, inner}, model.hidden_size},
      {"mlp.down_proj", dense, {kDown}, {model.hidden_size}, inner}};
  const auto found = std::ranges::find(rows, rest, &Row::name);
  if (found == rows.end() || !found->there) {
    return refuse();
  }
  out.targets = found->targets;
  out.outputs = found->outputs;
  out.inputs = found->inputs;
  return out;
}

struct Halves {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
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
    const bool is_a = half == "lora_A.weight" || half == "lora_A.default.weight";
    const bool is_b = half == "lora_B.weight" || half == "lora_B.default.weight";
    if (!is_a && !is_b) {
      return unsupported(
          fmt::format("tensor '{}' is no matrix lora_A or lora_B of a linear layer", name));
    }
    if (tensor.shape.size() != 2 || (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 &&
                                     tensor.dtype != Dtype::kBf16)) {
      return corrupt(fmt::format("tensor '{}' is no matrix of F32, F16 or BF16", name));
    }
    Halves& halves = modules[std::string(module.substr(0, at))];
    (is_a ? halves.a : halves.b) = &tensor;
  }
  return modules;
}

Status check_sizes(std::string_view name, const Halves& halves, const Module& module,
                   uint64_t rank) {
  if (halves.a == nullptr || halves.b == nullptr) {
    return corrupt(fmt::format("module '{}' has no matrix {}", name,
                               halves.a == nullptr ? "lora_A" : "lora_B"));
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

Status add_module(const Halves& halves, const Module& module, float scale, LoraAdapter& out) {
  const size_t row = row_bytes(halves.b->dtype, halves.b->shape[1]);
  uint64_t first = 0;
  for (size_t i = 0; i < module.targets.size(); ++i) {
    LoraPair& pair = out.layers[module.layer][static_cast<size_t>(module.targets[i])];
    const TensorView b{.dtype = halves.b->dtype,
                       .shape = {module.outputs[i], halves.b->shape[1]},
                       .bytes = halves.b->bytes.subspan(first * row, module.outputs[i] * row)};
    first += module.outputs[i];
    STATOR_TRY(pair.a, PackedMatrix::pack({halves.a, 1}));
    STATOR_TRY(pair.b, PackedMatrix::pack({&b, 1}));
    pair.scale = scale;
    out.bytes += halves.a->bytes.size() + b.bytes.size();
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
    const double divisor = config.by_root ? std::sqrt(rank) : rank;
    STATOR_CHECK(add_module(halves, module, static_cast<float>(alpha / divisor), *out));
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
