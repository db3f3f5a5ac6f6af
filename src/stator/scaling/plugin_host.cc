// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/plugin_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <set>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/shard.h"
#include "stator/scaling/plugin_wire.h"

namespace stator::scaling {
namespace {

using planner::Opinion;
using planner::Stage;

constexpr Duration kCallMax = std::chrono::seconds(5);
constexpr uint32_t kFailuresMax = 5;
constexpr double kOpen_s = 30;
constexpr size_t kAnswerBytesMax = size_t{1} << 20;

struct Plugin {
  explicit Plugin(PluginConfig of) : config(std::move(of)), turn(config.interval_s) {}
  const PluginConfig config;
  PluginTurn turn;
  std::optional<Prediction> prediction;  // the last answers, while they are held
  std::optional<Opinion> opinion;
  Counter calls, failures;
  Gauge circuit;
  std::unique_ptr<net::GrpcChannel> channel;  // on the loop
};

/// P1  Channels and calls live on the loop; the planner's thread waits for answers under the mutex.
class Host final : public PluginHost {
 public:
  Host(Clock& clock, Metrics& metrics) : clock_(clock), shards_(1, clock, metrics) {}
  ~Host() override {
    const bool closed = shards_.shard(0).run_and_wait([this] {
      calls_.clear();
      for (const auto& plugin : plugins_) {
        plugin->channel.reset();
      }
    });
    if (!closed) {
      log::warn("planner", "plugins: too busy to close connections in order");
    }
    shards_.stop();
  }

  void add(PluginConfig config, Metrics& metrics) {
    auto plugin = std::make_unique<Plugin>(std::move(config));
    const MetricLabels labels = {{"plugin", plugin->config.id}};
    plugin->calls =
        metrics.counter("stator_planner_plugin_calls_total", "calls of plugins", labels);
    plugin->failures = metrics.counter("stator_planner_plugin_failures_total",
                                       "calls of plugins without a usable answer", labels);
    plugin->circuit = metrics.gauge("stator_planner_plugin_circuit",
                                    "0: called, 1: left alone, 2: tried once", labels);
    plugins_.push_back(std::move(plugin));
  }

  void start() {
    std::ranges::sort(plugins_, {}, [](const auto& plugin) {
      return std::pair(plugin->config.priority, plugin->config.id);
    });
    shards_.start();
    const bool opened = shards_.shard(0).run_and_wait([this] {
      for (const auto& plugin : plugins_) {
        plugin->channel = net::GrpcChannel::open(
            {.address = plugin->config.address, .message_bytes_max = kAnswerBytesMax},
            shards_.shard(0));
      }
    });
    if (!opened) {
      log::warn("planner", "plugins: their connections could not be opened");
    }
  }

  planner::Forecast predict(const PluginContext& context) override {
    planner::Forecast out;
    const double now_s = seconds();
    for (const auto& plugin : plugins_) {
      if (plugin->config.stage != Stage::kPredict) {
        continue;
      }
      if (ready(*plugin, context, now_s)) {
        const auto answers = call(
            {plugin.get()}, encode_stage_request(context, Stage::kPredict, {}), Stage::kPredict);
        plugin->prediction = answers[0] ? decode_prediction(*answers[0]) : std::nullopt;
        settle(*plugin, plugin->prediction.has_value(), now_s);
      } else if (!plugin->config.holds_last) {
        plugin->prediction.reset();
      }
      if (plugin->prediction) {
        fill(out, plugin->prediction->forecast);
        if (plugin->prediction->final) {
          break;
        }
      }
    }
    return out;
  }

  std::vector<Opinion> opinions(const PluginContext& context) override {
    std::vector<Opinion> out;
    for (const Stage stage : {Stage::kPropose, Stage::kReconcile, Stage::kConstrain}) {
      ask(stage, context, out);
    }
    return out;
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(clock_.now().time_since_epoch()).count();
  }

  static bool has(const PluginContext& context, std::string_view field) {
    const planner::Forecast& f = context.forecast;
    if (field == "predictions") {
      return f.requests || f.input_tokens || f.output_tokens;
    }
    return field == "observations.traffic" ? context.inputs.traffic.has_value()
           : field == "proposal"           ? context.proposal != nullptr
                                           : true;
  }

  bool ready(Plugin& plugin, const PluginContext& context, double now_s) const {
    return std::ranges::all_of(plugin.config.requires_fields,
                               [&](const std::string& field) { return has(context, field); }) &&
           plugin.turn.due(now_s);
  }

  static void settle(Plugin& plugin, bool answered, double now_s) {
    plugin.calls.add();
    if (answered) {
      plugin.turn.succeed(now_s);
    } else {
      plugin.failures.add();
      plugin.turn.fail(now_s);
    }
    plugin.circuit.set(static_cast<double>(plugin.turn.circuit()));
  }

  void ask(Stage stage, const PluginContext& context, std::vector<Opinion>& out) {
    const double now_s = seconds();
    std::vector<Plugin*> called;
    for (const auto& plugin : plugins_) {
      if (plugin->config.stage != stage) {
        continue;
      }
      if (ready(*plugin, context, now_s)) {
        called.push_back(plugin.get());
      } else if (!plugin->config.holds_last) {
        plugin->opinion.reset();
      }
    }
    if (!called.empty()) {
      const std::vector<Opinion> proposals =
          stage == Stage::kReconcile ? out : std::vector<Opinion>();
      const auto answers = call(called, encode_stage_request(context, stage, proposals), stage);
      for (size_t i = 0; i < called.size(); ++i) {
        called[i]->opinion = answers[i] ? decode_opinion(*answers[i]) : std::nullopt;
        settle(*called[i], called[i]->opinion.has_value(), now_s);
      }
    }
    for (const auto& plugin : plugins_) {
      if (plugin->config.stage == stage && plugin->opinion) {
        out.push_back(*plugin->opinion);
        out.back().plugin = plugin->config.id;
        out.back().stage = stage;
        out.back().priority = plugin->config.priority;
      }
    }
  }

  /// All at once; an answer is absent where the call failed.
  std::vector<std::optional<std::string>> call(const std::vector<Plugin*>& plugins,
                                               const std::string& request, Stage stage) {
    std::vector<std::optional<std::string>> answers(plugins.size());
    size_t waiting = plugins.size();
    const bool posted = shards_.shard(0).run_and_wait([&] {
      calls_.clear();  // of the last round: all have ended
      for (size_t i = 0; i < plugins.size(); ++i) {
        const std::string id = plugins[i]->config.id;
        calls_.push_back(std::make_unique<net::GrpcUnaryCall>(
            *plugins[i]->channel,
            net::GrpcChannelCall{.path = method_of(stage), .deadline = kCallMax}, request,
            [this, &answers, &waiting, i, id](const net::GrpcOutcome& outcome,
                                              std::string_view answer) {
              if (!outcome.ok()) {
                log::warn("planner", "a plugin gave no answer",
                          {{"plugin", id}, {"why", outcome.message}});
              }
              const MutexLock lock(mutex_);
              if (outcome.ok()) {
                answers[i] = std::string(answer);
              }
              --waiting;
              answered_.notify_all();
            }));
      }
    });
    if (posted) {
      MutexLock lock(mutex_);
      while (waiting > 0) {  // each call has a deadline
        answered_.wait(lock);
      }
    }
    return answers;
  }

  Clock& clock_;
  std::vector<std::unique_ptr<Plugin>> plugins_;  // by priority
  net::ShardSet shards_;
  std::vector<std::unique_ptr<net::GrpcUnaryCall>> calls_;  // on the loop
  Mutex mutex_;
  std::condition_variable_any answered_;
};

}  // namespace

bool PluginTurn::due(double now_s) {
  if (circuit_ == Circuit::kOpen) {
    if (now_s - opened_s_ < kOpen_s) {
      return false;
    }
    circuit_ = Circuit::kHalfOpen;
  }
  if (now_s - called_s_ < interval_s_) {
    return false;
  }
  called_s_ = now_s;
  return true;
}

void PluginTurn::succeed(double /*now_s*/) {
  failures_ = 0;
  circuit_ = Circuit::kClosed;
}

void PluginTurn::fail(double now_s) {
  if (++failures_ >= kFailuresMax || circuit_ == Circuit::kHalfOpen) {
    circuit_ = Circuit::kOpen;
    opened_s_ = now_s;
  }
}

Result<std::unique_ptr<PluginHost>> PluginHost::open(std::vector<PluginConfig> plugins,
                                                     Clock& clock, Metrics& metrics) {
  std::set<std::string> names;
  if (plugins.size() > kPluginsMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} plugins are more than the {} that a planner asks", plugins.size(),
                             kPluginsMax));
  }
  auto host = std::make_unique<Host>(clock, metrics);
  for (PluginConfig& plugin : plugins) {
    if (!names.insert(plugin.id).second) {
      return Error(Code::kInvalidArgument, fmt::format("two plugins are named '{}'", plugin.id));
    }
    host->add(std::move(plugin), metrics);
  }
  host->start();
  return host;
}

}  // namespace stator::scaling
