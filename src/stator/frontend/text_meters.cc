// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/text_meters.h"

#include <array>

#include "stator/core/histogram_bounds.h"

namespace stator::frontend {
namespace {

constexpr std::array kTextBounds = {.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025,
                                    .005,   .01,     .025,   .05,   .1,     .25,   .5,   1.0};
// .5 · 2^n to 512, as the reference has it.
constexpr auto kLatencyMs = geometric_bounds<11>(0.5, 2);

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

TextMeters::TextMeters(const Clock& clock, Metrics& metrics, const std::string& prefix)
    : clock_(clock) {
  tokenize_ = metrics.histogram(prefix + "_tokenize_seconds", "text to token ids", kTextBounds);
  template_ = metrics.histogram(prefix + "_template_seconds", "messages to text", kTextBounds);
  const auto latency = [&](const char* operation) {
    return metrics.histogram(prefix + "_tokenizer_latency_ms",
                             "milliseconds of the tokenizer's work; of detokenize one delta in 16 "
                             "is measured",
                             kLatencyMs, {{"operation", operation}});
  };
  tokenize_ms_ = latency("tokenize");
  detokenize_ms_ = latency("detokenize");
  detokenize_us_ = metrics.counter(prefix + "_detokenize_total_us",
                                   "microseconds from token ids to text, of measured deltas");
  detokenize_tokens_ =
      metrics.counter(prefix + "_detokenize_token_count", "tokens of measured deltas");
}

void TextMeters::rendered(TimePoint begin) const {
  template_.observe(seconds(clock_.now() - begin));
}

void TextMeters::tokenized(TimePoint begin) const {
  const double took = seconds(clock_.now() - begin);
  tokenize_.observe(took);
  tokenize_ms_.observe(took * 1e3);
}

void TextMeters::detokenized(TimePoint begin, uint64_t tokens) const {
  const double took = seconds(clock_.now() - begin);
  detokenize_ms_.observe(took * 1e3);
  detokenize_us_.add(static_cast<uint64_t>(took * 1e6));
  detokenize_tokens_.add(tokens);
}

}  // namespace stator::frontend
