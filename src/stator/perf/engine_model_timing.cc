// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/engine_model_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "stator/perf/operator_database.h"

namespace stator::perf {
namespace {

EnginePass decodes_of(const PassShape& shape) {
  EnginePass pass;
  pass.decode_requests = shape.decode_requests;
  pass.decode_context = shape.decode_requests > 0
                            ? static_cast<double>(shape.context_tokens) / shape.decode_requests
                            : 0;
  return pass;
}

struct Words {
  std::string model, system, backend = "vllm", tp = "1", weights = "bfloat16", kv = "bfloat16",
                             database;
};

Result<Words> read_words(std::string_view text) {
  Words words;
  const std::pair<std::string_view, std::string*> known[] = {
      {"model", &words.model},      {"system", &words.system},
      {"backend", &words.backend},  {"tp", &words.tp},
      {"weights", &words.weights},  {"kv", &words.kv},
      {"database", &words.database}};
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const auto found = std::ranges::find(known, item.substr(0, equals),
                                         [](const auto& each) { return each.first; });
    if (equals == std::string_view::npos || found == std::end(known)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("timing 'engine': '{}' must be NAME=VALUE with NAME one of model, "
                               "system, backend, tp, weights, kv, database",
                               item));
    }
    *found->second = item.substr(equals + 1);
  }
  if (words.model.empty() || words.system.empty()) {
    return Error(Code::kInvalidArgument, "timing 'engine' needs model=… and system=…");
  }
  return words;
}

}  // namespace

double EngineModelTiming::prefill_ms(const PassShape& shape) const {
  if (shape.prefill_new_tokens == 0) {
    return 0;
  }
  EnginePass pass = decodes_of(shape);
  const double alone = pass.decode_requests > 0 ? prefill_.step_ms(pass) : 0;
  const double requests = std::max(1U, shape.prefill_requests);
  pass.context_requests = requests;
  pass.context_tokens = static_cast<double>(shape.prefill_new_tokens);
  pass.context_prefix = static_cast<double>(shape.prefill_prefix_tokens) / requests;
  return std::max(0.0, prefill_.step_ms(pass) - alone);
}

double EngineModelTiming::decode_ms(const PassShape& shape) const {
  return shape.decode_requests > 0 ? decode_.step_ms(decodes_of(shape)) : 0;
}

Result<std::unique_ptr<TimingModel>> make_engine_timing(std::string_view text) {
  STATOR_TRY(const Words words, read_words(text));
  EngineSpec spec;
  STATOR_TRY(spec.model, read_model_config(words.model), "timing 'engine': model");
  STATOR_TRY(spec.system, find_system(words.system), "timing 'engine'");
  STATOR_TRY(spec.backend, find_backend(words.backend), "timing 'engine'");
  STATOR_TRY(spec.weights, find_quant(words.weights), "timing 'engine': weights");
  spec.experts = spec.weights;
  STATOR_TRY(spec.kv, find_quant(words.kv), "timing 'engine': kv");
  const auto end =
      std::from_chars(words.tp.data(), words.tp.data() + words.tp.size(), spec.parallel.tp);
  if (end.ec != std::errc() || end.ptr != words.tp.data() + words.tp.size()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("timing 'engine': tp must be a whole number, is '{}'", words.tp));
  }
  spec.parallel.moe_tp = spec.parallel.tp;
  std::shared_ptr<const OperatorDatabase> database;
  if (!words.database.empty()) {
    STATOR_TRY(database, OperatorDatabase::read(words.database, spec), "timing 'engine'");
  }
  STATOR_TRY(EngineModel model, EngineModel::create(spec, database), "timing 'engine'");
  EngineModel copy = model;
  return std::make_unique<EngineModelTiming>(std::move(model), std::move(copy));
}

}  // namespace stator::perf
