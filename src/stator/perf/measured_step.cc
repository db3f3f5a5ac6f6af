// SPDX-License-Identifier: Apache-2.0
// EngineModel with measured kernels: the parts of a pass that a database knows take as long as they
// did, those it does not take what the fitted model says.
#include <algorithm>
#include <cmath>

#include "stator/perf/engine_model.h"
#include "stator/perf/operator_database.h"

namespace stator::perf {
namespace {

constexpr double kLeast = 1e-6;  // of the speed of light: a start-up dominates tiny kernels

size_t at(Part part) {
  return static_cast<size_t>(part);
}

double divided(double light_ms, const OperatorCurve& curve, double x, double y) {
  return light_ms / std::max(kLeast, curve.utilisation.at(std::max(1e-9, x), std::max(1e-9, y)));
}

/// Parts that kernels are measured for; the others are the host's, or too small to be measured.
/// What a collective takes to start is in its measured time.
bool is_kernel(size_t part, bool collectives) {
  return part <= at(Part::kLink) || (collectives && part == at(Part::kCollectives));
}

}  // namespace

void EngineModel::attach(const OperatorDatabase& database) {
  auto curves = std::make_shared<OperatorCurves>();
  const auto keep = [&](OperatorCurve curve) {
    provenance_ = curves->measured == 0 && gaps_.empty() ? curve.provenance
                                                         : std::max(provenance_, curve.provenance);
    curves->measured += curve.empty() ? 0 : 1;
    if (!curve.note.empty() && std::ranges::find(gaps_, curve.note) == gaps_.end()) {
      gaps_.push_back(curve.note);
    }
    return curve;
  };
  for (const Product& product : products_) {
    curves->products.push_back(keep(database.gemm(spec_, product.n, product.k, product.dtype)));
  }
  curves->head = keep(database.gemm(spec_, head_.n, head_.k, head_.dtype));
  for (const Attention& a : attentions_) {
    const bool known = a.heads > 0;  // plain attention; MLA and linear kinds have tables of modules
    OperatorCurve none;
    none.provenance = Provenance::kRoofline;
    none.note = known ? "" : "mla or linear attention: roofline with fitted factors";
    curves->context.push_back(
        keep(known ? database.attention(spec_, false, a.heads, a.kv_heads, a.head_dim, a.window)
                   : none));
    curves->generation.push_back(keep(
        known ? database.attention(spec_, true, a.heads, a.kv_heads, a.head_dim, a.window) : none));
  }
  if (moe_layers_ > 0) {
    curves->experts = keep(database.experts(spec_));
  }
  if (all_reduces_ > 0) {
    curves->all_reduce = keep(database.all_reduce(spec_, spec_.parallel.tp));
  }
  curves_ = std::move(curves);
}

/// Of all layers, prompts and answers apart, since they are kernels apart.
double EngineModel::measured_attention_ms(const EnginePass& pass) const {
  double sum = 0;
  for (size_t i = 0; i < attentions_.size(); ++i) {
    if (pass.context_tokens > 0) {
      EnginePass prompts = pass;
      prompts.decode_requests = 0;
      const double fresh = pass.context_tokens / std::max(1.0, pass.context_requests);
      const double light = attention_ms(attentions_[i], prompts);
      sum += curves_->context[i].empty()
                 ? light * efficiency_.context[at(Part::kAttention)]
                 : divided(light, curves_->context[i], fresh + pass.context_prefix,
                           pass.context_requests);
    }
    if (pass.decode_requests > 0) {
      EnginePass answers = pass;
      answers.context_tokens = answers.context_requests = 0;
      const double light = attention_ms(attentions_[i], answers);
      sum += curves_->generation[i].empty() ? light * efficiency_.decode[at(Part::kAttention)]
                                            : divided(light, curves_->generation[i],
                                                      pass.decode_context, pass.decode_requests);
    }
  }
  return sum;
}

double EngineModel::measured_step_ms(const EnginePass& pass) const {
  const double rows = pass.context_tokens + pass.decode_requests;
  if (!(rows > 0)) {
    return 0;
  }
  // What a part costs that has no table: as fitted, by what the pass mostly is.
  const Efficiency& fitted = efficiency_;
  const auto factor = [&](Part part) {
    return pass.context_tokens > pass.decode_requests ? fitted.context[at(part)]
                                                      : fitted.decode[at(part)];
  };
  double sum = 0;
  for (size_t i = 0; i < products_.size(); ++i) {
    const Product& p = products_[i];
    const double light = std::max(p.math_per_row * rows, p.traffic + p.traffic_per_row * rows);
    sum += curves_->products[i].empty() ? light * factor(Part::kGemmRoof)
                                        : divided(light, curves_->products[i], rows, 1);
  }
  const double heads = pass.decode_requests + pass.context_requests;
  const double head_light =
      std::max(head_.math_per_row * heads, head_.traffic + head_.traffic_per_row * heads);
  sum += curves_->head.empty() ? head_light * factor(Part::kGemmRoof)
                               : divided(head_light, curves_->head, heads, 1);
  sum += measured_attention_ms(pass);
  const PassParts all = parts(pass);
  if (moe_layers_ > 0) {
    sum += curves_->experts.empty()
               ? all[at(Part::kExpertRoof)] * factor(Part::kExpertRoof) +
                     all[at(Part::kExpertShadow)] * factor(Part::kExpertShadow)
               : divided(all[at(Part::kExpertRoof)], curves_->experts, rows * spec_.parallel.dp, 1);
  }
  const bool collectives = !curves_->all_reduce.empty() && exchanges_ == 0;
  sum += !collectives
             ? all[at(Part::kLink)] * factor(Part::kLink)
             : divided(all[at(Part::kLink)], curves_->all_reduce, rows * spec_.model.hidden, 1);
  // The host's share: launches, steps, sequences, small kernels.
  EnginePass alone = pass;
  alone.context_tokens = alone.context_requests = 0;
  const PassParts decode = pass.decode_requests > 0 ? parts(alone) : PassParts{};
  for (size_t i = 0; i < kParts; ++i) {
    if (!is_kernel(i, collectives)) {
      sum += fitted.decode[i] * decode[i] + fitted.context[i] * std::max(0.0, all[i] - decode[i]);
    }
  }
  return sum;
}

}  // namespace stator::perf
