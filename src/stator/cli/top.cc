// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/operator_listener.h"
#include "stator/core/config.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/http_client.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

constexpr size_t kRequestRows = 12;

/// One sample of a Prometheus text: its labels as written, "a=\"b\",c=\"d\"".
struct Sample {
  std::string labels;
  double value = 0;
};
using Samples = std::map<std::string, std::vector<Sample>, std::less<>>;

Samples parse_samples(std::string_view text) {
  Samples out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string_view::npos) {
      continue;
    }
    Sample sample;
    const std::string_view number = line.substr(space + 1);
    std::from_chars(number.data(), number.data() + number.size(), sample.value);
    const std::string_view series = line.substr(0, space);
    const size_t brace = series.find('{');
    if (brace != std::string_view::npos) {
      sample.labels = series.substr(brace + 1, series.size() - brace - 2);
    }
    out[std::string(series.substr(0, brace))].push_back(std::move(sample));
  }
  return out;
}

std::string label(std::string_view labels, std::string_view name) {
  const std::string start = fmt::format("{}=\"", name);
  const size_t at = labels.find(start);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = labels.substr(at + start.size());
  return std::string(rest.substr(0, rest.find('"')));
}

/// What a server tells of itself at one moment.
struct Look {
  Samples samples;
  json::Value health;
  json::Value requests;  // null where there is no operators' listener
  TimePoint at;

  double sum(std::string_view suffix) const {
    double all = 0;
    for (const auto& [name, list] : samples) {
      if (name.ends_with(suffix)) {
        for (const Sample& sample : list) {
          all += sample.value;
        }
      }
    }
    return all;
  }
  double find(std::string_view suffix, std::string_view name, std::string_view value) const {
    double all = 0;
    for (const auto& [family, list] : samples) {
      for (const Sample& sample : list) {
        all += family.ends_with(suffix) && label(sample.labels, name) == value ? sample.value : 0;
      }
    }
    return all;
  }
  /// Mean of a histogram in milliseconds; none without a sample.
  std::optional<double> mean_ms(std::string_view family) const {
    const double count = sum(fmt::format("{}_count", family));
    return count > 0 ? std::optional(1000 * sum(fmt::format("{}_sum", family)) / count)
                     : std::nullopt;
  }
};

std::string shown(std::optional<double> ms) {
  return ms ? fmt::format("{:.1f} ms", *ms) : "-";
}

std::string rate(const Look& now, const Look* before, std::string_view suffix) {
  if (before == nullptr) {
    return "-";
  }
  const double seconds = std::chrono::duration<double>(now.at - before->at).count();
  return fmt::format("{:.1f}", (now.sum(suffix) - before->sum(suffix)) / std::max(seconds, 1e-3));
}

void add_workers(std::string& out, const Look& now) {
  out += fmt::format("\n{:<22}{:<20}{:<26}{:>9}{:>15}{:>15}\n", "WORKER", "MODEL", "PLACE",
                     "REQUESTS", "DECODE BLOCKS", "PREFILL TOKENS");
  const json::Value* instances = now.health.find("instances");
  for (const json::Value& one :
       instances == nullptr ? json::Value::Array() : instances->elements()) {
    const std::string id(one.find("instance_id") == nullptr ? "" : one.find("instance_id")->text());
    out += fmt::format(
        "{:<22}{:<20}{:<26}{:>9}{:>15}{:>15}  {}\n", id, one.text_at({"model"}),
        one.text_at({"url"}), now.find("router_worker_active_requests", "worker_id", id),
        now.find("worker_active_decode_blocks", "worker_id", id),
        now.find("worker_active_prefill_tokens", "worker_id", id), one.text_at({"reason"}));
  }
  const auto engines = now.samples.find("stator_engine_kv_blocks_total");
  if (engines == now.samples.end()) {
    return;
  }
  out += fmt::format("\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ENGINE", "KV USED",
                     "CACHED", "DEVICE", "HOST", "RUNNING", "WAITING");
  for (const Sample& sample : engines->second) {
    const std::string name = label(sample.labels, "engine");
    const auto of = [&](std::string_view family) { return now.find(family, "engine", name); };
    out += fmt::format("{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", name,
                       of("engine_kv_blocks_used"), of("engine_kv_blocks_cached"), sample.value,
                       of("engine_kv_host_blocks_stored"), of("engine_running_requests"),
                       of("engine_waiting_requests"));
  }
}

std::string text_of(const json::Value& one, std::string_view key) {
  const json::Value* value = one.find(key);
  return value == nullptr ? std::string("-") : std::string(value->text());
}

bool is_running(const json::Value& one) {
  return one.find("running") != nullptr;
}

void add_running(std::string& out, const Look& now) {
  size_t rows = 0;
  for (const json::Value& one : now.requests.elements()) {
    if (!is_running(one)) {
      continue;
    }
    if (rows == 0) {
      out +=
          fmt::format("\n{:<38}{:<14}{:<22}{:<12}{:<11}{:>8}{:>8}{:>8}{:>11}\n", "RUNNING", "MODEL",
                      "WORKER", "TENANT", "PHASE", "PROMPT", "CACHED", "OUTPUT", "AGE ms");
    }
    out += fmt::format("{:<38}{:<14}{:<22}{:<12}{:<11}{:>8}{:>8}{:>8}{:>11}\n",
                       text_of(one, "request_id"), text_of(one, "model"), text_of(one, "worker_id"),
                       text_of(one, "tenant"), text_of(one, "phase"), text_of(one, "prompt_tokens"),
                       text_of(one, "cached_tokens"), text_of(one, "output_tokens"),
                       text_of(one, "duration_ms"));
    if (++rows == kRequestRows) {
      return;
    }
  }
}

void add_requests(std::string& out, const Look& now) {
  if (now.requests.size() == 0 || std::ranges::all_of(now.requests.elements(), is_running)) {
    return;
  }
  out += fmt::format("\n{:<38}{:<14}{:<12}{:>7}{:>8}{:>8}{:>8}{:>10}{:>11}\n", "REQUEST", "MODEL",
                     "TENANT", "STATUS", "PROMPT", "CACHED", "OUTPUT", "TTFT ms", "TOOK ms");
  size_t rows = 0;
  for (const json::Value& one : now.requests.elements()) {
    if (is_running(one)) {
      continue;
    }
    const auto text = [&one](std::string_view key) { return text_of(one, key); };
    out += fmt::format("{:<38}{:<14}{:<12}{:>7}{:>8}{:>8}{:>8}{:>10}{:>11}\n", text("request_id"),
                       text("model"), text("tenant"), text("status"), text("prompt_tokens"),
                       text("cached_tokens"), text("output_tokens"), text("ttft_ms"),
                       text("duration_ms"));
    if (++rows == kRequestRows) {
      return;
    }
  }
}

std::string as_text(const Look& now, const Look* before, std::string_view url) {
  std::string out = fmt::format(
      "stator top  {}  {}\n\nrunning {:.0f}   queued {:.0f}   requests/s {}   tokens/s {}   TTFT {}"
      "   ITL {}   memory {:.0f} MiB\n",
      url, now.health.text_at({"status"}), now.sum("_frontend_inflight_requests"),
      now.sum("_frontend_router_queue_pending_requests"),
      rate(now, before, "_frontend_requests_total"),
      rate(now, before, "_frontend_output_tokens_total"),
      shown(now.mean_ms("_frontend_time_to_first_token_seconds")),
      shown(now.mean_ms("_frontend_inter_token_latency_seconds")),
      now.sum("process_resident_memory_bytes") / (1 << 20));
  add_workers(out, now);
  add_running(out, now);
  add_requests(out, now);
  return out;
}

std::string as_json(const Look& now) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("status").value(now.health.text_at({"status"}));
  json.key("running").value(now.sum("_frontend_inflight_requests"));
  json.key("queued").value(now.sum("_frontend_router_queue_pending_requests"));
  json.key("requests_total").value(now.sum("_frontend_requests_total"));
  json.key("output_tokens_total").value(now.sum("_frontend_output_tokens_total"));
  json.key("kv_blocks_used").value(now.sum("stator_engine_kv_blocks_used"));
  json.key("kv_blocks_total").value(now.sum("stator_engine_kv_blocks_total"));
  json.key("workers");
  const json::Value* instances = now.health.find("instances");
  write(json, instances == nullptr ? json::Value::array() : *instances);
  json.key("requests");
  write(json, now.requests.is_array() ? now.requests : json::Value::array());
  json.end_object();
  return out + "\n";
}

class Server {
 public:
  Server(std::string url, net::HttpHeaderList headers)
      : url_(std::move(url)), headers_(std::move(headers)) {
    while (url_.ends_with('/')) {
      url_.pop_back();
    }
  }
  const std::string& url() const { return url_; }

  Result<Look> look(const Clock& clock) const {
    Look out;
    STATOR_TRY(const auto metrics, get("/metrics"));
    if (metrics.status != 200) {
      return Error(Code::kUnavailable,
                   fmt::format("{}/metrics answers {}: {}", url_, metrics.status, kOperatorHint));
    }
    out.samples = parse_samples(metrics.body);
    STATOR_TRY(const auto health, get("/health"));
    STATOR_TRY(out.health, json::parse(health.body), "reading /health");
    STATOR_TRY(const auto requests, get("/requests"));
    if (requests.status == 200) {
      STATOR_TRY(out.requests, json::parse(requests.body), "reading /requests");
    }
    out.at = clock.now();
    return out;
  }

 private:
  Result<net::HttpClientResponse> get(std::string_view path) const {
    return net::http_request(
        {.method = "GET", .url = url_ + std::string(path), .headers = headers_, .body = {}},
        {.timeout = 10s});
  }

  std::string url_;
  net::HttpHeaderList headers_;
};

}  // namespace

Status run_top(Invocation& invocation) {
  const auto option = [&](std::string_view flag, std::string_view fallback) {
    const auto given = invocation.options.find(flag);
    return given == invocation.options.end() ? std::string(fallback) : given->second;
  };
  STATOR_TRY(auto headers, read_credentials(invocation));
  STATOR_TRY(const Duration interval, parse_duration(option("--interval", "2s")), "--interval");
  const bool as_lines = invocation.options.contains("--json");
  const bool once = invocation.options.contains("--once") || !app::stdout_is_terminal();
  const Server server(option("--url", "http://127.0.0.1:8000"), std::move(headers));
  SystemClock clock;
  Signals signals;
  std::optional<Look> before;
  do {
    STATOR_TRY(Look now, server.look(clock));
    const std::string text =
        as_lines ? as_json(now) : as_text(now, before ? &*before : nullptr, server.url());
    print(once || as_lines ? text : "\x1b[H\x1b[2J" + text);
    before = std::move(now);
  } while (!once && !signals.wait_for(std::max<Duration>(interval, 100ms)));
  return {};
}

}  // namespace stator::cli
