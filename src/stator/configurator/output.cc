// SPDX-License-Identifier: Apache-2.0
#include "stator/configurator/output.h"

#include <fmt/format.h>

#include <cmath>

#include "stator/report/html_page.h"
#include "stator/report/svg_plot.h"
#include "stator/text/html.h"

namespace stator::configurator {
namespace {

std::string_view name_of(Mode mode) {
  return mode == Mode::kAggregated ? "agg" : "disagg";
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

json::Value to_json(const EngineChoice& choice) {
  json::Value out = json::Value::object();
  out["tp"] = choice.parallel.tp;
  out["pp"] = choice.parallel.pp;
  out["dp"] = choice.parallel.dp;
  out["moe_tp"] = choice.parallel.moe_tp;
  out["moe_ep"] = choice.parallel.moe_ep;
  out["gpus"] = choice.parallel.gpus();
  out["workers"] = choice.workers;
  out["batch_size"] = choice.batch;
  out["max_num_batched_tokens"] = static_cast<uint64_t>(choice.tokens_per_pass);
  out["kv_tokens_max"] = static_cast<uint64_t>(choice.kv_tokens_max);
  out["memory_gib"] = rounded(choice.memory_bytes / (1ULL << 30));
  out["confidence"] = std::string(perf::name_of(choice.provenance));
  return out;
}

json::Value to_json(const Goal& goal, const Candidate& c) {
  json::Value out = json::Value::object();
  out["mode"] = std::string(name_of(c.mode));
  out["backend"] = std::string(perf::name_of(goal.engine.backend));
  out["prefill"] = to_json(c.prefill);
  out["decode"] = to_json(c.decode);
  out["ttft_ms"] = rounded(c.point.ttft_ms);
  out["itl_ms"] = rounded(c.point.itl_ms);
  out["request_latency_ms"] =
      rounded(c.point.ttft_ms + c.point.itl_ms * std::max(0.0, goal.work.output_tokens - 1));
  out["tokens_per_s_per_gpu"] = rounded(c.point.tokens_per_s_per_gpu);
  out["tokens_per_s_per_gpu_cluster"] = rounded(c.cluster_tokens_per_s_per_gpu);
  out["tokens_per_s_per_user"] = rounded(c.point.tokens_per_s_per_user);
  out["requests_per_s"] = rounded(c.point.requests_per_s * c.replicas);
  out["concurrency"] = c.point.concurrency * c.replicas;
  out["gpus_per_replica"] = c.point.gpus;
  out["replicas"] = c.replicas;
  out["gpus_used"] = c.point.gpus * c.replicas;
  out["sla_met"] = c.fits;
  out["confidence"] =
      std::string(perf::name_of(std::max(c.prefill.provenance, c.decode.provenance)));
  return out;
}

std::string describe(const Candidate& c) {
  if (c.mode == Mode::kAggregated) {
    return fmt::format("{} batch {}", configurator::describe(c.decode.parallel), c.decode.batch);
  }
  return fmt::format("{}P {} + {}D {} batch {}", c.prefill.workers,
                     configurator::describe(c.prefill.parallel), c.decode.workers,
                     configurator::describe(c.decode.parallel), c.decode.batch);
}

}  // namespace

std::string describe(const perf::Parallelism& p) {
  std::string out = fmt::format("tp{}", p.tp);
  for (const auto& [name, value] : {std::pair("pp", p.pp), std::pair("dp", p.dp),
                                    std::pair("moe_tp", p.moe_tp), std::pair("moe_ep", p.moe_ep)}) {
    out += value > 1 ? fmt::format(" {}{}", name, value) : "";
  }
  return out;
}

json::Value to_json(const Goal& goal, const SearchResult& result, double elapsed_ms) {
  json::Value out = json::Value::object();
  out["configurations_considered"] = result.considered;
  out["configurations_evaluated"] = result.evaluated;
  out["elapsed_ms"] = rounded(elapsed_ms);
  out["system"] = std::string(goal.engine.system.name);
  out["gpus"] = goal.gpus;
  out["sla_met"] = result.goal_met;
  if (!result.goal_met) {
    out["binding_limit"] = result.binding_limit;
    out["explanation"] = result.explanation;
  }
  json::Value& best = out["best"] = json::Value::array();
  for (const Candidate& candidate : result.best) {
    best.push_back(to_json(goal, candidate));
  }
  json::Value& pareto = out["pareto"] = json::Value::array();
  for (const Candidate& candidate : result.pareto) {
    pareto.push_back(to_json(goal, candidate));
  }
  json::Value& gaps = out["gaps"] = json::Value::array();
  for (const std::string& gap : result.gaps) {
    gaps.push_back(gap);
  }
  return out;
}

std::string render_table(const Goal& goal, const SearchResult& result, double elapsed_ms) {
  std::string out = fmt::format("{} configurations in {:.0f} ms, {} evaluated\n", result.considered,
                                elapsed_ms, result.evaluated);
  if (!result.goal_met) {
    out += fmt::format("The goal is out of reach ({}): {}\n", result.binding_limit,
                       result.explanation);
  }
  out += fmt::format("{:<2} {:<7} {:<44} {:>9} {:>8} {:>10} {:>10} {:>5} {}\n", "#", "mode",
                     "engines of a replica", "TTFT ms", "ITL ms", "tok/s/GPU", "tok/s/user", "x",
                     "times are");
  for (size_t i = 0; i < result.best.size(); ++i) {
    const Candidate& c = result.best[i];
    out += fmt::format("{:<2} {:<7} {:<44} {:>9.1f} {:>8.2f} {:>10.1f} {:>10.1f} {:>5} {}\n", i + 1,
                       name_of(c.mode), describe(c), c.point.ttft_ms, c.point.itl_ms,
                       c.cluster_tokens_per_s_per_gpu, c.point.tokens_per_s_per_user, c.replicas,
                       perf::name_of(std::max(c.prefill.provenance, c.decode.provenance)));
  }
  for (const std::string& gap : result.gaps) {
    out += fmt::format("not in the database: {}\n", gap);
  }
  out +=
      fmt::format("for {} on {} x {}, {:.0f} + {:.0f} tokens\n", goal.engine.model.name, goal.gpus,
                  goal.engine.system.name, goal.work.input_tokens, goal.work.output_tokens);
  return out;
}

std::string render_html(const Goal& goal, const SearchResult& result, double elapsed_ms) {
  std::string out = report::page_begin("stator configure");
  out += fmt::format(
      "<h1>{} on {} &times; {}</h1>\n<p>{} configurations in {:.0f} ms; TTFT &le; {} ms, ITL &le; "
      "{} ms, {:.0f} + {:.0f} tokens.</p>\n",
      text::escape_html(goal.engine.model.name), goal.gpus, goal.engine.system.name,
      result.considered, elapsed_ms, goal.ttft_ms, goal.itl_ms, goal.work.input_tokens,
      goal.work.output_tokens);
  if (!result.goal_met) {
    out += fmt::format("<p class=\"bad\">{}</p>\n", text::escape_html(result.explanation));
  }
  report::Plot plot{"Pareto front", "tokens/s per user", "tokens/s per GPU", false, {}};
  for (const Mode mode : {Mode::kAggregated, Mode::kDisaggregated}) {
    report::PlotLine line{std::string(name_of(mode)), {}};
    for (const Candidate& c : result.pareto) {
      if (c.mode == mode) {
        line.points.emplace_back(c.point.tokens_per_s_per_user, c.cluster_tokens_per_s_per_gpu);
      }
    }
    if (!line.points.empty()) {
      plot.lines.push_back(std::move(line));
    }
  }
  out += report::draw(plot);
  out +=
      "<h2>Best</h2>\n<table><tr><th>engines of a replica</th><th>mode</th><th>TTFT ms</th><th>ITL "
      "ms</th>"
      "<th>tokens/s/GPU</th><th>tokens/s/user</th><th>replicas</th><th>times are</th></tr>\n";
  for (const Candidate& c : result.best) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.2f}</td><td>{:.1f}</td><td>{:.1f}</"
        "td><td>{}</td><td>{}</td></tr>\n",
        describe(c), name_of(c.mode), c.point.ttft_ms, c.point.itl_ms,
        c.cluster_tokens_per_s_per_gpu, c.point.tokens_per_s_per_user, c.replicas,
        perf::name_of(std::max(c.prefill.provenance, c.decode.provenance)));
  }
  out += "</table>\n" + std::string(report::page_end());
  return out;
}

}  // namespace stator::configurator
