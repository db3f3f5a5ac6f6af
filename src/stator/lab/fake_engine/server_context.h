// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/lab/fake_engine/engine_host_service.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/faults.h"
#include "stator/net/shard.h"

namespace stator::fake_engine {

class AnswerBook;
class KvPublishing;

/// What all parts of one fake server share. Everything is touched on the shard's loop only and
/// outlives the answers.
struct ServerContext {
  const FakeConfig& config;
  const FakeModel& model;
  net::Shard& shard;
  EngineHost& host;
  PendingFaults& faults;
  AnswerBook& answers;
  Random& random;
  KvPublishing* events = nullptr;         ///< null: this dialect has none over ZeroMQ
  std::function<void(Duration)> restart;  ///< go away now, come back after that time
};

/// `bytes` random bytes as lower-case hex.
std::string random_hex(Random& random, size_t bytes);

}  // namespace stator::fake_engine
