// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_network.h"

#include <algorithm>
#include <optional>

#include "stator/core/assert.h"

namespace stator::fault_sim {

/// Side 0 connected, side 1 accepted.
struct VirtualStream::State {
  StreamKind kind = StreamKind::kSession;
  std::array<NodeId, 2> nodes{};
  std::array<StreamEnd*, 2> ends{};         // null: closed, broken, or not accepted yet
  std::array<TimePoint, 2> last_arrival{};  // at this side, for order
  std::array<std::deque<VirtualNetwork::Parcel>, 2> held;  // for this side, behind a blocked link
  std::optional<TimePoint> stalled_since;
  bool accepted = false;
};

VirtualStream::~VirtualStream() {
  network_.close(state_, side_, "closed by the peer");
}

void VirtualStream::send(std::string bytes) {
  network_.send(state_, side_, std::move(bytes));
}

StreamKind VirtualStream::kind() const {
  return state_->kind;
}

NodeId VirtualNetwork::add_node(std::string name) {
  nodes_.push_back(Node{.name = std::move(name), .crashed = nullptr});
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId VirtualNetwork::node(std::string_view name) const {
  const auto found = std::ranges::find(nodes_, name, &Node::name);
  STATOR_ASSERT(found != nodes_.end(), "an address of the simulation names a node");
  return static_cast<NodeId>(found - nodes_.begin());
}

bool VirtualNetwork::passes(NodeId from, NodeId to) const {
  const auto blocked = blocked_.find({from, to});
  return !nodes_[from].frozen && !nodes_[to].frozen &&
         (blocked == blocked_.end() || !blocked->second);
}

const LinkQuality& VirtualNetwork::quality(NodeId from, NodeId to) const {
  const auto own = qualities_.find({from, to});
  return own == qualities_.end() ? quality_ : own->second;
}

std::unique_ptr<VirtualStream> VirtualNetwork::connect(NodeId from, NodeId to, StreamKind kind,
                                                       StreamEnd& end) {
  auto state = std::make_shared<VirtualStream::State>();
  state->kind = kind;
  state->nodes = {from, to};
  state->ends[0] = &end;
  std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
  streams_.push_back(state);
  dispatch(state, 1, {.kind = Kind::kConnect, .bytes = {}}, Duration::zero());
  return std::unique_ptr<VirtualStream>(new VirtualStream(*this, std::move(state), 0));
}

void VirtualNetwork::send(const StreamPtr& stream, int from_side, std::string bytes) {
  const NodeId from = stream->nodes[from_side];
  const NodeId to = stream->nodes[1 - from_side];
  if (stream->ends[from_side] == nullptr || nodes_[from].down) {
    return;
  }
  ++messages_;
  if (count_frame(from)) {
    return;
  }
  const MessageFaults& faults = quality(from, to).faults[static_cast<size_t>(stream->kind)];
  if (random_.uniform() < faults.drop) {
    if (stream->kind == StreamKind::kEvents) {
      reset(stream);
    }
    return;
  }
  if (random_.uniform() < faults.corrupt) {
    bytes.assign(16, '\xFF');  // no message begins like that
  }
  if (random_.uniform() < faults.duplicate) {
    dispatch(stream, 1 - from_side, {.kind = Kind::kMessage, .bytes = bytes}, Duration::zero());
  }
  const bool late = random_.uniform() < faults.reorder;
  const Duration extra = late ? Duration(random_.below(20'000'000)) : Duration::zero();
  dispatch(stream, 1 - from_side, {.kind = Kind::kMessage, .bytes = std::move(bytes)}, extra);
}

/// Both ends hear that it is broken.
void VirtualNetwork::reset(const StreamPtr& stream) {
  for (int side = 0; side < 2; ++side) {
    dispatch(stream, side, {.kind = Kind::kEnd, .bytes = "connection reset"}, Duration::zero());
  }
}

void VirtualNetwork::close(const StreamPtr& stream, int side, std::string reason) {
  if (std::exchange(stream->ends[side], nullptr) != nullptr && !nodes_[stream->nodes[side]].down) {
    dispatch(stream, 1 - side, {.kind = Kind::kEnd, .bytes = std::move(reason)}, Duration::zero());
  }
}

/// With `extra` it gives up its place in the order.
void VirtualNetwork::dispatch(const StreamPtr& stream, int to_side, Parcel parcel, Duration extra) {
  const LinkQuality& link = quality(stream->nodes[1 - to_side], stream->nodes[to_side]);
  const auto jitter = Duration(random_.below(static_cast<uint64_t>(link.jitter.count()) + 1));
  TimePoint when = time_.now() + link.latency + jitter + extra;
  if (extra == Duration::zero()) {
    when = std::max(when, stream->last_arrival[to_side]);
    stream->last_arrival[to_side] = when;
  }
  time_.after(when - time_.now(), [this, stream, to_side, parcel = std::move(parcel)]() mutable {
    arrive(stream, to_side, std::move(parcel));
  });
}

void VirtualNetwork::arrive(const StreamPtr& stream, int to_side, Parcel parcel) {
  const bool open_way = passes(stream->nodes[1 - to_side], stream->nodes[to_side]);
  if (!open_way || !stream->held[to_side].empty()) {
    stream->held[to_side].push_back(std::move(parcel));
    return;
  }
  hand_over(stream, to_side, std::move(parcel));
}

void VirtualNetwork::hand_over(const StreamPtr& stream, int to_side, Parcel parcel) {
  const NodeId to = stream->nodes[to_side];
  if (parcel.kind == Kind::kConnect) {
    accept(stream);
    return;
  }
  if (stream->ends[to_side] == nullptr || nodes_[to].down) {
    return;
  }
  if (parcel.kind == Kind::kEnd) {
    std::exchange(stream->ends[to_side], nullptr)->on_broken(std::move(parcel.bytes));
    return;
  }
  StreamEnd* end = stream->ends[to_side];
  end->on_message(std::move(parcel.bytes));
  (void)count_frame(to);
}

void VirtualNetwork::accept(const StreamPtr& stream) {
  Node& node = nodes_[stream->nodes[1]];
  if (node.down || node.acceptor == nullptr) {
    dispatch(stream, 0, {.kind = Kind::kEnd, .bytes = "connection refused"}, Duration::zero());
    return;
  }
  auto own = std::unique_ptr<VirtualStream>(new VirtualStream(*this, stream, 1));
  stream->ends[1] = node.acceptor->on_connect(std::move(own));
}

bool VirtualNetwork::count_frame(NodeId node) {
  Node& counted = nodes_[node];
  if (counted.frames_left == 0 || --counted.frames_left > 0) {
    return false;
  }
  crash(node);
  // Not from inside the call: the node's own objects are on the stack.
  time_.after(Duration::zero(), std::move(counted.crashed));
  return true;
}

void VirtualNetwork::crash_at_frame(NodeId node, uint64_t frames, net::Task crashed) {
  nodes_[node].frames_left = std::max<uint64_t>(1, frames);
  nodes_[node].crashed = std::move(crashed);
}

void VirtualNetwork::crash(NodeId node) {
  if (std::exchange(nodes_[node].down, true)) {
    return;
  }
  nodes_[node].frames_left = 0;
  nodes_[node].acceptor = nullptr;
  nodes_[node].frozen = false;
  for (const auto& weak : streams_) {
    const auto stream = weak.lock();
    for (int side = 0; stream != nullptr && side < 2; ++side) {
      if (stream->nodes[side] == node) {
        stream->ends[side] = nullptr;
        stream->held[side].clear();
        dispatch(stream, 1 - side, {.kind = Kind::kEnd, .bytes = "connection reset"},
                 Duration::zero());
      }
    }
  }
}

void VirtualNetwork::set_blocked(NodeId from, NodeId to, bool blocked) {
  blocked_[{from, to}] = blocked;
  release_held();
}

void VirtualNetwork::set_quality(NodeId from, NodeId to, LinkQuality quality) {
  qualities_[{from, to}] = quality;
}

void VirtualNetwork::set_frozen(NodeId node, bool frozen) {
  nodes_[node].frozen = frozen && !nodes_[node].down;
  release_held();
}

/// After the passages have changed: what waited goes on, what stands still is watched.
void VirtualNetwork::release_held() {
  for (const auto& weak : std::vector(streams_)) {
    const auto stream = weak.lock();
    if (stream == nullptr) {
      continue;
    }
    for (int side = 0; side < 2; ++side) {
      while (!stream->held[side].empty() && passes(stream->nodes[1 - side], stream->nodes[side])) {
        Parcel parcel = std::move(stream->held[side].front());
        stream->held[side].pop_front();
        hand_over(stream, side, std::move(parcel));
      }
    }
    if (reachable(stream->nodes[0], stream->nodes[1])) {
      stream->stalled_since.reset();
    } else if (!stream->stalled_since) {
      stream->stalled_since = time_.now();
      time_.after(kKeepAlive, [this] { break_stalled(); });
    }
  }
}

void VirtualNetwork::break_stalled() {
  for (const auto& weak : std::vector(streams_)) {
    const auto stream = weak.lock();
    if (stream == nullptr || !stream->stalled_since ||
        time_.now() - *stream->stalled_since < kKeepAlive) {
      continue;
    }
    stream->stalled_since.reset();
    for (int side = 0; side < 2; ++side) {
      const NodeId node = stream->nodes[side];
      if (stream->ends[side] == nullptr || nodes_[node].down) {
        continue;
      }
      if (nodes_[node].frozen) {  // finds out when it wakes up
        stream->held[side].push_back({.kind = Kind::kEnd, .bytes = "keep-alive timeout"});
      } else {
        std::exchange(stream->ends[side], nullptr)->on_broken("keep-alive timeout");
      }
    }
  }
}

}  // namespace stator::fault_sim
