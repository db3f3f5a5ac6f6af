// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/engine_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "stator/perf/operator_database.h"

namespace stator::perf {
namespace {

constexpr double kMs = 1e3;
constexpr double kActivationBytes = 2;  // bfloat16
constexpr double kStateBytes = 4;       // of linear attention, float32

size_t at(Part part) {
  return static_cast<size_t>(part);
}

/// Longer and shorter of two times.
void add_roof(double math, double traffic, Part roof, PassParts& parts) {
  parts[at(roof)] += std::max(math, traffic);
  parts[at(roof) + 1] += std::min(math, traffic);
}

}  // namespace

Result<Backend> find_backend(std::string_view name) {
  std::string bare(name);
  std::ranges::transform(bare, bare.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  std::erase_if(bare, [](char c) { return c == '-' || c == '_'; });
  bare = bare == "tensorrtllm" ? "trtllm" : bare;
  for (const Backend backend : {Backend::kVllm, Backend::kSglang, Backend::kTrtllm}) {
    if (name_of(backend) == bare) {
      return backend;
    }
  }
  return Error(Code::kInvalidArgument,
               fmt::format("the backend must be vllm, sglang or trtllm, not '{}'", name));
}

std::string_view name_of(Backend backend) {
  return backend == Backend::kVllm ? "vllm" : backend == Backend::kSglang ? "sglang" : "trtllm";
}

std::string_view name_of(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kInterpolated:
      return "interpolated";
    case Provenance::kExtrapolated:
      return "extrapolated";
    case Provenance::kRoofline:
      break;
  }
  return "roofline";
}

Result<EngineModel> EngineModel::create(const EngineSpec& spec,
                                        const std::shared_ptr<const OperatorDatabase>& database) {
  EngineModel model(spec);
  STATOR_CHECK(model.build());
  if (database != nullptr) {
    model.attach(*database);
  }
  return model;
}

Status EngineModel::build() {
  const Parallelism& p = spec_.parallel;
  const ModelConfig& m = spec_.model;
  if (p.tp == 0 || p.pp == 0 || p.dp == 0 || p.moe_tp == 0 || p.moe_ep == 0) {
    return Error(Code::kInvalidArgument, "tp, pp, dp, moe_tp and moe_ep must be 1 or more");
  }
  // Ranks beyond the heads hold copies; many more are a mistake.
  if (p.tp > 4 * m.heads) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} attention heads cannot be cut over tp={}", m.heads, p.tp));
  }
  if (m.layers < p.pp) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} layers cannot be cut over pp={}", m.layers, p.pp));
  }
  if (m.is_moe() && (p.moe_ep > m.experts || p.moe_tp > m.expert_intermediate)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} experts cannot be cut over moe_ep={}", m.experts, p.moe_ep));
  }
  efficiency_ = find_efficiency(spec_);
  for (const LayerGroup& group : m.groups) {
    switch (group.attention) {
      case AttentionKind::kNone:
        break;
      case AttentionKind::kMla:
        add_mla(group);
        break;
      case AttentionKind::kLinear:
        add_linear(group);
        break;
      case AttentionKind::kFull:
      case AttentionKind::kWindow:
        add_attention(group);
        break;
    }
    add_ffn(group);
  }
  add_common();
  return {};
}

void EngineModel::add_product(double n, double k, double count, const QuantMode& mode) {
  const double flops = flops_of(spec_.system, mode);
  const double bandwidth = spec_.system.memory_bytes_per_s;
  FixedProduct product{
      .math_per_row = count * 2 * n * k / flops * kMs,
      .traffic = count * mode.bytes * n * k / bandwidth * kMs,
      .traffic_per_row = count * (mode.bytes * k + kActivationBytes * n) / bandwidth * kMs,
      .n = n,
      .k = k,
      .count = count,
      .dtype = mode.name};
  weight_bytes_ += count * mode.bytes * n * k / spec_.parallel.pp;
  products_.push_back(product);
}

void EngineModel::add_attention(const LayerGroup& group) {
  const ModelConfig& m = spec_.model;
  const double tp = spec_.parallel.tp, count = group.count;
  const auto of = [](uint32_t own, uint32_t usual) { return 1.0 * (own > 0 ? own : usual); };
  const double heads = std::max(1.0, of(group.heads, m.heads) / tp);
  const double kv_heads = std::max(1.0, of(group.kv_heads, m.kv_heads) / tp);
  const double d = of(group.head_dim, m.head_dim);
  const double v = group.v_dim > 0 ? group.v_dim : m.v_dim > 0 ? m.v_dim : d;
  const double kept = kv_heads * (d + (group.shared_kv ? 0 : v));  // values per key
  const double queries = heads * (m.output_gate ? 2 : 1) * d;
  if (m.q_lora > 0) {
    add_product(m.q_lora + kept, m.hidden, count, spec_.weights);
    add_product(queries, m.q_lora, count, spec_.weights);
  } else {
    add_product(queries + kept, m.hidden, count, spec_.weights);
  }
  if (m.o_lora > 0) {
    const double groups = std::max(1.0, m.o_groups / tp);
    add_product(m.o_lora, heads * v, count, spec_.weights);
    add_product(m.hidden, groups * m.o_lora, count, spec_.weights);
  } else {
    add_product(m.hidden, heads * v, count, spec_.weights);
  }
  const double flops = spec_.system.bfloat16_flops;
  const double bandwidth = spec_.system.memory_bytes_per_s;
  const double decode_flops = spec_.kv.lane == QuantMode::Lane::kFp8 ? 2 * flops : flops;
  const bool plain = group.stride == 1 && group.keys_max == 0 && !group.shared_kv;
  attentions_.push_back(
      {.kind = group.attention,
       .count = count,
       .window = static_cast<double>(group.keys_max > 0 ? group.keys_max : group.window),
       .keys_per_token = 1.0 / group.stride,
       .local = static_cast<double>(group.local),
       .context_math = 2 * heads * (d + v) / flops * kMs,
       .context_traffic =
           (kActivationBytes * heads * (d + v) + spec_.kv.bytes * kept) / bandwidth * kMs,
       .decode_math = 2 * heads * (d + v) / decode_flops * kMs,
       .decode_traffic = spec_.kv.bytes * kept / bandwidth * kMs,
       .decode_fixed = 2 * heads * (d + v) / bandwidth * kMs,
       .heads = plain ? heads : 0,
       .kv_heads = kv_heads,
       .head_dim = d});
  if (group.keys_max > 0 && m.index_heads > 0) {
    add_indexer(group, m.q_lora > 0 ? m.q_lora : m.hidden);
  }
  const double kv_bytes = count * kept * spec_.kv.bytes;
  if (group.attention == AttentionKind::kWindow) {
    windows_.push_back({.bytes_per_token = kv_bytes, .tokens = 1.0 * group.window});
  } else {
    kv_bytes_per_token_ += kv_bytes / group.stride;
    if (group.local > 0) {
      windows_.push_back({.bytes_per_token = kv_bytes, .tokens = 1.0 * group.local});
    }
  }
  // Rotation of queries and keys, writing of keys and values.
  small_per_token_ +=
      count * 1.1 *
      (2 * kActivationBytes * (heads + kv_heads) * d + kept * (kActivationBytes + spec_.kv.bytes));
  blocks_ += count;
  all_reduces_ += spec_.parallel.tp > 1 ? count : 0;
}

/// What looks at all of the context to pick the keys that attention sees.
void EngineModel::add_indexer(const LayerGroup& group, double inputs) {
  const ModelConfig& m = spec_.model;
  const double heads = m.index_heads, dim = m.index_dim, count = group.count;
  const double bandwidth = spec_.system.memory_bytes_per_s;
  const double narrow = flops_of(spec_.system, {"", 1, QuantMode::Lane::kFp8});
  add_product(heads * dim, inputs, count, spec_.weights);
  attentions_.push_back({.kind = AttentionKind::kFull,
                         .count = count,
                         .keys_per_token = 1.0 / group.stride,
                         .context_math = 2 * heads * dim / narrow * kMs,
                         .context_traffic = heads * dim / bandwidth * kMs,
                         .decode_math = 2 * heads * dim / spec_.system.bfloat16_flops * kMs,
                         .decode_traffic = dim / bandwidth * kMs});
  kv_bytes_per_token_ += count * dim / group.stride;
}

void EngineModel::add_mla(const LayerGroup& group) {
  const ModelConfig& m = spec_.model;
  const double heads = std::max(1.0, 1.0 * m.heads / spec_.parallel.tp), count = group.count;
  const double q_in = m.q_lora > 0 ? m.q_lora : m.hidden;
  const double latent = m.kv_lora + m.qk_rope, qk = m.qk_nope + m.qk_rope;
  add_product((m.q_lora > 0 ? m.q_lora : 0) + latent, m.hidden, count, spec_.weights);
  add_product(heads * qk, q_in, count, spec_.weights);
  add_product(heads * (m.qk_nope + m.v_dim), m.kv_lora, count, spec_.weights);
  add_product(m.hidden, heads * m.v_dim, count, spec_.weights);
  const double flops = spec_.system.bfloat16_flops;
  const double bandwidth = spec_.system.memory_bytes_per_s;
  AttentionWork attention{
      .kind = AttentionKind::kMla,
      .count = count,
      .window = static_cast<double>(m.index_topk),
      .context_math = 2 * heads * (qk + m.v_dim) / flops * kMs,
      .context_traffic = kActivationBytes * 2 * heads * (qk + m.v_dim) / bandwidth * kMs,
      .decode_math = 2 * heads * (latent + m.kv_lora) / flops * kMs,
      .decode_traffic = latent * spec_.kv.bytes / bandwidth * kMs,
      .decode_fixed = kActivationBytes * heads * (latent + m.kv_lora) / bandwidth * kMs};
  attentions_.push_back(attention);
  if (m.index_topk > 0) {
    add_indexer(group, q_in);
  }
  kv_bytes_per_token_ += count * latent * spec_.kv.bytes;
  small_per_token_ += count * 2 * kActivationBytes * (heads * m.qk_rope + latent + q_in);
  blocks_ += count;
  all_reduces_ += spec_.parallel.tp > 1 ? count : 0;
}

void EngineModel::add_linear(const LayerGroup& group) {
  const ModelConfig& m = spec_.model;
  const double tp = spec_.parallel.tp, count = group.count;
  const double keys = std::max(1.0, m.linear_key_heads / tp) * m.linear_key_dim;
  const double value_heads = std::max(1.0, m.linear_value_heads / tp);
  const double values = value_heads * m.linear_value_dim;
  add_product(2 * keys + 2 * values + 2 * value_heads, m.hidden, count, spec_.weights);
  add_product(m.hidden, values, count, spec_.weights);
  const double state = value_heads * m.linear_key_dim * m.linear_value_dim;
  const double bandwidth = spec_.system.memory_bytes_per_s;
  AttentionWork attention{.kind = AttentionKind::kLinear, .count = count};
  attention.context_math = 8 * state / spec_.system.bfloat16_flops * kMs;  // per token
  attention.context_traffic = 4 * kActivationBytes * (keys + values) / bandwidth * kMs;
  attention.decode_fixed = 2 * kStateBytes * state / bandwidth * kMs;
  attentions_.push_back(attention);
  state_bytes_ += count * kStateBytes * state;
  small_per_token_ += count * 6 * kActivationBytes * (keys + values);
  blocks_ += count;
  all_reduces_ += spec_.parallel.tp > 1 ? count : 0;
}

void EngineModel::add_ffn(const LayerGroup& group) {
  const ModelConfig& m = spec_.model;
  const Parallelism& p = spec_.parallel;
  const double count = group.count, gated = m.gemms_per_ffn == 3 ? 2 : 1;
  const double wide = group.intermediate > 0 ? group.intermediate : m.intermediate;
  const auto dense = [&](double inner) {
    add_product(gated * inner, m.hidden, count, spec_.weights);
    add_product(m.hidden, inner, count, spec_.weights);
    small_per_token_ += count * (gated + 1) * kActivationBytes * inner;
  };
  if (group.ffn == FfnKind::kNone) {
    return;
  }
  blocks_ += count;
  if (group.ffn == FfnKind::kDense) {
    dense(wide / p.tp);
    all_reduces_ += p.tp > 1 ? count : 0;
    return;
  }
  moe_layers_ += count;
  add_product(m.experts, m.hidden, count, {"bfloat16", 2, QuantMode::Lane::kBfloat16});
  if (m.shared_intermediate > 0) {
    dense(1.0 * m.shared_intermediate / p.tp);
  }
  if (m.expert_hidden > 0) {  // into what experts work on, and back
    add_product(m.expert_hidden, m.hidden, count, spec_.weights);
    add_product(m.hidden, m.expert_hidden, count, spec_.weights);
  }
  weight_bytes_ += count * spec_.experts.bytes * m.experts / p.moe_ep * m.gemms_per_ffn *
                   m.expert_width() * m.expert_intermediate / p.moe_tp / p.pp;
  if (p.dp > 1) {
    exchanges_ += 2 * count;
  } else if (p.tp > 1) {
    all_reduces_ += count;
  }
}

void EngineModel::add_common() {
  const ModelConfig& m = spec_.model;
  const QuantMode plain{"bfloat16", 2, QuantMode::Lane::kBfloat16};
  add_product(1.0 * m.vocabulary / spec_.parallel.tp, m.hidden, 1, plain);
  head_ = products_.back();
  products_.pop_back();
  weight_bytes_ += plain.bytes * m.vocabulary / spec_.parallel.tp * m.hidden / spec_.parallel.pp;
  // Each block adds to the residual and normalises: two reads, two writes.
  small_per_token_ += (blocks_ * 4 + 2) * kActivationBytes * m.hidden;
}

void EngineModel::add_expert_parts(double tokens, PassParts& parts) const {
  const ModelConfig& m = spec_.model;
  const Parallelism& p = spec_.parallel;
  const double width = m.expert_width();
  const double all = tokens * p.dp;  // of all ranks of attention
  const double rows = all * m.experts_per_token / p.moe_ep;
  const double inner = 1.0 * m.expert_intermediate / p.moe_tp;
  const double share = std::min(1.0, 1.0 * m.experts_per_token / m.experts);
  // How many experts of a rank at least one token chose, if all are equally likely.
  const double chosen =
      1.0 * m.experts / p.moe_ep * (share >= 1 ? 1 : 1 - std::exp(all * std::log1p(-share)));
  const double g = m.gemms_per_ffn;
  const double math = 2 * rows * width * inner * g / flops_of(spec_.system, spec_.experts);
  const double weights = chosen * g * width * inner * spec_.experts.bytes;
  const double moved = rows * (2.0 * width + g * inner) * kActivationBytes / 2;
  const double traffic = (weights + moved) / spec_.system.memory_bytes_per_s;
  add_roof(moe_layers_ * math * kMs, moe_layers_ * traffic * kMs, Part::kExpertRoof, parts);
}

double AttentionWork::ms(const EnginePass& pass) const {
  double sum = 0;
  if (pass.context_tokens > 0) {
    const double requests = std::max(pass.context_requests, 1e-9);
    const double fresh = pass.context_tokens / requests;
    const double pairs =
        kind == AttentionKind::kLinear ? 1 : keys_of(pass.context_prefix + fresh / 2);
    const double math = context_math * pass.context_tokens * pairs;
    const double traffic =
        context_traffic * (pass.context_tokens + requests * pass.context_prefix / 2);
    sum += count * std::max(math, traffic);
  }
  if (pass.decode_requests > 0) {
    const double length = keys_of(pass.decode_context);
    const double traffic = decode_traffic * length + decode_fixed;
    sum += count * pass.decode_requests * std::max(decode_math * length, traffic);
  }
  return sum;
}

void EngineModel::add_attention_parts(const EnginePass& pass, PassParts& parts) const {
  for (const AttentionWork& a : attentions_) {
    parts[at(Part::kAttention)] += a.ms(pass);
  }
}

void EngineModel::add_product_parts(double rows, double heads, PassParts& parts) const {
  for (const FixedProduct& p : products_) {
    add_roof(p.math_per_row * rows, p.traffic + p.traffic_per_row * rows, Part::kGemmRoof, parts);
  }
  add_roof(head_.math_per_row * heads, head_.traffic + head_.traffic_per_row * heads,
           Part::kGemmRoof, parts);
}

PassParts EngineModel::parts(const EnginePass& pass) const {
  return curves_ == nullptr ? light_parts(pass) : measured_parts(pass);
}

PassParts EngineModel::light_parts(const EnginePass& pass) const {
  PassParts parts{};
  const double tokens = pass.context_tokens + pass.decode_requests;
  if (!(tokens > 0)) {
    return parts;
  }
  const Parallelism& p = spec_.parallel;
  const double heads = pass.decode_requests + pass.context_requests;
  add_product_parts(tokens, heads, parts);
  if (moe_layers_ > 0) {
    add_expert_parts(tokens, parts);
  }
  add_attention_parts(pass, parts);
  const double hidden_bytes = kActivationBytes * tokens * spec_.model.hidden;
  if (p.tp > 1) {
    parts[at(Part::kLink)] += all_reduces_ * 2 * hidden_bytes * (p.tp - 1) / p.tp /
                              spec_.system.link_bytes_per_s(p.tp) * kMs;
  }
  if (exchanges_ > 0) {
    const uint32_t group = p.tp * p.dp;
    const double copies = std::min<double>(spec_.model.experts_per_token, p.moe_ep);
    parts[at(Part::kLink)] += exchanges_ * 0.75 * hidden_bytes * copies * (group - 1) / group /
                              spec_.system.link_bytes_per_s(group) * kMs;
  }
  if (p.pp > 1) {
    parts[at(Part::kLink)] +=
        (p.pp - 1) *
        (hidden_bytes / spec_.system.inter_node_bytes_per_s + spec_.system.p2p_latency_s) * kMs;
  }
  parts[at(Part::kCollectives)] = all_reduces_ + exchanges_ + p.pp - 1;
  parts[at(Part::kSmall)] = small_per_token_ * tokens / spec_.system.memory_bytes_per_s * kMs;
  parts[at(Part::kBlocks)] = blocks_;
  parts[at(Part::kStep)] = 1;
  parts[at(Part::kSequences)] = heads;
  return parts;
}

double EngineModel::step_ms(const EnginePass& pass) const {
  PassParts all = parts(pass);
  double sum = 0;
  if (pass.decode_requests > 0) {
    EnginePass alone = pass;
    alone.context_tokens = alone.context_requests = 0;
    const PassParts decode = pass.context_tokens > 0 ? parts(alone) : all;
    for (size_t i = 0; i < kParts; ++i) {
      sum += efficiency_.decode[i] * decode[i];
      all[i] -= decode[i];
    }
    if (efficiency_.decode_power != 0) {
      sum *= std::pow(pass.decode_requests / kDecodesUsual, efficiency_.decode_power);
    }
  }
  if (pass.context_tokens > 0) {
    for (size_t i = 0; i < kParts; ++i) {
      sum += efficiency_.context[i] * std::max(0.0, all[i]);
    }
  }
  return sum;
}

}  // namespace stator::perf
