// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/json/value.h"
#include "stator/transfer/agent.h"

namespace stator::cli {
namespace {

using transfer::Agent;
using transfer::Desc;
using transfer::MemType;
using transfer::Op;
using transfer::Outcome;

constexpr uint64_t kLargeBytes = uint64_t{1} << 20;  // larger ones are repeated less often
constexpr uint64_t kLargeDivisor = 16;
constexpr Duration kWaitMax = std::chrono::seconds(60);
constexpr uint64_t kArenaMax = uint64_t{1} << 30;

struct Plan {
  std::string backend = "shm";
  Op op = Op::kWrite;
  std::string scheme = "pairwise";
  uint64_t size_min = 4096;
  uint64_t size_max = uint64_t{64} << 20;
  uint64_t batch = 1;
  uint64_t warm_up = 100;
  uint64_t iterations = 1000;
  std::string folder = "/tmp";
  transfer::Params params;
  bool check = false;
};

/// One line of the table. Times in microseconds.
struct Row {
  uint64_t size = 0;
  uint64_t batch = 0;
  double gb_per_second = 0;
  double latency_avg = 0;
  std::vector<double> prepare;
  std::vector<double> post;
  std::vector<double> moved;
};

double average(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(1, values.size()));
}

double p99(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[(values.size() - 1) * 99 / 100];
}

Error failed(std::string_view what, Outcome outcome, const std::string& cause = {}) {
  return {Code::kInternal,
          fmt::format("transfer-bench: {} gives {}{}{}", what, transfer::to_string(outcome),
                      cause.empty() ? "" : ": ", cause)};
}

/// Initiator, target and their memory.
struct Bench {
  Bench(const Plan& plan_in, Clock& clock_in, Metrics& metrics)
      : plan(plan_in),
        clock(clock_in),
        initiator("initiator", {}, clock_in, metrics),
        target("target", {}, clock_in, metrics) {}

  Status open() {
    STATOR_CHECK(add(initiator));
    bytes = std::min(kArenaMax, plan.size_max * plan.batch);
    local = initiator.allocate(bytes);
    std::ranges::fill(local, std::byte{0x5A});
    const Desc mine{.addr = reinterpret_cast<uint64_t>(local.data()), .len = bytes};
    initiator.register_mem(MemType::kDram, {&mine, 1});
    if (plan.backend == "posix" || plan.backend == "obj") {
      remote_type = plan.backend == "posix" ? MemType::kFile : MemType::kObj;
      return {};
    }
    STATOR_CHECK(add(target));
    remote = target.allocate(bytes);
    std::ranges::fill(remote, std::byte{0x3C});
    const Desc theirs{.addr = reinterpret_cast<uint64_t>(remote.data()), .len = bytes};
    target.register_mem(MemType::kDram, {&theirs, 1});
    if (const Outcome loaded = initiator.load_remote_md(target.local_md(), peer);
        loaded != Outcome::kSuccess) {
      return failed("load_remote_md", loaded);
    }
    return {};
  }

  Status add(Agent& agent) const {
    const Outcome made = agent.create_backend(plan.backend, plan.params);
    return made == Outcome::kSuccess ? Status() : failed("backend " + plan.backend, made);
  }

  /// Where the other side's piece `index` of `size` bytes is.
  Result<Desc> place(uint64_t index, uint64_t size) {
    if (remote_type == MemType::kDram) {
      return Desc{.addr = reinterpret_cast<uint64_t>(remote.data()) + index * size % bytes,
                  .len = size};
    }
    const bool file = remote_type == MemType::kFile;
    const std::string name = file ? fmt::format("rw:{}/stator-transfer-bench.data", plan.folder)
                                  : fmt::format("stator-transfer-bench/{}-{}", size, index);
    uint64_t& dev = devices[name];
    if (dev == 0) {
      if (const Outcome named = initiator.register_named(remote_type, name, dev);
          named != Outcome::kSuccess) {
        return failed(name, named);
      }
    }
    return Desc{.addr = file ? index * size : 0, .len = size, .dev = dev};
  }

  const Plan& plan;
  Clock& clock;
  Agent initiator;
  Agent target;
  std::string peer;
  uint64_t bytes = 0;
  std::span<std::byte> local;
  std::span<std::byte> remote;
  MemType remote_type = MemType::kDram;
  std::map<std::string, uint64_t> devices;
};

double micros(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

struct Round {
  Op op = Op::kWrite;
  bool counts = true;
};

Status run_once(Bench& bench, uint64_t size, Row& row, Round round) {
  const uint64_t batch = row.batch;
  std::vector<Desc> mine;
  std::vector<Desc> theirs;
  for (uint64_t i = 0; i < batch; ++i) {
    mine.push_back({.addr = reinterpret_cast<uint64_t>(bench.local.data()) + i * size % bench.bytes,
                    .len = size});
    STATOR_TRY(const Desc place, bench.place(i, size));
    theirs.push_back(place);
  }
  const TimePoint begin = bench.clock.now();
  transfer::ListId local = 0;
  transfer::ListId remote = 0;
  std::vector<uint32_t> all(batch);
  std::iota(all.begin(), all.end(), 0U);
  transfer::TransferId id = 0;
  Outcome outcome = bench.initiator.prep_list(transfer::kSelf, MemType::kDram, mine, local);
  outcome = outcome == Outcome::kSuccess
                ? bench.initiator.prep_list(bench.peer, bench.remote_type, theirs, remote)
                : outcome;
  outcome = outcome == Outcome::kSuccess ? bench.initiator.make_xfer({.op = round.op,
                                                                      .local = local,
                                                                      .local_indices = all,
                                                                      .remote = remote,
                                                                      .remote_indices = all,
                                                                      .notification = {}},
                                                                     id)
                                         : outcome;
  if (outcome != Outcome::kSuccess) {
    return failed("preparing", outcome);
  }
  const TimePoint prepared = bench.clock.now();
  bench.initiator.post(id);
  const TimePoint posted = bench.clock.now();
  outcome = bench.initiator.wait(id, kWaitMax);
  const TimePoint end = bench.clock.now();
  if (outcome != Outcome::kSuccess) {
    return failed("a transfer", outcome, bench.initiator.cause(id));
  }
  bench.initiator.release(id);
  bench.initiator.release_list(local);
  bench.initiator.release_list(remote);
  if (round.counts) {
    row.prepare.push_back(micros(prepared - begin));
    row.post.push_back(micros(posted - prepared));
    row.moved.push_back(micros(end - posted));
  }
  return {};
}

Result<Row> measure(Bench& bench, uint64_t size) {
  const Plan& plan = bench.plan;
  Row row{.size = size,
          .batch = std::max<uint64_t>(1, std::min(plan.batch, bench.bytes / size)),
          .prepare = {},
          .post = {},
          .moved = {}};
  const uint64_t divisor = size > kLargeBytes ? kLargeDivisor : 1;
  const uint64_t rounds = std::max<uint64_t>(1, plan.iterations / divisor);
  if (plan.op == Op::kRead && bench.remote_type != MemType::kDram) {
    STATOR_CHECK(run_once(bench, size, row, {.op = Op::kWrite, .counts = false}));  // to be read
  }
  for (uint64_t i = 0; i < plan.warm_up / divisor; ++i) {
    STATOR_CHECK(run_once(bench, size, row, {.op = plan.op, .counts = false}));
  }
  for (uint64_t i = 0; i < rounds; ++i) {
    STATOR_CHECK(run_once(bench, size, row, {.op = plan.op}));
  }
  const double total = std::accumulate(row.moved.begin(), row.moved.end(), 0.0) +
                       std::accumulate(row.post.begin(), row.post.end(), 0.0);
  row.gb_per_second = static_cast<double>(size * row.batch * rounds) / total / 1e3;
  row.latency_avg = total / static_cast<double>(rounds);
  if (plan.check && plan.op == Op::kWrite && bench.remote_type == MemType::kDram &&
      !std::ranges::equal(bench.local.first(size), bench.remote.first(size))) {
    return Error(Code::kInternal, "transfer-bench: the target has other bytes");
  }
  return row;
}

json::Value as_json(const Row& row) {
  json::Value out = json::Value::object();
  out["block_size"] = row.size;
  out["batch_size"] = row.batch;
  out["gb_per_s"] = row.gb_per_second;
  out["avg_latency_us"] = row.latency_avg;
  out["avg_prep_us"] = average(row.prepare);
  out["p99_prep_us"] = p99(row.prepare);
  out["avg_post_us"] = average(row.post);
  out["p99_post_us"] = p99(row.post);
  out["avg_xfer_us"] = average(row.moved);
  out["p99_xfer_us"] = p99(row.moved);
  return out;
}

std::string option(const Invocation& invocation, std::string_view flag, std::string fallback) {
  const auto found = invocation.options.find(flag);
  return found == invocation.options.end() ? std::move(fallback) : found->second;
}

Status read_number(const Invocation& invocation, std::string_view flag, uint64_t& out) {
  const std::string text = option(invocation, flag, "");
  if (!text.empty()) {
    STATOR_TRY(out, parse_bytes(text), flag);
    if (out == 0) {
      return Error(Code::kInvalidArgument, fmt::format("{} must be above 0", flag));
    }
  }
  return {};
}

Result<Plan> read_plan(const Invocation& invocation) {
  Plan plan;
  plan.backend = option(invocation, "--backend", plan.backend);
  const auto types = Agent::backend_types();
  if (std::ranges::find(types, plan.backend) == types.end()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--backend {}: it is shm, tcp, posix or obj", plan.backend));
  }
  const std::string op = option(invocation, "--op", "write");
  if (op != "read" && op != "write" && op != "READ" && op != "WRITE") {
    return Error(Code::kInvalidArgument, "--op: read or write");
  }
  plan.op = op == "read" || op == "READ" ? Op::kRead : Op::kWrite;
  plan.folder = option(invocation, "--dir", plan.folder);
  plan.check = invocation.options.contains("--check");
  STATOR_CHECK(read_number(invocation, "--min-size", plan.size_min));
  STATOR_CHECK(read_number(invocation, "--max-size", plan.size_max));
  STATOR_CHECK(read_number(invocation, "--batch", plan.batch));
  STATOR_CHECK(read_number(invocation, "--iterations", plan.iterations));
  STATOR_CHECK(read_number(invocation, "--warm-up", plan.warm_up));
  const std::string params = option(invocation, "--params", "");
  for (std::string_view rest = params; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) {
      return Error(Code::kInvalidArgument, "--params: KEY=VALUE with commas between");
    }
    plan.params.emplace(one.substr(0, equals), one.substr(equals + 1));
  }
  if (plan.size_max < plan.size_min) {
    return Error(Code::kInvalidArgument, "--max-size is below --min-size");
  }
  return plan;
}

}  // namespace

Status run_transfer_bench(Invocation& invocation) {
  STATOR_TRY(const Plan plan, read_plan(invocation));
  SystemClock clock;
  Metrics metrics;
  Bench bench(plan, clock, metrics);
  STATOR_CHECK(bench.open());
  const bool json = invocation.options.contains("--json");
  json::Value rows = json::Value::array();
  if (!json) {
    print(fmt::format("{:>10} {:>6} {:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>11} {:>11}\n",
                      "size", "batch", "GB/s", "avg lat us", "prep avg", "prep p99", "post avg",
                      "post p99", "xfer avg", "xfer p99"));
  }
  for (uint64_t size = plan.size_min; size <= plan.size_max; size *= 2) {
    STATOR_TRY(const Row row, measure(bench, size));
    if (json) {
      rows.push_back(as_json(row));
      continue;
    }
    print(fmt::format(
        "{:>10} {:>6} {:>8.2f} {:>12.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>11.1f} "
        "{:>11.1f}\n",
        row.size, row.batch, row.gb_per_second, row.latency_avg, average(row.prepare),
        p99(row.prepare), average(row.post), p99(row.post), average(row.moved), p99(row.moved)));
  }
  if (json) {
    json::Value out = json::Value::object();
    out["backend"] = plan.backend;
    out["op"] = plan.op == Op::kRead ? "READ" : "WRITE";
    out["scheme"] = plan.scheme;
    out["rows"] = std::move(rows);
    print(json::to_text(out) + "\n");
  }
  if (plan.backend == "posix") {
    std::error_code ignored;
    std::filesystem::remove(plan.folder + "/stator-transfer-bench.data", ignored);
  }
  return {};
}

}  // namespace stator::cli
