// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "stator/json/value.h"
#include "stator/services/event_feed.h"
#include "stator/services/service_api.h"

namespace stator::services {

/// An answer, parsed. `body` is null when it is not JSON.
struct Answered {
  int status = 0;
  json::Value body;
  std::string text;
};

inline Answered ask(const ServiceApi& api, std::string_view method, std::string_view target,
                    std::string_view body = {}) {
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view query = mark == target.size() ? "" : target.substr(mark + 1);
  const ServiceReply reply =
      api.answer({.method = method, .path = target.substr(0, mark), .query = query, .body = body});
  auto parsed = json::parse(reply.body);
  return {reply.status, parsed ? *std::move(parsed) : json::Value(), reply.body};
}

/// Feeds that a test speaks through, by endpoint.
class FakeFeeds final : public EventFeeds {
 public:
  Result<std::unique_ptr<EventFeed>> open(const FeedSpec& spec, Deliver deliver) override {
    if (spec.endpoint == refused) {
      return Error(Code::kInvalidArgument, "nobody can listen to " + refused);
    }
    delivers[spec.endpoint] = std::move(deliver);
    return std::unique_ptr<EventFeed>(std::make_unique<Feed>(*this, spec.endpoint));
  }
  std::map<std::string, Deliver> delivers;
  std::string refused;  ///< an endpoint that cannot be opened

 private:
  class Feed final : public EventFeed {
   public:
    Feed(FakeFeeds& feeds, std::string endpoint) : feeds_(feeds), endpoint_(std::move(endpoint)) {}
    ~Feed() override { feeds_.delivers.erase(endpoint_); }
    std::string_view status() const override { return "active"; }

   private:
    FakeFeeds& feeds_;
    std::string endpoint_;
  };
};

/// Blocks of 4 tokens 0, 1, 2, …: their local hashes, which are also their names here.
inline kv::KvEvent stored(uint32_t blocks, kv::StorageTier tier = kv::StorageTier::kDevice,
                          uint32_t from = 0) {
  std::vector<TokenId> tokens(blocks * 4);
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = i;
  }
  blocks::BlockHasher hasher(4, blocks::hash_seed("", ""));
  hasher.append(tokens);
  kv::BlocksStored run;
  if (from > 0) {
    run.parent = blocks::ExternalHash(hasher.sequences()[from - 1].value());
  }
  for (uint32_t i = from; i < blocks; ++i) {
    run.blocks.push_back({blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
  }
  return {.event_id = 1, .tier = tier, .data = std::move(run)};
}

}  // namespace stator::services
