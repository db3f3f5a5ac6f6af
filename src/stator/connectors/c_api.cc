// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/connectors/block_key.h"
#include "stator/connectors/open_cache.h"
#include "stator/connectors/stator_kv.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/kv/layout.h"

using stator::Code;
using stator::Error;
using stator::Result;
using stator::connectors::EngineCache;
using stator::connectors::EngineMemory;
using stator::kv::RankBlock;
using stator::storage::BlockName;

struct stator_kv_cache {
  stator::SystemClock clock;
  stator::Metrics metrics;
  std::unique_ptr<EngineCache> cache;
  stator::Mutex mutex;
  // Shared with operations under way.
  std::vector<std::shared_ptr<const EngineMemory>> memories STATOR_GUARDED_BY(mutex);
};

namespace {

static_assert(sizeof(stator_kv_key) == sizeof(stator::connectors::KeyBytes));
static_assert(sizeof(stator_kv_region) == sizeof(stator::connectors::Region));
static_assert(STATOR_KV_KEYS_MAX == EngineCache::kNamesMax);
static_assert(STATOR_KV_OPERATIONS_MAX == EngineCache::kOperationsMax);
static_assert(STATOR_KV_REGIONS_MAX == EngineMemory::kRegionsMax);

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kTooLarge:
      return STATOR_KV_INVALID;
    case Code::kNotFound:
      return STATOR_KV_NOT_FOUND;
    case Code::kOverloaded:
      return STATOR_KV_FULL;
    case Code::kDeadline:
      return STATOR_KV_DEADLINE;
    case Code::kIo:
      return STATOR_KV_IO;
    case Code::kUnavailable:
    case Code::kDisconnected:
      return STATOR_KV_UNAVAILABLE;
    default:
      return STATOR_KV_INTERNAL;
  }
}

int fail(const Error& error) {
  last_error() = error.message();
  return status_of(error.code());
}

int invalid(std::string_view what) {
  last_error() = what;
  return STATOR_KV_INVALID;
}

std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

/// The caller's struct as this library knows it: fields that it does not know are 0.
template <typename T>
T read_struct(const T& from) {
  T out{};
  std::memcpy(&out, &from, std::min(from.struct_size, sizeof(T)));
  return out;
}

/// Only the fields that the caller knows.
template <typename T>
void write_struct(T value, T* out) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(out->struct_size, sizeof(T)));
}

bool is_struct(size_t struct_size) {
  return struct_size >= sizeof(size_t) && struct_size <= 4096;
}

BlockName name_of(const stator_kv_key& key) {
  stator::connectors::KeyBytes bytes;
  std::memcpy(bytes.data(), key.bytes, bytes.size());
  return stator::connectors::from_bytes(bytes);
}

std::vector<BlockName> names_of(const stator_kv_key* keys, size_t count) {
  std::vector<BlockName> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    out.push_back(name_of(keys[i]));
  }
  return out;
}

void write_key(const BlockName& name, stator_kv_key& out) {
  const auto bytes = stator::connectors::to_bytes(name);
  std::memcpy(out.bytes, bytes.data(), bytes.size());
}

stator::connectors::OpenOptions open_options(const stator_kv_options& from) {
  stator::connectors::OpenOptions out;
  out.facts = {.model = text_of(from.model),
               .revision = text_of(from.revision),
               .tokenizer = text_of(from.tokenizer),
               .dtype = text_of(from.dtype),
               .layout = text_of(from.layout),
               .salt = text_of(from.salt),
               .block_tokens = from.block_tokens,
               .layers = from.layers,
               .kv_heads = from.kv_heads,
               .head_dim = from.head_dim,
               .block_bytes = from.block_bytes};
  out.host_bytes = from.host_bytes;
  out.disk = text_of(from.disk);
  out.disk_bytes = from.disk_bytes;
  out.disk_write_bytes_per_day = from.disk_write_bytes_per_day;
  out.disk_wipe = (from.flags & STATOR_KV_WIPE_FOREIGN) != 0;
  out.store = text_of(from.store);
  out.object.url = text_of(from.object);
  out.object.endpoint = text_of(from.object_endpoint);
  out.object.credentials.access_key = text_of(from.object_access_key);
  out.object.credentials.secret_key = text_of(from.object_secret_key);
  out.object.credentials.session_token = text_of(from.object_session_token);
  if (from.object_region != nullptr && *from.object_region != '\0') {
    out.object.credentials.region = from.object_region;
  }
  out.copy_threads = std::max(from.copy_threads, 1U);
  out.verify_host = (from.flags & STATOR_KV_TRUST_HOST) == 0;
  return out;
}

/// An operation's request, copied out of the caller's memory.
Result<EngineCache::Request> request_of(stator_kv_cache& cache, const stator_kv_request* given,
                                        bool copies) {
  if (given == nullptr || !is_struct(given->struct_size)) {
    return Error(Code::kInvalidArgument, "a request with its struct_size is needed");
  }
  const stator_kv_request from = read_struct(*given);
  if (from.keys == nullptr || from.count == 0 || from.count > STATOR_KV_KEYS_MAX ||
      (copies && from.blocks == nullptr)) {
    return Error(Code::kInvalidArgument,
                 "a request has 1 to 65536 keys, and a block for each when it copies");
  }
  EngineCache::Request out;
  out.names = names_of(from.keys, from.count);
  out.limit = std::chrono::milliseconds(from.limit_ms);
  const uint32_t block_tokens = cache.cache->options().block_tokens;
  if (from.tokens != nullptr && block_tokens > 0) {
    out.tokens.assign(from.tokens, from.tokens + from.count * block_tokens);
  }
  if (from.parent != nullptr) {
    out.parent = name_of(*from.parent);
  }
  if (copies) {
    out.blocks.assign(from.blocks, from.blocks + from.count);
    const stator::MutexLock lock(cache.mutex);
    if (from.memory < 0 || static_cast<size_t>(from.memory) >= cache.memories.size()) {
      return Error(Code::kNotFound, "no such memory: stator_kv_memory() gives them");
    }
    out.memory = cache.memories[static_cast<size_t>(from.memory)];
  }
  return out;
}

using Start = Result<EngineCache::OperationId> (EngineCache::*)(EngineCache::Request);

int64_t start(stator_kv_cache* cache, const stator_kv_request* given, bool copies, Start begin) {
  if (cache == nullptr) {
    return invalid("the cache is null");
  }
  auto request = request_of(*cache, given, copies);
  if (!request) {
    return fail(request.error());
  }
  const auto id = (*cache->cache.*begin)(std::move(*request));
  return id ? static_cast<int64_t>(*id) : fail(id.error());
}

/// The blocks of a side's ranks, with the shape that each must have.
Result<std::vector<RankBlock>> rank_blocks(const stator_kv_shape& whole,
                                           const stator_kv_ranks* side) {
  constexpr uint32_t kRanksMax = 4096;
  if (side == nullptr || side->blocks == nullptr || side->ranks == 0 || side->ranks > kRanksMax) {
    return Error(Code::kInvalidArgument, "ranks: from 1 to 4096, each with a block");
  }
  if (side->order < 0 || side->order >= static_cast<int>(stator::kv::kBlockOrders)) {
    return Error(Code::kInvalidArgument, "order: one of STATOR_KV_ORDER_…");
  }
  std::vector<RankBlock> out;
  for (uint32_t rank = 0; rank < side->ranks; ++rank) {
    STATOR_TRY(const auto share, stator::kv::share_of(whole.heads, side->ranks, rank));
    const stator::kv::BlockShape shape{.layers = whole.layers,
                                       .outer = whole.outer,
                                       .tokens = whole.tokens,
                                       .heads = share.count,
                                       .head_bytes = whole.head_bytes};
    STATOR_CHECK(validate(shape));
    if (side->blocks[rank] == nullptr) {
      return Error(Code::kInvalidArgument, "blocks: one of them is null");
    }
    out.push_back({.shape = shape,
                   .order = static_cast<stator::kv::BlockOrder>(side->order),
                   .bytes = {static_cast<std::byte*>(side->blocks[rank]), shape.block_bytes()}});
  }
  return out;
}

}  // namespace

int stator_kv_reshard(const stator_kv_shape* whole, const stator_kv_ranks* sources,
                      const stator_kv_ranks* targets) {
  if (whole == nullptr) {
    return invalid("whole is null");
  }
  const auto from = rank_blocks(*whole, sources);
  const auto to = from ? rank_blocks(*whole, targets) : Result<std::vector<RankBlock>>({});
  if (!from || !to) {
    return fail(from ? to.error() : from.error());
  }
  const auto done = stator::kv::reshard(*from, *to, whole->heads);
  return done ? STATOR_KV_OK : fail(done.error());
}

int stator_kv_version(void) {
  return 1;
}

const char* stator_kv_status_name(int status) {
  switch (status) {
    case STATOR_KV_IN_PROGRESS:
      return "IN_PROGRESS";
    case STATOR_KV_OK:
      return "OK";
    case STATOR_KV_INVALID:
      return "INVALID";
    case STATOR_KV_NOT_FOUND:
      return "NOT_FOUND";
    case STATOR_KV_FULL:
      return "FULL";
    case STATOR_KV_DEADLINE:
      return "DEADLINE";
    case STATOR_KV_IO:
      return "IO";
    case STATOR_KV_UNAVAILABLE:
      return "UNAVAILABLE";
    default:
      return "INTERNAL";
  }
}

const char* stator_kv_last_error(void) {
  return last_error().c_str();
}

int stator_kv_open(const stator_kv_options* options, stator_kv_cache** out) {
  if (options == nullptr || out == nullptr || !is_struct(options->struct_size)) {
    return invalid("options with their struct_size and a place for the cache are needed");
  }
  *out = nullptr;
  auto made = std::make_unique<stator_kv_cache>();
  auto cache = stator::connectors::open_cache(open_options(read_struct(*options)), made->clock,
                                              made->metrics);
  if (!cache) {
    return fail(cache.error());
  }
  made->cache = std::move(*cache);
  {
    const stator::MutexLock lock(made->mutex);
    made->memories.push_back(std::make_shared<const EngineMemory>(
        EngineMemory::of_pointers(made->cache->options().block_bytes)));
  }
  *out = made.release();
  return STATOR_KV_OK;
}

void stator_kv_close(stator_kv_cache* cache) {
  const std::unique_ptr<stator_kv_cache> owned(cache);
}

int64_t stator_kv_memory(stator_kv_cache* cache, const stator_kv_region* regions, size_t count,
                         uint64_t blocks) {
  if (cache == nullptr || regions == nullptr || count > STATOR_KV_REGIONS_MAX) {
    return invalid("a cache and 1 to 65536 regions are needed");
  }
  std::vector<stator::connectors::Region> copied;
  for (size_t i = 0; i < count; ++i) {
    copied.push_back({regions[i].address, regions[i].stride, regions[i].bytes});
  }
  auto memory = EngineMemory::create(copied, blocks, cache->cache->options().block_bytes);
  if (!memory) {
    return fail(memory.error());
  }
  const stator::MutexLock lock(cache->mutex);
  if (cache->memories.size() > STATOR_KV_MEMORIES_MAX) {
    return fail(Error(Code::kOverloaded, "256 memories are registered already"));
  }
  cache->memories.push_back(std::make_shared<const EngineMemory>(std::move(*memory)));
  return static_cast<int64_t>(cache->memories.size() - 1);
}

int64_t stator_kv_keys_of_tokens(stator_kv_cache* cache, const stator_kv_key* parent,
                                 const char* owner, size_t owner_bytes, const uint32_t* tokens,
                                 size_t count, stator_kv_key* keys, size_t max) {
  if (cache == nullptr || (tokens == nullptr && count > 0) ||
      (owner == nullptr && owner_bytes > 0) || (keys == nullptr && max > 0)) {
    return invalid("tokens, an owner and a place for the keys are needed");
  }
  const auto& options = cache->cache->options();
  if (options.block_tokens == 0) {
    return invalid("this cache was opened without block_tokens: name its blocks by text");
  }
  BlockName before;
  if (parent != nullptr) {
    before = name_of(*parent);
  }
  const auto names =
      stator::connectors::name_tokens(options.space, parent == nullptr ? nullptr : &before,
                                      {owner, owner_bytes}, {tokens, count}, options.block_tokens);
  for (size_t i = 0; i < std::min(names.size(), max); ++i) {
    write_key(names[i], keys[i]);
  }
  return static_cast<int64_t>(names.size());
}

int stator_kv_key_of_name(stator_kv_cache* cache, const char* name, size_t bytes,
                          stator_kv_key* key) {
  if (cache == nullptr || name == nullptr || bytes == 0 || key == nullptr) {
    return invalid("a name and a place for its key are needed");
  }
  write_key(stator::connectors::name_text(cache->cache->options().space, {name, bytes}), *key);
  return STATOR_KV_OK;
}

int stator_kv_lookup(stator_kv_cache* cache, const stator_kv_key* keys, size_t count,
                     stator_kv_found* out) {
  if (cache == nullptr || (keys == nullptr && count > 0) || count > STATOR_KV_KEYS_MAX ||
      out == nullptr || !is_struct(out->struct_size)) {
    return invalid("at most 65536 keys and a result with its struct_size are needed");
  }
  const EngineCache::Found found = cache->cache->lookup(names_of(keys, count));
  write_struct(stator_kv_found{.struct_size = 0,
                               .present = found.present,
                               .host = found.host,
                               .disk = found.disk,
                               .ask = found.ask ? 1 : 0},
               out);
  return STATOR_KV_OK;
}

int64_t stator_kv_get(stator_kv_cache* cache, const stator_kv_request* request) {
  return start(cache, request, true, &EngineCache::start_get);
}
int64_t stator_kv_put(stator_kv_cache* cache, const stator_kv_request* request) {
  return start(cache, request, true, &EngineCache::start_put);
}
int64_t stator_kv_stage(stator_kv_cache* cache, const stator_kv_request* request) {
  return start(cache, request, false, &EngineCache::start_stage);
}
int64_t stator_kv_probe(stator_kv_cache* cache, const stator_kv_request* request) {
  return start(cache, request, false, &EngineCache::start_probe);
}

int stator_kv_poll(stator_kv_cache* cache, int64_t operation, stator_kv_result* out) {
  return stator_kv_wait(cache, operation, 0, out);
}

int stator_kv_wait(stator_kv_cache* cache, int64_t operation, uint32_t milliseconds,
                   stator_kv_result* out) {
  if (cache == nullptr || (out != nullptr && !is_struct(out->struct_size))) {
    return invalid("a cache, and a result with its struct_size or null, are needed");
  }
  const auto outcome =
      cache->cache->wait(static_cast<uint64_t>(operation), std::chrono::milliseconds(milliseconds));
  if (!outcome) {
    return fail(outcome.error());
  }
  if (!outcome->done) {
    return STATOR_KV_IN_PROGRESS;
  }
  if (out != nullptr) {
    write_struct(
        stator_kv_result{
            .struct_size = 0, .blocks = outcome->blocks, .from_host = outcome->from_host},
        out);
  }
  return outcome->late ? STATOR_KV_DEADLINE : STATOR_KV_OK;
}

int stator_kv_release(stator_kv_cache* cache, int64_t operation) {
  if (cache == nullptr) {
    return invalid("the cache is null");
  }
  return cache->cache->release(static_cast<uint64_t>(operation)) ? STATOR_KV_OK
                                                                 : STATOR_KV_IN_PROGRESS;
}

int64_t stator_kv_pin(stator_kv_cache* cache, const stator_kv_key* keys, size_t count,
                      uint32_t ttl_ms, size_t* blocks) {
  if (cache == nullptr || keys == nullptr || count == 0 || count > STATOR_KV_KEYS_MAX) {
    return invalid("1 to 65536 keys are needed");
  }
  const auto pinned = cache->cache->pin(names_of(keys, count), std::chrono::milliseconds(ttl_ms));
  if (!pinned) {
    return fail(pinned.error());
  }
  if (blocks != nullptr) {
    *blocks = pinned->blocks;
  }
  return static_cast<int64_t>(pinned->id);
}

int stator_kv_unpin(stator_kv_cache* cache, int64_t pin) {
  if (cache == nullptr) {
    return invalid("the cache is null");
  }
  return cache->cache->unpin(static_cast<uint64_t>(pin))
             ? STATOR_KV_OK
             : fail(Error(Code::kNotFound, "no such pin: it was given up or its time is over"));
}

int stator_kv_flush(stator_kv_cache* cache, uint32_t milliseconds) {
  if (cache == nullptr) {
    return invalid("the cache is null");
  }
  const auto done = cache->cache->flush(std::chrono::milliseconds(milliseconds));
  return done ? STATOR_KV_OK : fail(done.error());
}

int stator_kv_get_stats(stator_kv_cache* cache, stator_kv_stats* out) {
  if (cache == nullptr || out == nullptr || !is_struct(out->struct_size)) {
    return invalid("a cache and a result with its struct_size are needed");
  }
  const EngineCache::Stats stats = cache->cache->stats();
  write_struct(stator_kv_stats{.struct_size = 0,
                               .host_slots = stats.host_slots,
                               .host_blocks = stats.host_blocks,
                               .host_pinned = stats.host_pinned,
                               .host_evictions = stats.host_evictions,
                               .disk_slots = stats.disk_slots,
                               .disk_blocks = stats.disk_blocks,
                               .waiting_down = stats.waiting_down,
                               .dropped_down = stats.dropped_down,
                               .lookup_blocks = stats.lookup_blocks,
                               .hit_blocks = stats.hit_blocks,
                               .get_blocks = stats.get_blocks,
                               .put_blocks = stats.put_blocks,
                               .loaded_blocks = stats.loaded_blocks,
                               .integrity_errors = stats.integrity_errors,
                               .operations = stats.operations},
               out);
  return STATOR_KV_OK;
}

int64_t stator_kv_metrics(stator_kv_cache* cache, char* out, size_t size) {
  if (cache == nullptr) {
    return invalid("the cache is null");
  }
  const std::string text = cache->metrics.render();
  if (out != nullptr && text.size() <= size) {
    std::memcpy(out, text.data(), text.size());
  }
  return static_cast<int64_t>(text.size());
}

int stator_kv_namespace(stator_kv_cache* cache, char* out) {
  if (cache == nullptr || out == nullptr) {
    return invalid("a cache and 33 bytes are needed");
  }
  const std::string text = stator::storage::to_hex(cache->cache->options().space);
  std::memcpy(out, text.c_str(), text.size() + 1);
  return STATOR_KV_OK;
}
