// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/report.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string_view>

namespace stator::simulator {
namespace {

double per_second(double amount, double milliseconds) {
  return milliseconds > 0 ? amount / milliseconds * 1000 : 0;
}

/// Appends `"name": value` lines of one object.
class Fields {
 public:
  explicit Fields(std::string& out, std::string_view indent) : out_(out), indent_(indent) {}

  template <typename T>
  void add(std::string_view name, const T& value) {
    separate();
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      fmt::format_to(std::back_inserter(out_), "\"{}\": \"{}\"", name, value);
    } else {
      fmt::format_to(std::back_inserter(out_), "\"{}\": {}", name, value);
    }
  }

  void add(std::string_view name, const Summary& summary, std::string_view unit) {
    const std::array<std::pair<std::string_view, double>, 13> figures = {{{"mean", summary.mean},
                                                                          {"min", summary.min},
                                                                          {"max", summary.max},
                                                                          {"median", summary.p50},
                                                                          {"p1", summary.p1},
                                                                          {"p5", summary.p5},
                                                                          {"p25", summary.p25},
                                                                          {"p50", summary.p50},
                                                                          {"p75", summary.p75},
                                                                          {"p90", summary.p90},
                                                                          {"p95", summary.p95},
                                                                          {"p99", summary.p99},
                                                                          {"std", summary.std}}};
    for (const auto& [figure, value] : figures) {
      add(fmt::format("{}_{}{}", figure, name, unit), value);
    }
  }

 private:
  void separate() {
    out_ += first_ ? "\n" : ",\n";
    out_ += indent_;
    first_ = false;
  }
  std::string& out_;
  std::string_view indent_;
  bool first_ = true;
};

void add_volume(Fields& fields, const Report& report) {
  fields.add("num_requests", report.requests);
  fields.add("completed_requests", report.completed);
  fields.add("failed_requests", report.failed());
  fields.add("rejected_requests", report.rejected);
  fields.add("unroutable_requests", report.unroutable);
  fields.add("shed_requests", report.shed);
  fields.add("lost_requests", report.lost);
  fields.add("migrated_requests", report.migrated);
  fields.add("worker_failures", report.worker_failures);
  fields.add("error_rate", report.requests == 0 ? 0.0
                                                : static_cast<double>(report.failed()) /
                                                      static_cast<double>(report.requests));
  fields.add("total_input_tokens", report.input_tokens);
  fields.add("total_output_tokens", report.output_tokens);
  fields.add("processed_tokens", report.input_tokens + report.output_tokens);
  fields.add("duration_ms", report.duration_ms);
  fields.add("request_throughput_rps", report.requests_per_s());
  fields.add("input_throughput_tok_s", report.tokens_per_s(report.input_tokens));
  fields.add("output_throughput_tok_s", report.tokens_per_s(report.output_tokens));
  fields.add("total_throughput_tok_s",
             report.tokens_per_s(report.input_tokens + report.output_tokens));
  fields.add("prefill_worker_seconds", report.prefill_worker_seconds);
  fields.add("decode_worker_seconds", report.decode_worker_seconds);
  fields.add("prefill_gpus_per_worker", report.prefill_workers > 0 ? report.gpus_per_worker : 0);
  fields.add("decode_gpus_per_worker", report.gpus_per_worker);
  fields.add("gpu_hours", (report.prefill_worker_seconds + report.decode_worker_seconds) *
                              report.gpus_per_worker / 3600);
  fields.add("prefix_cache_reused_ratio", report.cached_ratio);
  fields.add("first_admission_prefix_cache_reused_ratio", report.first_cached_ratio);
  fields.add("host_cache_reused_ratio", report.host_cached_ratio);
  fields.add("host_offloaded_blocks", report.offloaded_blocks);
  fields.add("passes", report.passes);
  fields.add("dummy_passes", report.dummy_passes);
  fields.add("preemptions", report.preemptions);
  fields.add("max_waiting_requests", report.waiting_max);
}

void add_worker(std::string& out, const WorkerReport& worker, double duration_ms) {
  Fields fields(out, "      ");
  out += "    {";
  fields.add("requests", worker.requests);
  fields.add("input_tokens", worker.input_tokens);
  fields.add("cached_tokens", worker.cached_tokens);
  fields.add("output_tokens", worker.output_tokens);
  fields.add("passes", worker.passes);
  fields.add("dummy_passes", worker.dummy_passes);
  fields.add("preemptions", worker.preemptions);
  fields.add("busy_ratio", duration_ms > 0 ? worker.busy_ms / duration_ms : 0);
  out += "\n    }";
}

void add_row(std::string& out, std::string_view name, const Summary& summary) {
  fmt::format_to(
      std::back_inserter(out),
      "│ {:<38} │ {:>11.2f} │ {:>11.2f} │ {:>11.2f} │ {:>11.2f} │ {:>11.2f} │ {:>11.2f} │ "
      "{:>11.2f} │\n",
      name, summary.mean, summary.min, summary.max, summary.p99, summary.p90, summary.p50,
      summary.std);
}

}  // namespace

double Report::requests_per_s() const {
  return per_second(static_cast<double>(completed), duration_ms);
}

double Report::tokens_per_s(uint64_t tokens) const {
  return per_second(static_cast<double>(tokens), duration_ms);
}

std::string render_json(const Report& report) {
  std::string out = "{";
  Fields fields(out, "  ");
  fields.add("router_mode", report.router);
  fields.add("engine", report.engine);
  fields.add("num_workers", report.workers);
  fields.add("num_prefill_workers", report.prefill_workers);
  fields.add("dp_size", report.dp_size);
  fields.add("seed", report.seed);
  add_volume(fields, report);
  fields.add("ttft", report.ttft_ms, "_ms");
  fields.add("ttst", report.ttst_ms, "_ms");
  fields.add("tpot", report.tpot_ms, "_ms");
  fields.add("itl", report.itl_ms, "_ms");
  fields.add("e2e_latency", report.e2e_ms, "_ms");
  fields.add("queue_wait", report.queue_ms, "_ms");
  fields.add("output_token_throughput_per_user", report.user_rate, "");
  fields.add("output_token_throughput_per_request", report.request_rate, "");
  if (report.good) {
    fields.add("goodput_completed_requests", *report.good);
    fields.add("goodput_request_throughput_rps",
               per_second(static_cast<double>(*report.good), report.duration_ms));
    fields.add("goodput_output_throughput_tok_s", report.tokens_per_s(report.good_output_tokens));
  }
  out += ",\n  \"workers\": [";
  for (size_t i = 0; i < report.per_worker.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    add_worker(out, report.per_worker[i], report.duration_ms);
  }
  out += "\n  ]";
  fields.add("wall_time_ms", report.wall_time_ms);
  fields.add("simulated_requests_per_s",
             per_second(static_cast<double>(report.requests), report.wall_time_ms));
  fields.add("processed_tokens_per_s",
             per_second(static_cast<double>(report.input_tokens + report.output_tokens),
                        report.wall_time_ms));
  fields.add("processed_output_tokens_per_s",
             per_second(static_cast<double>(report.output_tokens), report.wall_time_ms));
  out += "\n}\n";
  return out;
}

std::string render_table(const Report& report) {
  constexpr std::string_view kRule =
      "────────────────────────────────────────┼─────────────┼─────────────┼─────────────┼─────────"
      "─"
      "───┼─────────────┼─────────────┼─────────────";
  std::string out = fmt::format(
      "│ {:<38} │ {:>11} │ {:>11} │ {:>11} │ {:>11} │ {:>11} │ {:>11} │ "
      "{:>11} │\n├{}┤\n",
      "Metric", "avg", "min", "max", "p99", "p90", "p50", "std", kRule);
  add_row(out, "Time to First Token (ms)", report.ttft_ms);
  add_row(out, "Time to Second Token (ms)", report.ttst_ms);
  add_row(out, "Request Latency (ms)", report.e2e_ms);
  add_row(out, "Inter Token Latency (ms)", report.tpot_ms);
  add_row(out, "Token Gap (ms)", report.itl_ms);
  add_row(out, "Queue Wait (ms)", report.queue_ms);
  add_row(out, "Output Tokens / s / User", report.request_rate);
  const auto line = [&](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<40} {:>16}\n", name, value);
  };
  out += '\n';
  line("Requests (completed / failed)", fmt::format("{} / {}", report.completed, report.failed()));
  line("Duration (simulated s)", fmt::format("{:.3f}", report.duration_ms / 1000));
  line("Request Throughput (requests/s)", fmt::format("{:.3f}", report.requests_per_s()));
  line("Input Token Throughput (tokens/s)",
       fmt::format("{:.1f}", report.tokens_per_s(report.input_tokens)));
  line("Output Token Throughput (tokens/s)",
       fmt::format("{:.1f}", report.tokens_per_s(report.output_tokens)));
  line("Prompt Tokens from Cache", fmt::format("{:.2f} %", report.cached_ratio * 100));
  if (report.offloaded_blocks > 0) {
    line("Prompt Tokens from Host Memory", fmt::format("{:.2f} %", report.host_cached_ratio * 100));
  }
  if (report.worker_failures > 0) {
    line("Worker Failures (migrated / lost)",
         fmt::format("{} ({} / {})", report.worker_failures, report.migrated, report.lost));
  }
  line("Preemptions", fmt::format("{}", report.preemptions));
  if (report.good) {
    line("Goodput (requests/s)",
         fmt::format("{:.3f}", per_second(static_cast<double>(*report.good), report.duration_ms)));
  }
  line("Simulated in (wall s)",
       fmt::format("{:.3f} ({:.0f} requests/s)", report.wall_time_ms / 1000,
                   per_second(static_cast<double>(report.requests), report.wall_time_ms)));
  return out;
}

std::vector<Figure> key_figures(const Report& report) {
  double busy_ms = 0;
  for (const WorkerReport& worker : report.per_worker) {
    busy_ms += worker.busy_ms;
  }
  const double worker_ms = report.duration_ms * static_cast<double>(report.per_worker.size());
  return {{"completed_requests", static_cast<double>(report.completed)},
          {"failed_requests", static_cast<double>(report.failed())},
          {"request_throughput_rps", report.requests_per_s()},
          {"output_throughput_tok_s", report.tokens_per_s(report.output_tokens)},
          {"mean_ttft_ms", report.ttft_ms.mean},
          {"p50_ttft_ms", report.ttft_ms.p50},
          {"p99_ttft_ms", report.ttft_ms.p99},
          {"mean_tpot_ms", report.tpot_ms.mean},
          {"p99_tpot_ms", report.tpot_ms.p99},
          {"mean_itl_ms", report.itl_ms.mean},
          {"mean_e2e_latency_ms", report.e2e_ms.mean},
          {"p99_e2e_latency_ms", report.e2e_ms.p99},
          {"mean_queue_wait_ms", report.queue_ms.mean},
          {"prefix_cache_reused_ratio", report.cached_ratio},
          {"host_cache_reused_ratio", report.host_cached_ratio},
          {"goodput_request_throughput_rps",
           per_second(static_cast<double>(report.good.value_or(0)), report.duration_ms)},
          {"preemptions", static_cast<double>(report.preemptions)},
          {"busy_ratio", worker_ms > 0 ? busy_ms / worker_ms : 0},
          {"gpu_hours", (report.prefill_worker_seconds + report.decode_worker_seconds) *
                            report.gpus_per_worker / 3600}};
}

}  // namespace stator::simulator
