// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/inputs.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "stator/json/value.h"

namespace stator::planner {
namespace {

json::Value render(const PoolState& pool) {
  json::Value out = json::Value::object();
  out["ready"] = pool.ready;
  out["expected"] = pool.expected;
  out["draining"] = pool.draining;
  out["queued"] = pool.queued;
  json::Value& engines = out["engines"] = json::Value::array();
  for (const EngineLoad& load : pool.engines) {
    engines.push_back(json::Value::object({{"id", load.id},
                                           {"queued_prefill_tokens", load.queued_prefill_tokens},
                                           {"running", load.running},
                                           {"decode_kv_tokens", load.decode_kv_tokens}}));
  }
  return out;
}

constexpr std::string_view kKinds[] = {"set", "at_least", "at_most"};

template <typename F>
auto fields_of(F& forecast) {
  return std::array{std::pair("requests", &forecast.requests),
                    std::pair("input_tokens", &forecast.input_tokens),
                    std::pair("output_tokens", &forecast.output_tokens),
                    std::pair("kv_hit_rate", &forecast.kv_hit_rate),
                    std::pair("accept_length", &forecast.accept_length)};
}

json::Value render(const Opinion& opinion) {
  json::Value out = json::Value::object({{"plugin", opinion.plugin},
                                         {"stage", name_of(opinion.stage)},
                                         {"priority", opinion.priority},
                                         {"final", opinion.final},
                                         {"rejects", opinion.rejects},
                                         {"reason", opinion.reason}});
  json::Value& targets = out["targets"] = json::Value::array();
  for (const Target& target : opinion.targets) {
    targets.push_back(json::Value::object({{"pool", target.prefill ? "prefill" : "decode"},
                                           {"kind", kKinds[static_cast<size_t>(target.kind)]},
                                           {"workers", target.workers}}));
  }
  return out;
}

Opinion read_opinion(const json::Value& from) {
  Opinion out{.plugin = std::string(from.text_at({"plugin"})),
              .priority = static_cast<uint32_t>(from.at("priority").as_uint64().value_or(0)),
              .final = from.at("final").as_bool().value_or(false),
              .rejects = from.at("rejects").as_bool().value_or(false),
              .reason = std::string(from.text_at({"reason"}))};
  for (const Stage stage : {Stage::kPropose, Stage::kReconcile, Stage::kConstrain}) {
    out.stage = from.text_at({"stage"}) == name_of(stage) ? stage : out.stage;
  }
  for (const json::Value& each : from.at("targets").elements()) {
    Target target{.prefill = each.text_at({"pool"}) == "prefill",
                  .workers = static_cast<uint32_t>(each.at("workers").as_uint64().value_or(0))};
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      target.kind = each.text_at({"kind"}) == kKinds[i] ? static_cast<TargetKind>(i) : target.kind;
    }
    out.targets.push_back(target);
  }
  return out;
}

/// Reads numbers of one object; remembers the first that is missing.
class Reader {
 public:
  explicit Reader(std::string& missing) : missing_(missing) {}
  double number(const json::Value& object, std::string_view key) {
    const json::Value* value = object.find(key);
    const auto got = value == nullptr ? std::nullopt : value->as_double();
    if (!got && !(value != nullptr && value->is_null())) {
      missing_ = missing_.empty() ? std::string(key) : missing_;
    }
    return got.value_or(std::nan(""));  // what is no number was written as null
  }
  PoolState pool(const json::Value* object) {
    PoolState out;
    if (object == nullptr) {
      missing_ = "pool";
      return out;
    }
    out.ready = static_cast<uint32_t>(number(*object, "ready"));
    out.expected = static_cast<uint32_t>(number(*object, "expected"));
    out.draining = static_cast<uint32_t>(number(*object, "draining"));
    out.queued = number(*object, "queued");
    if (const json::Value* engines = object->find("engines")) {
      for (const json::Value& each : engines->elements()) {
        out.engines.push_back({.id = static_cast<uint64_t>(number(each, "id")),
                               .queued_prefill_tokens = number(each, "queued_prefill_tokens"),
                               .running = number(each, "running"),
                               .decode_kv_tokens = number(each, "decode_kv_tokens")});
      }
    }
    return out;
  }

 private:
  std::string& missing_;
};

}  // namespace

std::string render_json(const Inputs& inputs) {
  json::Value out = json::Value::object();
  out["now_s"] = inputs.now_s;
  if (inputs.traffic) {
    const Traffic& t = *inputs.traffic;
    json::Value& traffic = out["traffic"];
    traffic["duration_s"] = t.duration_s;
    traffic["requests"] = t.requests;
    traffic["input_tokens"] = t.input_tokens;
    traffic["output_tokens"] = t.output_tokens;
    traffic["kv_hit_rate"] = t.kv_hit_rate;
    traffic["accept_length"] = t.accept_length;
    traffic["ended"] = t.ended;
    traffic["missed"] = t.missed;
    json::Value& sample = traffic["sample"] = json::Value::array();
    for (const RequestLength& length : t.sample) {
      sample.push_back(json::Value::array(
          {length.input_tokens, length.output_tokens, length.cached_tokens, length.at_s}));
    }
  }
  out["decode"] = render(inputs.decode);
  out["prefill"] = render(inputs.prefill);
  out["broken"] = inputs.broken;
  if (!inputs.stable) {
    out["stable"] = false;
  }
  if (inputs.min_workers) {
    out["min_workers"] = *inputs.min_workers;
  }
  if (inputs.prefill_min_workers) {
    out["prefill_min_workers"] = *inputs.prefill_min_workers;
  }
  if (!inputs.calibration.empty()) {
    json::Value& learned = out["calibration"] = json::Value::array();
    for (const double each : inputs.calibration) {
      learned.push_back(each);
    }
  }
  if (inputs.forecast) {
    json::Value& forecast = out["forecast"] = json::Value::object();
    for (const auto& [name, value] : fields_of(*inputs.forecast)) {
      if (*value) {
        forecast[name] = **value;
      }
    }
  }
  if (!inputs.opinions.empty()) {
    json::Value& opinions = out["opinions"] = json::Value::array();
    for (const Opinion& each : inputs.opinions) {
      opinions.push_back(render(each));
    }
  }
  return json::to_text(out);
}

std::string render_json(const Decision& decision) {
  json::Value out = json::Value::object();
  if (decision.prefill_workers) {
    out["prefill_workers"] = *decision.prefill_workers;
  }
  if (decision.workers) {
    out["workers"] = *decision.workers;
  }
  out["next_s"] = decision.next_s;
  out["reason"] = decision.reason;
  out["text"] = decision.text;
  out["predicted_requests_per_s"] = decision.predicted_requests_per_s;
  out["estimated_ttft_ms"] = decision.estimated_ttft_ms;
  out["estimated_itl_ms"] = decision.estimated_itl_ms;
  out["engine_requests_per_s"] = decision.engine_requests_per_s;
  out["prefill_engine_requests_per_s"] = decision.prefill_engine_requests_per_s;
  json::Value& alternatives = out["alternatives"] = json::Value::array();
  for (const Alternative& each : decision.alternatives) {
    alternatives.push_back(json::Value::object({{"workers", each.workers},
                                                {"ttft_ms", each.ttft_ms},
                                                {"mean_ttft_ms", each.mean_ttft_ms},
                                                {"mean_itl_ms", each.mean_itl_ms},
                                                {"itl_ms", each.itl_ms},
                                                {"miss_ratio", each.miss_ratio},
                                                {"gpu_seconds", each.gpu_seconds}}));
  }
  return json::to_text(out);
}

Result<Inputs> parse_inputs(std::string_view text) {
  STATOR_TRY(const json::Value root, json::parse(text));
  std::string missing;
  Reader read(missing);
  Inputs out;
  out.now_s = read.number(root, "now_s");
  if (const json::Value* traffic = root.find("traffic")) {
    Traffic t;
    t.duration_s = read.number(*traffic, "duration_s");
    t.requests = read.number(*traffic, "requests");
    t.input_tokens = read.number(*traffic, "input_tokens");
    t.output_tokens = read.number(*traffic, "output_tokens");
    t.kv_hit_rate = read.number(*traffic, "kv_hit_rate");
    t.accept_length = read.number(*traffic, "accept_length");
    t.ended = read.number(*traffic, "ended");
    t.missed = read.number(*traffic, "missed");
    if (const json::Value* sample = traffic->find("sample")) {
      for (const json::Value& pair : sample->elements()) {
        const auto at = [&pair](size_t i, double otherwise) {
          return i < pair.size() ? pair.elements()[i].as_double().value_or(otherwise) : otherwise;
        };
        t.sample.push_back({.input_tokens = at(0, 0),
                            .output_tokens = at(1, 0),
                            .cached_tokens = at(2, 0),
                            .at_s = at(3, -1)});
      }
    }
    out.traffic = std::move(t);
  }
  out.decode = read.pool(root.find("decode"));
  out.prefill = read.pool(root.find("prefill"));
  out.broken = root.text_at({"broken"});
  out.stable = root.at("stable").as_bool().value_or(true);
  if (const auto least = root.at("min_workers").as_uint64(); least && *least <= 4096) {
    out.min_workers = static_cast<uint32_t>(*least);
  }
  if (const auto least = root.at("prefill_min_workers").as_uint64(); least && *least <= 4096) {
    out.prefill_min_workers = static_cast<uint32_t>(*least);
  }
  for (const json::Value& each : root.at("calibration").elements()) {
    out.calibration.push_back(each.as_double().value_or(0));
  }
  if (const json::Value* forecast = root.find("forecast")) {
    out.forecast.emplace();
    for (const auto& [name, value] : fields_of(*out.forecast)) {
      *value = forecast->at(name).as_double();
    }
  }
  for (const json::Value& each : root.at("opinions").elements()) {
    out.opinions.push_back(read_opinion(each));
  }
  if (!missing.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("inputs of a planner: '{}' is missing", missing));
  }
  return out;
}

}  // namespace stator::planner
