// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/timing_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stator/perf/engine_model_timing.h"
#include "stator/perf/measured_costs.h"
#include "stator/perf/operator_timing.h"
#include "stator/perf/polynomial_timing.h"
#include "stator/perf/profile_timing.h"
#include "stator/perf/roofline.h"

namespace stator::perf {
namespace {

struct Parameter {
  std::string_view name;
  double* value;
};

/// Reads "name=number,…" into what `known` points to.
Status read_numbers(std::string_view kind, std::string_view text,
                    const std::vector<Parameter>& known) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto found = std::ranges::find(known, name, &Parameter::name);
    if (found == known.end()) {
      std::string names;
      for (const Parameter& parameter : known) {
        names += names.empty() ? "" : ", ";
        names += parameter.name;
      }
      return Error(Code::kInvalidArgument,
                   fmt::format("timing '{}' has no parameter '{}'; known: {}", kind, name, names));
    }
    const std::string_view number =
        equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    const auto end = std::from_chars(number.data(), number.data() + number.size(), *found->value);
    if (number.empty() || end.ec != std::errc() || end.ptr != number.data() + number.size()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("timing '{}': {} must be a number, is '{}'", kind, name, number));
    }
  }
  return {};
}

Result<std::unique_ptr<TimingModel>> make_linear(std::string_view text, LinearCoefficients c) {
  STATOR_CHECK(read_numbers("linear", text,
                            {{"step_us", &c.step_us},
                             {"prefill_token_us", &c.prefill_token_us},
                             {"prefill_pair_us", &c.prefill_pair_us},
                             {"decode_sequence_us", &c.decode_sequence_us},
                             {"decode_context_token_us", &c.decode_context_token_us}}));
  STATOR_TRY(LinearTiming timing, LinearTiming::create(c));
  return std::make_unique<LinearTiming>(timing);
}

Result<std::unique_ptr<TimingModel>> make_polynomial(std::string_view text) {
  PolynomialCoefficients c;
  STATOR_CHECK(read_numbers("polynomial", text,
                            {{"p0", &c.prefill_ms[0]},
                             {"p1", &c.prefill_ms[1]},
                             {"p2", &c.prefill_ms[2]},
                             {"d0", &c.decode_ms[0]},
                             {"d1", &c.decode_ms[1]},
                             {"d2", &c.decode_ms[2]},
                             {"decode_min", &c.decode_min_ms}}));
  STATOR_TRY(PolynomialTiming timing, PolynomialTiming::create(c));
  return std::make_unique<PolynomialTiming>(timing);
}

/// "name=text,…"
Result<std::map<std::string, std::string, std::less<>>> read_texts(
    std::string_view kind, std::string_view text, const std::set<std::string_view>& known) {
  std::map<std::string, std::string, std::less<>> out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || !known.contains(item.substr(0, equals))) {
      return Error(Code::kInvalidArgument,
                   fmt::format("timing '{}': '{}' must be NAME=VALUE with NAME one of {}", kind,
                               item, fmt::join(known, ", ")));
    }
    out.emplace(item.substr(0, equals), item.substr(equals + 1));
  }
  return out;
}

/// roofline: and table: what they have in common is the model, the accelerator and the precisions.
Result<std::unique_ptr<TimingModel>> make_by_operators(std::string_view kind,
                                                       std::string_view text) {
  const bool measured = kind == "table";
  std::set<std::string_view> known = {"model", "gpu", "tp", "weights", "kv"};
  if (measured) {
    known.merge(std::set<std::string_view>{"data", "backend"});
  }
  STATOR_TRY(auto given, read_texts(kind, text, known));
  for (const std::string_view required : {"model", "gpu", "data"}) {
    if (known.contains(required) && !given.contains(required)) {
      return Error(Code::kInvalidArgument, fmt::format("timing '{}' needs {}=…", kind, required));
    }
  }
  const auto value = [&](std::string_view name, std::string fallback) {
    const auto found = given.find(name);
    return found == given.end() ? fallback : found->second;
  };
  const std::string typed = value("tp", "1");
  uint32_t ranks = 0;
  const auto end = std::from_chars(typed.data(), typed.data() + typed.size(), ranks);
  if (end.ec != std::errc() || end.ptr != typed.data() + typed.size() || ranks == 0) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("timing '{}': tp must be a whole number above 0, is '{}'", kind, typed));
  }
  STATOR_TRY(const ModelShape model, read_model_shape(value("model", "")));
  STATOR_TRY(const Accelerator accelerator, find_accelerator(value("gpu", "")));
  STATOR_TRY(const Precision weights, find_precision(value("weights", "bfloat16")));
  STATOR_TRY(const Precision kv, find_precision(value("kv", "bfloat16")));
  const SpeedOfLight light(accelerator, weights, kv);
  std::shared_ptr<const OperatorCosts> costs =
      std::make_shared<RooflineCosts>(light, Utilisation{});
  if (measured) {
    STATOR_TRY(costs, MeasuredCosts::read({.folder = value("data", ""),
                                           .backend = value("backend", "vllm"),
                                           .weights = weights,
                                           .kv = kv,
                                           .attention = attention_of_rank(model, ranks)},
                                          light));
  }
  STATOR_TRY(auto timing, OperatorTiming::create(model, ranks, std::move(costs)));
  return timing;
}

}  // namespace

Result<std::unique_ptr<TimingModel>> make_timing(std::string_view spec,
                                                 const LinearCoefficients& linear) {
  const size_t colon = spec.find(':');
  const std::string_view kind = spec.substr(0, colon);
  const std::string_view rest =
      colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1);
  if (kind == "linear") {
    return make_linear(rest, linear);
  }
  if (kind == "polynomial") {
    return make_polynomial(rest);
  }
  if (kind == "roofline" || kind == "table") {
    return make_by_operators(kind, rest);
  }
  if (kind == "engine") {
    return make_engine_timing(rest);
  }
  if (kind == "profile") {
    STATOR_TRY(auto timing, ProfileTiming::read(std::string(rest)), "timing 'profile'");
    return timing;
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("timing must be linear, polynomial, roofline, table, engine or profile, not '{}'",
                  kind));
}

}  // namespace stator::perf
