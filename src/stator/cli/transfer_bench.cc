// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/random.h"
#include "stator/io/file_descriptor.h"
#include "stator/json/value.h"
#include "stator/transfer/agent.h"
#include "stator/transfer/wire.h"

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
constexpr uint64_t kAgentsMax = 64;
constexpr uint64_t kDepthMax = 256;

struct Plan {
  std::string backend = "shm";
  Op op = Op::kWrite;
  std::string scheme = "pairwise";
  uint32_t agents = 0;     ///< on the sides that the scheme has many of; 0: 1 for pairs, else 2
  bool processes = false;  ///< the targets are another process
  uint64_t size_min = 4096;
  uint64_t size_max = uint64_t{64} << 20;
  uint64_t batch = 1;
  uint64_t warm_up = 100;
  uint64_t iterations = 1000;
  uint64_t depth = 1;    ///< transfers of a link under way at once
  uint64_t threads = 2;  ///< of an agent
  std::string mode = "recreate";
  bool random = false;  ///< the other side's pieces are in a random order
  std::string folder = "/tmp";
  transfer::Params params;
  bool check = false;
  bool direct = false;
};

/// One line of the table. Times in microseconds.
struct Row {
  uint64_t size = 0;
  uint64_t batch = 0;
  double gb_per_second = 0;
  double seconds = 0;
  std::vector<double> prepare;
  std::vector<double> post;
  std::vector<double> moved;
  std::vector<double> latency;
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

/// Bytes of one agent's memory.
uint64_t arena_bytes(const Plan& plan) {
  return std::min(kArenaMax, plan.size_max * plan.batch * plan.depth);
}

/// An agent with memory of its own, which others may use.
struct Node {
  Node(std::string name, const Plan& plan, Clock& clock, Metrics& metrics)
      : agent(std::move(name), {.threads = static_cast<uint32_t>(plan.threads)}, clock, metrics) {}
  Status open(const Plan& plan, std::byte fill) {
    const Outcome made = agent.create_backend(plan.backend, plan.params);
    if (made != Outcome::kSuccess) {
      return failed("backend " + plan.backend, made);
    }
    memory = agent.allocate(arena_bytes(plan));
    std::ranges::fill(memory, fill);
    const Desc all{.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size()};
    const Outcome registered = agent.register_mem(MemType::kDram, {&all, 1});
    return registered == Outcome::kSuccess ? Status() : failed("register_mem", registered);
  }
  Agent agent;
  std::span<std::byte> memory;
};
using Nodes = std::vector<std::unique_ptr<Node>>;

Result<Nodes> open_nodes(std::string_view side, uint32_t count, const Plan& plan, Clock& clock,
                         Metrics& metrics) {
  Nodes nodes;
  for (uint32_t i = 0; i < count; ++i) {
    nodes.push_back(std::make_unique<Node>(fmt::format("{}-{}", side, i), plan, clock, metrics));
    STATOR_CHECK(nodes.back()->open(plan, side == "target" ? std::byte{0x3C} : std::byte{0x5A}));
  }
  return nodes;
}

/// The targets in a process of their own, which ends with this object.
class TargetProcess {
 public:
  TargetProcess() = default;
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;
  ~TargetProcess() {
    stop_.reset();  // it reads the end of this line
    if (child_ > 0) {
      ::waitpid(child_, nullptr, 0);
    }
  }
  /// Before this process has any thread. Gives the targets' metadata; in the other process, when
  /// the targets are not needed any more, nothing (inside() is true there).
  Result<std::vector<std::string>> start(uint32_t count, const Plan& plan, Clock& clock) {
    std::array<int, 2> told{-1, -1};
    std::array<int, 2> stop{-1, -1};
    if (::pipe2(told.data(), O_CLOEXEC) != 0 || ::pipe2(stop.data(), O_CLOEXEC) != 0) {
      return Error(Code::kIo, "transfer-bench: no pipes");
    }
    child_ = ::fork();
    if (child_ == 0) {
      ::close(told[0]);
      ::close(stop[1]);
      serve(count, plan, clock, told[1], stop[0]);
      return std::vector<std::string>();
    }
    const io::FileDescriptor read_end(told[0]);
    ::close(told[1]);
    ::close(stop[0]);
    stop_ = io::FileDescriptor(stop[1]);
    std::vector<std::string> out;
    if (child_ < 0) {
      return Error(Code::kInternal, "transfer-bench: no second process can be had");
    }
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t length = 0;
      std::string& blob = out.emplace_back();
      if (!read_all(read_end.get(), &length, sizeof length)) {
        return Error(Code::kInternal, "transfer-bench: the process with the targets failed");
      }
      blob.resize(std::min(length, kBlobMax));
      if (!read_all(read_end.get(), blob.data(), blob.size())) {
        return Error(Code::kInternal, "transfer-bench: the process with the targets failed");
      }
    }
    return out;
  }
  /// This is the process of the targets, and has nothing more to do.
  bool inside() const { return child_ == 0; }

 private:
  static constexpr uint32_t kBlobMax = 1U << 20;
  static bool read_all(int fd, void* data, size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = ::read(fd, at, bytes);
      if (got <= 0) {
        return false;
      }
      at += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }
  static void serve(uint32_t count, const Plan& plan, Clock& clock, int told, int stop) {
    Metrics metrics;
    const auto nodes = open_nodes("target", count, plan, clock, metrics);
    if (!nodes) {
      print_error(nodes.error().message());
      return;
    }
    for (size_t i = 0; i < nodes->size(); ++i) {
      const std::string blob = (*nodes)[i]->agent.local_md();
      const auto length = static_cast<uint32_t>(blob.size());
      if (::write(told, &length, sizeof length) != sizeof length ||
          ::write(told, blob.data(), blob.size()) != static_cast<ssize_t>(blob.size())) {
        return;
      }
    }
    ::close(told);
    char byte = 0;
    while (::read(stop, &byte, 1) > 0) {
    }
  }

  pid_t child_ = -1;
  io::FileDescriptor stop_;
};

/// Who moves bytes where: one transfer at a time between an initiator and a target.
struct Link {
  Node* initiator = nullptr;
  std::string peer;  ///< empty: files or objects of the initiator's
  uint64_t remote = 0;
  std::map<std::string, uint64_t> devices;
};

/// All links of a scheme.
struct Bench {
  Bench(const Plan& plan_in, Clock& clock_in) : plan(plan_in), clock(clock_in) {}

  Status open() {
    const bool many_start = plan.scheme != "onetomany";
    const bool many_end = plan.scheme != "manytoone";
    const bool memory = plan.backend != "posix" && plan.backend != "obj";
    const uint32_t ends = !memory ? 0 : many_end ? plan.agents : 1;
    std::vector<std::string> metadata;
    if (plan.processes && memory) {
      STATOR_TRY(metadata, elsewhere.start(ends, plan, clock));
      if (elsewhere.inside()) {
        return {};
      }
    } else {
      STATOR_TRY(targets, open_nodes("target", ends, plan, clock, metrics));
      for (const auto& node : targets) {
        metadata.push_back(node->agent.local_md());
      }
    }
    STATOR_TRY(initiators,
               open_nodes("initiator", many_start ? plan.agents : 1, plan, clock, metrics));
    bytes = arena_bytes(plan);
    if (!memory) {
      remote_type = plan.backend == "posix" ? MemType::kFile : MemType::kObj;
      for (const auto& node : initiators) {
        links.push_back({.initiator = node.get()});
      }
      return {};
    }
    for (size_t i = 0; i < std::max(initiators.size(), metadata.size()); ++i) {
      STATOR_CHECK(connect(*initiators[i % initiators.size()], metadata[i % metadata.size()]));
    }
    return {};
  }

  Status connect(Node& initiator, const std::string& metadata) {
    STATOR_TRY(const auto known, transfer::decode_metadata(metadata));
    Link& link = links.emplace_back();
    link.initiator = &initiator;
    link.remote = known.regions.empty() ? 0 : known.regions.front().desc.addr;
    const Outcome loaded = initiator.agent.load_remote_md(metadata, link.peer);
    return loaded == Outcome::kSuccess ? Status() : failed("load_remote_md", loaded);
  }

  /// Where the other side's piece `index` of `size` bytes is.
  Result<Desc> place(Link& link, uint64_t index, uint64_t size) {
    if (remote_type == MemType::kDram) {
      return Desc{.addr = link.remote + index * size % bytes, .len = size};
    }
    const bool file = remote_type == MemType::kFile;
    const std::string& owner = link.initiator->agent.name();
    const std::string name =
        file ? fmt::format("rw{}:{}/stator-transfer-bench-{}.data", plan.direct ? ",direct" : "",
                           plan.folder, owner)
             : fmt::format("stator-transfer-bench/{}-{}-{}", owner, size, index);
    uint64_t& dev = link.devices[name];
    if (dev == 0) {
      if (const Outcome named = link.initiator->agent.register_named(remote_type, name, dev);
          named != Outcome::kSuccess) {
        return failed(name, named);
      }
    }
    return Desc{.addr = file ? index * size : 0, .len = size, .dev = dev};
  }

  const Plan& plan;
  Clock& clock;
  Metrics metrics;
  TargetProcess elsewhere;
  Nodes targets;
  Nodes initiators;
  std::vector<Link> links;
  uint64_t bytes = 0;
  MemType remote_type = MemType::kDram;
};

double micros(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// What a link moves in one transfer, made once per size: ranges, and lists and a transfer of them
/// where the mode keeps these.
struct Shipment {
  std::vector<Desc> mine;
  std::vector<Desc> theirs;
  transfer::ListId local = 0;
  transfer::ListId remote = 0;
  transfer::TransferId id = 0;
};

/// Where things of round-robin slot `slot` lie.
Result<Shipment> pack(Bench& bench, Link& link, uint64_t size, uint64_t batch, uint64_t slot) {
  const auto base = reinterpret_cast<uint64_t>(link.initiator->memory.data());
  Shipment out;
  std::vector<uint64_t> order(batch);
  std::iota(order.begin(), order.end(), slot * batch);
  for (const uint64_t index : order) {
    out.mine.push_back({.addr = base + index * size % bench.bytes, .len = size});
  }
  if (bench.plan.random) {
    Random random(slot + 1);
    for (size_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1], order[random.below(left)]);
    }
  }
  for (const uint64_t index : order) {
    STATOR_TRY(const Desc place, bench.place(link, index, size));
    out.theirs.push_back(place);
  }
  return out;
}

/// The part of the work that the mode does for each transfer.
Outcome prepare(const Bench& bench, Link& link, Shipment& shipment, Op op) {
  Agent& agent = link.initiator->agent;
  const std::string& mode = bench.plan.mode;
  Outcome outcome = Outcome::kSuccess;
  if (mode == "repost" && shipment.id != 0) {
    return outcome;
  }
  if (mode == "reregister") {
    const Desc all{.addr = reinterpret_cast<uint64_t>(link.initiator->memory.data()),
                   .len = link.initiator->memory.size()};
    agent.deregister_mem(MemType::kDram, {&all, 1});
    outcome = agent.register_mem(MemType::kDram, {&all, 1});
  }
  if (outcome == Outcome::kSuccess && shipment.local == 0) {
    outcome = agent.prep_list(transfer::kSelf, MemType::kDram, shipment.mine, shipment.local);
    if (outcome == Outcome::kSuccess) {
      outcome = agent.prep_list(link.peer, bench.remote_type, shipment.theirs, shipment.remote);
    }
  }
  if (outcome == Outcome::kSuccess) {
    outcome = agent.make_xfer({.op = op,
                               .local = shipment.local,
                               .local_indices = {},
                               .remote = shipment.remote,
                               .remote_indices = {},
                               .notification = {},
                               .all = true},
                              shipment.id);
  }
  return outcome;
}

void clean_up(const Bench& bench, Link& link, Shipment& shipment, bool all) {
  Agent& agent = link.initiator->agent;
  const bool keeps_lists = bench.plan.mode == "prepared" || bench.plan.mode == "repost";
  if (all || bench.plan.mode != "repost") {
    agent.release(std::exchange(shipment.id, 0));
  }
  if (all || !keeps_lists) {
    agent.release_list(std::exchange(shipment.local, 0));
    agent.release_list(std::exchange(shipment.remote, 0));
  }
}

/// One transfer on every link, all at once, `depth` times.
class Rounds {
 public:
  Rounds(Bench& bench, Op op) : bench_(bench), op_(op) {}
  Status open(uint64_t size, uint64_t batch) {
    const uint64_t piece =
        bench_.plan.scheme == "tp" ? std::max<uint64_t>(1, size / bench_.links.size()) : size;
    for (uint64_t slot = 0; slot < bench_.plan.depth; ++slot) {
      std::vector<Shipment>& shipments = slots_.emplace_back();
      for (Link& link : bench_.links) {
        STATOR_TRY(shipments.emplace_back(), pack(bench_, link, piece, batch, slot));
      }
    }
    return {};
  }
  /// Row `row` gets their times; null: they do not count.
  Status run(uint64_t count, Row* row) {
    std::deque<std::pair<size_t, TimePoint>> under_way;  // slot, and when it was posted
    const TimePoint begin = bench_.clock.now();
    Duration preparing{};
    for (uint64_t i = 0; i < count || !under_way.empty(); ++i) {
      if (i >= count || under_way.size() == slots_.size()) {
        const auto [slot, posted] = under_way.front();
        under_way.pop_front();
        STATOR_CHECK(end(slots_[slot], posted, row));
      }
      if (i < count) {
        const TimePoint before = bench_.clock.now();
        STATOR_TRY(const TimePoint posted, start(slots_[i % slots_.size()], row));
        preparing += posted - before;
        under_way.emplace_back(i % slots_.size(), posted);
      }
    }
    if (row != nullptr) {
      // Alone, a transfer's preparation is a column of its own; of several it is on the way.
      const Duration took = bench_.clock.now() - begin;
      row->seconds = std::chrono::duration<double>(
                         slots_.size() == 1 ? std::max(took - preparing, Duration(1)) : took)
                         .count();
    }
    return {};
  }
  void close() {
    for (std::vector<Shipment>& shipments : slots_) {
      for (size_t i = 0; i < shipments.size(); ++i) {
        clean_up(bench_, bench_.links[i], shipments[i], true);
      }
    }
  }

 private:
  /// When posting began.
  Result<TimePoint> start(std::vector<Shipment>& shipments, Row* row) {
    const TimePoint begin = bench_.clock.now();
    for (size_t i = 0; i < shipments.size(); ++i) {
      if (const Outcome outcome = prepare(bench_, bench_.links[i], shipments[i], op_);
          outcome != Outcome::kSuccess) {
        return failed("preparing", outcome);
      }
    }
    const TimePoint prepared = bench_.clock.now();
    for (size_t i = 0; i < shipments.size(); ++i) {
      bench_.links[i].initiator->agent.post(shipments[i].id);
    }
    if (row != nullptr) {
      row->prepare.push_back(micros(prepared - begin));
      row->post.push_back(micros(bench_.clock.now() - prepared));
    }
    return prepared;
  }
  Status end(std::vector<Shipment>& shipments, TimePoint posted, Row* row) {
    for (size_t i = 0; i < shipments.size(); ++i) {
      Agent& agent = bench_.links[i].initiator->agent;
      const Outcome outcome = agent.wait(shipments[i].id, kWaitMax);
      if (outcome != Outcome::kSuccess) {
        return failed("a transfer", outcome, agent.cause(shipments[i].id));
      }
    }
    if (row != nullptr) {
      const double latency = micros(bench_.clock.now() - posted);
      row->latency.push_back(latency);
      row->moved.push_back(std::max(0.0, latency - row->post[row->moved.size()]));
    }
    for (size_t i = 0; i < shipments.size(); ++i) {
      clean_up(bench_, bench_.links[i], shipments[i], false);
    }
    return {};
  }

  Bench& bench_;
  const Op op_;
  std::vector<std::vector<Shipment>> slots_;  // by link
};

/// Reads back what was written, over the same link, and compares.
Status check_bytes(Bench& bench, uint64_t size) {
  Link& link = bench.links.front();
  const std::span<std::byte> memory = link.initiator->memory.first(size);
  const std::vector<std::byte> written(memory.begin(), memory.end());
  std::ranges::fill(memory, std::byte{0});
  STATOR_TRY(Shipment shipment, pack(bench, link, size, 1, 0));
  Outcome outcome = prepare(bench, link, shipment, Op::kRead);
  if (outcome == Outcome::kSuccess) {
    link.initiator->agent.post(shipment.id);
    outcome = link.initiator->agent.wait(shipment.id, kWaitMax);
  }
  clean_up(bench, link, shipment, true);
  return outcome == Outcome::kSuccess && std::ranges::equal(memory, written)
             ? Status()
             : Status(Error(Code::kInternal, "transfer-bench: the target has other bytes"));
}

Result<Row> measure(Bench& bench, uint64_t size) {
  const Plan& plan = bench.plan;
  Row row{.size = size,
          .batch = std::max<uint64_t>(1, std::min(plan.batch, bench.bytes / size / plan.depth)),
          .prepare = {},
          .post = {},
          .moved = {},
          .latency = {}};
  const uint64_t divisor = size > kLargeBytes ? kLargeDivisor : 1;
  const uint64_t count = std::max<uint64_t>(1, plan.iterations / divisor);
  if (plan.op == Op::kRead && bench.remote_type != MemType::kDram) {
    Rounds writes(bench, Op::kWrite);  // to be read
    STATOR_CHECK(writes.open(size, row.batch));
    STATOR_CHECK(writes.run(plan.depth, nullptr));
    writes.close();
  }
  Rounds rounds(bench, plan.op);
  STATOR_CHECK(rounds.open(size, row.batch));
  // Each place once at least: memory is not there before it is touched.
  STATOR_CHECK(rounds.run(std::max<uint64_t>(plan.depth, plan.warm_up / divisor), nullptr));
  STATOR_CHECK(rounds.run(count, &row));
  rounds.close();
  const uint64_t links = plan.scheme == "tp" ? 1 : bench.links.size();
  row.gb_per_second = static_cast<double>(size * row.batch * count * links) / row.seconds / 1e9;
  if (plan.check && plan.op == Op::kWrite && plan.scheme != "tp") {
    STATOR_CHECK(check_bytes(bench, size));
  }
  return row;
}

json::Value as_json(const Row& row) {
  json::Value out = json::Value::object();
  out["block_size"] = row.size;
  out["batch_size"] = row.batch;
  out["gb_per_s"] = row.gb_per_second;
  out["avg_latency_us"] = average(row.latency);
  out["avg_prep_us"] = average(row.prepare);
  out["p99_prep_us"] = p99(row.prepare);
  out["avg_post_us"] = average(row.post);
  out["p99_post_us"] = p99(row.post);
  out["avg_xfer_us"] = average(row.moved);
  out["p99_xfer_us"] = p99(row.moved);
  return out;
}

Status read_number(const Invocation& invocation, std::string_view flag, uint64_t& out) {
  const std::string text = option_of(invocation, flag, "");
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
  plan.backend = option_of(invocation, "--backend", plan.backend);
  const std::vector<std::string> types = Agent::backend_types();
  if (std::ranges::find(types, plan.backend) == types.end() || plan.backend == "cuda") {
    return Error(Code::kInvalidArgument,
                 fmt::format("--backend {}: it is shm, cma, tcp, ucx, posix, obj, or a plug-in of "
                             "STATOR_TRANSFER_PLUGIN_DIR",
                             plan.backend));
  }
  const std::string op = option_of(invocation, "--op", "write");
  if (op != "read" && op != "write" && op != "READ" && op != "WRITE") {
    return Error(Code::kInvalidArgument, "--op: read or write");
  }
  plan.op = op == "read" || op == "READ" ? Op::kRead : Op::kWrite;
  plan.scheme = option_of(invocation, "--scheme", plan.scheme);
  std::erase(plan.scheme, '-');
  constexpr std::array<std::string_view, 4> kSchemes = {"pairwise", "manytoone", "onetomany", "tp"};
  if (std::ranges::find(kSchemes, plan.scheme) == kSchemes.end()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("--scheme {}: it is pairwise, manytoone, onetomany or tp", plan.scheme));
  }
  uint64_t agents = plan.scheme == "pairwise" ? 1 : 2;
  STATOR_CHECK(read_number(invocation, "--agents", agents));
  if (agents > kAgentsMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--agents {}: at most {}", agents, kAgentsMax));
  }
  plan.agents = static_cast<uint32_t>(agents);
  plan.processes = invocation.options.contains("--processes");
  plan.folder = option_of(invocation, "--dir", plan.folder);
  plan.check = invocation.options.contains("--check");
  plan.direct = invocation.options.contains("--direct");
  STATOR_CHECK(read_number(invocation, "--min-size", plan.size_min));
  STATOR_CHECK(read_number(invocation, "--max-size", plan.size_max));
  STATOR_CHECK(read_number(invocation, "--batch", plan.batch));
  STATOR_CHECK(read_number(invocation, "--iterations", plan.iterations));
  STATOR_CHECK(read_number(invocation, "--warm-up", plan.warm_up));
  STATOR_CHECK(read_number(invocation, "--depth", plan.depth));
  STATOR_CHECK(read_number(invocation, "--threads", plan.threads));
  if (plan.depth > kDepthMax || plan.threads > kAgentsMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--depth: at most {}; --threads: at most {}", kDepthMax, kAgentsMax));
  }
  plan.random = invocation.options.contains("--random");
  plan.mode = option_of(invocation, "--mode", plan.mode);
  constexpr std::array<std::string_view, 4> kModes = {"recreate", "prepared", "repost",
                                                      "reregister"};
  if (std::ranges::find(kModes, plan.mode) == kModes.end()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("--mode {}: it is recreate, prepared, repost or reregister", plan.mode));
  }
  const std::string params = option_of(invocation, "--params", "");
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
  Bench bench(plan, clock);
  STATOR_CHECK(bench.open());
  if (bench.elsewhere.inside()) {
    return {};
  }
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
        row.size, row.batch, row.gb_per_second, average(row.latency), average(row.prepare),
        p99(row.prepare), average(row.post), p99(row.post), average(row.moved), p99(row.moved)));
  }
  if (json) {
    json::Value out = json::Value::object();
    out["backend"] = plan.backend;
    out["op"] = plan.op == Op::kRead ? "READ" : "WRITE";
    out["scheme"] = plan.scheme;
    out["links"] = bench.links.size();
    out["processes"] = plan.processes ? 2 : 1;
    out["rows"] = std::move(rows);
    print(json::to_text(out) + "\n");
  }
  if (plan.backend == "posix") {
    std::error_code ignored;
    for (const auto& node : bench.initiators) {
      std::filesystem::remove(
          fmt::format("{}/stator-transfer-bench-{}.data", plan.folder, node->agent.name()),
          ignored);
    }
  }
  return {};
}

}  // namespace stator::cli
