// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <tuple>

#include "stator/core/byte_order_mark.h"
#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/loadgen/workload.h"

namespace stator::loadgen {
namespace {

constexpr uint64_t kTokensMax = 16'000'000;  // beyond any context: a typing error
constexpr size_t kLineBytesMax = 16 << 20;
constexpr double kMillisecondsMax = 1e12;  // 30 years
constexpr uint64_t kHashIdsMax = 500'000'000;

struct Row {
  Duration at{};
  Duration delay{};
  bool has_delay = false;
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t hash_count = 0;
  uint64_t hash_begin = 0;  // in TraceWorkload::hashes
  uint64_t line = 0;
};

struct Trace {
  std::vector<Row> rows;  // of a session together, in order of time; sessions in order of start
  std::vector<uint64_t> hashes;
  std::vector<uint64_t> session_begin;  // of each session in rows, and the end
};

class TraceWorkload final : public Workload {
 public:
  TraceWorkload(TraceOptions options, PromptText text, Trace trace)
      : options_(std::move(options)), text_(std::move(text)), trace_(std::move(trace)) {}

  uint64_t sessions() const override { return trace_.session_begin.size() - 1; }
  uint32_t turns(uint64_t session) const override {
    return static_cast<uint32_t>(trace_.session_begin[session + 1] - trace_.session_begin[session]);
  }
  Duration start(uint64_t session) const override { return scaled(row(session, 0).at); }

  Turn turn(uint64_t session, uint32_t turn) const override {
    const Row& row = this->row(session, turn);
    Turn out{.input_tokens = row.input_tokens, .output_tokens = row.output_tokens};
    if (turn > 0) {
      out.delay = scaled(row.has_delay ? row.delay : row.at - this->row(session, turn - 1).at);
    }
    return out;
  }

  void append_text(uint64_t session, uint32_t turn, std::string& out) const override {
    const Row& row = this->row(session, turn);
    uint32_t left = row.input_tokens;
    for (uint32_t i = 0; i < row.hash_count && left > 0; ++i) {
      const uint32_t tokens = std::min(left, options_.block_tokens);
      text_.append(mix64(options_.seed) ^ trace_.hashes[row.hash_begin + i], tokens, out);
      left -= tokens;
    }
    text_.append(mix64(options_.seed + 1) + row.line, left, out);  // what no hash id covers
  }

 private:
  const Row& row(uint64_t session, uint32_t turn) const {
    return trace_.rows[trace_.session_begin[session] + turn];
  }
  Duration scaled(Duration time) const {
    return Duration(static_cast<int64_t>(static_cast<double>(time.count()) / options_.speed));
  }

  TraceOptions options_;
  PromptText text_;
  Trace trace_;
};

/// Reads rows one by one; errors name line and field.
class TraceReader {
 public:
  explicit TraceReader(const TraceOptions& options) : options_(options) {}

  Result<Trace> read() {
    STATOR_TRY(const auto file, open_trace_file(options_.path));
    std::string line;
    while (std::getline(*file, line)) {
      if (++line_ == 1 && line.starts_with(kByteOrderMark)) {
        line.erase(0, kByteOrderMark.size());
      }
      if (line.find_first_not_of(" \t\r") == std::string::npos) {
        continue;
      }
      STATOR_CHECK(take(line));
    }
    if (file->bad()) {
      return wrong("the file cannot be read further");
    }
    if (rows_.empty()) {
      return Error(Code::kInvalidArgument, "the trace '" + options_.path + "' has no rows");
    }
    return arrange();
  }

 private:
  Error wrong(std::string_view what) const {
    return {Code::kInvalidArgument, fmt::format("{}:{}: {}", options_.path, line_, what)};
  }

  Status take(const std::string& line) {
    if (rows_.size() >= options_.rows_max || trace_.hashes.size() > kHashIdsMax) {
      return Error(
          Code::kTooLarge,
          fmt::format("{}:{}: more than {} rows or {} hash ids; cut the trace, for example "
                      "with `head`, or raise --trace-rows-max",
                      options_.path, line_, options_.rows_max, kHashIdsMax));
    }
    simdjson::dom::object object;
    if (line.size() > kLineBytesMax || parser_.parse(line).get(object) != simdjson::SUCCESS) {
      return wrong("expected a JSON object");
    }
    Row row;
    row.line = line_;
    STATOR_TRY(const auto at, milliseconds(object, "timestamp", "created_time"));
    STATOR_TRY(const auto delay, milliseconds(object, "delay", "delay_ms"));
    row.delay = delay.value_or(Duration{});
    row.has_delay = delay.has_value();
    STATOR_TRY(row.input_tokens, tokens(object, "input_length", "input_tokens"));
    STATOR_TRY(row.output_tokens, tokens(object, "output_length", "output_tokens"));
    STATOR_CHECK(take_hashes(object, row));
    STATOR_TRY(const uint64_t session, session_of(object));
    latest_.resize(sessions_);
    row.at = at.value_or(latest_[session]);  // a turn may have a delay instead of a time
    latest_[session] = row.at;
    rows_.emplace_back(session, row);
    return {};
  }

  Result<std::optional<Duration>> milliseconds(simdjson::dom::object object, std::string_view name,
                                               std::string_view alias) const {
    for (const std::string_view field : {name, alias}) {
      simdjson::dom::element element;
      if (object.at_key(field).get(element) != simdjson::SUCCESS || element.is_null()) {
        continue;
      }
      double value = 0;
      if (element.get(value) != simdjson::SUCCESS || !(value >= 0 && value <= kMillisecondsMax)) {
        return wrong(fmt::format("{} must be milliseconds from 0 to 1e12", field));
      }
      return std::optional(Duration(static_cast<int64_t>(value * 1e6)));
    }
    return std::optional<Duration>{};
  }

  Result<uint32_t> tokens(simdjson::dom::object object, std::string_view name,
                          std::string_view alias) const {
    for (const std::string_view field : {name, alias}) {
      simdjson::dom::element element;
      if (object.at_key(field).get(element) != simdjson::SUCCESS) {
        continue;
      }
      uint64_t value = 0;
      if (element.get(value) != simdjson::SUCCESS || value == 0 || value > kTokensMax) {
        return wrong(fmt::format("{} must be a whole number from 1 to {}", field, kTokensMax));
      }
      return static_cast<uint32_t>(value);
    }
    return wrong(fmt::format("{} is missing", name));
  }

  Status take_hashes(simdjson::dom::object object, Row& row) {
    row.hash_begin = trace_.hashes.size();
    simdjson::dom::element element;
    if (object.at_key("hash_ids").get(element) != simdjson::SUCCESS || element.is_null()) {
      return {};
    }
    simdjson::dom::array ids;
    if (element.get(ids) != simdjson::SUCCESS) {
      return wrong("hash_ids must be a list of whole numbers");
    }
    for (const simdjson::dom::element id : ids) {
      uint64_t value = 0;
      if (id.get(value) != simdjson::SUCCESS) {
        return wrong("hash_ids must be whole numbers ≥ 0");
      }
      trace_.hashes.push_back(value);
    }
    row.hash_count = static_cast<uint32_t>(trace_.hashes.size() - row.hash_begin);
    return {};
  }

  /// A number per session; rows without one get a number of their own.
  Result<uint64_t> session_of(simdjson::dom::object object) {
    simdjson::dom::element element;
    if (object.at_key("session_id").get(element) != simdjson::SUCCESS || element.is_null()) {
      return sessions_++;
    }
    if (!element.is_string() && !element.is_int64() && !element.is_uint64()) {
      return wrong("session_id must be a string or a whole number");
    }
    const auto [found, is_new] = known_sessions_.try_emplace(simdjson::to_string(element), 0);
    if (is_new) {
      found->second = sessions_++;
    }
    return found->second;
  }

  Trace arrange() {
    // Turns of a session together in order of time, sessions in order of their first turn.
    std::ranges::sort(
        rows_, {}, [](const auto& entry) { return std::pair(entry.second.at, entry.second.line); });
    std::vector<uint64_t> order(sessions_, UINT64_MAX);
    uint64_t next = 0;
    for (auto& [session, row] : rows_) {
      if (order[session] == UINT64_MAX) {
        order[session] = next++;
      }
      session = order[session];
    }
    std::ranges::sort(rows_, {}, [](const auto& entry) {
      return std::tuple(entry.first, entry.second.at, entry.second.line);
    });
    const Duration origin = rows_.front().second.at;
    for (auto& [session, row] : rows_) {
      if (trace_.session_begin.size() == session) {
        trace_.session_begin.push_back(trace_.rows.size());
      }
      row.at -= origin;
      trace_.rows.push_back(row);
    }
    trace_.session_begin.push_back(trace_.rows.size());
    return std::move(trace_);
  }

  const TraceOptions& options_;
  simdjson::dom::parser parser_;
  uint64_t line_ = 0;
  std::vector<std::pair<uint64_t, Row>> rows_;
  FlatMap<std::string, uint64_t> known_sessions_;
  uint64_t sessions_ = 0;
  std::vector<Duration> latest_;  // time of each session
  Trace trace_;
};

}  // namespace

Result<std::unique_ptr<Workload>> load_trace(const TraceOptions& options, PromptText text) {
  STATOR_TRY(Trace trace, TraceReader(options).read());
  std::unique_ptr<Workload> workload =
      std::make_unique<TraceWorkload>(options, std::move(text), std::move(trace));
  return workload;
}

}  // namespace stator::loadgen
