// SPDX-License-Identifier: Apache-2.0
#pragma once

/* KV blocks of any engine in Stator's tiers: host memory, a disk folder that outlives the process,
 * a `stator store`, an object store. Plain C: no exceptions, no ownership beyond what is said.
 *
 *   stator_kv_options options = {.struct_size = sizeof options, .model = "…", .dtype = "bf16",
 *                                .layout = "my_engine/1", .block_tokens = 16, .block_bytes = bytes,
 *                                .host_bytes = 1 << 30, .store = "127.0.0.1:8095"};
 *   stator_kv_cache* kv;
 *   stator_kv_open(&options, &kv);
 *   int64_t memory = stator_kv_memory(kv, regions, 2 * layers, num_blocks);
 *   int64_t n = stator_kv_keys_of_tokens(kv, NULL, "", 0, tokens, count, keys, max);
 *   stator_kv_request request = {.struct_size = sizeof request, .keys = keys, .count = n,
 *                                .tokens = tokens, .memory = memory, .blocks = block_ids};
 *   int64_t op = stator_kv_get(kv, &request);
 *   stator_kv_wait(kv, op, 1000, &result);       … result.blocks of the first are in place …
 *   stator_kv_release(kv, op);
 *
 * All functions may be called from any thread; none blocks but open, close, wait and flush. A
 * function that gives an id or a count gives a negative status on failure; stator_kv_last_error()
 * says what to change. A null cache is STATOR_KV_INVALID. Strings end with 0 unless a length is
 * given; null is "". Structs grow at their end: `struct_size` says which fields the caller knows.
 *
 * What a get copies has been verified: namespace, name, digest of all tokens up to the block's end,
 * the tokens themselves where they are given, and a checksum over every byte. */

#include <stddef.h>
#include <stdint.h>

#if defined(STATOR_KV_BUILD)
#define STATOR_KV_API __attribute__((visibility("default")))
#else
#define STATOR_KV_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  STATOR_KV_IN_PROGRESS = 1,
  STATOR_KV_OK = 0,
  STATOR_KV_INVALID = -1,     /* an argument; stator_kv_last_error() names it */
  STATOR_KV_NOT_FOUND = -2,   /* no such operation, pin or memory */
  STATOR_KV_FULL = -3,        /* a bound of this interface is reached */
  STATOR_KV_DEADLINE = -4,    /* passed; the result counts what is in place all the same */
  STATOR_KV_IO = -5,          /* the operating system said no */
  STATOR_KV_UNAVAILABLE = -6, /* a tier does not answer */
  STATOR_KV_INTERNAL = -7
};

/* Bounds: keys of one call; open operations; registered memories; regions of a block. At most a
 * quarter of host memory is pinned by stages and pins, half by blocks on their way down. */
enum {
  STATOR_KV_KEYS_MAX = 65536,
  STATOR_KV_OPERATIONS_MAX = 65536,
  STATOR_KV_MEMORIES_MAX = 256,
  STATOR_KV_REGIONS_MAX = 65536
};

/* Memory 0: each block is one piece of block_bytes, and `blocks` has addresses. */
enum { STATOR_KV_POINTERS = 0 };

typedef struct stator_kv_cache stator_kv_cache;

/* Name (16 bytes) and proof (16) of a block in one namespace. */
typedef struct {
  uint8_t bytes[32];
} stator_kv_key;

typedef struct {
  size_t struct_size;
  /* The namespace: two caches that differ in any of these never share a byte. */
  const char* model;
  const char* revision;  /* of the weights: a digest, a commit */
  const char* tokenizer; /* its digest */
  const char* dtype;     /* of KV elements */
  const char* layout;    /* order of a block's bytes, rank and size of tensor parallelism */
  const char* salt;      /* an operator's own, to start over */
  uint32_t block_tokens; /* 0: blocks are named by text only */
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint64_t block_bytes; /* of all layers together, 512 MiB at most */
  /* The tiers. Too few host bytes for 16 blocks: so much that lower tiers can pass (64 MiB). */
  uint64_t host_bytes;
  const char* disk; /* folder of this process alone; null: none */
  uint64_t disk_bytes;
  uint64_t disk_write_bytes_per_day; /* 0: any */
  const char* store;                 /* "HOST:PORT" or "store://HOST:PORT"; null: none */
  /* "s3://BUCKET/PREFIX", "az://CONTAINER/PREFIX" (access key: the account, secret key: its key,
   * session token: a SAS token) or "file:///FOLDER"; null: none */
  const char* object;
  const char* object_endpoint; /* null: Amazon's, Azure's */
  const char* object_region;   /* null: us-east-1 */
  const char* object_access_key;
  const char* object_secret_key;
  const char* object_session_token;
  uint32_t copy_threads; /* 0: 1 */
  uint32_t flags;        /* STATOR_KV_WIPE_FOREIGN, STATOR_KV_TRUST_HOST */
} stator_kv_options;
enum {
  STATOR_KV_WIPE_FOREIGN = 1, /* a disk folder of another namespace is emptied, not refused */
  STATOR_KV_TRUST_HOST = 2    /* no checksum over blocks that come from host memory */
};

/* A piece of every block: that of block i is at address + i * stride. */
typedef struct {
  uint64_t address;
  uint64_t stride;
  uint64_t bytes;
} stator_kv_region;

typedef struct {
  size_t struct_size;
  const stator_kv_key* keys; /* in order of the sequence */
  size_t count;
  const uint32_t* tokens;      /* block_tokens for each key; null: not compared */
  const stator_kv_key* parent; /* put: of the block in front of the first; null: none */
  int64_t memory;              /* get, put: stator_kv_memory() or STATOR_KV_POINTERS */
  const uint64_t* blocks;      /* get, put: the engine's block for each key */
  uint32_t limit_ms;           /* deadline of what comes from below host memory; 0: none */
} stator_kv_request;

typedef struct {
  size_t struct_size;
  size_t present; /* so many of the first are in host memory or on disk */
  size_t host;    /* of these, in host memory */
  size_t disk;    /* of these, on disk only */
  int ask;        /* 1: a store may have more: stator_kv_probe(), stator_kv_stage() */
} stator_kv_found;

typedef struct {
  size_t struct_size;
  size_t blocks;    /* so many of the first: in place, staged, there, taken */
  size_t from_host; /* get, stage: of these, were in host memory before */
} stator_kv_result;

typedef struct {
  size_t struct_size;
  uint64_t host_slots, host_blocks, host_pinned, host_evictions;
  uint64_t disk_slots, disk_blocks;
  uint64_t waiting_down, dropped_down;
  uint64_t lookup_blocks, hit_blocks;
  uint64_t get_blocks, put_blocks, loaded_blocks; /* loaded: from tiers below host memory */
  uint64_t integrity_errors;
  uint64_t operations; /* open */
} stator_kv_stats;

/* Version of this interface, 1. */
STATOR_KV_API int stator_kv_version(void);
STATOR_KV_API const char* stator_kv_status_name(int status);
/* Of this thread's last call that failed. */
STATOR_KV_API const char* stator_kv_last_error(void);

/* A tier that cannot be used is named in the log (standard error) and left out. */
STATOR_KV_API int stator_kv_open(const stator_kv_options* options, stator_kv_cache** out);
/* Waits for what runs. Blocks that were not flushed may be missing below. */
STATOR_KV_API void stator_kv_close(stator_kv_cache* cache);

/* Where the engine keeps its blocks, until close. Gives an id above 0. */
STATOR_KV_API int64_t stator_kv_memory(stator_kv_cache* cache, const stator_kv_region* regions,
                                       size_t count, uint64_t blocks);

/* Keys of the full blocks of `tokens`; behind `parent`, or, where it is null, at the beginning of a
 * sequence of `owner` (adapter, tenant: equal tokens of two owners are two blocks). Gives how many;
 * at most `max` are written. */
STATOR_KV_API int64_t stator_kv_keys_of_tokens(stator_kv_cache* cache, const stator_kv_key* parent,
                                               const char* owner, size_t owner_bytes,
                                               const uint32_t* tokens, size_t count,
                                               stator_kv_key* keys, size_t max);
/* Key of a block that the engine names itself; the name must say all about its content. */
STATOR_KV_API int stator_kv_key_of_name(stator_kv_cache* cache, const char* name, size_t bytes,
                                        stator_kv_key* key);

/* Longest prefix in host memory and on disk. Microseconds. */
STATOR_KV_API int stator_kv_lookup(stator_kv_cache* cache, const stator_kv_key* keys, size_t count,
                                   stator_kv_found* out);

/* Operations: an id above 0, to be polled and released.
 * get: loads into the engine's memory, which is touched between start and end only.
 * put: copies out of it; at its end that memory is free, and blocks go down behind it.
 * stage: brings blocks into host memory and keeps them there until release. STATOR_KV_FULL: other
 * stages hold too much for all of them, ask again.
 * probe: counts what is there in any tier. */
STATOR_KV_API int64_t stator_kv_get(stator_kv_cache* cache, const stator_kv_request* request);
STATOR_KV_API int64_t stator_kv_put(stator_kv_cache* cache, const stator_kv_request* request);
STATOR_KV_API int64_t stator_kv_stage(stator_kv_cache* cache, const stator_kv_request* request);
STATOR_KV_API int64_t stator_kv_probe(stator_kv_cache* cache, const stator_kv_request* request);
/* STATOR_KV_OK, STATOR_KV_DEADLINE: done, `out` (may be null) says what. STATOR_KV_IN_PROGRESS. */
STATOR_KV_API int stator_kv_poll(stator_kv_cache* cache, int64_t operation, stator_kv_result* out);
STATOR_KV_API int stator_kv_wait(stator_kv_cache* cache, int64_t operation, uint32_t milliseconds,
                                 stator_kv_result* out);
/* Cancels what still loads. STATOR_KV_IN_PROGRESS: a copy is under way, ask again. */
STATOR_KV_API int stator_kv_release(stator_kv_cache* cache, int64_t operation);

/* Keeps the first blocks that are in host memory there, for `ttl_ms` at most; `blocks` (may be
 * null): how many. Gives an id; STATOR_KV_FULL: too much is pinned. */
STATOR_KV_API int64_t stator_kv_pin(stator_kv_cache* cache, const stator_kv_key* keys, size_t count,
                                    uint32_t ttl_ms, size_t* blocks);
STATOR_KV_API int stator_kv_unpin(stator_kv_cache* cache, int64_t pin);

/* Waits until all blocks are on disk and in the stores; STATOR_KV_DEADLINE: not yet. */
STATOR_KV_API int stator_kv_flush(stator_kv_cache* cache, uint32_t milliseconds);

STATOR_KV_API int stator_kv_get_stats(stator_kv_cache* cache, stator_kv_stats* out);
/* Prometheus text. Gives its bytes; they are copied if they fit into `size`. */
STATOR_KV_API int64_t stator_kv_metrics(stator_kv_cache* cache, char* out, size_t size);
/* Sizes of a block; `heads` of all ranks together. */
typedef struct {
  uint32_t layers;
  uint32_t outer; /* 2: keys and values; 1: both in one, or latent attention */
  uint32_t tokens;
  uint32_t heads;
  uint32_t head_bytes; /* one head of one token */
} stator_kv_shape;
/* Order of a rank's block, from the outermost on; the bytes of a head are innermost. */
enum {
  STATOR_KV_ORDER_NHD = 0,          /* layer, outer, token, head */
  STATOR_KV_ORDER_HND = 1,          /* layer, outer, head, token */
  STATOR_KV_ORDER_UNIVERSAL_TP = 2, /* head, layer, outer, token */
  STATOR_KV_ORDER_UNIVERSAL_PP = 3  /* layer, head, outer, token */
};
typedef struct {
  uint32_t ranks; /* of tensor parallelism: divides heads, or is a multiple of them */
  int order;
  void* const*
      blocks; /* of each rank; its share of the heads, or, of fewer heads than ranks, one */
} stator_kv_ranks;
/* Cuts a block over another number of ranks, or reorders it: fills the blocks of `targets` from
 * those of `sources`, which are only read. They do not overlap. Blocks until it is done. */
STATOR_KV_API int stator_kv_reshard(const stator_kv_shape* whole, const stator_kv_ranks* sources,
                                    const stator_kv_ranks* targets);
/* The namespace in 32 hex digits, as folders and stores name it; `out` has 33 bytes. */
STATOR_KV_API int stator_kv_namespace(stator_kv_cache* cache, char* out);

#ifdef __cplusplus
}
#endif
