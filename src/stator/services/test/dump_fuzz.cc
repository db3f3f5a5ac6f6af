// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/services/indexer_api.h"

namespace {

class NoFeeds final : public stator::services::EventFeeds {
 public:
  stator::Result<std::unique_ptr<stator::services::EventFeed>> open(
      const stator::services::FeedSpec&, Deliver) override {
    return stator::Error(stator::Code::kUnsupported, "none here");
  }
};

}  // namespace

/// A peer's dump is applied without harm, and what came of it is a dump again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  NoFeeds feeds;
  const SimClock clock;
  Metrics metrics;
  const services::IndexerConfig config{.index = {.bytes_max = 16 << 20},
                                       .dump_blocks_max = 1024,
                                       .partitions_max = 4,
                                       .workers_max = 8};
  services::Indexer indexer(config, feeds, clock, metrics);
  services::apply_dump(indexer, text).ignore("most inputs are broken");
  services::Indexer copy(config, feeds, clock, metrics);
  STATOR_ASSERT(services::apply_dump(copy, render_dump(indexer)).has_value(),
                "what was dumped can be applied");
  return 0;
}
