// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/span_exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/credentials.h"
#include "stator/core/log.h"

namespace stator::telemetry {
namespace {

using namespace std::chrono_literals;

// The OpenTelemetry specification's defaults for a batch processor and an exporter.
constexpr size_t kBatchMax = 512;
constexpr Duration kBatchTime = 5s;
constexpr Duration kSendTimeout = 10s;
constexpr Duration kLastSendTimeout = 2s;
constexpr int kTriesMax = 3;
constexpr Duration kRetryWait = 500ms;
constexpr Duration kComplainEvery = 60s;
constexpr size_t kBatchBytes = size_t{96} << 10;  // of 512 spans, about
constexpr std::string_view kGrpcType = "application/grpc";
constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kBytesType = "application/x-protobuf";
constexpr std::string_view kGrpcPort = ":4317";
constexpr std::string_view kExport = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The part of a URL after host and port.
std::string_view path_of(std::string_view url) {
  const size_t host = url.find("://") + 3;
  const size_t slash = url.find('/', host);
  return slash == std::string_view::npos ? std::string_view() : url.substr(slash);
}

/// A message as gRPC frames it: not compressed, its length in big-endian.
std::string framed(const std::string& message) {
  std::string out(1, '\0');
  for (const uint32_t shift : {24U, 16U, 8U, 0U}) {
    out += static_cast<char>(message.size() >> shift & 255);
  }
  return out + message;
}

/// What every batch carries. Of lists the pairs that are names of headers.
net::HttpHeaderList headers_of(const TraceConfig& config, std::string_view type) {
  net::HttpHeaderList out = {{"content-type", std::string(type)}};
  if (type == kGrpcType) {
    out.emplace_back("te", "trailers");
  }
  if (const size_t at = config.header.find('='); at != std::string::npos) {
    out.emplace_back(config.header.substr(0, at), config.header.substr(at + 1));
  }
  for (auto& pair : read_resource_attributes(config.headers)) {
    out.push_back(std::move(pair));
  }
  return out;
}

/// A name and a value that make one line of a request's head.
bool is_header(std::string_view name, std::string_view value) {
  const auto in_name = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").contains(c);
  };
  const auto in_value = [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != '\x7f'; };
  return !name.empty() && std::ranges::all_of(name, in_name) &&
         std::ranges::all_of(value, in_value);
}

std::unique_ptr<const OtlpEncoding> make_encoding(const TraceConfig& config, bool json) {
  const OtlpResource resource{.service = config.service_name,
                              .version = config.version,
                              .attributes = config.resource_attributes};
  if (json) {
    return std::make_unique<OtlpJson>(resource);
  }
  return std::make_unique<OtlpBytes>(resource);
}

Counter dropped(Metrics& metrics, std::string_view reason) {
  return metrics.counter("stator_trace_spans_dropped_total", "spans that reached no collector",
                         {{"reason", std::string(reason)}});
}

}  // namespace

Result<SpanExporter::Target> SpanExporter::target_of(const TraceConfig& config) {
  const std::string& url = config.endpoint;
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return Error(Code::kInvalidArgument,
                 "trace.otlp_endpoint (flag --otlp-endpoint) must be http://HOST:PORT or "
                 "https://…: 4318 is usual for HTTP, 4317 for gRPC");
  }
  const std::string_view path = path_of(url);
  const std::string host = url.substr(0, url.size() - path.size());
  if (config.protocol == "grpc" || (config.protocol == "auto" && host.ends_with(kGrpcPort))) {
    return Target{host + std::string(kExport), Protocol::kGrpc};
  }
  return Target{path.empty() || path == "/" ? host + "/v1/traces" : url,
                config.protocol == "http/json" ? Protocol::kJson : Protocol::kBytes};
}

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(const TraceConfig& config, Clock& clock,
                                                          Metrics& metrics) {
  STATOR_TRY(Target target, target_of(config));
  if (!config.header.empty() && !config.header.contains('=')) {
    return Error(Code::kInvalidArgument, "trace.otlp_header must be NAME=VALUE");
  }
  for (const auto& [name, value] : headers_of(config, {})) {
    if (!is_header(name, value)) {
      return Error(Code::kInvalidArgument,
                   "trace.otlp_header and trace.otlp_headers must have names and values of HTTP "
                   "headers, NAME=VALUE");
    }
  }
  std::unique_ptr<SpanExporter> made(new SpanExporter(config, std::move(target), clock, metrics));
  made->thread_ = net::Thread("otlp", [self = made.get()] { self->loop(); });
  return made;
}

SpanExporter::SpanExporter(const TraceConfig& config, Target target, Clock& clock, Metrics& metrics)
    : config_(config),
      target_(std::move(target)),
      headers_(headers_of(config, target_.protocol == Protocol::kGrpc   ? kGrpcType
                                  : target_.protocol == Protocol::kJson ? kJsonType
                                                                        : kBytesType)),
      encoding_(make_encoding(config, target_.protocol == Protocol::kJson)),
      clock_(clock),
      sent_(metrics.counter("stator_trace_spans_sent_total", "spans that a collector took")),
      dropped_full_(dropped(metrics, "queue_full")),
      dropped_unsent_(dropped(metrics, "collector")) {}

SpanExporter::~SpanExporter() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SpanExporter::add(const SpanList& spans) {
  const auto no_room = [&] { return spans.size() + waiting_spans_.load() > config_.spans_max; };
  if (no_room()) {
    dropped_full_.add(spans.size());
    return;
  }
  static thread_local std::string bytes;
  bytes.clear();
  encoding_->append(bytes, spans);
  bool full_batch = false;
  {
    const MutexLock lock(mutex_);
    if (no_room()) {
      dropped_full_.add(spans.size());
      return;
    }
    waiting_spans_ += spans.size();
    if (waiting_.empty() || waiting_.back().spans + spans.size() > kBatchMax) {
      full_batch = !waiting_.empty();
      waiting_.emplace_back();
      waiting_.back().bytes.reserve(kBatchBytes);
    }
    waiting_.back().bytes += bytes;
    waiting_.back().spans += spans.size();
  }
  if (full_batch) {
    wake_.notify_one();
  }
}

/// False: it is time to end.
bool SpanExporter::wait(Duration time) {
  MutexLock lock(mutex_);
  if (!stopping_ && waiting_.size() < 2) {
    wake_.wait_for(lock, time);
  }
  return !stopping_;
}

void SpanExporter::loop() {
  const Duration interval = std::min(config_.interval, kBatchTime);
  TimePoint due = clock_.now() + interval;
  bool goes_on = true;
  while (goes_on) {
    const TimePoint now = clock_.now();
    goes_on = wait(std::max(due - now, Duration::zero()));
    const bool all = !goes_on || clock_.now() >= due;
    due = all ? clock_.now() + interval : due;
    std::deque<Batch> batches;
    {
      const MutexLock lock(mutex_);
      batches.swap(waiting_);
      if (!all && !batches.empty()) {  // the last one is not full
        waiting_.push_back(std::move(batches.back()));
        batches.pop_back();
      }
      waiting_spans_ = waiting_.empty() ? 0 : waiting_.back().spans;
    }
    for (const Batch& batch : batches) {
      send(batch);
    }
  }
}

void SpanExporter::send(const Batch& batch) {
  const std::string message = encoding_->frame(batch.bytes);
  Status sent;
  bool again = true;
  for (int tries = 0; tries < kTriesMax && again; ++tries) {
    if (tries > 0) {
      MutexLock lock(mutex_);
      if (stopping_) {
        break;
      }
      wake_.wait_for(lock, kRetryWait);
    }
    sent = try_send(message, again);
    if (sent) {
      sent_.add(batch.spans);
      return;
    }
  }
  dropped_unsent_.add(batch.spans);
  if (complained_ == TimePoint() || clock_.now() - complained_ >= kComplainEvery) {
    complained_ = clock_.now();
    log::warn("trace", "spans are lost: the collector does not take them",
              {{"endpoint", hide_credentials(target_.url)}, {"why", sent.error().message()}});
  }
}

Status SpanExporter::try_send(const std::string& message, bool& again) {
  again = false;
  const bool grpc = target_.protocol == Protocol::kGrpc;
  const net::HttpClientRequest request{.method = "POST",
                                       .url = target_.url,
                                       .headers = headers_,
                                       .body = grpc ? framed(message) : message};
  auto answer = client_.request(request, {.connect_timeout = kLastSendTimeout,
                                          .timeout = kSendTimeout,
                                          .body_bytes_max = size_t{1} << 20,
                                          .follow_redirects = false,
                                          .tls_ca_path = config_.ca_path,
                                          .http2 = grpc});
  if (!answer) {
    again = true;
    return std::move(answer.error());
  }
  if (answer->status != 200) {
    again = answer->status == 429 || (answer->status >= 502 && answer->status <= 504);
    return Error(Code::kUnavailable, fmt::format("it answers {}", answer->status));
  }
  const auto status = answer->header("grpc-status");
  if (grpc && status.value_or("2") != "0") {
    again = status == "14" || status == "8";  // unavailable, resource exhausted
    return Error(Code::kUnavailable,
                 fmt::format("it answers gRPC status {}", status.value_or("?")));
  }
  return {};
}

}  // namespace stator::telemetry
