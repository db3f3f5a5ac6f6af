// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>

#include "stator/engine/core/forward_pass_log.h"
#include "stator/kv_events/forward_pass_publisher.h"
#include "stator/kv_events/forward_pass_wire.h"
#include "stator/net/thread.h"

namespace stator::kv_events {
namespace {

// How soon it notices that it shall stop.
constexpr Duration kLook = std::chrono::milliseconds(100);

class Service final : public ForwardPassPublisher {
 public:
  Service(NatsConnection& nats, const discovery::InstanceRecord& record,
          engine::ForwardPassLog& passes, const Clock& clock, Metrics& metrics)
      : nats_(nats),
        passes_(passes),
        clock_(clock),
        worker_(record.key.worker),
        incarnation_(record.incarnation),
        subject_(forward_passes_subject(record.key.namespace_name, record.key.component)),
        published_(metrics.counter("stator_forward_passes_published_total",
                                   "forward passes given to the broker")),
        dropped_(
            metrics.counter("stator_forward_passes_dropped_total",
                            "forward passes that were not published: the broker was away or they "
                            "came too fast")) {
    passes_.start();
    thread_ = net::Thread("passes", [this] { run(); });
  }
  ~Service() override {
    stopping_.store(true);
    thread_.join();
  }

 private:
  void run() {
    while (!stopping_.load()) {
      for (const engine::ForwardPass& pass : passes_.take(kLook)) {
        publish(pass);
      }
      dropped_.add(passes_.take_overflow());
    }
  }
  void publish(const engine::ForwardPass& pass) {
    const auto wall = clock_.wall_now().time_since_epoch();
    const Status sent = nats_.publish(
        subject_,
        encode(ForwardPassMessage{
            .worker = worker_,
            .incarnation = incarnation_,
            .sequence = sequence_,
            .published_at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wall).count(),
            .pass = pass}));
    sequence_ += sent ? 1 : 0;
    (sent ? published_ : dropped_).add();
  }

  NatsConnection& nats_;
  engine::ForwardPassLog& passes_;
  const Clock& clock_;
  const WorkerId worker_;
  const Incarnation incarnation_;
  const std::string subject_;
  Counter published_;
  Counter dropped_;
  uint64_t sequence_ = 0;  // of the thread
  std::atomic<bool> stopping_ = false;
  net::Thread thread_;
};

}  // namespace

std::string forward_passes_subject(const std::string& namespace_name,
                                   const std::string& component) {
  return fmt::format("namespace.{}.component.{}.forward-pass-metrics", namespace_name, component);
}

std::unique_ptr<ForwardPassPublisher> ForwardPassPublisher::start(
    NatsConnection& nats, const discovery::InstanceRecord& record, engine::ForwardPassLog& passes,
    const Clock& clock, Metrics& metrics) {
  return std::make_unique<Service>(nats, record, passes, clock, metrics);
}

}  // namespace stator::kv_events
