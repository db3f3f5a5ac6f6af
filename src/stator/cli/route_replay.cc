// SPDX-License-Identifier: Apache-2.0
#include "stator/router/route_replay.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <variant>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"

namespace stator::cli {
namespace {

using router::Receipt;
using router::ReplayFigures;
using router::ReplayRequest;
using simdjson::dom::element;

constexpr uint32_t kTokensPerHash = 512;  // of the published traces
constexpr size_t kLineBytesMax = 16 << 20;
constexpr uint64_t kTokensMax = 1 << 24;

using Trace = std::variant<std::vector<ReplayRequest>, std::vector<Receipt>>;

/// Reads one line's fields; the first that is missing or wrong is remembered.
class LineReader {
 public:
  explicit LineReader(element line) : line_(line) {}

  uint64_t number(std::string_view name, uint64_t max) {
    uint64_t value = 0;
    if (line_[name].get(value) != simdjson::SUCCESS || value > max) {
      fail(name, fmt::format("a whole number from 0 to {}", max));
    }
    return value;
  }
  /// Nothing if there is no such number.
  std::optional<uint64_t> find_number(std::string_view name) const {
    uint64_t value = 0;
    return line_[name].get(value) == simdjson::SUCCESS ? std::optional(value) : std::nullopt;
  }
  /// A number in the string `inner` of the object `outer`; nothing if there is none.
  std::optional<uint64_t> find_id(std::string_view outer, std::string_view inner) const {
    std::string_view text;
    uint64_t value = 0;
    const bool found =
        line_[outer][inner].get(text) == simdjson::SUCCESS &&
        std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
    return found ? std::optional(value) : std::nullopt;
  }
  double real(std::string_view name) {
    double value = 0;
    if (line_[name].get(value) != simdjson::SUCCESS || !(value >= 0)) {
      fail(name, "a number ≥ 0");
    }
    return value;
  }
  /// Empty when there is no such array.
  std::vector<element> array(std::string_view name) {
    simdjson::dom::array value;
    if (line_[name].get(value) != simdjson::SUCCESS) {
      fail(name, "an array");
      return {};
    }
    return {value.begin(), value.end()};
  }
  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  void fail(std::string_view name, std::string_view expected) {
    if (problem_.empty()) {
      problem_ = fmt::format("{} must be {}", name, expected);
    }
  }

 private:
  element line_;
  std::string problem_;
};

ReplayRequest read_request(LineReader& line, uint32_t tokens_per_block) {
  ReplayRequest request{
      .arrival_ms = line.real("timestamp"),
      .prompt_tokens = static_cast<uint32_t>(line.number("input_length", kTokensMax)),
      .output_tokens = static_cast<uint32_t>(line.number("output_length", kTokensMax))};
  const auto ids = line.array("hash_ids");
  const uint32_t pieces = kTokensPerHash / tokens_per_block;
  const uint32_t full_blocks = request.prompt_tokens / tokens_per_block;
  for (const element id : ids) {
    uint64_t value = 0;
    if (id.get(value) != simdjson::SUCCESS) {
      line.fail("hash_ids", "whole numbers ≥ 0");
      break;
    }
    for (uint32_t piece = 0; piece < pieces && request.blocks.size() < full_blocks; ++piece) {
      request.blocks.push_back(value * pieces + piece + 1);
    }
  }
  return request;
}

/// A receipt that was corrected says what was decided with.
void restore_expected(const LineReader& line, Receipt& receipt) {
  const auto expected = line.find_number("expected_overlap_blocks");
  const auto worker = line.find_id("chosen", "worker_id");
  for (router::ReceiptCandidate& candidate : receipt.candidates) {
    if (expected && *expected <= UINT32_MAX && worker == candidate.worker.worker.value()) {
      candidate.overlap_blocks =
          std::max(candidate.overlap_blocks, static_cast<uint32_t>(*expected));
    }
  }
}

Receipt read_receipt(LineReader& line) {
  Receipt receipt;
  receipt.prompt_tokens = static_cast<uint32_t>(line.number("prompt_tokens", kTokensMax));
  receipt.block_size = static_cast<uint32_t>(line.number("block_size", kTokensMax));
  receipt.temperature = line.real("temperature");
  for (const element each : line.array("candidates")) {
    LineReader fields(each);
    std::string_view id;
    uint64_t worker = 0;
    if (each["worker_id"].get(id) != simdjson::SUCCESS ||
        std::from_chars(id.data(), id.data() + id.size(), worker).ec != std::errc()) {
      line.fail("candidates.worker_id", "a whole number in a string");
    }
    router::ReceiptCandidate candidate{
        .worker = {WorkerId(worker), static_cast<uint32_t>(fields.number("dp_rank", UINT32_MAX))},
        .overlap_blocks = static_cast<uint32_t>(fields.number("overlap_blocks", UINT32_MAX)),
        .active_prefill_tokens =
            static_cast<uint32_t>(fields.number("active_prefill_tokens", UINT32_MAX)),
        .active_blocks = static_cast<uint32_t>(fields.number("active_blocks", UINT32_MAX)),
        .active_requests = static_cast<uint32_t>(fields.number("active_requests", UINT32_MAX)),
        // A replay asks whether, not why.
        .excluded = each["excluded"].error() == simdjson::SUCCESS ? router::Exclusion::kNotAllowed
                                                                  : router::Exclusion::kNone};
    if (fields.failed()) {
      line.fail("candidates", fields.problem());
    }
    receipt.candidates.push_back(candidate);
  }
  restore_expected(line, receipt);
  return receipt;
}

Result<Trace> read_trace(const std::string& path, uint32_t tokens_per_block) {
  std::ifstream file(path);
  if (!file) {
    return Error(Code::kNotFound, "cannot open the trace '" + path + "'");
  }
  std::vector<ReplayRequest> requests;
  std::vector<Receipt> receipts;
  simdjson::dom::parser parser;
  std::string text;
  for (size_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    element parsed;
    std::string problem;
    if (text.size() > kLineBytesMax || parser.parse(text).get(parsed) != simdjson::SUCCESS ||
        !parsed.is_object()) {
      problem = "expected a JSON object";
    } else {
      LineReader line(parsed);
      if (parsed["candidates"].error() == simdjson::SUCCESS) {
        receipts.push_back(read_receipt(line));
      } else {
        requests.push_back(read_request(line, tokens_per_block));
      }
      problem = line.problem();
    }
    if (problem.empty() && !requests.empty() && !receipts.empty()) {
      problem = "a trace is either of requests or of receipts";
    }
    if (problem.empty() && requests.size() > 1 &&
        requests.back().arrival_ms < requests[requests.size() - 2].arrival_ms) {
      problem = "timestamp must not go back";
    }
    if (!problem.empty()) {
      return Error(Code::kInvalidArgument, fmt::format("{}:{}: {}", path, number, problem));
    }
  }
  if (requests.empty() && receipts.empty()) {
    return Error(Code::kInvalidArgument, fmt::format("the trace '{}' is empty, or no file", path));
  }
  return receipts.empty() ? Trace(std::move(requests)) : Trace(std::move(receipts));
}

Result<double> number_option(const Invocation& invocation, std::string_view flag, double fallback,
                             double max) {
  const auto found = invocation.options.find(flag);
  if (found == invocation.options.end()) {
    return fallback;
  }
  double value = 0;
  const std::string& text = found->second;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= max)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: '{}' must be a number above 0, at most {}", flag, text, max));
  }
  return value;
}

Result<router::ReplayFleet> read_fleet(const Invocation& invocation) {
  STATOR_TRY(const double workers, number_option(invocation, "--workers", 8, 10'000));
  STATOR_TRY(const double tokens,
             number_option(invocation, "--tokens-per-block", kTokensPerHash, kTokensPerHash));
  STATOR_TRY(const double kv_tokens, number_option(invocation, "--kv-tokens", 2 << 20, 1e12));
  STATOR_TRY(const double prefill, number_option(invocation, "--prefill-us-per-token", 100, 1e9));
  STATOR_TRY(const double itl, number_option(invocation, "--itl-ms", 10, 1e6));
  STATOR_TRY(const double speedup, number_option(invocation, "--speedup", 1, 1e6));
  const auto block_size = static_cast<uint32_t>(tokens);
  if (block_size == 0 || kTokensPerHash % block_size != 0) {
    return Error(Code::kInvalidArgument, "--tokens-per-block must divide 512");
  }
  return router::ReplayFleet{
      .workers = std::max(1U, static_cast<uint32_t>(workers)),
      .block_size = block_size,
      .kv_blocks = static_cast<uint32_t>(std::clamp(kv_tokens / block_size, 1.0, 4e9)),
      .prefill_ms_per_token = prefill / 1000,
      .itl_base_ms = itl,
      .speedup = speedup};
}

Result<std::vector<std::string>> read_policies(const Invocation& invocation) {
  const auto found = invocation.options.find("--policy");
  std::string_view rest = found == invocation.options.end() ? std::string_view("kv,round_robin")
                                                            : std::string_view(found->second);
  std::vector<std::string> policies;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    policies.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (router::find_policy(policies.back()) == nullptr) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--policy: '{}' is not one of {}", policies.back(),
                               fmt::join(router::policy_names(), ", ")));
    }
  }
  return policies;
}

double agreement(const std::vector<WorkerKey>& first, const std::vector<WorkerKey>& other) {
  size_t equal = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    equal += first[i] == other[i] ? 1 : 0;
  }
  return first.empty() ? 1 : static_cast<double>(equal) / static_cast<double>(first.size());
}

void print_figures(const std::vector<ReplayFigures>& all, bool as_json) {
  std::string out = as_json ? R"({"policies":[)"
                            : fmt::format("{:<22} {:>8} {:>7} {:>9} {:>9} {:>10} {:>9} {:>9}\n",
                                          "policy", "requests", "refused", "hit rate", "ttft mean",
                                          "ttft p99", "imbalance", "as first");
  for (const ReplayFigures& each : all) {
    const double same = agreement(all.front().choices, each.choices);
    if (as_json) {
      fmt::format_to(
          std::back_inserter(out),
          R"({}{{"policy":"{}","requests":{},"refused":{},"prompt_tokens":{},"computed_tokens":{},)"
          R"("evicted_blocks":{},"hit_rate":{:.6f},"ttft_mean_ms":{:.3f},"ttft_p50_ms":{:.3f},)"
          R"("ttft_p99_ms":{:.3f},"imbalance":{:.4f},"makespan_s":{:.3f},"same_as_first":{:.6f}}})",
          &each == &all.front() ? "" : ",", each.policy, each.requests, each.refused,
          each.prompt_tokens, each.computed_tokens, each.evicted_blocks, each.hit_rate(),
          each.ttft_mean_ms, each.ttft_p50_ms, each.ttft_p99_ms, each.imbalance, each.makespan_s,
          same);
    } else {
      fmt::format_to(std::back_inserter(out),
                     "{:<22} {:>8} {:>7} {:>8.1f}% {:>6.0f} ms {:>7.0f} ms {:>9.2f} {:>8.1f}%\n",
                     each.policy, each.requests, each.refused, 100 * each.hit_rate(),
                     each.ttft_mean_ms, each.ttft_p99_ms, each.imbalance, 100 * same);
    }
  }
  print(out + (as_json ? "]}\n" : ""));
}

Status replay_receipts(const std::vector<Receipt>& receipts,
                       const std::vector<std::string>& policies, bool as_json) {
  std::vector<ReplayFigures> all;
  for (const std::string& policy : policies) {
    Random random(1);
    ReplayFigures figures{.policy = policy, .requests = receipts.size()};
    for (size_t i = 0; i < receipts.size(); ++i) {
      const Receipt& receipt = receipts[i];
      STATOR_TRY(const WorkerKey chosen, router::replay_receipt(receipt, policy, random),
                 fmt::format("receipt {}", i + 1));
      figures.choices.push_back(chosen);
      const auto candidate =
          std::ranges::find(receipt.candidates, chosen, &router::ReceiptCandidate::worker);
      const uint64_t cached = uint64_t{candidate->overlap_blocks} * receipt.block_size;
      figures.prompt_tokens += receipt.prompt_tokens;
      figures.computed_tokens +=
          receipt.prompt_tokens - std::min<uint64_t>(cached, receipt.prompt_tokens);
    }
    all.push_back(std::move(figures));
  }
  print_figures(all, as_json);
  return {};
}

}  // namespace

Status run_route_replay(Invocation& invocation) {
  STATOR_TRY(const router::ReplayFleet fleet, read_fleet(invocation));
  STATOR_TRY(const auto policies, read_policies(invocation));
  STATOR_TRY(const Trace trace, read_trace(invocation.positionals.front(), fleet.block_size));
  const bool as_json = invocation.options.contains("--json");
  if (const auto* receipts = std::get_if<std::vector<Receipt>>(&trace)) {
    return replay_receipts(*receipts, policies, as_json);
  }
  std::vector<ReplayFigures> all;
  for (const std::string& policy : policies) {
    router::RouterConfig config = invocation.settings.router;
    config.mode = policy;
    STATOR_TRY(auto figures,
               router::replay_trace(std::get<std::vector<ReplayRequest>>(trace), config, fleet));
    all.push_back(std::move(figures));
  }
  print_figures(all, as_json);
  return {};
}

}  // namespace stator::cli
