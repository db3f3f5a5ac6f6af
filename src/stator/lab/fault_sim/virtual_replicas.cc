// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_replicas.h"

#include <algorithm>
#include <utility>

#include "stator/proto/router/v1/replica.pb.h"
#include "stator/router/replicas/replica_wire.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLook = 100ms;
constexpr Duration kHold = 250ms;          // of a question without news
constexpr Duration kCallDeadline = 750ms;  // of an answer
constexpr Duration kRetryInterval = 1s;    // after a call that failed
constexpr Duration kLatencyMin = 100us;
constexpr Duration kLatencyMore = 400us;

std::string encode(const router::ReplicaUpdate& update) {
  router::v1::PullResponse message;
  router::encode(update, message);
  return message.SerializeAsString();
}

void add(router::ReplicaView::Counts& sum, const router::ReplicaView::Counts& more) {
  sum.events += more.events;
  sum.stale += more.stale;
  sum.gaps += more.gaps;
  sum.snapshots += more.snapshots;
  sum.divergences += more.divergences;
  sum.expired += more.expired;
}

}  // namespace

VirtualReplicaHub* VirtualReplicas::reach(NodeId from, uint64_t router) const {
  const auto known = listed_.find(router);
  const bool there = known != listed_.end() && known->second.hub != nullptr &&
                     network_.reachable(from, known->second.node);
  return there ? known->second.hub : nullptr;
}

std::vector<Duration> VirtualReplicas::draw_arrivals() {
  const auto below = [this](Duration limit) {
    return Duration(random_.below(static_cast<uint64_t>(limit.count())));
  };
  if (random_.uniform() < faults_.drop) {
    return {};
  }
  std::vector<Duration> arrivals = {kLatencyMin + below(kLatencyMore)};
  if (random_.uniform() < faults_.late) {
    arrivals.front() += below(kLate);
  }
  if (random_.uniform() < faults_.duplicate) {
    arrivals.push_back(arrivals.front() + below(kLate));
  }
  return arrivals;
}

class VirtualReplicaHub::Announcer final : public router::LoadAnnouncer {
 public:
  Announcer(std::shared_ptr<Own> own, net::VirtualTime& time, std::string model)
      : own_(std::move(own)), time_(time), model_(std::move(model)) {}

  uint64_t booked(const router::Booking& booking) override {
    const uint64_t number =
        own_->log.add({.model = model_,
                       .worker = booking.worker,
                       .prompt_tokens = booking.prompt_tokens,
                       .prefill_tokens = booking.prefill_tokens,
                       .block_size = booking.block_size,
                       .expected_output_tokens = booking.expected_output_tokens,
                       .sequences = {booking.prompt.begin(), booking.prompt.end()}});
    tell();
    return number;
  }
  void prefill_completed(uint64_t number) override {
    own_->log.mark_prefill_completed(number);
    tell();
  }
  void freed(uint64_t number) override {
    own_->log.free(number);
    tell();
  }

 private:
  void tell() {
    if (!own_->held.empty()) {
      time_.after(Duration::zero(), [own = own_, &time = time_] { answer_held(*own, time.now()); });
    }
  }

  const std::shared_ptr<Own> own_;  // shared with the hub
  net::VirtualTime& time_;
  const std::string model_;
};

VirtualReplicaHub::VirtualReplicaHub(VirtualReplicas& replicas, NodeId node,
                                     const router::ReplicaConfig& config)
    : replicas_(replicas),
      node_(node),
      config_(config),
      id_(++replicas.last_id_),
      own_(std::make_shared<Own>(id_)) {}

VirtualReplicaHub::~VirtualReplicaHub() {
  stop();
}

std::shared_ptr<router::LoadAnnouncer> VirtualReplicaHub::announcer(const std::string& model) {
  return std::make_shared<Announcer>(own_, replicas_.time_, model);
}

void VirtualReplicaHub::start(router::ReplicaView::Book book,
                              std::function<void(bool stale)> on_stale) {
  book_ = std::move(book);
  on_stale_ = std::move(on_stale);
  alive_ = std::make_shared<const bool>(true);
  replicas_.listed_[id_] = {.node = node_, .hub = this};
  look();
}

void VirtualReplicaHub::stop() {
  if (std::exchange(alive_, nullptr) == nullptr) {
    return;
  }
  VirtualReplicas::Listed& own = replicas_.listed_.at(id_);
  own.hub = nullptr;
  own.until = replicas_.time_.now() + VirtualReplicas::kListed;
  peers_.clear();
  own_->held.clear();
}

size_t VirtualReplicaHub::bookings() const {
  size_t sum = 0;
  for (const auto& [id, peer] : peers_) {
    sum += peer.view.size();
  }
  return sum;
}

bool VirtualReplicaHub::agrees() const {
  for (const auto& [id, listed] : replicas_.listed_) {
    if (id == id_ || listed.hub == nullptr) {
      continue;
    }
    const auto known = peers_.find(id);
    if (known == peers_.end() ||
        known->second.view.next_request() != listed.hub->own_->log.sequence() ||
        known->second.view.size() != listed.hub->own_->log.digest().count) {
      return false;
    }
  }
  return std::ranges::all_of(peers_, [](const auto& entry) { return entry.second.listed; });
}

router::ReplicaView::Counts VirtualReplicaHub::counts() const {
  router::ReplicaView::Counts sum = gone_;
  for (const auto& [id, peer] : peers_) {
    add(sum, peer.view.counts());
  }
  return sum;
}

void VirtualReplicaHub::find_peers() {
  const TimePoint now = replicas_.time_.now();
  for (auto& [id, peer] : peers_) {
    peer.listed = false;
  }
  for (const auto& [id, listed] : replicas_.listed_) {
    if (id != id_ && now < listed.until) {
      peers_.try_emplace(id, book_, config_.expiry).first->second.listed = true;
    }
  }
  on_stale_(!peers_.empty());
}

void VirtualReplicaHub::look() {
  const TimePoint now = replicas_.time_.now();
  find_peers();
  for (auto& [id, peer] : peers_) {
    if (!peer.waits && peer.listed && now >= peer.next_call) {
      ask(id, peer);
    }
    peer.view.place_waiting();
    peer.view.expire(now);
  }
  std::erase_if(peers_, [this](const auto& entry) {
    const Peer& peer = entry.second;
    const bool over = !peer.listed && !peer.waits && peer.view.size() == 0;
    if (over) {
      add(gone_, peer.view.counts());
    }
    return over;
  });
  answer_held(*own_, now);
  replicas_.time_.after(kLook, [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      look();
    }
  });
}

void VirtualReplicaHub::ask(uint64_t id, Peer& peer) {
  const uint64_t question = ++peer.question;
  peer.waits = true;
  const std::weak_ptr alive = alive_;
  const auto answered = [this, &replicas = replicas_, id, question, alive](std::string answer) {
    for (const Duration arrival : replicas.draw_arrivals()) {
      replicas.time_.after(arrival, [this, id, question, answer, alive] {
        if (!alive.expired() && replicas_.reach(node_, id) != nullptr) {
          take_answer(id, question, answer);
        }
      });
    }
  };
  for (const Duration arrival : replicas_.draw_arrivals()) {
    replicas_.time_.after(arrival, [this, id, from = peer.view.next_request(), alive, answered] {
      VirtualReplicaHub* const other = alive.expired() ? nullptr : replicas_.reach(node_, id);
      if (other != nullptr) {
        other->on_question(from, answered);
      }
    });
  }
  replicas_.time_.after(kCallDeadline, [this, id, question, alive] {
    if (!alive.expired()) {
      miss_answer(id, question);
    }
  });
}

void VirtualReplicaHub::on_question(uint64_t from_sequence,
                                    std::function<void(std::string answer)> answer) {
  const TimePoint until = replicas_.time_.now() + kHold;
  own_->held.push_back({from_sequence, until, std::move(answer)});
  answer_held(*own_, replicas_.time_.now());
}

/// Those for whom there is news, or who have waited long enough.
void VirtualReplicaHub::answer_held(Own& own, TimePoint now) {
  std::vector<Held> due;
  std::erase_if(own.held, [&](Held& held) {
    const bool over = now >= held.until || own.log.sequence() != held.from_sequence;
    if (over) {
      due.push_back(std::move(held));
    }
    return over;
  });
  for (const Held& held : due) {
    held.answer(encode(own.log.read(held.from_sequence)));
  }
}

/// Also one that is late or comes again: views must bear it.
void VirtualReplicaHub::take_answer(uint64_t id, uint64_t question, const std::string& answer) {
  router::v1::PullResponse message;
  const auto known = peers_.find(id);
  if (known == peers_.end() || !message.ParseFromString(answer)) {
    return;
  }
  const auto update = router::decode(message);
  if (!update) {
    return;
  }
  Peer& peer = known->second;
  const TimePoint now = replicas_.time_.now();
  peer.view.take(*update, now);
  if (question != peer.question || !peer.waits) {
    return;
  }
  peer.waits = false;
  const bool has_more = peer.view.next_request() != update->sequence;
  peer.next_call = has_more ? now : now + config_.interval;
  replicas_.time_.after(peer.next_call - now, [this, id, weak = std::weak_ptr(alive_)] {
    const auto asked = weak.expired() ? peers_.end() : peers_.find(id);
    if (!weak.expired() && asked != peers_.end() && !asked->second.waits && asked->second.listed &&
        replicas_.time_.now() >= asked->second.next_call) {
      ask(id, asked->second);
    }
  });
}

void VirtualReplicaHub::miss_answer(uint64_t id, uint64_t question) {
  const auto known = peers_.find(id);
  if (known != peers_.end() && known->second.waits && known->second.question == question) {
    known->second.waits = false;
    known->second.next_call = replicas_.time_.now() + kRetryInterval;
  }
}

}  // namespace stator::fault_sim
