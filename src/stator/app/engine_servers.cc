// SPDX-License-Identifier: Apache-2.0
#include "stator/app/engine_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "stator/core/credentials.h"
#include "stator/core/log.h"
#include "stator/engine/adapters/check_tokenizer.h"
#include "stator/engine/adapters/event_sources.h"
#include "stator/engine/adapters/handoff.h"

namespace stator::app {
namespace {

using namespace std::chrono_literals;
using engine::adapters::AdapterConfig;
using engine::adapters::AdapterEngine;
using engine::adapters::EngineFacts;
using engine::adapters::KvEventSource;

constexpr std::string_view kLogTarget = "engine::server";
constexpr std::array<std::string_view, 5> kKinds = {"vllm", "sglang", "trtllm", "llamacpp",
                                                    "openai"};
constexpr Duration kAskInterval = 250ms;
constexpr Duration kTellInterval = 10s;

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    const size_t first = item.find_first_not_of(' ');
    item = first == std::string_view::npos
               ? std::string_view()
               : item.substr(first, item.find_last_not_of(' ') - first + 1);
    if (!item.empty()) {
      out.emplace_back(item);
    }
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

/// Item `index` of a list that has one for each server, or one for all.
std::string item_of(const std::vector<std::string>& list, size_t index) {
  return list.empty() ? std::string() : list[list.size() == 1 ? 0 : index];
}

Status check_list(const std::vector<std::string>& list, size_t urls, std::string_view key) {
  if (list.size() > 1 && list.size() != urls) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} has {} entries for {} engine URLs: give one for each, or one", key,
                             list.size(), urls));
  }
  return {};
}

/// What one rank's publisher says, as of that rank.
class RankListener final : public kv_events::EngineBatchListener {
 public:
  RankListener(kv_events::EngineEventFeed& feed, uint32_t rank) : feed_(feed), rank_(rank) {}
  void on_batch(uint32_t /*rank*/, std::string_view payload) override {
    feed_.on_batch(rank_, payload);
  }
  void on_reset(uint32_t /*rank*/) override { feed_.on_reset(rank_); }

 private:
  kv_events::EngineEventFeed& feed_;
  const uint32_t rank_;
};

}  // namespace

std::vector<std::string> engine_urls(const EngineServerSettings& server) {
  std::vector<std::string> urls = split_list(server.url);
  for (std::string& url : urls) {
    while (url.ends_with('/')) {
      url.pop_back();
    }
  }
  return urls;
}

bool is_engine_server(const std::string& engine) {
  return std::ranges::find(kKinds, engine) != kKinds.end();
}

Result<std::unique_ptr<engine::adapters::Supervisor>> launch_server(const Invocation& invocation,
                                                                    Clock& clock,
                                                                    Metrics& metrics) {
  const WorkerSettings& worker = invocation.settings.worker;
  const bool wanted = invocation.options.contains("--launch");
  if (!wanted && invocation.rest.empty()) {
    return std::unique_ptr<engine::adapters::Supervisor>();
  }
  if (!wanted || invocation.rest.empty()) {
    return Error(
        Code::kInvalidArgument,
        "--launch and the engine's command behind -- go together: --launch -- vllm serve …");
  }
  if (!is_engine_server(worker.engine)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("--launch: engine '{}' is part of this program, not a server", worker.engine));
  }
  if (split_list(worker.server.url).size() != 1) {
    return Error(Code::kInvalidArgument,
                 "--launch starts one server: --url must name it, and only it");
  }
  return engine::adapters::Supervisor::start(
      {.command = invocation.rest, .stop_timeout = worker.server.stop_timeout}, clock, metrics);
}

namespace {

/// worker.media; `of_model`: what its folder has parts for.
Result<inference::MediaKinds> media_of(const std::string& setting, const EngineFacts& facts,
                                       inference::MediaKinds of_model) {
  if (setting == "auto") {
    return facts.media.value_or(of_model);
  }
  const auto kinds = read_media_kinds(setting);
  return kinds ? Result<inference::MediaKinds>(*kinds)
               : Error(Code::kInvalidArgument,
                       fmt::format("worker.media is '{}': give auto, none, or a list of image, "
                                   "audio and video",
                                   setting));
}

}  // namespace

std::optional<inference::MediaKinds> read_media_kinds(std::string_view list) {
  inference::MediaKinds kinds;
  for (const std::string& name : split_list(list)) {
    const auto kind = inference::find_media_kind(name);
    if (kind) {
      kinds.add(*kind);
    } else if (name != "none") {
      return std::nullopt;
    }
  }
  return kinds;
}

AdapterConfig EngineServers::config_of(size_t index) const {
  const EngineServerSettings& server = settings_.worker.server;
  return {.kind = settings_.worker.engine,
          .url = servers_[index].url,
          .api_key = server.api_key,
          .upstream_model = server.upstream_model,
          .name = fmt::format("{}{}", settings_.worker.engine, index),
          .block_size = settings_.worker.engine_config.block_size,
          .max_model_len = settings_.worker.engine_config.max_model_len,
          .inflight_max = settings_.worker.engine_config.waiting_max,
          .connect_timeout = server.connect_timeout,
          .stall_timeout = server.stall_timeout,
          .poll_interval = server.poll_interval,
          .silence_timeout = server.silence_timeout,
          .vllm_generate = server.vllm_route == "generate",
          .task = settings_.worker.task,
          .handoff_lease = server.handoff_lease,
          .lora_folder = settings_.worker.cpu.lora_folder,
          .loras_max = settings_.worker.cpu.max_loras};
}

std::string EngineServers::shown_url(size_t index) const {
  return hide_credentials(servers_[index].url);
}

Result<EngineFacts> EngineServers::wait_for(size_t index, Signals& signals) const {
  const AdapterConfig config = config_of(index);
  STATOR_TRY(const auto dialect,
             engine::adapters::make_dialect(config.kind, {.host = servers_[index].host}));
  const TimePoint begin = clock_.now();
  TimePoint tell = begin;
  while (true) {
    auto facts = engine::adapters::ask_engine(config, *dialect);
    const bool later = !facts && (facts.error().code() == Code::kUnavailable ||
                                  facts.error().code() == Code::kDisconnected ||
                                  facts.error().code() == Code::kDeadline);
    if (!later) {
      return facts;
    }
    const TimePoint now = clock_.now();
    if (now - begin >= settings_.worker.server.ready_timeout) {
      return std::move(facts.error())
          .with_context("the engine is not ready after engine.ready_timeout");
    }
    if (now >= tell) {
      log::info(kLogTarget, "waiting for the engine",
                {{"url", config.url}, {"why", facts.error().message()}});
      tell = now + kTellInterval;
    }
    if (signals.wait_for(kAskInterval)) {
      return Error(Code::kCancelled, "stopped while waiting for the engine");
    }
  }
}

Result<std::unique_ptr<EngineServers>> EngineServers::connect(const Settings& settings,
                                                              Signals& signals, Clock& clock,
                                                              Metrics& metrics) {
  auto out = std::unique_ptr<EngineServers>(new EngineServers(settings, clock, metrics));
  const EngineServerSettings& server = settings.worker.server;
  for (std::string& url : engine_urls(server)) {
    STATOR_TRY(std::string host, engine::adapters::host_of(url));
    out->servers_.push_back({.url = std::move(url), .host = std::move(host), .facts = {}});
  }
  if (out->servers_.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("engine '{}' needs engine.url (flag --url): http://HOST:PORT of the "
                             "server, or several",
                             settings.worker.engine));
  }
  STATOR_CHECK(check_list(split_list(server.events), out->servers_.size(), "engine.events"));
  STATOR_CHECK(check_list(split_list(settings.worker.role), out->servers_.size(), "worker.role"));
  STATOR_CHECK(
      check_list(split_list(server.events_replay), out->servers_.size(), "engine.events_replay"));
  for (size_t i = 0; i < out->servers_.size(); ++i) {
    STATOR_TRY(out->servers_[i].facts, out->wait_for(i, signals));
    EngineFacts& facts = out->servers_[i].facts;
    const engine::adapters::HandoffWish wish{.role = item_of(split_list(settings.worker.role), i),
                                             .carrier = server.handoff};
    STATOR_TRY(facts.handoff, engine::adapters::make_ability(settings.worker.engine, wish, facts,
                                                             out->servers_[i].host));
    if (facts.model != out->servers_.front().facts.model) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{} serves '{}', but {} serves '{}': one process has one model "
                               "(engine.upstream_model chooses among a server's)",
                               out->servers_[i].url, facts.model, out->servers_.front().url,
                               out->servers_.front().facts.model));
    }
    log::info(kLogTarget, "found an engine",
              {{"url", out->servers_[i].url},
               {"model", facts.model},
               {"version", facts.version},
               {"max_model_len", facts.max_model_len},
               {"block_size", facts.block_size},
               {"kv_blocks", facts.total_blocks},
               {"role", to_string(facts.handoff.role)},
               {"kv_events", !out->sources_of(i).empty()}});
    if (!facts.keeps_seeds) {
      log::warn(kLogTarget,
                "this engine ignores seeds: start it with --enable-deterministic-inference if "
                "answers with one must repeat",
                {{"url", out->servers_[i].url}});
    }
  }
  return out;
}

Result<std::unique_ptr<AdapterEngine>> EngineServers::make_engine(
    size_t index, const frontend::ModelAssets& assets, uint32_t vocab_size) {
  AdapterConfig config = config_of(index);
  config.vocab_size = vocab_size;
  STATOR_TRY(config.media,
             media_of(settings_.worker.media, servers_[index].facts, assets.media_rules.kinds()));
  if (config.max_model_len == 0) {
    config.max_model_len = assets.architectural_context;
  }
  if (const Status same =
          engine::adapters::check_tokenizer(config, servers_[index].facts, *assets.tokenizer);
      !same) {
    log::error(kLogTarget,
               "MODEL is another model than the engine's: answers will be garbage; give the folder "
               "or hub name that the engine loaded, or leave MODEL out",
               {{"url", config.url},
                {"engine_loaded", servers_[index].facts.model_root},
                {"why", same.error().message()}});
  }
  STATOR_TRY(auto dialect,
             engine::adapters::make_dialect(config.kind, {.tokenizer = assets.tokenizer.get(),
                                                          .vllm_generate = config.vllm_generate,
                                                          .host = servers_[index].host}));
  return engine::adapters::make_adapter(std::move(config), servers_[index].facts,
                                        std::move(dialect), clock_, metrics_);
}

std::vector<KvEventSource> EngineServers::sources_of(size_t index) const {
  const EngineServerSettings& server = settings_.worker.server;
  const std::string endpoint = item_of(split_list(server.events), index);
  if (endpoint == "none") {
    return {};
  }
  if (endpoint.empty() || endpoint == "auto") {
    std::vector<KvEventSource> told = servers_[index].facts.kv_sources;
    if (told.size() == 1 && told[0].replay_endpoint.empty()) {
      told[0].replay_endpoint = item_of(split_list(server.events_replay), index);
    }
    return told;
  }
  const std::string replay = item_of(split_list(server.events_replay), index);
  std::vector<KvEventSource> sources;
  for (uint32_t rank = 0; rank < servers_[index].facts.dp_size; ++rank) {
    sources.push_back({.dp_rank = rank,
                       .endpoint = engine::adapters::endpoint_of_rank(endpoint, rank),
                       .replay_endpoint = replay.empty()
                                              ? replay
                                              : engine::adapters::endpoint_of_rank(replay, rank),
                       .topic = server.events_topic});
  }
  return sources;
}

Result<EngineEvents> EngineServers::follow_events(size_t index, AdapterEngine& engine) {
  EngineEvents out;
  const std::vector<KvEventSource> sources = sources_of(index);
  if (sources.empty()) {
    log::warn(kLogTarget,
              "this engine publishes no KV events: the router guesses what it has cached from what "
              "it was sent (--kv-events-config of the engine, --engine-events here)",
              {{"url", servers_[index].url}});
    return out;
  }
  if (zmq_ == nullptr) {
    STATOR_TRY(zmq_, kv_events::ZmqSources::start(clock_, metrics_));
  }
  out.feed = std::make_unique<kv_events::EngineEventFeed>(
      kv_events::NormalizerConfig{.block_size = engine.info().block_size,
                                  .dp_ranks = engine.info().dp_size},
      engine.events(), clock_, metrics_);
  for (const KvEventSource& source : sources) {
    out.ranks.push_back(std::make_unique<RankListener>(*out.feed, source.dp_rank));
    STATOR_TRY(auto subscription, zmq_->subscribe({.endpoint = source.endpoint,
                                                   .replay_endpoint = source.replay_endpoint,
                                                   .topic = source.topic},
                                                  *out.ranks.back()));
    out.subscriptions.push_back(std::move(subscription));
    log::info(kLogTarget, "following the engine's KV events",
              {{"url", servers_[index].url},
               {"rank", source.dp_rank},
               {"endpoint", source.endpoint},
               {"replay", source.replay_endpoint}});
  }
  return out;
}

}  // namespace stator::app
