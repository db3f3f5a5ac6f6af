// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <cstdlib>

#include "stator/core/credentials.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/detail/nats_library.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::kv_events {
namespace {

constexpr std::string_view kLogTarget = "events::nats";
constexpr int64_t kReconnectWaitMs = 200;
constexpr int64_t kReconnectJitterMs = 200;
constexpr int64_t kPingIntervalMs = 2'000;
constexpr int kPingsOutMax = 2;
constexpr int64_t kTimeoutMs = 2'000;
constexpr size_t kPayloadBytesDefault = size_t{1} << 20;

using detail::nats_error;
using detail::nats_view;
using Options = detail::NatsOwned<natsOptions, natsOptions_Destroy>;
using Connection = detail::NatsOwned<natsConnection, natsConnection_Destroy>;

class LiveSubscription final : public NatsConnection::Subscription {
 public:
  explicit LiveSubscription(NatsListener& listener) : listener_(listener) {}
  ~LiveSubscription() override {
    if (subscription_ == nullptr) {
      return;
    }
    // The library may be inside the listener; it says when it never will be again.
    if (natsSubscription_Unsubscribe(subscription_) == NATS_OK) {
      MutexLock lock(mutex_);
      complete_.wait(lock, [this]() STATOR_REQUIRES(mutex_) { return is_complete_; });
    }
    natsSubscription_Destroy(subscription_);
  }
  LiveSubscription(const LiveSubscription&) = delete;
  LiveSubscription& operator=(const LiveSubscription&) = delete;

  natsStatus start(natsConnection* connection, const std::string& subject) {
    const natsStatus status =
        natsConnection_Subscribe(&subscription_, connection, subject.c_str(), on_message, this);
    if (status != NATS_OK) {
      return status;
    }
    natsSubscription_SetOnCompleteCB(subscription_, on_complete, this);
    return natsSubscription_SetPendingLimits(subscription_, NatsConnection::kPendingMessagesMax,
                                             NatsConnection::kPendingBytesMax);
  }

 private:
  static void on_message(natsConnection* /*connection*/, natsSubscription* /*subscription*/,
                         natsMsg* raw, void* self) {
    const detail::NatsMessage message(raw);
    static_cast<LiveSubscription*>(self)->listener_.on_message(nats_view(natsMsg_GetSubject(raw)),
                                                               detail::payload_of(raw),
                                                               nats_view(natsMsg_GetReply(raw)));
  }
  static void on_complete(void* self) {
    auto* subscription = static_cast<LiveSubscription*>(self);
    const MutexLock lock(subscription->mutex_);
    subscription->is_complete_ = true;
    subscription->complete_.notify_all();
  }

  NatsListener& listener_;
  natsSubscription* subscription_ = nullptr;
  Mutex mutex_;
  std::condition_variable_any complete_;
  bool is_complete_ STATOR_GUARDED_BY(mutex_) = false;
};

class Service final : public NatsConnection {
 public:
  Service(std::string url, Metrics& metrics)
      : url_(std::move(url)),
        connections_(metrics.counter("stator_events_nats_connections_total",
                                     "times that a connection to NATS came up")),
        dropped_(metrics.counter("stator_events_nats_dropped_total",
                                 "messages from NATS dropped because a reader was too slow")),
        up_(metrics.gauge("stator_events_nats_up", "1 while connected to NATS")) {}
  ~Service() override {
    if (connection_ != nullptr) {
      closing_ = true;
      natsConnection_Close(connection_.get());
      MutexLock lock(mutex_);
      closed_.wait(lock, [this]() STATOR_REQUIRES(mutex_) { return is_closed_; });
    }
  }

  Status open(const NatsConfig& config);

  bool connected() const override {
    return natsConnection_Status(connection_.get()) == NATS_CONN_STATUS_CONNECTED;
  }
  size_t payload_bytes_max() const override {
    const int64_t told = natsConnection_GetMaxPayload(connection_.get());
    return told > 0 ? static_cast<size_t>(told) : kPayloadBytesDefault;
  }
  Status publish(std::string_view subject, std::string_view payload,
                 std::string_view reply) override;
  Status flush() override {
    const natsStatus status = natsConnection_FlushTimeout(connection_.get(), kTimeoutMs);
    return status == NATS_OK ? Status() : Status(nats_error(status, "flushing"));
  }
  Result<std::unique_ptr<Subscription>> subscribe(const std::string& subject,
                                                  NatsListener& listener) override {
    auto subscription = std::make_unique<LiveSubscription>(listener);
    const natsStatus status = subscription->start(connection_.get(), subject);
    if (status != NATS_OK) {
      return nats_error(status, "subscribing to " + subject);
    }
    return subscription;
  }
  std::string make_inbox() override {
    natsInbox* inbox = nullptr;
    std::string subject = "_INBOX.stator";
    if (natsInbox_Create(&inbox) == NATS_OK) {
      subject = inbox;
      natsInbox_Destroy(inbox);
    }
    return subject;
  }
  void* handle() override { return connection_.get(); }

 private:
  static void on_up(natsConnection* /*connection*/, void* self) {
    auto* service = static_cast<Service*>(self);
    service->connections_.add();
    service->up_.set(1);
    log::info(kLogTarget, "connected", {{"url", service->url_}});
  }
  static void on_down(natsConnection* /*connection*/, void* self) {
    auto* service = static_cast<Service*>(self);
    service->up_.set(0);
    if (!service->closing_) {
      log::warn(kLogTarget, "the server is gone; trying again until it is back",
                {{"url", service->url_}});
    }
  }
  static void on_closed(natsConnection* /*connection*/, void* self) {
    auto* service = static_cast<Service*>(self);
    service->up_.set(0);
    const MutexLock lock(service->mutex_);
    service->is_closed_ = true;
    service->closed_.notify_all();
  }
  static void on_error(natsConnection* /*connection*/, natsSubscription* /*subscription*/,
                       natsStatus status, void* self) {
    if (status == NATS_SLOW_CONSUMER) {
      static_cast<Service*>(self)->dropped_.add();
    } else {
      log::warn(kLogTarget, natsStatus_GetText(status));
    }
  }

  const std::string url_;  // without credentials
  Counter connections_;
  Counter dropped_;
  Gauge up_;
  std::atomic<bool> closing_{false};
  Mutex mutex_;
  std::condition_variable_any closed_;
  bool is_closed_ STATOR_GUARDED_BY(mutex_) = false;
  Connection connection_;
};

Status Service::open(const NatsConfig& config) {
  natsOptions* raw = nullptr;
  if (natsOptions_Create(&raw) != NATS_OK) {
    return Error(Code::kInternal, "NATS: no memory for options");
  }
  const Options options(raw);
  natsStatus status = natsOptions_SetURL(raw, config.url.c_str());
  const auto set = [&status](natsStatus outcome) { status = status == NATS_OK ? outcome : status; };
  set(natsOptions_SetName(raw, config.client_name.c_str()));
  set(natsOptions_SetTimeout(raw, kTimeoutMs));
  set(natsOptions_SetMaxReconnect(raw, -1));
  set(natsOptions_SetReconnectWait(raw, kReconnectWaitMs));
  set(natsOptions_SetReconnectJitter(raw, kReconnectJitterMs, kReconnectJitterMs));
  set(natsOptions_SetPingInterval(raw, kPingIntervalMs));
  set(natsOptions_SetMaxPingsOut(raw, kPingsOutMax));
  set(natsOptions_SetWriteDeadline(raw, kTimeoutMs));
  set(natsOptions_SetRetryOnFailedConnect(raw, true, on_up, this));
  set(natsOptions_SetReconnectedCB(raw, on_up, this));
  set(natsOptions_SetDisconnectedCB(raw, on_down, this));
  set(natsOptions_SetClosedCB(raw, on_closed, this));
  set(natsOptions_SetErrorHandler(raw, on_error, this));
  if (config.url.starts_with("tls://")) {
    set(natsOptions_SetSecure(raw, true));
  }
  natsConnection* connection = nullptr;
  set(status == NATS_OK ? natsConnection_Connect(&connection, raw) : status);
  connection_.reset(connection);
  if (status == NATS_OK) {
    on_up(connection, this);
  } else if (status != NATS_NOT_YET_CONNECTED) {
    return Error(Code::kInvalidArgument,
                 fmt::format("cannot use NATS at '{}': {}; expected nats://host:port", url_,
                             natsStatus_GetText(status)));
  }
  return {};
}

Status Service::publish(std::string_view subject, std::string_view payload,
                        std::string_view reply) {
  if (!connected()) {
    return Error(Code::kUnavailable, "NATS: not connected");
  }
  const std::string to(subject);
  const std::string answer_to(reply);
  const natsStatus status =
      answer_to.empty()
          ? natsConnection_Publish(connection_.get(), to.c_str(), payload.data(),
                                   static_cast<int>(payload.size()))
          : natsConnection_PublishRequest(connection_.get(), to.c_str(), answer_to.c_str(),
                                          payload.data(), static_cast<int>(payload.size()));
  return status == NATS_OK ? Status() : Status(nats_error(status, "publishing to " + to));
}

}  // namespace

Result<std::unique_ptr<NatsConnection>> NatsConnection::open(const NatsConfig& config,
                                                             Metrics& metrics) {
  auto service = std::make_unique<Service>(hide_credentials(config.url), metrics);
  STATOR_CHECK(service->open(config));
  return service;
}

}  // namespace stator::kv_events
