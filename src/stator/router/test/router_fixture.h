// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "stator/router/router.h"

namespace stator::router {

inline constexpr WorkerKey kA{WorkerId(1), 0};
inline constexpr WorkerKey kB{WorkerId(2), 0};
inline constexpr WallTime kNow{};

// Time stands still for all of these.
inline const SimClock& clock() {
  static const SimClock clock;
  return clock;
}

inline std::unique_ptr<Router> make_router(const std::string& mode, RouterConfig config = {}) {
  config.mode = mode;
  auto router = Router::create(config, LoadBook::make(clock()), Random(9));
  EXPECT_TRUE(router.has_value());
  (*router)->add_worker(kA);
  (*router)->add_worker(kB);
  return std::move(*router);
}

/// A prompt of `count` tokens, hashed, with the event that says a worker has all its full blocks.
struct Prompt {
  explicit Prompt(uint32_t count) : tokens(count), hasher(16, blocks::hash_seed("", "")) {
    std::iota(tokens.begin(), tokens.end(), TokenId{0});
    hasher.append(tokens);
  }
  RouteRequest request() const {
    return {.request_id = "r1",
            .model = "m",
            .prompt_tokens = static_cast<uint32_t>(tokens.size()),
            .block_size = 16,
            .sequences = hasher.sequences()};
  }
  kv::KvEvent stored() const {
    kv::BlocksStored run;
    for (size_t i = 0; i < hasher.locals().size(); ++i) {
      run.blocks.push_back(
          {blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
    }
    return {.event_id = 1, .data = std::move(run)};
  }
  std::vector<TokenId> tokens;
  blocks::BlockHasher hasher;
};

/// For requests that outlive the statement that makes them: they only point at their prompt.
inline const Prompt& prompt_of(uint32_t count) {
  static std::map<uint32_t, Prompt> prompts;
  return prompts.try_emplace(count, count).first->second;
}

}  // namespace stator::router
