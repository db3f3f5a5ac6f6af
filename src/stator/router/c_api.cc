// SPDX-License-Identifier: Apache-2.0
#include "stator/router/c_api.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/router/index/index_service.h"
#include "stator/router/router.h"

using stator::Code;
using stator::Error;
using stator::MutexLock;
using stator::Result;
using stator::Status;
using stator::WorkerId;
using stator::WorkerKey;
using stator::blocks::ExternalHash;
using stator::blocks::LocalHash;
using stator::blocks::SequenceHash;

namespace router = stator::router;

struct stator_router {
  // Shared with leases, which may outlive the router and read the clock when they end.
  struct Ground {
    stator::SystemClock clock;
    stator::Metrics metrics;
  };
  std::shared_ptr<Ground> ground = std::make_shared<Ground>();
  uint32_t block_size = 16;
  router::IndexService* index = nullptr;  // the core's
  stator::Mutex mutex;
  std::unique_ptr<router::Router> core STATOR_GUARDED_BY(mutex);
};

struct stator_router_lease {
  std::shared_ptr<stator_router::Ground> ground;  // goes after the lease
  router::LoadLease lease;
};

namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

stator_router_status status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kTooLarge:
      return STATOR_ROUTER_INVALID_ARGUMENT;
    case Code::kNotFound:
      return STATOR_ROUTER_NOT_FOUND;
    case Code::kOverloaded:
      return STATOR_ROUTER_OVERLOADED;
    case Code::kUnavailable:
    case Code::kDraining:
      return STATOR_ROUTER_UNAVAILABLE;
    default:
      return STATOR_ROUTER_INTERNAL;
  }
}

/// Runs `body` (→ Status) so that nothing leaves but a status.
template <typename Body>
stator_router_status guarded(Body body) noexcept {
  try {
    const Status status = body();
    if (status) {
      return STATOR_ROUTER_OK;
    }
    last_error() = status.error().message();
    return status_of(status.error().code());
  } catch (const std::exception& error) {
    // Assigning the text may fail again; the status must not.
    last_error().clear();
    (void)error;
    return STATOR_ROUTER_INTERNAL;
  }
}

Error invalid(const char* what) {
  return {Code::kInvalidArgument, what};
}

/// The caller's struct in the layout of this library: what an older caller lacks is zero.
template <typename T>
Result<T> read_struct(const T* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (given == nullptr || given->struct_size < sizeof(size_t)) {
    return invalid(name);
  }
  T out{};
  std::memcpy(&out, given, std::min(sizeof(T), given->struct_size));
  return out;
}

/// Writes as much as the caller has room for.
template <typename T>
void write_struct(T value, T* out) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(sizeof(T), out->struct_size));
}

template <typename T>
Status check_array(const T* array, size_t count, const char* name) {
  return array == nullptr && count > 0 ? Status(invalid(name)) : Status();
}

WorkerKey key_of(uint64_t worker, uint32_t rank) {
  return {WorkerId(worker), rank};
}

Result<router::RouterConfig> read_config(const stator_router_config& given) {
  router::RouterConfig config;
  for (const double number : {given.overlap_credit, given.temperature, given.prefill_tokens_max}) {
    if (!std::isfinite(number)) {
      return invalid("config: numbers must be finite");
    }
  }
  config.mode = given.mode == nullptr ? config.mode : given.mode;
  config.index.kind = given.index == nullptr ? config.index.kind : given.index;
  config.index.bytes_max =
      given.index_bytes_max == 0 ? config.index.bytes_max : given.index_bytes_max;
  if (given.overlap_credit != 0) {
    config.cost.overlap_credit = std::max(0.0, given.overlap_credit);
  }
  config.cost.temperature = given.temperature;
  if (given.prefill_tokens_max > 0) {
    config.reject.prefill_tokens = given.prefill_tokens_max;
  }
  return config;
}

Result<std::unique_ptr<stator_router>> make_router(const stator_router_config& given) {
  auto made = std::make_unique<stator_router>();
  made->block_size = given.block_size == 0 ? 16 : given.block_size;
  STATOR_TRY(const router::RouterConfig config, read_config(given));
  stator_router::Ground& ground = *made->ground;
  STATOR_TRY(auto index, router::IndexService::create(config.index, ground.clock, ground.metrics));
  made->index = index.get();
  const MutexLock lock(made->mutex);
  STATOR_TRY(made->core, router::Router::create(config, router::LoadBook::make(ground.clock),
                                                given.seed == 0 ? stator::Random::from_entropy()
                                                                : stator::Random(given.seed),
                                                std::move(index)));
  return made;
}

/// A request with what it points at, in our types. Must stay where it is made.
struct Wanted {
  stator_router_request given;
  std::vector<SequenceHash> sequences;
  std::vector<WorkerId> allowed;
  std::vector<std::string> required;

  router::RouteRequest view(uint32_t block_size) const {
    router::RouteRequest request{.request_id = given.request_id == nullptr ? "" : given.request_id,
                                 .model = "",
                                 .prompt_tokens = static_cast<uint32_t>(given.prompt_tokens),
                                 .block_size = block_size,
                                 .sequences = sequences};
    request.constraints.allowed = allowed;
    request.constraints.required_taints = required;
    if (given.expected_output_tokens > 0) {
      request.expected_output_tokens =
          static_cast<uint32_t>(std::min<uint64_t>(given.expected_output_tokens, UINT32_MAX));
    }
    return request;
  }
};

Result<Wanted> read_request(const stator_router_request* given, uint32_t block_size) {
  Wanted wanted;
  STATOR_TRY(wanted.given, read_struct(given, "request: null or without its struct_size"));
  const stator_router_request& request = wanted.given;
  if (request.prompt_tokens == 0 || request.prompt_tokens > UINT32_MAX) {
    return invalid("request.prompt_tokens must be 1 … 2^32 − 1");
  }
  if (request.sequence_count > request.prompt_tokens / block_size) {
    return invalid("request.sequence_count is more than the prompt's full blocks");
  }
  STATOR_CHECK(check_array(request.sequence_hashes, request.sequence_count,
                           "request.sequence_hashes is null"));
  STATOR_CHECK(check_array(request.allowed_worker_ids, request.allowed_count,
                           "request.allowed_worker_ids is null"));
  STATOR_CHECK(check_array(request.required_taints, request.required_count,
                           "request.required_taints is null"));
  for (size_t i = 0; i < request.sequence_count; ++i) {
    wanted.sequences.emplace_back(request.sequence_hashes[i]);
  }
  for (size_t i = 0; i < request.allowed_count; ++i) {
    wanted.allowed.emplace_back(request.allowed_worker_ids[i]);
  }
  for (size_t i = 0; i < request.required_count; ++i) {
    if (request.required_taints[i] == nullptr) {
      return invalid("request.required_taints has a null entry");
    }
    wanted.required.emplace_back(request.required_taints[i]);
  }
  return wanted;
}

stator_router_decision decision_of(WorkerKey worker, uint32_t overlap, uint32_t prefill) {
  return {.worker_id = worker.worker.value(),
          .dp_rank = worker.dp_rank,
          .overlap_blocks = overlap,
          .prefill_tokens = prefill};
}

Status check_known(stator_router& handle, WorkerKey worker) {
  const MutexLock lock(handle.mutex);
  return handle.core->load_slot(worker) ? Status()
                                        : Status(Error(Code::kNotFound, "unknown worker"));
}

}  // namespace

extern "C" {

uint32_t stator_router_abi_version(void) {
  return STATOR_ROUTER_ABI_VERSION;
}

const char* stator_router_last_error(void) {
  return last_error().c_str();
}

stator_router_status stator_router_create(const stator_router_config* config,
                                          stator_router** handle) {
  return guarded([&]() -> Status {
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_TRY(const auto given, read_struct(config, "config: null or without its struct_size"));
    STATOR_TRY(auto made, make_router(given));
    *handle = made.release();
    return {};
  });
}

void stator_router_destroy(stator_router* handle) {
  const std::unique_ptr<stator_router> gone(handle);
}

stator_router_status stator_router_add_worker(stator_router* handle,
                                              const stator_router_worker* worker) {
  return guarded([&]() -> Status {
    STATOR_TRY(const auto given, read_struct(worker, "worker: null or without its struct_size"));
    STATOR_CHECK(check_array(given.taints, given.taint_count, "worker.taints is null"));
    if (handle == nullptr) {
      return invalid("router: null");
    }
    router::WorkerFacts facts{.total_kv_blocks = given.total_kv_blocks,
                              .max_num_batched_tokens = given.max_num_batched_tokens};
    for (uint32_t i = 0; i < given.taint_count; ++i) {
      facts.taints.emplace_back(given.taints[i] == nullptr ? "" : given.taints[i]);
    }
    const MutexLock lock(handle->mutex);
    handle->core->add_worker(key_of(given.worker_id, given.dp_rank), std::move(facts));
    return {};
  });
}

stator_router_status stator_router_remove_worker(stator_router* handle, uint64_t worker_id,
                                                 uint32_t dp_rank) {
  return guarded([&]() -> Status {
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_CHECK(check_known(*handle, key_of(worker_id, dp_rank)));
    const MutexLock lock(handle->mutex);
    handle->core->remove_worker(key_of(worker_id, dp_rank));
    return {};
  });
}

stator_router_status stator_router_set_draining(stator_router* handle, uint64_t worker_id,
                                                uint32_t dp_rank, int draining) {
  return guarded([&]() -> Status {
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_CHECK(check_known(*handle, key_of(worker_id, dp_rank)));
    const MutexLock lock(handle->mutex);
    handle->core->set_draining(key_of(worker_id, dp_rank), draining != 0);
    return {};
  });
}

stator_router_status stator_router_apply_stored(stator_router* handle,
                                                const stator_router_run* run) {
  return guarded([&]() -> Status {
    STATOR_TRY(const auto given, read_struct(run, "run: null or without its struct_size"));
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_CHECK(check_array(given.external, given.count, "run.external is null"));
    STATOR_CHECK(check_array(given.local, given.count, "run.local is null"));
    stator::kv::BlocksStored stored;
    if (given.has_parent != 0) {
      stored.parent = ExternalHash(given.parent);
    }
    for (size_t i = 0; i < given.count; ++i) {
      stored.blocks.push_back({ExternalHash(given.external[i]), LocalHash(given.local[i])});
    }
    const WorkerKey worker = key_of(given.worker_id, given.dp_rank);
    STATOR_CHECK(check_known(*handle, worker));
    const auto applied =
        handle->index->apply(worker, {.dp_rank = given.dp_rank, .data = std::move(stored)});
    return applied == router::Applied::kUnknownParent
               ? Status(Error(Code::kNotFound, "the parent block is not known"))
               : Status();
  });
}

stator_router_status stator_router_apply_removed(stator_router* handle, uint64_t worker_id,
                                                 uint32_t dp_rank, const uint64_t* external,
                                                 size_t count) {
  return guarded([&]() -> Status {
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_CHECK(check_array(external, count, "external: null"));
    stator::kv::BlocksRemoved run;
    for (size_t i = 0; i < count; ++i) {
      run.blocks.emplace_back(external[i]);
    }
    STATOR_CHECK(check_known(*handle, key_of(worker_id, dp_rank)));
    (void)handle->index->apply(key_of(worker_id, dp_rank),
                               {.dp_rank = dp_rank, .data = std::move(run)});
    return {};
  });
}

stator_router_status stator_router_apply_cleared(stator_router* handle, uint64_t worker_id,
                                                 uint32_t dp_rank) {
  return guarded([&]() -> Status {
    if (handle == nullptr) {
      return invalid("router: null");
    }
    STATOR_CHECK(check_known(*handle, key_of(worker_id, dp_rank)));
    (void)handle->index->apply(key_of(worker_id, dp_rank),
                               {.dp_rank = dp_rank, .data = stator::kv::AllCleared{}});
    return {};
  });
}

stator_router_status stator_router_hash_blocks(const stator_router_prompt* prompt, uint64_t* local,
                                               uint64_t* sequence, size_t capacity, size_t* count) {
  return guarded([&]() -> Status {
    STATOR_TRY(const auto given, read_struct(prompt, "prompt: null or without its struct_size"));
    STATOR_CHECK(check_array(given.tokens, given.token_count, "prompt.tokens is null"));
    if (given.block_size == 0 || count == nullptr) {
      return invalid("prompt.block_size must be at least 1, count not null");
    }
    *count = given.token_count / given.block_size;
    if (*count > capacity && (local != nullptr || sequence != nullptr)) {
      return invalid("capacity is less than the prompt's full blocks");
    }
    stator::blocks::BlockHasher hasher(
        given.block_size,
        stator::blocks::hash_seed(given.lora_name == nullptr ? "" : given.lora_name,
                                  given.cache_salt == nullptr ? "" : given.cache_salt));
    hasher.append(std::span(given.tokens, given.token_count));
    for (size_t i = 0; i < *count; ++i) {
      if (local != nullptr) {
        local[i] = hasher.locals()[i].value();
      }
      if (sequence != nullptr) {
        sequence[i] = hasher.sequences()[i].value();
      }
    }
    return {};
  });
}

stator_router_status stator_router_select(stator_router* handle,
                                          const stator_router_request* request,
                                          stator_router_decision* decision) {
  return guarded([&]() -> Status {
    if (handle == nullptr || decision == nullptr) {
      return invalid("router or decision: null");
    }
    STATOR_TRY(const Wanted wanted, read_request(request, handle->block_size));
    const router::RouteRequest view = wanted.view(handle->block_size);
    const MutexLock lock(handle->mutex);
    STATOR_TRY([[maybe_unused]] const auto readiness, handle->core->consider(view));
    const router::Selection chosen = handle->core->select(view);
    write_struct(decision_of(chosen.worker, chosen.overlap_blocks,
                             view.prompt_tokens - chosen.cached_tokens),
                 decision);
    return {};
  });
}

stator_router_status stator_router_route(stator_router* handle,
                                         const stator_router_request* request,
                                         stator_router_decision* decision,
                                         stator_router_lease** lease) {
  return guarded([&]() -> Status {
    if (handle == nullptr || decision == nullptr || lease == nullptr) {
      return invalid("router, decision or lease: null");
    }
    STATOR_TRY(const Wanted wanted, read_request(request, handle->block_size));
    const router::RouteRequest view = wanted.view(handle->block_size);
    auto made = std::make_unique<stator_router_lease>();
    made->ground = handle->ground;
    const MutexLock lock(handle->mutex);
    STATOR_TRY([[maybe_unused]] const auto readiness, handle->core->consider(view));
    const router::Selection chosen = handle->core->select(view);
    const uint32_t prefill = view.prompt_tokens - chosen.cached_tokens;
    STATOR_TRY(made->lease, handle->core->book(chosen.worker, view, prefill));
    write_struct(decision_of(chosen.worker, chosen.overlap_blocks, prefill), decision);
    *lease = made.release();
    return {};
  });
}

void stator_router_lease_first_token(stator_router_lease* lease) {
  if (lease != nullptr) {
    lease->lease.mark_prefill_completed();
  }
}

void stator_router_lease_add_output_tokens(stator_router_lease* lease, uint32_t count) {
  if (lease != nullptr) {
    lease->lease.add_output_tokens(count);
  }
}

void stator_router_lease_free(stator_router_lease* lease) {
  const std::unique_ptr<stator_router_lease> gone(lease);
}

stator_router_status stator_router_read_load(stator_router* handle, uint64_t worker_id,
                                             uint32_t dp_rank, stator_router_load* load) {
  return guarded([&]() -> Status {
    if (handle == nullptr || load == nullptr) {
      return invalid("router or load: null");
    }
    STATOR_CHECK(check_known(*handle, key_of(worker_id, dp_rank)));
    const MutexLock lock(handle->mutex);
    const router::LoadRow row = handle->core->load_of(key_of(worker_id, dp_rank));
    write_struct(stator_router_load{.prefill_tokens = static_cast<uint64_t>(row.prefill_tokens),
                                    .active_blocks = static_cast<uint64_t>(row.active_blocks),
                                    .active_requests = static_cast<uint64_t>(row.active_requests)},
                 load);
    return {};
  });
}

}  // extern "C"
