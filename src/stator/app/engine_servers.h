// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/invocation.h"
#include "stator/app/settings.h"
#include "stator/app/signals.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/adapters/adapter_service.h"
#include "stator/engine/adapters/supervisor.h"
#include "stator/frontend/model_assets.h"
#include "stator/inference/media.h"
#include "stator/kv_events/engine_event_feed.h"
#include "stator/kv_events/zmq_sources.h"

namespace stator::app {

/// The servers of engine.url, without slashes at their ends.
std::vector<std::string> engine_urls(const EngineServerSettings& server);

/// Whether `--engine` names a server that somebody else runs, rather than an engine of this binary.
bool is_engine_server(const std::string& engine);

/// Starts the server that --launch asks for; null without it. kInvalidArgument for an engine that
/// is none, for several URLs, or without a command.
Result<std::unique_ptr<engine::adapters::Supervisor>> launch_server(const Invocation& invocation,
                                                                    Clock& clock, Metrics& metrics);

/// "image,audio" or "none"; nothing for a name that is no kind of media.
std::optional<inference::MediaKinds> read_media_kinds(std::string_view list);

/// What an engine server does with KV blocks, followed into its adapter's event log. Destroy it
/// before the engine.
struct EngineEvents {
  std::unique_ptr<kv_events::EngineEventFeed> feed;                    // null: it publishes none
  std::vector<std::unique_ptr<kv_events::EngineBatchListener>> ranks;  // call the feed
  std::vector<std::unique_ptr<kv_events::ZmqSources::Subscription>>
      subscriptions;  // call the ranks
};

/// The engine servers of this process: waited for, asked what they are, and made into engines.
///
///   STATOR_TRY(auto servers, EngineServers::connect(settings, signals, clock, metrics));
///   STATOR_TRY(auto engine, servers->make_engine(0, tokenizer, vocab_size));
class EngineServers {
 public:
  /// Waits until every server of engine.url answers, at most engine.ready_timeout or until a signal
  /// (kCancelled). Errors name the URL or the setting.
  static Result<std::unique_ptr<EngineServers>> connect(const Settings& settings, Signals& signals,
                                                        Clock& clock, Metrics& metrics);

  size_t count() const { return servers_.size(); }
  /// For people: without a password.
  std::string shown_url(size_t index) const;
  /// The model folder or hub name that the first server says it loaded; empty if it does not.
  const std::string& model_root() const { return servers_.front().facts.model_root; }
  const std::string& model_name() const { return servers_.front().facts.model; }

  /// `assets` outlive the engine; their context length is taken where neither the server nor the
  /// settings say one. Not started.
  Result<std::unique_ptr<engine::adapters::AdapterEngine>> make_engine(
      size_t index, const frontend::ModelAssets& assets, uint32_t vocab_size);
  /// Follows the events of the server that `engine` was made of. Nothing when it has none; a line
  /// of log says so.
  Result<EngineEvents> follow_events(size_t index, engine::adapters::AdapterEngine& engine);

 private:
  struct Server {
    std::string url;
    std::string host;
    engine::adapters::EngineFacts facts;
  };
  EngineServers(const Settings& settings, Clock& clock, Metrics& metrics)
      : settings_(settings), clock_(clock), metrics_(metrics) {}
  engine::adapters::AdapterConfig config_of(size_t index) const;
  Result<engine::adapters::EngineFacts> wait_for(size_t index, Signals& signals) const;
  /// Where the server publishes, by the settings or by its own word.
  std::vector<engine::adapters::KvEventSource> sources_of(size_t index) const;

  const Settings& settings_;
  Clock& clock_;
  Metrics& metrics_;
  std::vector<Server> servers_;
  std::unique_ptr<kv_events::ZmqSources> zmq_;  // started with the first subscription
};

}  // namespace stator::app
