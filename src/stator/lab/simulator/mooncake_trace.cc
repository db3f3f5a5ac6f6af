// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/mooncake_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "stator/lab/simulator/json_text.h"

namespace stator::simulator {
namespace {

class MooncakeTrace final : public TraceSource {
 public:
  MooncakeTrace(LineReader lines, const MooncakeConfig& config)
      : lines_(std::move(lines)), config_(config) {}

  Result<bool> next(TraceRequest& request) override {
    std::string_view line;
    STATOR_TRY(const bool found, lines_.next(line));
    if (!found) {
      return false;
    }
    STATOR_TRY(const JsonRow row, JsonRow::parse(parser_, line, lines_));
    request.line = lines_.number();
    STATOR_TRY(request.input_tokens, row.read_tokens({"input_length", "input_tokens"}));
    STATOR_TRY(request.output_tokens, row.read_tokens({"output_length", "output_tokens"}));
    STATOR_CHECK(read_hash_ids(row, request));
    STATOR_CHECK(row.read_text("request_id", request.request_id));
    STATOR_CHECK(row.read_text("session_id", request.session));
    STATOR_TRY(request.priority, row.read_number("priority", -1e9, 1e9, 0));
    STATOR_TRY(const double strict, row.read_number("strict_priority", 0, 4294967295.0, 0));
    request.strict_priority = static_cast<uint32_t>(strict);
    STATOR_CHECK(read_times(row, request));
    return true;
  }

  uint32_t block_tokens() const override { return config_.block_tokens; }
  std::string_view name() const override { return lines_.name(); }

 private:
  Status read_hash_ids(const JsonRow& row, TraceRequest& request) const {
    STATOR_CHECK(row.read_ids("hash_ids", request.hash_ids));
    const uint64_t covered = uint64_t{request.hash_ids.size()} * config_.block_tokens;
    if (covered < request.input_tokens && row.has({"hash_ids"})) {
      return row.fail("hash_ids", fmt::format("{} ids of {} tokens do not cover input_length {} "
                                              "(is the trace's block size right?)",
                                              request.hash_ids.size(), config_.block_tokens,
                                              request.input_tokens));
    }
    return {};
  }

  /// What follows another request may have a delay and no time.
  Status read_times(const JsonRow& row, TraceRequest& request) const {
    constexpr JsonRow::Names kTime = {"timestamp", "created_time"};
    constexpr JsonRow::Names kDelay = {"delay", "delay_ms"};
    request.delay.reset();
    if (row.has(kDelay)) {
      STATOR_TRY(request.delay, row.read_time(kDelay));
    }
    request.wait_for.reset();
    if (config_.order == SessionOrder::kGraph || row.has({"wait_for"})) {
      STATOR_CHECK(row.read_texts("wait_for", request.wait_for.emplace()));
    }
    if (row.has({"tool_wait_ms"})) {
      STATOR_TRY(const Duration tool, row.read_time({"tool_wait_ms"}));
      request.delay = request.delay.value_or(Duration()) + tool;
    }
    const bool follows =
        request.wait_for ? !request.wait_for->empty() : !request.session.empty() && request.delay;
    request.arrival = {};
    if (!follows || row.has(kTime)) {
      STATOR_TRY(request.arrival, row.read_time(kTime, config_.time_unit));
    }
    return {};
  }

  LineReader lines_;
  const MooncakeConfig config_;
  simdjson::dom::parser parser_;
};

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

std::unique_ptr<TraceSource> make_mooncake_trace(LineReader lines, const MooncakeConfig& config) {
  return std::make_unique<MooncakeTrace>(std::move(lines), config);
}

std::string render_mooncake(const TraceRequest& request) {
  std::string out =
      fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": {})",
                  milliseconds(request.arrival), request.input_tokens, request.output_tokens);
  if (!request.hash_ids.empty()) {
    out += fmt::format(R"(, "hash_ids": [{}])", fmt::join(request.hash_ids, ", "));
  }
  if (!request.request_id.empty()) {
    out += R"(, "request_id": )" + quote_json(request.request_id);
  }
  if (!request.session.empty()) {
    out += R"(, "session_id": )" + quote_json(request.session);
  }
  if (request.delay) {
    out += fmt::format(R"(, "delay": {})", milliseconds(*request.delay));
  }
  if (request.wait_for) {
    out += R"(, "wait_for": [)";
    for (size_t i = 0; i < request.wait_for->size(); ++i) {
      out += (i > 0 ? ", " : "") + quote_json((*request.wait_for)[i]);
    }
    out += ']';
  }
  if (request.strict_priority != 0) {
    out += fmt::format(R"(, "strict_priority": {})", request.strict_priority);
  }
  if (request.priority != 0) {
    out += fmt::format(R"(, "priority": {})", request.priority);
  }
  return out + "}\n";
}

}  // namespace stator::simulator
