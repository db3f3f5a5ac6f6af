// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/lossy_connection.h"

#include <optional>
#include <string>
#include <utility>

#include "stator/core/mutex.h"
#include "stator/core/random.h"

namespace stator::kv_events {
namespace {

constexpr std::string_view kInboxes = "_INBOX.";

class LossyConnection final : public NatsConnection {
 public:
  LossyConnection(NatsConnection& nats, const LinkFaults& faults, Metrics& metrics)
      : nats_(nats), faults_(faults), random_(faults.seed) {
    const auto count = [&](const char* kind) {
      return metrics.counter("stator_sim_faults_total",
                             "faults that a simulated engine was set to have", {{"kind", kind}});
    };
    lost_ = count("lose_events");
    repeated_ = count("repeat_events");
    reordered_ = count("reorder_events");
  }

  bool connected() const override { return nats_.connected(); }
  size_t payload_bytes_max() const override { return nats_.payload_bytes_max(); }
  Status flush() override { return nats_.flush(); }
  Result<std::unique_ptr<Subscription>> subscribe(const std::string& subject,
                                                  NatsListener& listener) override {
    return nats_.subscribe(subject, listener);
  }
  std::string make_inbox() override { return nats_.make_inbox(); }
  void* handle() override { return nats_.handle(); }

  Status publish(std::string_view subject, std::string_view payload,
                 std::string_view reply) override {
    if (subject.starts_with(kInboxes)) {
      return nats_.publish(subject, payload, reply);
    }
    const MutexLock lock(mutex_);
    const double draw = random_.uniform();
    if (draw < faults_.lost) {
      lost_.add();
      return {};
    }
    const double behind_lost = draw - faults_.lost;
    if (behind_lost < faults_.reordered && !held_) {
      reordered_.add();
      held_ = Message{std::string(subject), std::string(payload), std::string(reply)};
      return {};
    }
    STATOR_CHECK(nats_.publish(subject, payload, reply));
    if (behind_lost >= faults_.reordered && behind_lost < faults_.reordered + faults_.repeated) {
      repeated_.add();
      nats_.publish(subject, payload, reply).ignore("it came once");
    }
    if (const auto late = std::exchange(held_, std::nullopt)) {
      nats_.publish(late->subject, late->payload, late->reply).ignore("then it is lost");
    }
    return {};
  }

 private:
  struct Message {
    std::string subject;
    std::string payload;
    std::string reply;
  };

  NatsConnection& nats_;
  const LinkFaults faults_;
  Counter lost_, repeated_, reordered_;
  Mutex mutex_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  std::optional<Message> held_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<NatsConnection> make_lossy_connection(NatsConnection& nats,
                                                      const LinkFaults& faults, Metrics& metrics) {
  return std::make_unique<LossyConnection>(nats, faults, metrics);
}

}  // namespace stator::kv_events
