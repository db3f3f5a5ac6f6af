// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {

using NodeId = uint32_t;

/// What a stream carries; faults tell them apart.
enum class StreamKind : uint8_t { kSession, kEvents };

/// How often messages of one kind meet with an accident that a reliable carrier excludes.
struct MessageFaults {
  double drop = 0;  ///< of events: the stream breaks, as they have no acknowledgement
  double duplicate = 0;
  double reorder = 0;  ///< overtaken by later ones
  double corrupt = 0;  ///< noise arrives instead
};

/// What happens to everything that travels.
struct LinkQuality {
  Duration latency = std::chrono::microseconds(200);
  Duration jitter = std::chrono::microseconds(100);
  std::array<MessageFaults, 2> faults{};  ///< by StreamKind
};

/// What one end of a stream hears.
class StreamEnd {
 public:
  virtual ~StreamEnd() = default;
  virtual void on_message(std::string bytes) = 0;
  /// Last. Not after the end closed the stream itself.
  virtual void on_broken(std::string reason) = 0;
};

class VirtualNetwork;

/// One end of a stream. Destroying it closes the stream; the other end hears it after all that was
/// sent before.
class VirtualStream {
 public:
  ~VirtualStream();
  VirtualStream(const VirtualStream&) = delete;
  VirtualStream& operator=(const VirtualStream&) = delete;
  void send(std::string bytes);
  StreamKind kind() const;

 private:
  friend class VirtualNetwork;
  struct State;
  VirtualStream(VirtualNetwork& network, std::shared_ptr<State> state, int side)
      : network_(network), state_(std::move(state)), side_(side) {}
  VirtualNetwork& network_;
  const std::shared_ptr<State> state_;  // shared with the other end
  const int side_;
};

/// Machines and the streams between them, on virtual time: what gRPC is to production. A stream
/// delivers in order and whole until it breaks; a link that is blocked holds messages back, and
/// keep-alive breaks a stream whose link was blocked for kKeepAlive. Single-threaded.
///
/// N1  After a node crashed nothing it had not sent arrives, and it hears nothing.
/// N2  An end hears nothing after on_broken(), nor after it closed the stream.
class VirtualNetwork {
 public:
  /// As GrpcOptions: a ping after five seconds of silence, ten for the answer.
  static constexpr Duration kKeepAlive = std::chrono::seconds(15);

  VirtualNetwork(net::VirtualTime& time, Random random) : time_(time), random_(random) {}
  VirtualNetwork(const VirtualNetwork&) = delete;
  VirtualNetwork& operator=(const VirtualNetwork&) = delete;

  NodeId add_node(std::string name);
  /// The node that `name` is; aborts on an unknown one.
  NodeId node(std::string_view name) const;
  const std::string& name(NodeId node) const { return nodes_[node].name; }

  /// Takes the streams that others open to a node.
  class Acceptor {
   public:
    virtual ~Acceptor() = default;
    /// Returns the end that hears the stream, which lives as long as the acceptor wants.
    virtual StreamEnd* on_connect(std::unique_ptr<VirtualStream> stream) = 0;
  };
  /// Null: connections are refused.
  void listen(NodeId node, Acceptor* acceptor) { nodes_[node].acceptor = acceptor; }
  /// Whether it gets there is told by on_message and on_broken. `end` outlives the result.
  std::unique_ptr<VirtualStream> connect(NodeId from, NodeId to, StreamKind kind, StreamEnd& end);

  // Faults.

  /// Nothing travels from `from` to `to` until it is let through again.
  void set_blocked(NodeId from, NodeId to, bool blocked);
  void set_quality(NodeId from, NodeId to, LinkQuality quality);
  void set_quality(LinkQuality quality) { quality_ = quality; }
  /// A frozen node neither hears nor sends, until it thaws.
  void set_frozen(NodeId node, bool frozen);
  /// The node's ends are gone; others hear that their streams are reset.
  void crash(NodeId node);
  void restart(NodeId node) { nodes_[node].down = false; }
  /// `crashed` runs right after the node has sent or heard `frames` more messages.
  void crash_at_frame(NodeId node, uint64_t frames, net::Task crashed);

  bool down(NodeId node) const { return nodes_[node].down; }
  bool frozen(NodeId node) const { return nodes_[node].frozen; }
  /// Both ways, now.
  bool reachable(NodeId a, NodeId b) const { return passes(a, b) && passes(b, a); }

  uint64_t messages() const { return messages_; }

 private:
  friend class VirtualStream;
  using StreamPtr = std::shared_ptr<VirtualStream::State>;
  using Link = std::pair<NodeId, NodeId>;
  struct Node {
    std::string name;
    Acceptor* acceptor = nullptr;
    bool down = false;
    bool frozen = false;
    uint64_t frames_left = 0;  // to the crash; 0: none is planned
    net::Task crashed;
  };
  enum class Kind : uint8_t { kConnect, kMessage, kEnd };
  struct Parcel {
    Kind kind = Kind::kMessage;
    std::string bytes;  // or the reason of an end
  };

  bool passes(NodeId from, NodeId to) const;
  const LinkQuality& quality(NodeId from, NodeId to) const;
  void send(const StreamPtr& stream, int from_side, std::string bytes);
  void reset(const StreamPtr& stream);
  void close(const StreamPtr& stream, int side, std::string reason);
  void dispatch(const StreamPtr& stream, int to_side, Parcel parcel, Duration extra);
  void arrive(const StreamPtr& stream, int to_side, Parcel parcel);
  void hand_over(const StreamPtr& stream, int to_side, Parcel parcel);
  void accept(const StreamPtr& stream);
  void release_held();
  void break_stalled();
  bool count_frame(NodeId node);

  net::VirtualTime& time_;
  Random random_;
  LinkQuality quality_;
  std::vector<Node> nodes_;
  std::map<Link, LinkQuality> qualities_;
  std::map<Link, bool> blocked_;
  std::vector<std::weak_ptr<VirtualStream::State>> streams_;
  uint64_t messages_ = 0;
};

}  // namespace stator::fault_sim
