// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/own_engine.h"
#include "stator/app/worker_host.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/adapters/control.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/session/operator_wish.h"

namespace stator::app {

// What operators ask of workers: LoRA adapters, sleep, a cache reset. The same words on the system
// port of a process with workers, on the admin listener of a frontend, and between the two.

inline constexpr std::string_view kLorasPath = "/v1/loras";

session::OperatorWish wish_of(const net::HttpRequest& request);

/// What a wish wants done; none: it wants nothing of the kind. kInvalidArgument names the member
/// that is wrong.
std::optional<Result<engine::adapters::Control>> read_control(const session::OperatorWish& wish);

/// A worker of this process, as operators see it. Its engine outlives it.
struct WishTarget {
  explicit WishTarget(const WorkerHost::Worker& worker);
  /// Does what is asked: at once for an engine of ours, else when the server has answered.
  void carry_out(const session::OperatorWish& wish, session::OperatorDone done) const;
  std::vector<std::string> adapters() const;
  bool up() const;
  bool asleep() const;

  WorkerId id;
  engine::Engine* engine;
  engine::adapters::AdapterEngine* server;  ///< null: the engine is part of this process
  OwnEngine* own;                           ///< then it is asked this way

 private:
  void carry_out(const engine::adapters::Control& control, session::OperatorDone done) const;
};

/// {"loras":[{"lora_name":…,"workers":[…]}],"count":N}
std::string render_adapters(const std::map<std::string, std::vector<WorkerId>>& holders);

/// Wishes that were put to several workers, until all have answered.
///
/// W1  Everything but the workers' answers happens on the shard's loop, or while it does not run.
/// W2  An open wish has an exchange that is not answered yet, or whose client has left.
///
/// Outlives the workers it asked, which may answer late.
class WishBoard {
 public:
  struct Asked {
    WorkerId id;
    session::OperatorHandler ask;
  };
  static constexpr size_t kOpenMax = 64;

  explicit WishBoard(net::Shard& shard) : shard_(shard) {}
  WishBoard(const WishBoard&) = delete;
  WishBoard& operator=(const WishBoard&) = delete;

  /// Puts the wish to all of `asked`, and answers the exchange when the last has answered:
  /// {"workers":[{"worker_id":…,"status":"done"}]} with the first failure's status, or the adapters
  /// that they have. kOverloaded, with the exchange unanswered, beyond kOpenMax.
  Status begin(net::HttpExchange& exchange, const session::OperatorWish& wish,
               const std::vector<Asked>& asked);

 private:
  struct Wish final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone /*reason*/) override { exchange = nullptr; }
    net::HttpExchange* exchange = nullptr;  // null: nobody waits for the answer
    bool lists = false;                     // adapters
    std::vector<std::pair<WorkerId, session::OperatorReply>> replies;
    size_t open = 0;
  };
  void post(uint64_t wish, size_t index, session::OperatorReply reply);
  void collect(uint64_t wish, size_t index, session::OperatorReply reply);
  static void answer(Wish& wish);

  net::Shard& shard_;
  FlatMap<uint64_t, std::unique_ptr<Wish>> wishes_;
  uint64_t last_ = 0;
};

}  // namespace stator::app
