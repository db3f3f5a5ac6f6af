// SPDX-License-Identifier: Apache-2.0
#pragma once

// libstator_router: the router as a library with a plain C interface, for gateways in any language.
// It chooses a worker for a request by cached prefix and load, and books what it chose.
//
//   stator_router_config config = {.struct_size = sizeof(config), .block_size = 16};
//   stator_router* router;
//   if (stator_router_create(&config, &router) != STATOR_ROUTER_OK)
//   puts(stator_router_last_error()); …add workers, apply their KV events… stator_router_lease*
//   lease; stator_router_route(router, &request, &decision, &lease); …send the request to
//   decision.worker_id…; stator_router_lease_first_token(lease); stator_router_lease_free(lease);
//   // whichever way the request ended stator_router_destroy(router);
//
// Rules for every function:
// - Thread-safe, except that one lease is used by one thread at a time. No callbacks, no threads of
//   its own, no I/O. Nothing throws or aborts on bad arguments: a null handle is INVALID_ARGUMENT.
// - Strings are UTF-8 with a final zero and are copied. Arrays are read before the call returns; a
//   null array of length 0 is fine. Out parameters are written only on STATOR_ROUTER_OK, unless
//   said.
// - Structs begin with `struct_size`, set to sizeof by the caller: callers compiled against an
//   older header keep working, the fields they do not know have their defaults. Zero in a field
//   means its default.
// - Times of requests are taken from the machine's steady clock.

#include <stddef.h>
#include <stdint.h>

#if defined(STATOR_ROUTER_BUILD)
#define STATOR_ROUTER_API __attribute__((visibility("default")))
#else
#define STATOR_ROUTER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// Grows when something is added; a change that breaks callers changes the library's name.
#define STATOR_ROUTER_ABI_VERSION 1

typedef enum stator_router_status {
  STATOR_ROUTER_OK = 0,
  STATOR_ROUTER_INVALID_ARGUMENT = 1,  ///< the message says which
  STATOR_ROUTER_NOT_FOUND = 2,         ///< unknown worker
  STATOR_ROUTER_OVERLOADED = 3,        ///< all workers are beyond the thresholds
  STATOR_ROUTER_UNAVAILABLE = 4,       ///< no worker may take the request
  STATOR_ROUTER_INTERNAL = 5           ///< out of memory, or a bug of ours
} stator_router_status;

typedef struct stator_router stator_router;              ///< workers, index, policy, load
typedef struct stator_router_lease stator_router_lease;  ///< one request's booked load

typedef struct stator_router_config {
  size_t struct_size;
  const char* mode;     ///< "predicted_latency" (default), "kv", … as of `stator serve --router`
  const char* index;    ///< "chain" (default): from KV events; "ttl": from our own decisions
  uint32_t block_size;  ///< tokens per KV block, default 16
  uint32_t reserved;    ///< 0
  uint64_t index_bytes_max;  ///< memory of the index, default 1 GiB
  uint64_t seed;             ///< of ties and temperature; 0: from the system
  double overlap_credit;  ///< of a cached block against one block of load; 0: 1.0, negative: none
  double temperature;     ///< softmax over costs; 0: always the cheapest
  double prefill_tokens_max;  ///< a worker with more tokens to compute gets nothing; 0: no limit
} stator_router_config;

typedef struct stator_router_worker {
  size_t struct_size;
  uint64_t worker_id;
  uint32_t dp_rank;                 ///< each rank is a worker of its own
  uint32_t total_kv_blocks;         ///< 0: unknown
  uint32_t max_num_batched_tokens;  ///< 0: unknown
  uint32_t taint_count;
  const char* const* taints;  ///< e.g. "dynamo.topology/zone=a"
} stator_router_worker;

/// Consecutive blocks that one worker stored.
typedef struct stator_router_run {
  size_t struct_size;
  uint64_t worker_id;
  uint32_t dp_rank;
  uint32_t has_parent;       ///< 0: the run begins at the root
  uint64_t parent;           ///< external id of the block before the first one
  const uint64_t* external;  ///< the worker's own ids
  const uint64_t* local;     ///< content hashes, from stator_router_hash_blocks
  size_t count;
} stator_router_run;

/// Token ids and what keeps their blocks apart from equal tokens elsewhere.
typedef struct stator_router_prompt {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
  const char* lora_name;   ///< null: the base model
  const char* cache_salt;  ///< null: shared
  uint32_t block_size;     ///< tokens, at least 1
  uint32_t reserved;
} stator_router_prompt;

typedef struct stator_router_request {
  size_t struct_size;
  const char* request_id;              ///< may be null
  uint64_t prompt_tokens;              ///< prompt length in tokens, 1 … 2^32 − 1
  const uint64_t* sequence_hashes;     ///< of its full blocks, from stator_router_hash_blocks
  size_t sequence_count;               ///< at most prompt_tokens / block_size
  const uint64_t* allowed_worker_ids;  ///< only these; empty: all
  size_t allowed_count;
  const char* const* required_taints;  ///< only workers with all of them
  size_t required_count;
  uint64_t expected_output_tokens;  ///< 0: not known
} stator_router_request;

typedef struct stator_router_decision {
  size_t struct_size;  ///< set by the caller
  uint64_t worker_id;
  uint32_t dp_rank;
  uint32_t overlap_blocks;  ///< of the prompt, on the worker's device
  uint32_t prefill_tokens;  ///< to be computed there
  uint32_t reserved;
} stator_router_decision;

typedef struct stator_router_load {
  size_t struct_size;  ///< set by the caller
  uint64_t prefill_tokens;
  uint64_t active_blocks;
  uint64_t active_requests;
} stator_router_load;

/// STATOR_ROUTER_ABI_VERSION of the library.
STATOR_ROUTER_API uint32_t stator_router_abi_version(void);

/// What went wrong in this thread's last failed call; never null, valid until its next failing
/// call.
STATOR_ROUTER_API const char* stator_router_last_error(void);

/// INVALID_ARGUMENT for an unknown mode or index, or a number out of range.
STATOR_ROUTER_API stator_router_status stator_router_create(const stator_router_config* config,
                                                            stator_router** router);
/// Leases may outlive it. Null is ignored. No other call may be under way.
STATOR_ROUTER_API void stator_router_destroy(stator_router* router);

/// A worker that is known takes work again, with these facts.
STATOR_ROUTER_API stator_router_status stator_router_add_worker(stator_router* router,
                                                                const stator_router_worker* worker);
/// Forgets the worker and its blocks; its leases end harmlessly. NOT_FOUND.
STATOR_ROUTER_API stator_router_status stator_router_remove_worker(stator_router* router,
                                                                   uint64_t worker_id,
                                                                   uint32_t dp_rank);
/// A draining worker gets nothing new but keeps its blocks. NOT_FOUND.
STATOR_ROUTER_API stator_router_status stator_router_set_draining(stator_router* router,
                                                                  uint64_t worker_id,
                                                                  uint32_t dp_rank, int draining);

/// The worker stored a run of blocks. A run whose parent is not known is left out (NOT_FOUND); that
/// under-counts, never over-counts.
STATOR_ROUTER_API stator_router_status stator_router_apply_stored(stator_router* router,
                                                                  const stator_router_run* run);
/// The worker dropped these blocks; unknown ones are ignored.
STATOR_ROUTER_API stator_router_status stator_router_apply_removed(stator_router* router,
                                                                   uint64_t worker_id,
                                                                   uint32_t dp_rank,
                                                                   const uint64_t* external,
                                                                   size_t count);
/// The worker dropped everything.
STATOR_ROUTER_API stator_router_status stator_router_apply_cleared(stator_router* router,
                                                                   uint64_t worker_id,
                                                                   uint32_t dp_rank);

/// Hashes of the full blocks of a prompt: `local` (content of one block) and `sequence` (of it and
/// all before it), each with room for `capacity`; either may be null. `count` gets the number of
/// full blocks, also when that is more than `capacity` and INVALID_ARGUMENT is returned.
STATOR_ROUTER_API stator_router_status stator_router_hash_blocks(const stator_router_prompt* prompt,
                                                                 uint64_t* local,
                                                                 uint64_t* sequence,
                                                                 size_t capacity, size_t* count);

/// Chooses a worker and books nothing. UNAVAILABLE, OVERLOADED.
STATOR_ROUTER_API stator_router_status stator_router_select(stator_router* router,
                                                            const stator_router_request* request,
                                                            stator_router_decision* decision);
/// Chooses a worker and books the request's load there, in one step.
STATOR_ROUTER_API stator_router_status stator_router_route(stator_router* router,
                                                           const stator_router_request* request,
                                                           stator_router_decision* decision,
                                                           stator_router_lease** lease);
/// The prompt is computed: no longer work to come. Again is harmless, as is null.
STATOR_ROUTER_API void stator_router_lease_first_token(stator_router_lease* lease);
/// So many more output tokens.
STATOR_ROUTER_API void stator_router_lease_add_output_tokens(stator_router_lease* lease,
                                                             uint32_t count);
/// Gives the load back and destroys the lease. Null is ignored.
STATOR_ROUTER_API void stator_router_lease_free(stator_router_lease* lease);

/// How loaded a worker is by what was booked here. NOT_FOUND.
STATOR_ROUTER_API stator_router_status stator_router_read_load(stator_router* router,
                                                               uint64_t worker_id, uint32_t dp_rank,
                                                               stator_router_load* load);

#ifdef __cplusplus
}
#endif
