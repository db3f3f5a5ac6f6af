// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/telemetry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/telemetry/request_spans.h"
#include "stator/telemetry/trace_headers.h"

namespace stator::telemetry {
namespace {

constexpr size_t kPathBytesMax = 256;
constexpr size_t kIdBytesMax = 256;
constexpr size_t kAuditBodyBytesMax = size_t{256} << 10;
constexpr size_t kInlineMediaBytes = 128;

template <size_t kSize>
void fill(std::array<unsigned char, kSize>& id, Random& random) {
  for (size_t at = 0; at < kSize; at += sizeof(uint64_t)) {
    const uint64_t bits = random.next() | 1;  // never all zero
    std::memcpy(id.data() + at, &bits, sizeof bits);
  }
}

struct FileNames {
  std::string path;
  std::string name;  // of the setting
  bool compressed = false;
};

Result<std::unique_ptr<LineFile>> open_file(const FileNames& names, const RequestLogConfig& config,
                                            Clock& clock, Metrics& metrics) {
  const auto& [path, name, compressed] = names;
  if (path.empty()) {
    return std::unique_ptr<LineFile>();
  }
  auto file = LineFile::open({.path = path,
                              .bytes_max = config.file_bytes_max,
                              .files_max = config.files_max,
                              .buffer_bytes_max = config.buffer_bytes_max,
                              .compressed = compressed,
                              .name = name},
                             clock, metrics);
  if (!file) {
    return std::move(file.error())
        .with_context(fmt::format("request_log.{}", name))
        .with_code(Code::kInvalidArgument);
  }
  return file;
}

bool is_secret(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  constexpr std::array<std::string_view, 6> kParts = {"authorization", "api_key", "apikey",
                                                      "password",      "secret",  "api-key"};
  return lower == "token" ||
         std::ranges::any_of(kParts, [&](std::string_view part) { return lower.contains(part); });
}

/// Base64 beside its type or format: Anthropic's sources, OpenAI's audio.
bool is_inline_media(std::string_view key, const json::Value& value,
                     const json::Value::Object& siblings) {
  const auto text = value.as_string();
  return key == "data" && text && text->size() > kInlineMediaBytes &&
         std::ranges::any_of(siblings, [](const json::Member& member) {
           return member.key == "media_type" || member.key == "format";
         });
}

void redact(json::Value& value) {
  if (auto* members = value.mutable_members()) {
    for (json::Member& member : *members) {
      if (is_secret(member.key)) {
        member.value = "***";
      } else if (is_inline_media(member.key, member.value, *members)) {
        member.value = fmt::format("({} bytes left out)", member.value.text().size());
      } else {
        redact(member.value);
      }
    }
  } else if (auto* elements = value.mutable_elements()) {
    for (json::Value& element : *elements) {
      redact(element);
    }
  } else if (const auto text = value.as_string();
             text && text->size() > kInlineMediaBytes && text->starts_with("data:")) {
    value = fmt::format("data:… ({} bytes left out)", text->size());
  }
}

}  // namespace

std::string redact_body(std::string_view body) {
  auto value = body.size() > kAuditBodyBytesMax
                   ? Result<json::Value>(Error(Code::kTooLarge, "large"))
                   : json::parse(body);
  if (!value) {
    return fmt::format(R"({{"bytes":{}}})", body.size());
  }
  redact(*value);
  return json::to_text(*value);
}

bool Telemetry::wanted(const TelemetryConfig& config, bool keeps_recent) {
  return keeps_recent || !config.trace.endpoint.empty() || !config.log.access_log.empty() ||
         !config.log.request_trace.empty() || !config.log.audit_log.empty();
}

Telemetry::Telemetry(const TelemetryConfig& config, bool keeps_recent, Clock& clock)
    : config_(config),
      keeps_recent_(keeps_recent),
      clock_(clock),
      random_(Random::from_entropy()) {}

Result<std::unique_ptr<Telemetry>> Telemetry::start(const TelemetryConfig& config,
                                                    bool keeps_recent, Clock& clock,
                                                    Metrics& metrics) {
  std::unique_ptr<Telemetry> made(new Telemetry(config, keeps_recent, clock));
  const RequestLogConfig& log = config.log;
  STATOR_TRY(made->access_, open_file({log.access_log, "access_log"}, log, clock, metrics));
  STATOR_TRY(made->request_trace_,
             open_file({log.request_trace, "request_trace", log.request_trace_format == "jsonl_gz"},
                       log, clock, metrics));
  STATOR_TRY(made->audit_, open_file({log.audit_log, "audit_log"}, log, clock, metrics));
  if (made->audit_ != nullptr && log.audit_content == "all") {
    made->answers_ =
        std::make_unique<net::ByteBudget>("audit_answers", log.answers_bytes_max, metrics);
  }
  if (!config.trace.endpoint.empty()) {
    STATOR_TRY(made->exporter_, SpanExporter::start(config.trace, clock, metrics));
  }
  return made;
}

void Telemetry::begin(RequestFacts& facts, const net::HttpRequest& request, TimePoint now) {
  facts.method = request.method();
  facts.path = request.path().substr(0, kPathBytesMax);
  const std::string_view id = request.header("x-request-id").value_or("");
  facts.x_request_id = id.size() <= kIdBytesMax ? id : std::string_view();
  facts.received = now;
  facts.received_wall = clock_.wall_now();
  TraceHeaders given = read_trace_headers(request);
  if (!wants_spans() && !given.parent) {
    return;
  }
  const MutexLock lock(mutex_);
  if (given.parent) {
    facts.trace = *given.parent;
    facts.parent = given.parent->span;
    facts.trace_state = std::move(given.tracestate);
  } else {
    fill(facts.trace.trace, random_);
    facts.trace.random = true;
    facts.trace.sampled = random_.uniform() < config_.trace.sample_ratio;
  }
  fill(facts.trace.span, random_);
}

void Telemetry::end(RequestFacts facts) {
  facts.ended = clock_.now();
  if (access_ != nullptr) {
    access_->append(config_.log.access_log_format == "human" ? access_line_human(facts)
                                                             : access_line_json(facts));
  }
  if (request_trace_ != nullptr && facts.block_size > 0) {  // it was about to generate
    request_trace_->append(request_trace_line(facts));
  }
  if (exporter_ != nullptr && facts.trace.sampled) {
    static thread_local SpanList spans;
    spans.clear();
    make_spans(facts, spans);
    exporter_->add(spans);
  }
  if (keeps_recent_ && !facts.request_id.empty()) {
    facts.blocks.clear();
    const MutexLock lock(mutex_);
    if (recent_.size() >= config_.recent_max) {
      recent_.pop_front();
    }
    recent_.push_back(std::move(facts));
  }
}

void Telemetry::audit(std::string_view event, std::string_view members) {
  if (audit_ != nullptr) {
    audit_->append(fmt::format(
        "{{\"time_unix_ms\":{},\"event\":\"{}\"{}{}}}\n",
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall_now().time_since_epoch())
            .count(),
        event, members.empty() ? "" : ",", members));
  }
}

RunningRequests::Place Telemetry::list_running(const RequestFacts& facts) {
  return keeps_recent_ ? running_.add(facts) : nullptr;
}

std::string Telemetry::render_requests(size_t count_max, std::string_view request_id,
                                       Shown shown) const {
  std::string out = "[";
  if (shown != Shown::kEnded) {
    const TimePoint now = clock_.now();
    for (RequestFacts& facts : running_.oldest(count_max, request_id)) {
      out += out.size() > 1 ? "," : "";
      append_running(out, std::move(facts), now);
    }
  }
  if (shown == Shown::kRunning) {
    return out + "]";
  }
  const MutexLock lock(mutex_);
  for (auto facts = recent_.rbegin(); facts != recent_.rend() && count_max > 0; ++facts) {
    if (!request_id.empty() && facts->request_id != request_id) {
      continue;
    }
    out += out.size() > 1 ? "," : "";
    append_request(out, *facts);
    --count_max;
  }
  return out + "]";
}

}  // namespace stator::telemetry
