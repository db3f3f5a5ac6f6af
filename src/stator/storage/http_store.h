// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/http_client.h"
#include "stator/storage/block_store.h"

namespace stator::storage {

/// Path of a block at a cache service: "/v1/blocks/NAMESPACE/LINEAGE".
inline constexpr std::string_view kStoreBlocks = "/v1/blocks/";
/// POST {"namespace":HEX,"blocks":[LINEAGE,…]} → {"count":N}: how many of the first are there.
inline constexpr std::string_view kStoreCount = "/v1/count";
/// POST {"block_hashes":[sequence hash, …]} → {"ranges":[[first, behind last], …]}: what routers ask
/// of a shared cache; hashes of a prompt's blocks from its first on.
inline constexpr std::string_view kStoreCheck = "/check_blocks";

/// The client of `stator store`. Connections are kept, as many as threads ask at once.
class HttpStore final : public BlockStore {
 public:
  /// `address`: "HOST:PORT" or a URL.
  HttpStore(std::string_view address, const Digest& space);

  std::string_view tier() const override { return "store"; }
  Result<size_t> count(std::span<const BlockName> names) override;
  Status get(const BlockName& name, std::span<std::byte> record) override;
  Status put(const BlockName& name, std::span<const std::byte> record) override;

 private:
  Result<net::HttpClientResponse> ask(const net::HttpClientRequest& request,
                                      const net::OnChunk& on_chunk = {});
  std::string url(const BlockName& name) const;

  std::string base_;
  const Digest space_;
  Mutex mutex_;
  std::vector<std::unique_ptr<net::HttpClient>> clients_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::storage
