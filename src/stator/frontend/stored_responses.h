// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/frontend_config.h"
#include "stator/net/detached_exchange.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/responses/response_store.h"

namespace stator::frontend {

/// Whose responses, files and batches a request may see: its tenant's.
std::string owner_of(const net::HttpRequest& request, const FrontendConfig& config);

/// One shard's part of what outlives a response's request: answers GET, DELETE, cancel and
/// input_items below /v1/responses/, and runs background responses.
///
///   POST, background ─► begin() ─► the client has its answer, or follows as a stream
///                          └► a DetachedExchange, on which the shard runs the request
///
/// T1  Every background response ends in the store: complete, failed or cancelled.
/// T2  A follower looks for new events every kPollInterval, and not while its client is slow.
///
/// Home loop: the shard's. Bounded by frontend.inflight_max of each kind.
class StoredResponses {
 public:
  StoredResponses(net::Shard& shard, responses::ResponseStore& store, const FrontendConfig& config);
  StoredResponses(const StoredResponses&) = delete;
  StoredResponses& operator=(const StoredResponses&) = delete;
  ~StoredResponses();

  /// Answers the exchange, now or later, if its path is one of these and so is its method.
  bool answer(net::HttpExchange& exchange);
  /// Methods of such a path, for the Allow header; empty: there is no such route.
  static std::string_view methods_of(std::string_view path);

  /// Answers the client of a background response, and gives the exchange to run it on.
  net::HttpExchange& begin(net::HttpExchange& client, const AnswerSpec& spec);

  /// Once a second or so.
  void sweep();
  /// Ends followers; what runs was ended by its shard before.
  void stop();
  size_t active() const { return runs_.size() + followers_.size(); }

 private:
  /// A background response under way on this shard.
  struct Run final : net::DetachedExchange::Listener {
    Run(StoredResponses& owner_in, const AnswerSpec& spec);
    void on_answer(int status, std::span<const net::HttpHeader> headers) override;
    void on_bytes(std::string_view bytes) override;
    void on_end(End end) override;
    void settle(api::ResponseStatus status, std::string_view message);

    StoredResponses& owner;
    const api::ResponseFrame frame;
    responses::StoredResponse entry;
    std::shared_ptr<responses::LiveResponse> live;
    net::DetachedExchange exchange;
    int status = 0;
    std::string refusal;
  };
  /// A client that waits for events, or for the end.
  struct Follower final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone) override { owner->drop(this); }
    StoredResponses* owner = nullptr;
    net::HttpExchange* exchange = nullptr;
    std::shared_ptr<const responses::LiveResponse> live;
    bool streams = false;  // else it gets the object at the end
    uint64_t next_event = 0;
    net::Timer timer;
  };

  void retrieve(net::HttpExchange& exchange, std::string_view id);
  void cancel(net::HttpExchange& exchange, std::string_view id);
  void remove(net::HttpExchange& exchange, std::string_view id);
  void list_input(net::HttpExchange& exchange, std::string_view id);
  void refuse(net::HttpExchange& exchange, const api::ApiError& error);
  void not_found(net::HttpExchange& exchange, std::string_view id);
  void stream_stored(net::HttpExchange& exchange, const responses::StoredResponse& response,
                     uint64_t first);
  void follow(net::HttpExchange& exchange, std::shared_ptr<const responses::LiveResponse> live,
              bool streams, uint64_t first);
  void poll(Follower* follower);
  void drop(Follower* follower);
  int64_t now_s() const { return unix_seconds(shard_.clock().wall_now()); }

  net::Shard& shard_;
  responses::ResponseStore& store_;
  const FrontendConfig& config_;
  FlatMap<std::string, std::shared_ptr<Run>> runs_;  // by response; shared with cancel messages
  std::vector<std::shared_ptr<Run>> ended_;          // until the loop is back from them
  FlatMap<Follower*, std::unique_ptr<Follower>> followers_;
};

}  // namespace stator::frontend
