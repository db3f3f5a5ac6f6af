// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/trace_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/lab/simulator/captured_trace.h"
#include "stator/lab/simulator/csv_trace.h"
#include "stator/lab/simulator/json_row.h"
#include "stator/lab/simulator/mooncake_trace.h"

namespace stator::simulator {
namespace {

constexpr uint32_t kBlockTokens = 512;        // of the Mooncake traces
constexpr uint32_t kBailianBlockTokens = 16;  // of the Qwen-Bailian traces

class OrderedTrace final : public TraceSource {
 public:
  OrderedTrace(std::unique_ptr<TraceSource> trace, const TraceOptions& options)
      : trace_(std::move(trace)), name_(options.name), sort_(options.sort) {}

  Result<bool> next(TraceRequest& request) override {
    if (sort_) {
      return next_sorted(request);
    }
    STATOR_TRY(const bool found, trace_->next(request));
    if (found && request.session.empty() && !request.wait_for) {
      if (request.arrival < latest_) {
        const auto ms = [](Duration time) {
          return std::chrono::duration<double, std::milli>(time).count();
        };
        return Error(Code::kInvalidArgument,
                     fmt::format("{}:{}: timestamp: {} ms is before the line above ({} ms): sort "
                                 "the trace, or let it be sorted (--sort)",
                                 name_, request.line, ms(request.arrival), ms(latest_)));
      }
      latest_ = request.arrival;
    }
    return found;
  }

  uint32_t block_tokens() const override { return trace_->block_tokens(); }
  std::string_view name() const override { return trace_->name(); }

 private:
  Result<bool> next_sorted(TraceRequest& request) {
    if (!std::exchange(loaded_, true)) {
      TraceRequest row;
      while (true) {
        STATOR_TRY(const bool found, trace_->next(row));
        if (!found) {
          break;
        }
        if (!row.session.empty()) {  // a turn may have a delay instead of a time
          Duration& latest = latest_of_[row.session];
          row.arrival = row.delay && row.arrival == Duration() ? latest : row.arrival;
          latest = row.arrival;
        }
        sorted_.push_back(std::exchange(row, {}));
      }
      std::ranges::sort(sorted_, {},
                        [](const TraceRequest& one) { return std::pair(one.arrival, one.line); });
      // Times of day count from the first line, which need not be the first request.
      const Duration begin =
          sorted_.empty() ? Duration() : std::min(sorted_.front().arrival, Duration());
      for (TraceRequest& one : sorted_) {
        one.arrival -= begin;
      }
    }
    if (position_ == sorted_.size()) {
      return false;
    }
    request = std::move(sorted_[position_++]);
    return true;
  }

  const std::unique_ptr<TraceSource> trace_;
  const std::string name_;
  const bool sort_;
  Duration latest_{};
  bool loaded_ = false;
  FlatMap<std::string, Duration> latest_of_;  // session
  std::vector<TraceRequest> sorted_;
  size_t position_ = 0;
};

class LimitedTrace final : public TraceSource {
 public:
  LimitedTrace(std::unique_ptr<TraceSource> trace, uint64_t requests)
      : trace_(std::move(trace)), left_(requests) {}

  Result<bool> next(TraceRequest& request) override {
    if (left_ == 0) {
      return false;
    }
    --left_;
    return trace_->next(request);
  }
  uint32_t block_tokens() const override { return trace_->block_tokens(); }
  std::string_view name() const override { return trace_->name(); }

 private:
  const std::unique_ptr<TraceSource> trace_;
  uint64_t left_;
};

Result<std::string> detect_json(std::string_view line, const LineReader& lines) {
  simdjson::dom::parser parser;
  STATOR_TRY(const JsonRow row, JsonRow::parse(parser, line, lines));
  if (row.find_object("event").value_or(row).has({"event_type"})) {
    return "captured";
  }
  if (row.has({"parent_chat_id"})) {
    return "bailian";
  }
  // The first request of an agent waits for nobody and need not say so.
  constexpr std::array<std::string_view, 6> kOfAgents = {
      "wait_for", "branches", "tool_wait_ms", "tool_events", "prefix_reset", "request_kind"};
  const bool agentic = std::ranges::any_of(kOfAgents, [&](std::string_view name) {
    return row.has({name}) || lines.buffered().contains(fmt::format("\"{}\":", name));
  });
  return agentic ? "agentic" : "mooncake";
}

/// By the first lines.
Result<std::string> detect(LineReader& lines) {
  std::string_view line;
  STATOR_TRY(const bool found, lines.peek(line));
  if (!found) {
    return "mooncake";  // an empty trace is one in any format
  }
  const size_t begin = line.find_first_not_of(" \t");
  if (line[begin] == '{' || line[begin] == '[') {
    return detect_json(line, lines);
  }
  if (is_header_of(CsvDialect::kAzure, line)) {
    return "azure";
  }
  if (is_header_of(CsvDialect::kBurstgpt, line)) {
    return "burstgpt";
  }
  return lines.fail("line",
                    "neither JSON Lines nor a CSV header of the Azure or BurstGPT traces (say what "
                    "it is by --trace-format)");
}

}  // namespace

std::vector<std::string> trace_format_names() {
  return {"auto", "mooncake", "agentic", "bailian", "captured", "azure", "burstgpt"};
}

std::unique_ptr<TraceSource> make_ordered(std::unique_ptr<TraceSource> trace,
                                          const TraceOptions& options) {
  return std::make_unique<OrderedTrace>(std::move(trace), options);
}

std::unique_ptr<TraceSource> make_limited(std::unique_ptr<TraceSource> trace, uint64_t requests) {
  return std::make_unique<LimitedTrace>(std::move(trace), requests);
}

Result<std::unique_ptr<TraceSource>> open_trace(std::istream& input, const TraceOptions& options) {
  LineReader lines(input, options.name);
  std::string format = options.format;
  if (format == "auto") {
    STATOR_TRY(format, detect(lines));
  }
  const uint32_t usual = format == "bailian" ? kBailianBlockTokens : kBlockTokens;
  const uint32_t block_tokens = options.block_tokens == 0 ? usual : options.block_tokens;
  if (format == "captured") {
    return make_captured_trace(lines);
  }
  std::unique_ptr<TraceSource> trace;
  if (format == "azure" || format == "burstgpt") {
    const auto dialect = format == "azure" ? CsvDialect::kAzure : CsvDialect::kBurstgpt;
    STATOR_TRY(trace, make_csv_trace(std::move(lines), dialect, block_tokens));
  } else if (format == "mooncake" || format == "agentic") {
    const auto order = format == "agentic" ? SessionOrder::kGraph : SessionOrder::kTurns;
    trace = make_mooncake_trace(std::move(lines), {.block_tokens = block_tokens, .order = order});
  } else if (format == "bailian") {
    trace = make_mooncake_trace(
        std::move(lines), {.block_tokens = block_tokens, .time_unit = JsonRow::TimeUnit::kSeconds});
  } else {
    return Error(Code::kInvalidArgument, "there is no trace format '" + format + "'");
  }
  return make_ordered(std::move(trace), options);
}

}  // namespace stator::simulator
