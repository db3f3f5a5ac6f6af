// SPDX-License-Identifier: Apache-2.0
#pragma once

/* One-sided reads and writes between the registered memory of processes, files and objects, with a
 * notification once all bytes are there. Plain C: no exceptions, no ownership beyond what is said.
 *
 *   stator_transfer_agent* a = stator_transfer_create("prefill-0");
 *   stator_transfer_backend(a, "shm", "");
 *   stator_transfer_backend(a, "tcp", "host=127.0.0.1");
 *   void* memory = stator_transfer_allocate(a, bytes);
 *   stator_transfer_register(a, STATOR_MEM_DRAM, &range, 1);
 *   … exchange stator_transfer_metadata() with the other side …
 *   stator_transfer_load_peer(a, blob, size, peer, sizeof peer);
 *   int64_t mine = stator_transfer_list(a, "", STATOR_MEM_DRAM, ranges, n);
 *   int64_t theirs = stator_transfer_list(a, peer, STATOR_MEM_DRAM, their_ranges, n);
 *   int64_t t = stator_transfer_make(a, STATOR_WRITE, mine, theirs, "done");
 *   stator_transfer_post(a, t);
 *   stator_transfer_wait(a, t, 1000);
 *   stator_transfer_release(a, t);
 *
 * examples/two_processes.c is a whole program. Functions that give an id or a size give a negative
 * status on failure. All may be called from any thread. Strings end with 0;
 * a null agent is STATOR_INVALID_PARAM. */

#include <stddef.h>
#include <stdint.h>

#if defined(STATOR_TRANSFER_BUILD)
#define STATOR_TRANSFER_API __attribute__((visibility("default")))
#else
#define STATOR_TRANSFER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  STATOR_IN_PROGRESS = 1,
  STATOR_SUCCESS = 0,
  STATOR_NOT_POSTED = -1,
  STATOR_INVALID_PARAM = -2,
  STATOR_BACKEND = -3,
  STATOR_NOT_FOUND = -4,
  STATOR_MISMATCH = -5,
  STATOR_NOT_ALLOWED = -6,
  STATOR_REPOST_ACTIVE = -7,
  STATOR_UNKNOWN = -8,
  STATOR_NOT_SUPPORTED = -9,
  STATOR_REMOTE_DISCONNECT = -10,
  STATOR_CANCELED = -11,
  STATOR_NO_TELEMETRY = -12
};
enum {
  STATOR_MEM_DRAM = 0,
  STATOR_MEM_VRAM = 1,
  STATOR_MEM_BLK = 2,
  STATOR_MEM_OBJ = 3,
  STATOR_MEM_FILE = 4
};
enum { STATOR_READ = 0, STATOR_WRITE = 1 };

typedef struct stator_transfer_agent stator_transfer_agent;
typedef struct {
  uint64_t addr; /* of memory; offset in a file or object */
  uint64_t len;
  uint64_t dev; /* 0 for memory; what stator_transfer_register_named() gave */
} stator_transfer_range;
/* `count` ranges of `len` bytes, `stride` apart. */
typedef struct {
  uint64_t addr;
  uint64_t len;
  uint64_t dev;
  uint64_t stride;
  uint64_t count;
} stator_transfer_run;
/* What became of a transfer. */
typedef struct {
  double seconds;
  uint64_t bytes;
  uint64_t descriptors;
} stator_transfer_numbers;

/* Version of this interface, 1. */
STATOR_TRANSFER_API int stator_transfer_version(void);
STATOR_TRANSFER_API const char* stator_transfer_status_name(int status);

/* Null when `name` is empty. Destroying cancels and waits for what runs. */
STATOR_TRANSFER_API stator_transfer_agent* stator_transfer_create(const char* name);
STATOR_TRANSFER_API void stator_transfer_destroy(stator_transfer_agent* agent);

/* Names of backends with commas between, those of STATOR_TRANSFER_PLUGIN_DIR included: their bytes,
 * the final 0 left out; they are copied, cut to `size`. */
STATOR_TRANSFER_API int64_t stator_transfer_backend_types(char* out, size_t size);
/* `params`: "key=value" with commas between; "" for none. */
STATOR_TRANSFER_API int stator_transfer_backend(stator_transfer_agent* agent, const char* type,
                                                const char* params);
/* Memory that agents of this host can map, until the agent is destroyed; null: none is to be had.
 */
STATOR_TRANSFER_API void* stator_transfer_allocate(stator_transfer_agent* agent, size_t bytes);
STATOR_TRANSFER_API int stator_transfer_register(stator_transfer_agent* agent, int mem,
                                                 const stator_transfer_range* ranges, size_t count);
STATOR_TRANSFER_API int stator_transfer_deregister(stator_transfer_agent* agent, int mem,
                                                   const stator_transfer_range* ranges,
                                                   size_t count);
/* A file ("rw:/path", "ro:/path") or an object's key; gives the `dev` of its ranges, above 0. */
STATOR_TRANSFER_API int64_t stator_transfer_register_named(stator_transfer_agent* agent, int mem,
                                                           const char* meta);

/* Bytes of a registered file or object; STATOR_NOT_FOUND: it is not there. */
STATOR_TRANSFER_API int64_t stator_transfer_query(stator_transfer_agent* agent, int mem,
                                                  uint64_t dev);

/* Bytes of the metadata; they are copied if they fit into `size`. */
STATOR_TRANSFER_API int64_t stator_transfer_metadata(stator_transfer_agent* agent, void* out,
                                                     size_t size);
/* The same of these registrations only (none: how to reach the agent), to be loaded behind the
 * whole or another part; `connection` 0 leaves out how to reach it. */
STATOR_TRANSFER_API int64_t stator_transfer_partial_metadata(stator_transfer_agent* agent, int mem,
                                                             const stator_transfer_range* ranges,
                                                             size_t count, int connection,
                                                             void* out, size_t size);
/* Leaves the metadata at `place`, fetches that of `peer` from there, or takes ours back:
 * "etcd://HOST:PORT", "file:///FOLDER", or "tcp://ADDRESS:PORT" of an agent that listens, whose name
 * may be "". They block for two seconds at most. STATOR_NOT_FOUND: nobody left any;
 * STATOR_INVALID_PARAM: no such place; STATOR_BACKEND: it does not answer. */
STATOR_TRANSFER_API int stator_transfer_send_metadata(stator_transfer_agent* agent,
                                                      const char* place);
STATOR_TRANSFER_API int stator_transfer_fetch_metadata(stator_transfer_agent* agent,
                                                       const char* place, const char* peer,
                                                       char* name, size_t name_size);
STATOR_TRANSFER_API int stator_transfer_withdraw_metadata(stator_transfer_agent* agent,
                                                          const char* place);
/* Answers at `host` (a numeric address); gives the port, `port` or, for 0, a free one. Once. */
STATOR_TRANSFER_API int stator_transfer_listen(stator_transfer_agent* agent, const char* host,
                                               int port);
/* 1: the peer is known; 0: it is not. */
STATOR_TRANSFER_API int stator_transfer_knows(stator_transfer_agent* agent, const char* peer);
/* The peer's name goes into `name`. A part adds to what is known, a whole takes its place. */
STATOR_TRANSFER_API int stator_transfer_load_peer(stator_transfer_agent* agent, const void* blob,
                                                  size_t size, char* name, size_t name_size);
STATOR_TRANSFER_API int stator_transfer_forget_peer(stator_transfer_agent* agent, const char* name);

/* Ranges of `owner` ("" for this agent) made ready once. */
STATOR_TRANSFER_API int64_t stator_transfer_list(stator_transfer_agent* agent, const char* owner,
                                                 int mem, const stator_transfer_range* ranges,
                                                 size_t count);
STATOR_TRANSFER_API int64_t stator_transfer_list_runs(stator_transfer_agent* agent,
                                                      const char* owner, int mem,
                                                      const stator_transfer_run* runs,
                                                      size_t count);
STATOR_TRANSFER_API void stator_transfer_release_list(stator_transfer_agent* agent, int64_t list);

/* All of `local` from or to all of `remote`; `notification` may be null. */
STATOR_TRANSFER_API int64_t stator_transfer_make(stator_transfer_agent* agent, int op,
                                                 int64_t local, int64_t remote,
                                                 const char* notification);
/* Only ranges with these indices. */
STATOR_TRANSFER_API int64_t stator_transfer_make_indexed(
    stator_transfer_agent* agent, int op, int64_t local, const uint32_t* local_indices,
    int64_t remote, const uint32_t* remote_indices, size_t count, const char* notification);
/* STATOR_IN_PROGRESS, or the outcome if it was over at once (a small copy), or why not. */
STATOR_TRANSFER_API int stator_transfer_post(stator_transfer_agent* agent, int64_t transfer);
STATOR_TRANSFER_API int stator_transfer_status(stator_transfer_agent* agent, int64_t transfer);
/* Waits for the end, at most so long. */
STATOR_TRANSFER_API int stator_transfer_wait(stator_transfer_agent* agent, int64_t transfer,
                                             uint32_t milliseconds);
/* Why it failed, in words: their bytes, cut to `size`. */
STATOR_TRANSFER_API int64_t stator_transfer_cause(stator_transfer_agent* agent, int64_t transfer,
                                                  char* out, size_t size);
/* The first of its ranges that was not moved, from 0; STATOR_NOT_FOUND: it has not failed. */
STATOR_TRANSFER_API int64_t stator_transfer_failed_range(stator_transfer_agent* agent,
                                                         int64_t transfer);
/* STATOR_NO_TELEMETRY unless it has succeeded. */
STATOR_TRANSFER_API int stator_transfer_telemetry(stator_transfer_agent* agent, int64_t transfer,
                                                  stator_transfer_numbers* out);
/* Microseconds it will take, by what its backend moved lately; STATOR_NO_TELEMETRY: nothing yet. */
STATOR_TRANSFER_API int64_t stator_transfer_estimate(stator_transfer_agent* agent,
                                                     int64_t transfer);
/* The backend that moves it. */
STATOR_TRANSFER_API int64_t stator_transfer_backend_of(stator_transfer_agent* agent,
                                                       int64_t transfer, char* out, size_t size);
/* STATOR_IN_PROGRESS: it was cancelled and is not over yet; ask again. */
STATOR_TRANSFER_API int stator_transfer_release(stator_transfer_agent* agent, int64_t transfer);

/* The next notification: STATOR_SUCCESS and both texts, or STATOR_NOT_FOUND. Cut to the sizes. */
STATOR_TRANSFER_API int stator_transfer_next_notification(stator_transfer_agent* agent, char* peer,
                                                          size_t peer_size, char* message,
                                                          size_t message_size);
STATOR_TRANSFER_API int stator_transfer_notify(stator_transfer_agent* agent, const char* peer,
                                               const char* message);

#ifdef __cplusplus
}
#endif
