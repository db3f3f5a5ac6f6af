// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/span_exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

Counter dropped(Metrics& metrics, std::string_view reason) {
  return metrics.counter("stator_trace_spans_dropped_total", "spans that reached no collector",
                         {{"reason", std::string(reason)}});
}

}  // namespace

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(const TraceConfig& config, Clock& clock,
                                                          Metrics& metrics) {
  std::string url = config.endpoint;
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return Error(Code::kInvalidArgument,
                 "trace.otlp_endpoint (flag --otlp-endpoint) must be http://HOST:PORT or "
                 "https://…: 4318 is usual for HTTP, 4317 for gRPC");
  }
  const std::string_view path = path_of(url);
  const std::string_view host = std::string_view(url).substr(0, url.size() - path.size());
  const bool grpc =
      config.protocol == "grpc" || (config.protocol == "auto" && host.ends_with(kGrpcPort));
  if (grpc) {
    url = std::string(host) + std::string(kExport);
  } else if (path.empty() || path == "/") {
    url = std::string(host) + "/v1/traces";
  }
  std::unique_ptr<SpanExporter> made(new SpanExporter(
      config, std::move(url), grpc ? Protocol::kGrpc : Protocol::kHttp, clock, metrics));
  made->thread_ = net::Thread("otlp", [self = made.get()] { self->loop(); });
  return made;
}

SpanExporter::SpanExporter(const TraceConfig& config, std::string url, Protocol protocol,
                           Clock& clock, Metrics& metrics)
    : config_(config),
      url_(std::move(url)),
      protocol_(protocol),
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

void SpanExporter::add(std::vector<Span> spans) {
  bool full_batch = false;
  {
    const MutexLock lock(mutex_);
    const size_t room = config_.spans_max - std::min<size_t>(waiting_.size(), config_.spans_max);
    if (spans.size() > room) {
      dropped_full_.add(spans.size());
      return;
    }
    const bool was_less = waiting_.size() < kBatchMax;
    std::ranges::move(spans, std::back_inserter(waiting_));
    full_batch = was_less && waiting_.size() >= kBatchMax;
  }
  if (full_batch) {
    wake_.notify_one();
  }
}

/// False: it is time to end.
bool SpanExporter::wait(Duration time) {
  MutexLock lock(mutex_);
  if (!stopping_ && waiting_.size() < kBatchMax) {
    wake_.wait_for(lock, time);
  }
  return !stopping_;
}

void SpanExporter::loop() {
  bool goes_on = true;
  while (goes_on) {
    goes_on = wait(std::min(config_.interval, kBatchTime));
    std::vector<Span> batch;
    {
      const MutexLock lock(mutex_);
      batch.swap(waiting_);
    }
    for (size_t at = 0; at < batch.size(); at += kBatchMax) {
      const auto begin = batch.begin() + static_cast<ptrdiff_t>(at);
      const auto size = static_cast<ptrdiff_t>(std::min(kBatchMax, batch.size() - at));
      send({std::make_move_iterator(begin), std::make_move_iterator(begin + size)});
    }
  }
}

void SpanExporter::send(const std::vector<Span>& batch) {
  const std::string message = encode_otlp(config_.service_name, config_.version, batch);
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
      sent_.add(batch.size());
      return;
    }
  }
  dropped_unsent_.add(batch.size());
  if (complained_ == TimePoint() || clock_.now() - complained_ >= kComplainEvery) {
    complained_ = clock_.now();
    log::warn("trace", "spans are lost: the collector does not take them",
              {{"endpoint", hide_credentials(url_)}, {"why", sent.error().message()}});
  }
}

Status SpanExporter::try_send(const std::string& message, bool& again) const {
  again = false;
  const bool grpc = protocol_ == Protocol::kGrpc;
  net::HttpClientRequest request{.method = "POST", .url = url_, .headers = {}, .body = {}};
  request.body = grpc ? framed(message) : message;
  request.headers = {{"content-type", grpc ? "application/grpc" : "application/x-protobuf"}};
  if (grpc) {
    request.headers.emplace_back("te", "trailers");
  }
  if (!config_.header.empty()) {
    const size_t at = config_.header.find('=');
    request.headers.emplace_back(config_.header.substr(0, at), config_.header.substr(at + 1));
  }
  auto answer = net::http_request(request, {.connect_timeout = kLastSendTimeout,
                                            .timeout = kSendTimeout,
                                            .body_bytes_max = size_t{1} << 20,
                                            .follow_redirects = false,
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
