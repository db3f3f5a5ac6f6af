// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace stator::memory_service {

enum class Mode : uint8_t {
  kWrite,        ///< alone, with an empty layout
  kRead,         ///< with others, once a layout is committed
  kWriteOrRead,  ///< whoever comes first writes, later ones wait for that and read
};
/// Client's number: its connection.
using ClientId = uint64_t;

/// Who may use one layout of memory. Pure: events in, decisions out.
///
///   EMPTY ──writer comes──► RW ──commit──► COMMITTED ──reader comes──► RO
///     ▲                     │ ▲                ▲ │                      │
///     └────writer leaves────┘ └──writer comes──┘ └──last reader leaves──┘   (RO → COMMITTED)
///
/// O1  At most one client writes, and then none reads.
/// O2  The layout is cleared when a writer begins and when one leaves without commit().
/// O3  Clients that wait are let in order of arrival, but no new reader before a waiting writer.
class Ownership {
 public:
  enum class State : uint8_t { kEmpty, kWriting, kCommitted, kReading };
  static constexpr size_t kWaitingMax = 1024;

  /// What became of it at once, or later, in take_granted().
  enum class Answer : uint8_t { kWriter, kReader, kWaits, kRefused };
  Answer connect(ClientId client, Mode mode);
  /// The writer's layout is for readers from now on; `stays`: it goes on as one of them. False: it
  /// does not write.
  bool commit(ClientId client, bool stays);
  /// It is gone, whatever it was.
  void disconnect(ClientId client);

  struct Granted {
    ClientId client = 0;
    bool writes = false;
  };
  /// Those who waited and may now, since the last call.
  std::vector<Granted> take_granted();
  /// Whether the layout was to be cleared since the last call (O2).
  bool take_cleared();

  State state() const;
  bool writes(ClientId client) const { return writer_ == client; }
  bool reads(ClientId client) const { return readers_.contains(client); }
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    ClientId client = 0;
    Mode mode = Mode::kRead;
  };
  std::optional<bool> may(Mode mode) const;
  void begin(ClientId client, bool writes);
  void let_in();

  std::optional<ClientId> writer_;
  std::set<ClientId> readers_;
  bool committed_ = false;
  bool cleared_ = false;
  std::deque<Waiting> waiting_;
  std::vector<Granted> granted_;
};

std::string_view to_string(Ownership::State state);

}  // namespace stator::memory_service
