// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace stator::loadgen {
namespace {

constexpr double kMsPerNs = 1e-6;
// Pieces of the timeline: as many as have about ten answers each.
constexpr size_t kTimePiecesMin = 10;
constexpr size_t kTimePiecesMax = 120;
constexpr size_t kAnswersPerPiece = 10;

int64_t start_of(const Record& record) {
  return record.sent != 0 ? record.sent : record.due;
}

/// Values by metric, gathered request by request.
struct Gathered {
  std::vector<double> ttft, ttst, itl, latency, per_user, osl, isl;
  std::vector<double> ttft_due, latency_due, send_delay;
  uint64_t good = 0;
  uint64_t good_from_schedule = 0;
  uint64_t failed = 0;
  uint64_t tried = 0;
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  double open_ns = 0;  // Σ latency: for the mean number in flight
};

bool keeps(std::optional<double> limit, std::optional<double> value) {
  return !limit || (value && *value <= *limit);
}

void gather_ok(const Record& record, const MeasureOptions& options, Gathered& out) {
  const double latency = static_cast<double>(record.last - record.sent) * kMsPerNs;
  const double late = static_cast<double>(record.sent - record.due) * kMsPerNs;
  std::optional<double> ttft;
  std::optional<double> itl;
  out.latency.push_back(latency);
  out.latency_due.push_back(latency + late);
  if (record.streamed && record.first != 0) {
    ttft = static_cast<double>(record.first - record.sent) * kMsPerNs;
    out.ttft.push_back(*ttft);
    out.ttft_due.push_back(*ttft + late);
    if (record.second != 0) {
      out.ttst.push_back(static_cast<double>(record.second - record.first) * kMsPerNs);
    }
    if (record.output_tokens >= 2) {
      itl = (latency - *ttft) / (record.output_tokens - 1);
      out.itl.push_back(*itl);
      if (*itl > 0) {
        out.per_user.push_back(1000 / *itl);
      }
    }
  }
  if (record.output_tokens > 0) {
    out.osl.push_back(record.output_tokens);
  }
  if (record.input_tokens > 0) {
    out.isl.push_back(record.input_tokens);
  }
  const Goals& goals = options.goals;
  // A request of one token has no gap that could be too long.
  const bool itl_kept = record.output_tokens == 1 || keeps(goals.inter_token_latency_ms, itl);
  out.good += itl_kept && keeps(goals.time_to_first_token_ms, ttft) &&
              keeps(goals.request_latency_ms, latency);
  const auto ttft_due = ttft ? std::optional(*ttft + late) : std::nullopt;
  out.good_from_schedule += itl_kept && keeps(goals.time_to_first_token_ms, ttft_due) &&
                            keeps(goals.request_latency_ms, latency + late);
}

Gathered gather(const RecordLog& records, int64_t from, const MeasureOptions& options,
                Figures& figures) {
  Gathered out;
  records.for_each([&](const Record& record) {
    if (start_of(record) < from) {
      ++figures.warm_up_requests;
      return;
    }
    ++figures.outcomes[std::string(outcome_name(record.outcome))];
    if (record.sent != 0) {
      out.send_delay.push_back(
          static_cast<double>(std::max<int64_t>(0, record.sent - record.sendable)) * kMsPerNs);
    }
    if (record.outcome == Outcome::kCancelled || record.outcome == Outcome::kUnfinished) {
      return;
    }
    ++out.tried;
    if (record.outcome != Outcome::kOk) {
      ++out.failed;
      return;
    }
    figures.usage_missing = figures.usage_missing || !record.counted_by_server;
    ++(record.streamed ? figures.streamed : figures.whole);
    out.begin = std::min(out.begin, record.sent);
    out.end = std::max(out.end, record.last);
    out.open_ns += static_cast<double>(record.last - record.sent);
    gather_ok(record, options, out);
  });
  return out;
}

/// 101 values of a sorted distribution, for a plot.
std::vector<double> curve_of(const std::vector<double>& sorted) {
  std::vector<double> out;
  for (size_t i = 0; i <= 100 && !sorted.empty(); ++i) {
    out.push_back(sorted[i * (sorted.size() - 1) / 100]);
  }
  return out;
}

void add_distribution(Figures& figures, Metric metric, std::vector<double>& values, bool plotted) {
  if (values.empty()) {
    return;
  }
  metric.values = summarize(values);
  if (plotted) {
    figures.curves[metric.tag] = curve_of(values);
  }
  figures.metrics.push_back(metric);
}

void add_single(Figures& figures, Metric metric, double value) {
  metric.single = true;
  metric.values.count = 1;
  metric.values.avg = metric.values.min = metric.values.max = value;
  figures.metrics.push_back(metric);
}

void add_latencies(Figures& figures, Gathered& all, const HistogramSeries& gaps, int64_t from,
                   const MeasureOptions& options) {
  add_distribution(figures, {"time_to_first_token", "Time to First Token", "ms"}, all.ttft, true);
  add_distribution(figures, {"time_to_second_token", "Time to Second Token", "ms"}, all.ttst,
                   false);
  add_distribution(figures, {"request_latency", "Request Latency", "ms"}, all.latency, true);
  add_distribution(figures, {"inter_token_latency", "Inter Token Latency", "ms"}, all.itl, true);
  const Histogram pooled = gaps.since(from);
  if (pooled.count() > 0) {
    Metric metric{"inter_chunk_latency", "Inter Chunk Latency", "ms"};
    metric.values = summarize(pooled, kMsPerNs);
    auto& curve = figures.curves[metric.tag];
    for (int i = 0; i <= 100; ++i) {
      curve.push_back(pooled.percentile(i) * kMsPerNs);
    }
    figures.metrics.push_back(metric);
  }
  add_distribution(
      figures,
      {"output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user"},
      all.per_user, false);
  if (options.from_schedule) {
    add_distribution(
        figures, {"time_to_first_token_from_schedule", "Time to First Token From Schedule", "ms"},
        all.ttft_due, true);
    add_distribution(figures,
                     {"request_latency_from_schedule", "Request Latency From Schedule", "ms"},
                     all.latency_due, true);
  }
  add_distribution(figures, {"send_delay", "Send Delay", "ms"}, all.send_delay, false);
}

void add_rates(Figures& figures, const Gathered& all, double tokens_out, double tokens_in,
               const MeasureOptions& options) {
  const double seconds = std::max(1e-9, figures.duration_s);
  add_single(figures, {"output_token_throughput", "Output Token Throughput", "tokens/sec"},
             tokens_out / seconds);
  add_single(figures, {"total_token_throughput", "Total Token Throughput", "tokens/sec"},
             (tokens_out + tokens_in) / seconds);
  add_single(figures, {"request_throughput", "Request Throughput", "requests/sec"},
             static_cast<double>(all.latency_due.size()) / seconds);
  add_single(figures, {"request_count", "Request Count", "requests"},
             static_cast<double>(all.latency_due.size()));
  add_single(figures, {"error_request_count", "Error Request Count", "requests"},
             static_cast<double>(all.failed));
  add_single(
      figures, {"request_error_rate", "Request Error Rate", "%"},
      all.tried == 0 ? 0 : 100 * static_cast<double>(all.failed) / static_cast<double>(all.tried));
  add_single(figures, {"effective_concurrency", "Effective Concurrency", "requests"},
             all.open_ns * 1e-9 / seconds);
  add_single(figures, {"benchmark_duration", "Benchmark Duration", "sec"}, figures.duration_s);
  add_single(figures, {"total_osl", "Total Output Sequence Length", "tokens"}, tokens_out);
  add_single(figures, {"total_isl", "Total Input Sequence Length", "tokens"}, tokens_in);
  if (options.goals.any()) {
    const auto tried = static_cast<double>(std::max<uint64_t>(1, all.tried));
    add_single(figures, {"goodput", "Goodput", "requests/sec"},
               static_cast<double>(all.good) / seconds);
    add_single(figures, {"good_request_count", "Good Request Count", "requests"},
               static_cast<double>(all.good));
    add_single(figures, {"good_request_fraction", "Good Request Fraction", "ratio"},
               static_cast<double>(all.good) / tried);
    if (options.from_schedule) {
      add_single(
          figures,
          {"good_request_fraction_from_schedule", "Good Request Fraction From Schedule", "ratio"},
          static_cast<double>(all.good_from_schedule) / tried);
    }
  }
}

void draw_timeline(const RecordLog& records, Figures& figures) {
  int64_t end = 0;
  records.for_each([&](const Record& record) { end = std::max(end, record.last); });
  if (end == 0) {
    return;
  }
  const size_t count =
      std::clamp(records.size() / kAnswersPerPiece, kTimePiecesMin, kTimePiecesMax);
  const double width = static_cast<double>(end) / static_cast<double>(count);
  std::vector<TimePiece> pieces(count);
  std::vector<double> change(count + 1);
  std::vector<uint64_t> answered(count);
  const auto piece_of = [&](int64_t at) {
    return std::min(count - 1, static_cast<size_t>(static_cast<double>(at) / width));
  };
  records.for_each([&](const Record& record) {
    if (record.outcome != Outcome::kOk) {
      return;
    }
    const size_t last = piece_of(record.last);
    ++answered[last];
    pieces[last].output_tokens_per_s += record.output_tokens;
    pieces[last].latency_ms += static_cast<double>(record.last - record.sent) * kMsPerNs;
    // Time spent in flight within each piece: whole pieces in between, parts at both ends.
    const double first_end = static_cast<double>(piece_of(record.sent) + 1) * width;
    const size_t first = piece_of(record.sent);
    if (first == last) {
      pieces[first].in_flight += static_cast<double>(record.last - record.sent);
      return;
    }
    pieces[first].in_flight += first_end - static_cast<double>(record.sent);
    pieces[last].in_flight += static_cast<double>(record.last) - static_cast<double>(last) * width;
    change[first + 1] += width;
    change[last] -= width;
  });
  double running = 0;
  for (size_t i = 0; i < count; ++i) {
    running += change[i];
    TimePiece& piece = pieces[i];
    const double seconds = width * 1e-9;
    piece.at_s = static_cast<double>(i) * seconds;
    piece.in_flight = (piece.in_flight + running) / width;
    piece.requests_per_s = static_cast<double>(answered[i]) / seconds;
    piece.output_tokens_per_s /= seconds;
    piece.latency_ms /= static_cast<double>(std::max<uint64_t>(1, answered[i]));
  }
  figures.timeline = std::move(pieces);
}

/// Where the measured part begins: requests sent before do not count.
int64_t end_of_warm_up(const RecordLog& records, int64_t piece, const WarmUp& warm_up,
                       Figures& figures) {
  int64_t from = warm_up.duration.count();
  if (warm_up.requests > 0) {
    std::vector<int64_t> starts;
    records.for_each([&](const Record& record) { starts.push_back(start_of(record)); });
    const auto nth =
        starts.begin() + static_cast<int64_t>(std::min<uint64_t>(warm_up.requests, starts.size()));
    if (nth != starts.end()) {
      std::ranges::nth_element(starts, nth);
      from = std::max(from, *nth);
    } else {
      from = INT64_MAX;
    }
  }
  if (!warm_up.automatic) {
    return from;
  }
  std::vector<double> sums;
  std::vector<double> counts;
  records.for_each([&](const Record& record) {
    if (record.outcome != Outcome::kOk || record.sent < from) {
      return;
    }
    const auto index = static_cast<size_t>(record.sent / piece);
    if (index >= sums.size()) {
      sums.resize(index + 1);
      counts.resize(index + 1);
    }
    sums[index] += static_cast<double>(record.last - record.due);
    ++counts[index];
  });
  std::vector<double> means;
  std::vector<int64_t> begins;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (counts[i] > 0) {
      means.push_back(sums[i] / counts[i]);
      begins.push_back(static_cast<int64_t>(i) * piece);
    }
  }
  const auto cut = find_warm_up(means);
  figures.steady = cut.has_value();
  return cut && *cut > 0 ? std::max(from, begins[*cut]) : from;
}

}  // namespace

Result<Goals> parse_goals(std::string_view text) {
  Goals goals;
  while (!text.empty()) {
    const size_t end = text.find_first_of(" ,");
    const std::string_view part = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (part.empty()) {
      continue;
    }
    const size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    auto* const goal =
        name == "time_to_first_token" || name == "ttft"  ? &goals.time_to_first_token_ms
        : name == "inter_token_latency" || name == "itl" ? &goals.inter_token_latency_ms
        : name == "request_latency" || name == "e2e"     ? &goals.request_latency_ms
                                                         : nullptr;
    double limit = 0;
    const std::string_view number = colon == std::string_view::npos ? "" : part.substr(colon + 1);
    const auto read = std::from_chars(number.data(), number.data() + number.size(), limit);
    if (goal == nullptr || read.ec != std::errc() || read.ptr != number.data() + number.size() ||
        !(limit > 0)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--goodput takes pairs such as 'time_to_first_token:200 "
                               "inter_token_latency:20 request_latency:5000' in milliseconds (or "
                               "ttft, itl, e2e), not '{}'",
                               part));
    }
    *goal = limit;
  }
  return goals;
}

const Metric* Figures::find(std::string_view tag) const {
  const auto found = std::ranges::find(metrics, tag, &Metric::tag);
  return found == metrics.end() ? nullptr : &*found;
}

double Figures::value(std::string_view tag) const {
  const Metric* metric = find(tag);
  return metric == nullptr ? 0 : metric->values.avg;
}

Figures measure(const RecordLog& records, const HistogramSeries& gaps,
                const MeasureOptions& options) {
  Figures figures;
  const int64_t from = end_of_warm_up(records, gaps.piece_nanoseconds(), options.warm_up, figures);
  Gathered all = gather(records, from, options, figures);
  figures.warm_up_s = from == INT64_MAX ? 0 : static_cast<double>(from) * 1e-9;
  figures.duration_s = all.end > all.begin ? static_cast<double>(all.end - all.begin) * 1e-9 : 0;
  add_latencies(figures, all, gaps, from, options);
  add_distribution(figures, {"output_sequence_length", "Output Sequence Length", "tokens"}, all.osl,
                   false);
  add_distribution(figures, {"input_sequence_length", "Input Sequence Length", "tokens"}, all.isl,
                   false);
  double tokens_out = 0;
  double tokens_in = 0;
  for (const double tokens : all.osl) {
    tokens_out += tokens;
  }
  for (const double tokens : all.isl) {
    tokens_in += tokens;
  }
  add_rates(figures, all, tokens_out, tokens_in, options);
  draw_timeline(records, figures);
  return figures;
}

}  // namespace stator::loadgen
