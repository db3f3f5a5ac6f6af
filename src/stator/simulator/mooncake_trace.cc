// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/mooncake_trace.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <utility>

namespace stator::simulator {
namespace {

constexpr size_t kLineBytesMax = 64 << 20;
constexpr double kTimestampMsMax = 1e12;  // thirty years

using Object = simdjson::dom::object;
using Element = simdjson::dom::element;

class MooncakeTrace final : public TraceSource {
 public:
  MooncakeTrace(std::istream& input, MooncakeConfig config)
      : input_(input), config_(std::move(config)) {}

  Result<bool> next(TraceRequest& request) override {
    if (config_.sort) {
      return next_sorted(request);
    }
    STATOR_TRY(const bool found, read(request));
    if (found && !request.session.empty()) {
      return true;  // turns come after each other, whatever the order of sessions
    }
    if (found && request.arrival < latest_) {
      return fail(
          "timestamp",
          fmt::format("{} ms is before the line above ({} ms): sort the trace, or let it be "
                      "sorted (--sort)",
                      milliseconds(request.arrival), milliseconds(latest_)));
    }
    latest_ = request.arrival;
    return found;
  }

  uint32_t block_tokens() const override { return config_.block_tokens; }

 private:
  static double milliseconds(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
  }

  Error fail(std::string_view field, std::string_view what) const {
    return {Code::kInvalidArgument, fmt::format("{}:{}: {}: {}", config_.name, line_, field, what)};
  }

  Result<bool> next_sorted(TraceRequest& request) {
    if (!loaded_) {
      loaded_ = true;
      TraceRequest row;
      while (true) {
        STATOR_TRY(const bool found, read(row));
        if (!found) {
          break;
        }
        sorted_.push_back(std::exchange(row, {}));
      }
      std::ranges::sort(sorted_, {},
                        [](const TraceRequest& one) { return std::pair(one.arrival, one.line); });
    }
    if (position_ == sorted_.size()) {
      return false;
    }
    request = std::move(sorted_[position_++]);
    return true;
  }

  Result<bool> read(TraceRequest& request) {
    do {
      if (!std::getline(input_, text_)) {
        return input_.bad() ? Result<bool>(fail("file", "cannot be read further")) : false;
      }
      ++line_;
    } while (text_.find_first_not_of(" \t\r") == std::string::npos);
    Object row;
    if (text_.size() > kLineBytesMax) {
      return fail("line", fmt::format("longer than {} bytes", kLineBytesMax));
    }
    const auto parsed = parser_.parse(text_);
    if (parsed.error() != simdjson::SUCCESS) {
      return fail("line", fmt::format("not JSON ({})", simdjson::error_message(parsed.error())));
    }
    if (parsed.get(row) != simdjson::SUCCESS) {
      return fail("line", "must be a JSON object, one per line");
    }
    request.line = line_;
    STATOR_TRY(request.input_tokens, read_tokens(row, "input_length", "input_tokens"));
    STATOR_TRY(request.output_tokens, read_tokens(row, "output_length", "output_tokens"));
    STATOR_CHECK(read_hash_ids(row, request));
    STATOR_CHECK(read_text(row, "request_id", request.request_id));
    STATOR_CHECK(read_text(row, "session_id", request.session));
    STATOR_CHECK(read_times(row, request));
    return true;
  }

  using Names = std::pair<std::string_view, std::string_view>;

  /// The first of the names that is there; the error of the first if none is.
  static std::pair<std::string_view, simdjson::simdjson_result<Element>> find(const Object& row,
                                                                              Names names) {
    const auto first = row[names.first];
    if (first.error() == simdjson::SUCCESS || names.second.empty()) {
      return {names.first, first};
    }
    const auto second = row[names.second];
    return second.error() == simdjson::SUCCESS ? std::pair(names.second, second)
                                               : std::pair(names.first, first);
  }

  /// A turn of a session may have a delay and no time.
  Status read_times(const Object& row, TraceRequest& request) const {
    constexpr Names kTime = {"timestamp", "created_time"};
    constexpr Names kDelay = {"delay", "delay_ms"};
    const auto has = [&](Names names) {
      return find(row, names).second.error() == simdjson::SUCCESS;
    };
    request.delay.reset();
    if (has(kDelay)) {
      STATOR_TRY(request.delay, read_time(row, kDelay));
    }
    request.arrival = {};
    if (request.session.empty() || !request.delay || has(kTime)) {
      STATOR_TRY(request.arrival, read_time(row, kTime));
    }
    return {};
  }

  Result<Duration> read_time(const Object& row, Names names) const {
    const auto [name, value] = find(row, names);
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      return fail(name, "must be a number of milliseconds");
    }
    if (!std::isfinite(number) || number < 0 || number > kTimestampMsMax) {
      return fail(name, fmt::format("must be from 0 to {} ms, is {}", kTimestampMsMax, number));
    }
    return Duration(std::llround(number * 1e6));
  }

  Result<uint32_t> read_tokens(const Object& row, std::string_view name,
                               std::string_view alias) const {
    const auto [found, value] = find(row, {name, alias});
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      return fail(found, "must be a whole number of tokens");
    }
    if (!(number >= 1) || number > kTraceTokensMax || number != std::floor(number)) {
      return fail(found, fmt::format("must be a whole number from 1 to {}, is {}", kTraceTokensMax,
                                     number));
    }
    return static_cast<uint32_t>(number);
  }

  Status read_hash_ids(const Object& row, TraceRequest& request) const {
    request.hash_ids.clear();
    const auto value = row["hash_ids"];
    if (value.error() != simdjson::SUCCESS) {
      return {};
    }
    simdjson::dom::array ids;
    if (value.get(ids) != simdjson::SUCCESS) {
      return fail("hash_ids", "must be an array of whole numbers ≥ 0");
    }
    for (const Element id : ids) {
      uint64_t number = 0;
      if (id.get(number) != simdjson::SUCCESS) {
        return fail("hash_ids",
                    fmt::format("entry {}: must be a whole number ≥ 0", request.hash_ids.size()));
      }
      request.hash_ids.push_back(number);
    }
    const uint64_t covered = uint64_t{request.hash_ids.size()} * config_.block_tokens;
    if (covered < request.input_tokens) {
      return fail("hash_ids",
                  fmt::format("{} ids of {} tokens do not cover input_length {} (is "
                              "the trace's block size right?)",
                              request.hash_ids.size(), config_.block_tokens, request.input_tokens));
    }
    return {};
  }

  /// Numbers are taken for text, too; absent is empty.
  Status read_text(const Object& row, std::string_view name, std::string& text) const {
    text.clear();
    const auto value = row[name];
    if (value.error() != simdjson::SUCCESS || value.is_null()) {
      return {};
    }
    std::string_view string;
    if (value.get(string) == simdjson::SUCCESS) {
      text = string;
      return {};
    }
    uint64_t number = 0;
    if (value.get(number) == simdjson::SUCCESS) {
      text = std::to_string(number);
      return {};
    }
    return fail(name, "must be a string");
  }

  std::istream& input_;
  const MooncakeConfig config_;
  simdjson::dom::parser parser_;
  std::string text_;
  uint64_t line_ = 0;
  Duration latest_{};
  bool loaded_ = false;
  std::vector<TraceRequest> sorted_;
  size_t position_ = 0;
};

}  // namespace

std::unique_ptr<TraceSource> make_mooncake_trace(std::istream& input,
                                                 const MooncakeConfig& config) {
  return std::make_unique<MooncakeTrace>(input, config);
}

}  // namespace stator::simulator
