// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/core/clock.h"
#include "stator/perf/polynomial_timing.h"
#include "stator/simulator/cluster.h"
#include "stator/simulator/mooncake_trace.h"
#include "stator/simulator/report.h"

namespace stator::cli {
namespace {

/// What the command line says, over the defaults.
class Options {
 public:
  explicit Options(const Invocation& invocation) : invocation_(invocation) {}

  bool has(std::string_view flag) const { return invocation_.options.contains(flag); }

  std::string text(std::string_view flag) const {
    const auto found = invocation_.options.find(flag);
    return found == invocation_.options.end() ? std::string() : found->second;
  }

  /// Leaves `value` alone if the flag is absent.
  template <typename T>
  Status number(std::string_view flag, T low, T high, T& value) const {
    const auto found = invocation_.options.find(flag);
    if (found == invocation_.options.end()) {
      return {};
    }
    const std::string& typed = found->second;
    T parsed{};
    const auto end = std::from_chars(typed.data(), typed.data() + typed.size(), parsed);
    if (end.ec != std::errc() || end.ptr != typed.data() + typed.size() || !(parsed >= low) ||
        parsed > high) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("{} must be a number from {} to {}, not '{}'", flag, low, high, typed));
    }
    value = parsed;
    return {};
  }

  Status goal(std::string_view flag, std::optional<double>& value) const {
    double bound = -1;
    STATOR_CHECK(number(flag, 0.0, 1e12, bound));
    if (bound >= 0) {
      value = bound;
    }
    return {};
  }

 private:
  const Invocation& invocation_;
};

Result<simulator::ClusterConfig> read_cluster(const Options& options,
                                              const router::RouterConfig& router) {
  simulator::ClusterConfig config;
  engine::SimEngineConfig& engine = config.engine;
  constexpr uint32_t kManyTokens = 1 << 30;
  STATOR_CHECK(options.number("--workers", 1U, 1'000'000U, config.workers));
  STATOR_CHECK(options.number("--prefill-workers", 0U, 1'000'000U, config.prefill_workers));
  STATOR_CHECK(options.number("--block-size", 1U, 1U << 20, engine.block_size));
  STATOR_CHECK(options.number("--blocks", 1U, kManyTokens, engine.blocks));
  STATOR_CHECK(options.number("--max-num-seqs", 1U, 1U << 20, engine.max_num_seqs));
  STATOR_CHECK(
      options.number("--max-num-batched-tokens", 1U, kManyTokens, engine.max_num_batched_tokens));
  STATOR_CHECK(options.number("--max-model-len", 1U, kManyTokens, engine.max_model_len));
  STATOR_CHECK(options.number("--speedup", 1e-6, 1e9, engine.speedup));
  STATOR_CHECK(options.number("--decode-speedup", 1e-6, 1e9, engine.decode_speedup));
  STATOR_CHECK(options.number("--arrival-speedup", 1e-9, 1e9, config.arrival_speedup));
  STATOR_CHECK(options.number("--concurrency", 1U, 100'000'000U, config.concurrency));
  STATOR_CHECK(options.number("--seed", uint64_t{0}, ~uint64_t{0}, config.seed));
  STATOR_CHECK(options.number("--kv-bytes-per-token", 0.0, 1e12, config.handoff_bytes_per_token));
  STATOR_CHECK(options.number("--gpus-per-worker", 1U, 1U << 20, config.gpus_per_worker));
  double gigabytes_per_s = config.handoff_bytes_per_second / 1e9;
  STATOR_CHECK(options.number("--link-gb-per-s", 1e-6, 1e9, gigabytes_per_s));
  config.handoff_bytes_per_second = gigabytes_per_s * 1e9;
  const std::string rules = options.text("--engine");
  if (!rules.empty() && rules != "vllm" && rules != "trtllm") {
    return Error(Code::kInvalidArgument, "--engine must be vllm or trtllm, not '" + rules + "'");
  }
  engine.rules = rules == "trtllm" ? engine::SimRules::kTrtllm : engine::SimRules::kVllm;
  engine.prefix_caching = !options.has("--no-prefix-caching");
  engine.chunked_prefill = !options.has("--no-chunked-prefill");
  if (options.has("--preempt-oldest")) {
    engine.preemption = engine::SimPreemption::kOldest;
  }
  if (options.has("--naive")) {
    config.passes = engine::SimPasses::kNaive;
  }
  config.router = router;
  return config;
}

/// A file that was asked for, or nothing.
class OutputFile {
 public:
  static Result<OutputFile> open(const std::string& path) {
    OutputFile file;
    file.path_ = path;
    if (!path.empty()) {
      file.stream_.open(path, std::ios::binary | std::ios::trunc);
      if (!file.stream_) {
        return Error(Code::kIo, "cannot write '" + path + "'");
      }
    }
    return file;
  }
  bool wanted() const { return !path_.empty(); }
  void write(std::string_view text) {
    stream_.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  Status close() {
    if (wanted()) {
      stream_.close();
      if (!stream_) {
        return Error(Code::kIo, "cannot write '" + path_ + "'");
      }
    }
    return {};
  }

 private:
  std::string path_;
  std::ofstream stream_;
};

std::function<void(uint64_t)> make_progress(const Clock& clock) {
  return [&clock, begin = clock.now(), last = clock.now()](uint64_t arrived) mutable {
    const TimePoint now = clock.now();
    if (stderr_is_terminal() && now - last >= std::chrono::seconds(1)) {
      last = now;
      const double seconds = std::chrono::duration<double>(now - begin).count();
      print_status(fmt::format("\r\x1b[K{} requests, {:.0f} per second", arrived,
                               static_cast<double>(arrived) / seconds));
    }
  };
}

}  // namespace

Status run_sim(Invocation& invocation) {
  const Options options(invocation);
  if (options.has("--fault")) {
    return run_sim_faults(invocation);
  }
  STATOR_TRY(const simulator::ClusterConfig config,
             read_cluster(options, invocation.settings.router));
  simulator::Objectives goals;
  STATOR_CHECK(options.goal("--goal-ttft-ms", goals.ttft_ms));
  STATOR_CHECK(options.goal("--goal-tpot-ms", goals.tpot_ms));
  STATOR_CHECK(options.goal("--goal-e2e-ms", goals.e2e_ms));
  simulator::MooncakeConfig format{.name = invocation.positionals.front(),
                                   .sort = options.has("--sort")};
  STATOR_CHECK(options.number("--trace-block-size", 1U, 1U << 20, format.block_tokens));
  std::ifstream input(format.name);
  if (!input) {
    return Error(Code::kNotFound, "cannot open the trace '" + format.name + "'");
  }
  STATOR_TRY(OutputFile json, OutputFile::open(options.text("--report-json")));
  STATOR_TRY(OutputFile lines, OutputFile::open(options.text("--per-request-jsonl")));

  const SystemClock clock;
  const TimePoint begin = clock.now();
  const perf::PolynomialTiming timing;
  const auto trace = simulator::make_mooncake_trace(input, format);
  STATOR_TRY(const auto cluster, simulator::Cluster::create(config, timing));
  simulator::Recorder::Sink sink;
  if (lines.wanted()) {
    sink = [&](const simulator::RequestRecord& record) { lines.write(render_json(record)); };
  }
  simulator::Recorder recorder(cluster->worker_count(), goals, std::move(sink));
  cluster->set_progress(make_progress(clock));
  STATOR_CHECK(cluster->run(*trace, recorder));

  simulator::Report report = recorder.make_report();
  if (report.requests == 0) {
    return Error(Code::kInvalidArgument, "the trace '" + format.name + "' has no requests");
  }
  cluster->describe(report);
  report.wall_time_ms = std::chrono::duration<double, std::milli>(clock.now() - begin).count();
  json.write(json.wanted() ? render_json(report) : std::string());
  STATOR_CHECK(json.close());
  STATOR_CHECK(lines.close());
  print(render_table(report));
  return {};
}

}  // namespace stator::cli
