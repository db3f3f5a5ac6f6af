// SPDX-License-Identifier: Apache-2.0
// EngineModel with measured kernels: the parts of a pass that a database knows take as long as they
// did when they were measured alone, those it does not what is usual over the speed of light. What
// engines take on top (hosts, kernels beside one another) is fitted, as it is for light.
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
/// Of an axis alone, by its logarithm.
double divided(double light_ms, const OperatorCurve& curve, double log_x) {
  return light_ms / std::max(kLeast, curve.utilisation.at_logs(log_x, 0));
}

/// Light over time of operators that nothing is known of.
constexpr double kProducts = 0.7;
constexpr double kContext = 0.55;
constexpr double kGeneration = 0.75;
constexpr double kExperts = 0.5;
constexpr double kLinks = 0.7;

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
  for (const FixedProduct& product : products_) {
    curves->products.push_back(keep(database.gemm(spec_, product.n, product.k, product.dtype)));
  }
  curves->head = keep(database.gemm(spec_, head_.n, head_.k, head_.dtype));
  for (const AttentionWork& a : attentions_) {
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
  efficiency_ = find_efficiency(spec_, PartsOf::kMeasured);
}

/// Of all layers, prompts and answers apart, since they are kernels apart.
double EngineModel::measured_attention_ms(const EnginePass& pass) const {
  double sum = 0;
  for (size_t i = 0; i < attentions_.size(); ++i) {
    if (pass.context_tokens > 0) {
      EnginePass prompts = pass;
      prompts.decode_requests = 0;
      const double fresh = pass.context_tokens / std::max(1.0, pass.context_requests);
      const double light = attentions_[i].ms(prompts);
      sum += curves_->context[i].empty()
                 ? light / kContext
                 : divided(light, curves_->context[i], fresh + pass.context_prefix,
                           pass.context_requests);
    }
    if (pass.decode_requests > 0) {
      EnginePass answers = pass;
      answers.context_tokens = answers.context_requests = 0;
      const double light = attentions_[i].ms(answers);
      sum += curves_->generation[i].empty() ? light / kGeneration
                                            : divided(light, curves_->generation[i],
                                                      pass.decode_context, pass.decode_requests);
    }
  }
  return sum;
}

PassParts EngineModel::measured_parts(const EnginePass& pass) const {
  PassParts out = light_parts(pass);
  const double rows = pass.context_tokens + pass.decode_requests;
  if (!(rows > 0)) {
    return out;
  }
  const double heads = std::max(1e-9, pass.decode_requests + pass.context_requests);
  const auto product_ms = [](const FixedProduct& p, const OperatorCurve& curve, double of,
                             double log_of) {
    const double light = std::max(p.math_per_row * of, p.traffic + p.traffic_per_row * of);
    return curve.empty() ? light / kProducts : divided(light, curve, log_of);
  };
  out[at(Part::kGemmRoof)] = product_ms(head_, curves_->head, heads, std::log(heads));
  out[at(Part::kGemmShadow)] = 0;
  const double log_rows = std::log(rows);
  for (size_t i = 0; i < products_.size(); ++i) {
    out[at(Part::kGemmRoof)] += product_ms(products_[i], curves_->products[i], rows, log_rows);
  }
  out[at(Part::kAttention)] = measured_attention_ms(pass);
  if (moe_layers_ > 0) {
    double& experts = out[at(Part::kExpertRoof)];
    experts = curves_->experts.empty()
                  ? experts / kExperts
                  : divided(experts, curves_->experts, rows * spec_.parallel.dp, 1);
    out[at(Part::kExpertShadow)] = 0;
  }
  double& links = out[at(Part::kLink)];
  if (curves_->all_reduce.empty() || exchanges_ > 0) {
    links /= kLinks;
  } else {  // what a collective takes to start is in its measured time
    links = divided(links, curves_->all_reduce, rows * spec_.model.hidden, 1);
    out[at(Part::kCollectives)] = 0;
  }
  return out;
}

}  // namespace stator::perf
