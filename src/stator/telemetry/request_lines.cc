// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stator/json/writer.h"
#include "stator/telemetry/request_facts.h"
#include "stator/telemetry/running_requests.h"

namespace stator::telemetry {
namespace {

constexpr std::array<std::string_view, 9> kSteps = {"prepared",    "queued",      "routed",
                                                    "prefill",     "handed_over", "submitted",
                                                    "first_token", "lost",        "ended"};
constexpr std::string_view kRequestTraceSchema = "dynamo.request.trace.v1";

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// To the microsecond: JSON with 17 digits is read by nobody.
double rounded(double ms) {
  return static_cast<double>(static_cast<int64_t>(ms * 1000 + 0.5)) / 1000;
}

int64_t unix_ms(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

/// "2026-11-25T17:00:00.123Z"; by hand, because a line has a microsecond to be made.
void append_time(std::string& out, WallTime time) {
  const int64_t ms = unix_ms(time);
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const int64_t of_day =
      ms - std::chrono::duration_cast<std::chrono::milliseconds>(days.time_since_epoch()).count();
  const auto digits = [&out](int64_t value, int count) {
    std::array<char, 8> text{};
    for (int i = count; i-- > 0; value /= 10) {
      text[static_cast<size_t>(i)] = static_cast<char>('0' + value % 10);
    }
    out.append(text.data(), static_cast<size_t>(count));
  };
  digits(static_cast<int>(date.year()), 4);
  out += '-';
  digits(static_cast<unsigned>(date.month()), 2);
  out += '-';
  digits(static_cast<unsigned>(date.day()), 2);
  out += 'T';
  digits(of_day / 3'600'000, 2);
  out += ':';
  digits(of_day / 60'000 % 60, 2);
  out += ':';
  digits(of_day / 1000 % 60, 2);
  out += '.';
  digits(of_day % 1000, 3);
  out += 'Z';
}

void optional_text(json::Writer& json, std::string_view key, std::string_view value) {
  if (!value.empty()) {
    json.key(key).value(value);
  }
}

void optional_number(json::Writer& json, std::string_view key, std::optional<double> value) {
  if (value) {
    json.key(key).value(rounded(*value));
  }
}

/// The members that lines and operators share.
void append_common(json::Writer& json, const RequestFacts& facts, bool runs = false) {
  optional_text(json, "request_id", facts.request_id);
  optional_text(json, "x_request_id", facts.x_request_id);
  if (facts.trace.trace != TraceId{}) {
    json.key("trace_id").value(to_hex(facts.trace.trace));
    json.key("span_id").value(to_hex(facts.trace.span));
  }
  json.key("method").value(facts.method).key("path").value(facts.path);
  if (!runs) {
    json.key("status").value(facts.status);
  }
  optional_text(json, "error_type", facts.error_type);
  optional_text(json, "finish_reason", facts.finish_reason);
  optional_text(json, "client", facts.client);
  optional_text(json, "tenant", facts.tenant);
  optional_text(json, "role", facts.role);
  optional_text(json, "key_id", facts.key_id);
  json.key("duration_ms").value(rounded(facts.duration_ms()));
  if (facts.model.empty()) {
    return;
  }
  json.key("model").value(facts.model).key("stream").value(facts.stream);
  if (facts.worker) {
    // As text: JavaScript has no integers of 64 bits.
    json.key("worker_id").value(std::to_string(*facts.worker)).key("dp_rank").value(facts.dp_rank);
  }
  if (facts.prefill_worker) {
    json.key("prefill_worker_id").value(std::to_string(*facts.prefill_worker));
  }
  json.key("prompt_tokens").value(facts.prompt_tokens);
  json.key("cached_tokens").value(facts.cached_tokens);
  json.key("output_tokens").value(facts.output_tokens);
  optional_number(json, "ttft_ms", facts.ttft_ms());
  optional_number(json, "itl_ms", facts.itl_ms());
  if (facts.migrations > 0) {
    json.key("migrations").value(facts.migrations);
  }
}

/// The same as a row of a Mooncake trace, which load generators replay.
void append_row(json::Writer& json, const RequestFacts& facts) {
  // They count from the first row; some take no time of 13 digits.
  constexpr int64_t kTimestampMax = 1'000'000'000'000;
  json.key("timestamp").value(unix_ms(facts.received_wall) % kTimestampMax);
  json.key("input_length").value(facts.prompt_tokens);
  json.key("output_length").value(std::max(facts.output_tokens, 1U));
  json.key("hash_ids").begin_array();
  for (const uint64_t hash : facts.blocks) {
    json.value(hash);
  }
  json.end_array();
}

}  // namespace

std::string_view describe(Step step) {
  return kSteps[static_cast<size_t>(step)];
}

void RequestFacts::note(const Mark& noted, uint32_t rank) {
  mark(noted);
  if (noted.step == Step::kSubmitted) {
    worker = noted.worker;
    dp_rank = rank;
  } else if (noted.step == Step::kPrefill) {
    prefill_worker = noted.worker;
  } else if (noted.step == Step::kLost) {
    ++migrations;
  }
}

std::optional<double> RequestFacts::ttft_ms() const {
  return first_token ? std::optional(milliseconds(*first_token - received)) : std::nullopt;
}

std::optional<double> RequestFacts::itl_ms() const {
  if (!first_token || output_tokens < 2) {
    return std::nullopt;
  }
  return milliseconds(last_token - *first_token) / (output_tokens - 1);
}

double RequestFacts::duration_ms() const {
  return milliseconds(ended - received);
}

std::string access_line_json(const RequestFacts& facts) {
  std::string out;
  out.reserve(512);
  out += R"({"time":")";
  append_time(out, facts.received_wall);
  out += R"(",)";
  std::string members;
  members.reserve(448);
  json::Writer json(members);
  json.begin_object();
  append_common(json, facts);
  json.end_object();
  out.append(members, 1);
  out += '\n';
  return out;
}

std::string access_line_human(const RequestFacts& facts) {
  std::string out;
  out.reserve(256);
  append_time(out, facts.received_wall);
  fmt::format_to(std::back_inserter(out), " {} {} \"{} {}\" {} {:.1f}ms",
                 facts.client.empty() ? "-" : facts.client,
                 facts.tenant.empty() ? "-" : facts.tenant, facts.method, facts.path, facts.status,
                 facts.duration_ms());
  if (!facts.model.empty()) {
    fmt::format_to(std::back_inserter(out), " model={} worker={} prompt={} cached={} output={}",
                   facts.model, facts.worker ? std::to_string(*facts.worker) : "-",
                   facts.prompt_tokens, facts.cached_tokens, facts.output_tokens);
    if (const auto ttft = facts.ttft_ms()) {
      fmt::format_to(std::back_inserter(out), " ttft={:.1f}ms itl={:.2f}ms", *ttft,
                     facts.itl_ms().value_or(0));
    }
  }
  if (!facts.error_type.empty()) {
    fmt::format_to(std::back_inserter(out), " error={}", facts.error_type);
  }
  if (!facts.request_id.empty()) {
    fmt::format_to(std::back_inserter(out), " id={}", facts.request_id);
  }
  // Models and paths come from outside: a line stays one line.
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  out += '\n';
  return out;
}

std::string request_trace_line(const RequestFacts& facts) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("schema").value(kRequestTraceSchema);
  json.key("event_type").value("request_end");
  json.key("event_time_unix_ms").value(unix_ms(facts.wall(facts.ended)));
  json.key("request").begin_object().key("request_id").value(facts.request_id);
  optional_text(json, "x_request_id", facts.x_request_id);
  json.key("model").value(facts.model);
  json.key("request_received_ms").value(unix_ms(facts.received_wall));
  json.key("input_tokens").value(facts.prompt_tokens);
  json.key("cached_tokens").value(facts.cached_tokens);
  json.key("output_tokens").value(facts.output_tokens);
  optional_number(json, "ttft_ms", facts.ttft_ms());
  optional_number(json, "avg_itl_ms", facts.itl_ms());
  json.key("total_time_ms").value(rounded(facts.duration_ms()));
  json.key("finish_reason")
      .value(facts.error_type.empty() ? facts.finish_reason : std::string_view("error"));
  optional_text(json, "error_type", facts.error_type);
  optional_text(json, "tenant", facts.tenant);
  if (facts.worker) {
    json.key("worker").begin_object().key("decode_worker_id").value(*facts.worker);
    json.key("decode_dp_rank").value(facts.dp_rank);
    json.key("prefill_worker_id").value(facts.prefill_worker.value_or(*facts.worker)).end_object();
  }
  if (!facts.blocks.empty()) {
    json.key("replay").begin_object().key("trace_block_size").value(facts.block_size);
    json.key("input_length").value(facts.prompt_tokens);
    json.key("input_sequence_hashes").begin_array();
    for (const uint64_t hash : facts.blocks) {
      json.value(hash);
    }
    json.end_array().end_object();
  }
  json.end_object();
  append_row(json, facts);
  json.end_object();
  out += '\n';
  return out;
}

namespace {

void append_timeline(json::Writer& json, const RequestFacts& facts) {
  json.key("timeline").begin_array();
  for (const Mark& mark : facts.marks) {
    json.begin_object().key("step").value(describe(mark.step));
    json.key("at_ms").value(rounded(milliseconds(mark.at - facts.received)));
    if (mark.worker != 0) {
      json.key("worker_id").value(std::to_string(mark.worker));
    }
    if (mark.tokens != 0) {
      json.key("tokens").value(mark.tokens);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void append_request(std::string& out, const RequestFacts& facts) {
  json::Writer json(out);
  json.begin_object().key("received_ms").value(unix_ms(facts.received_wall));
  append_common(json, facts);
  append_timeline(json, facts);
  json.end_object();
}

void append_running(std::string& out, RequestFacts facts, TimePoint now) {
  facts.ended = now;
  json::Writer json(out);
  json.begin_object().key("received_ms").value(unix_ms(facts.received_wall));
  json.key("running").value(true).key("phase").value(phase_of(facts));
  append_common(json, facts, true);
  append_timeline(json, facts);
  json.end_object();
}

}  // namespace stator::telemetry
