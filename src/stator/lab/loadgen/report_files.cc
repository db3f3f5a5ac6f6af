// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stator/json/writer.h"
#include "stator/lab/loadgen/report.h"

namespace stator::loadgen {
namespace {

using Statistic = std::pair<std::string_view, double Summary::*>;
constexpr std::array<Statistic, 13> kStatistics = {{{"avg", &Summary::avg},
                                                    {"min", &Summary::min},
                                                    {"max", &Summary::max},
                                                    {"p1", &Summary::p1},
                                                    {"p5", &Summary::p5},
                                                    {"p10", &Summary::p10},
                                                    {"p25", &Summary::p25},
                                                    {"p50", &Summary::p50},
                                                    {"p75", &Summary::p75},
                                                    {"p90", &Summary::p90},
                                                    {"p95", &Summary::p95},
                                                    {"p99", &Summary::p99},
                                                    {"std", &Summary::std}}};

std::string iso_time(WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(unix_seconds(time)));
}

void write_metric(json::Writer& json, const Metric& metric) {
  json.key(metric.tag).begin_object().key("unit").value(metric.unit);
  if (metric.single) {
    json.key("avg").value(metric.values.avg);
  } else {
    for (const auto& [name, field] : kStatistics) {
      json.key(name).value(metric.values.*field);
    }
    json.key("count").value(metric.values.count).key("sum").value(metric.values.sum);
  }
  json.end_object();
}

void write_client(json::Writer& json, const RunResult& run) {
  const ClientFigures& client = run.client;
  json.key("client").begin_object();
  json.key("threads").value(client.threads);
  json.key("busy_share").value(client.busy_share);
  json.key("starved_share").value(client.starved_share);
  json.key("cpu_s").value(client.cpu_s);
  json.key("waiting_cpu_s").value(client.waiting_cpu_s);
  json.key("cpu_us_per_request").value(client.cpu_us_per_request);
  json.key("send_delay_p99_ms").value(client.send_delay_p99_ms);
  json.key("wake_delay_ms").value(client.wake_delay_ms);
  json.key("turn_p99_ms").value(client.turn_p99_ms);
  json.key("connections").value(client.connections);
  json.key("reconnects").value(client.reconnects);
  json.key("held_back").value(client.held_back);
  json.key("is_bottleneck").value(!run.client_bound.empty());
  json.key("reasons").begin_array();
  for (const std::string& reason : run.client_bound) {
    json.value(reason);
  }
  json.end_array().end_object();
}

void write_run(json::Writer& json, const RunResult& run) {
  const Figures& figures = run.figures;
  json.begin_object();
  write_client(json, run);
  json.key("warm_up").begin_object();
  json.key("seconds").value(figures.warm_up_s);
  json.key("requests").value(figures.warm_up_requests);
  json.key("steady").value(figures.steady).end_object();
  json.key("token_counts").value(figures.usage_missing ? "chunks" : "usage");
  json.key("streamed_answers").value(figures.streamed);
  json.key("whole_answers").value(figures.whole);
  json.key("outcomes").begin_object();
  for (const auto& [name, count] : figures.outcomes) {
    json.key(name).value(count);
  }
  json.end_object();
  json.key("interrupted").value(run.interrupted);
  json.key("records_full").value(run.log_full);
  json.key("gave_up").value(run.gave_up);
  json.key("offered_requests_per_s").value(run.offered_per_s);
  json.key("keep_up").value(run.keep_up);
  json.key("sustained").value(is_sustained(run));
  json.key("metrics").begin_object();
  for (const Metric& metric : figures.metrics) {
    write_metric(json, metric);
  }
  json.end_object().end_object();
}

void write_errors(json::Writer& json, const RunResult& run) {
  json.key("error_summary").begin_array();
  for (const auto& [text, count] : run.figures.errors) {
    json.begin_object().key("error_details").begin_object();
    json.key("message").value(text).end_object();
    json.key("count").value(count).end_object();
  }
  json.end_array();
}

void write_timeline(json::Writer& json, const Figures& figures) {
  json.key("timeline").begin_array();
  for (const TimePiece& piece : figures.timeline) {
    json.begin_object().key("at_s").value(piece.at_s);
    json.key("requests_per_s").value(piece.requests_per_s);
    json.key("output_tokens_per_s").value(piece.output_tokens_per_s);
    json.key("in_flight").value(piece.in_flight);
    json.key("request_latency_ms").value(piece.latency_ms).end_object();
  }
  json.end_array();
}

void write_stator_part(json::Writer& json, const Report& report) {
  json.key("stator").begin_object();
  json.key("valid").value(reasons_not_to_publish(report).empty());
  json.key("allowed_client_bound").value(report.allowed_client_bound);
  json.key("runs").begin_array();
  for (const RunResult& run : report.runs) {
    write_run(json, run);
  }
  json.end_array();
  if (report.is_sweep) {
    json.key("highest_sustained_requests_per_s").value(report.saturation_per_s);
  } else if (report.runs.size() > 1) {
    json.key("confidence_95").begin_object();
    for (const RepeatedMetric& metric : repeat_metrics(report.runs)) {
      const Confidence& c = metric.confidence;
      json.key(metric.tag).begin_object().key("unit").value(metric.unit);
      json.key("runs").value(c.runs).key("mean").value(c.mean).key("std").value(c.std);
      json.key("low").value(c.low).key("high").value(c.high).end_object();
    }
    json.end_object();
  }
  write_timeline(json, main_run(report).figures);
  json.end_object();
}

std::string csv_name(const Metric& metric) {
  // As AIPerf does: plain counts have no unit.
  return metric.unit == "requests" ? std::string(metric.header)
                                   : fmt::format("{} ({})", metric.header, metric.unit);
}

}  // namespace

std::string to_json(const Report& report) {
  std::string out;
  json::Writer json(out);
  const RunResult& run = main_run(report);
  json.begin_object();
  json.key("schema_version").value("1.1");
  json.key("generated_by").value("stator bench");
  json.key("input_config").begin_object();
  for (const auto& [name, value] : report.settings) {
    json.key(name).value(value);
  }
  json.end_object();
  json.key("was_cancelled").value(run.interrupted);
  json.key("start_time").value(iso_time(report.started));
  json.key("end_time").value(iso_time(report.ended));
  write_errors(json, run);
  for (const Metric& metric : run.figures.metrics) {
    write_metric(json, metric);
  }
  write_stator_part(json, report);
  json.end_object();
  return out + "\n";
}

std::string to_csv(const Report& report) {
  std::vector<const Metric*> metrics;
  for (const Metric& metric : main_run(report).figures.metrics) {
    metrics.push_back(&metric);
  }
  std::ranges::sort(metrics, {}, &Metric::tag);
  std::string out = "Metric";
  for (const auto& [name, field] : kStatistics) {
    out += fmt::format(",{}", name);
  }
  out += '\n';
  for (const Metric* metric : metrics) {
    if (!metric->single) {
      out += csv_name(*metric);
      for (const auto& [name, field] : kStatistics) {
        out += fmt::format(",{:.2f}", metric->values.*field);
      }
      out += '\n';
    }
  }
  out += "\nMetric,Value\n";
  for (const Metric* metric : metrics) {
    if (metric->single) {
      out += fmt::format("{},{:.2f}\n", csv_name(*metric), metric->values.avg);
    }
  }
  if (!reasons_not_to_publish(report).empty()) {
    out += "Generator Was The Bottleneck,1\n";
  }
  return out;
}

}  // namespace stator::loadgen
