// SPDX-License-Identifier: Apache-2.0
#pragma once

/* How a backend of the transfer library is written, in plain C: a table of functions. A shared
 * library in the folder STATOR_TRANSFER_PLUGIN_DIR that exports stator_transfer_plugin_v1() adds
 * one; "ucx" and "cuda" are written against the same table.
 *
 * The agent calls post() and then check() until the request is over, from the threads that move
 * bytes, several at once for several requests. The other functions are called by one thread at a
 * time. None may throw. Statuses are those of stator_transfer.h. Strings end with 0. */

#include "stator/transfer/stator_transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tables with another api_version are refused. Later versions only append to the structs, whose
 * `size` tells how far they go. */
#define STATOR_TRANSFER_BACKEND_API 1u
#define STATOR_TRANSFER_PLUGIN_SYMBOL "stator_transfer_plugin_v1"

enum {
  STATOR_BACKEND_REMOTE = 1, /* reaches other agents; without it only this one */
  STATOR_BACKEND_NOTIFY = 2  /* carries notifications */
};

/* What the agent offers; valid until destroy() returns. */
typedef struct {
  uint32_t size;
  void* context;
  const char* agent; /* its name */
  uint64_t epoch;    /* of this life of the agent */
  /* A notification came. Not from within register_mem(), connect() or disconnect(). */
  void (*deliver)(void* context, const char* peer, const void* message, size_t size);
} stator_transfer_host;

typedef struct {
  stator_transfer_range local;
  stator_transfer_range remote; /* of equal length */
} stator_transfer_pair;

/* One transfer. What it points to stays until the request is released. */
typedef struct {
  uint32_t size;
  int op; /* STATOR_READ: remote to local */
  int local_mem;
  int remote_mem;
  const char* peer; /* "": this agent */
  const stator_transfer_pair* pairs;
  size_t count;
  const void* notification; /* told to the peer when all bytes are visible there */
  size_t notification_size; /* 0: nothing is told */
} stator_transfer_job;

/* Functions that may be null are marked so. `self` is what create() gave. */
typedef struct {
  uint32_t size;
  uint32_t api_version;
  const char* name;
  const char* options; /* "key=default,…": what create() understands */
  uint32_t mem_types;  /* bits 1 << STATOR_MEM_… */
  uint32_t capabilities;

  /* `params`: "key=value,…". Null, and why, when it cannot start. */
  void* (*create)(const stator_transfer_host* host, const char* params, char* cause,
                  size_t cause_size);
  void (*destroy)(void* self); /* nothing is posted any more */
  int (*supports)(void* self, int local_mem, int remote_mem);

  /* One contiguous range at a time. May be null. */
  int (*register_mem)(void* self, int mem, const stator_transfer_range* range);
  int (*deregister_mem)(void* self, int mem, const stator_transfer_range* range);

  /* A file or object by name; gives the `dev` of its ranges, above 0. May be null. */
  int (*open)(void* self, int mem, const char* name, uint64_t* dev);
  void (*close)(void* self, uint64_t dev);
  int (*query)(void* self, uint64_t dev, uint64_t* bytes);

  /* For STATOR_BACKEND_REMOTE: what others need to reach this one and its registered memory.
   * Bytes needed; they are copied if they fit. At most 1 MiB. */
  int64_t (*conn_info)(void* self, void* out, size_t size);
  /* Replaces what was known of the peer. The bytes come from another process: check them. */
  int (*connect)(void* self, const char* peer, const void* info, size_t size);
  void (*disconnect)(void* self, const char* peer);

  /* STATOR_IN_PROGRESS and a request, or how it ended at once. Never blocks. */
  int (*post)(void* self, const stator_transfer_job* job, void** request);
  /* How the request ended, which pair failed; STATOR_IN_PROGRESS: call again. Never blocks. */
  int (*check)(void* self, void* request, size_t* failed_pair);
  /* Sleeps until the request may have got on, at most so long. May be null. */
  void (*wait)(void* self, void* request, uint32_t microseconds);
  /* Cancels one under way. STATOR_IN_PROGRESS: memory is still in use, call again. */
  int (*release)(void* self, void* request);

  /* For STATOR_BACKEND_NOTIFY: a notification without a transfer. */
  int (*notify)(void* self, const char* peer, const void* message, size_t size);
} stator_transfer_backend_v1;

typedef const stator_transfer_backend_v1* (*stator_transfer_plugin_function)(void);

#ifdef __cplusplus
}
#endif
