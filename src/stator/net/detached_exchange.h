// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "stator/net/http_server.h"

namespace stator::net {

/// A request that no connection waits for: its answer goes to a listener, and only cancel() ends it
/// early. For work that outlives its client.
///
///   start: handler.on_request(exchange)
///   on_answer(status, type) → on_bytes … → on_end          (Listener)
///
/// On the shard's loop, as every exchange. The listener's on_end() is the last call; the exchange
/// may be destroyed once the loop is back from it, not inside.
class DetachedExchange final : public HttpExchange {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void on_answer(int /*status*/, std::span<const HttpHeader> /*headers*/) {}
    virtual void on_bytes(std::string_view bytes) = 0;
    /// kBroken: abort(), or cancel() before the answer was complete.
    enum class End : uint8_t { kComplete, kBroken };
    virtual void on_end(End end) = 0;
  };

  /// All outlive it.
  DetachedExchange(Shard& shard, HttpRequest request, Listener& listener)
      : shard_(shard), request_(std::move(request)), listener_(listener) {}

  /// As if its client had left. Harmless once it is over.
  void cancel() {
    if (over_) {
      return;
    }
    if (ExchangeObserver* const observer = std::exchange(observer_, nullptr)) {
      observer->on_client_gone(ClientGone::kDisconnected);
    }
    end(Listener::End::kBroken);
  }
  bool over() const { return over_; }

  bool is_internal() const override { return true; }
  HttpRequest& request() override { return request_; }
  Shard& shard() override { return shard_; }
  void set_observer(ExchangeObserver* observer) override { observer_ = observer; }
  void respond(int status, std::string_view /*content_type*/, std::string_view body,
               std::span<const HttpHeader> headers) override {
    begin(status, headers);
    listener_.on_bytes(body);
    end(Listener::End::kComplete);
  }
  void start_stream(int status, std::string_view /*content_type*/,
                    std::span<const HttpHeader> headers) override {
    begin(status, headers);
  }
  void write(std::string_view bytes) override {
    if (!bytes.empty() && !over_) {
      listener_.on_bytes(bytes);
    }
  }
  void finish() override { end(Listener::End::kComplete); }
  void abort() override { end(Listener::End::kBroken); }
  size_t buffered_bytes() const override { return 0; }
  bool above_high_water() const override { return false; }

 private:
  void begin(int status, std::span<const HttpHeader> headers) {
    if (request_.notes() != nullptr) {
      request_.notes()->on_status(status);
    }
    listener_.on_answer(status, headers);
  }
  void end(Listener::End how) {
    if (!std::exchange(over_, true)) {
      observer_ = nullptr;
      request_.set_notes(nullptr);  // they end with the request, not with who waits for this
      listener_.on_end(how);
    }
  }

  Shard& shard_;
  HttpRequest request_;
  Listener& listener_;
  ExchangeObserver* observer_ = nullptr;
  bool over_ = false;
};

}  // namespace stator::net
