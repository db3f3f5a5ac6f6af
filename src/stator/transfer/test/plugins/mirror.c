/* SPDX-License-Identifier: Apache-2.0
 * A backend as others write one: objects in memory of its own. Parameter slow=N: a transfer is over
 * at the Nth look. */
#include <stdlib.h>
#include <string.h>

#include "stator/transfer/stator_transfer_backend.h"

enum { kObjects = 4, kObjectBytes = 4096 };
struct mirror {
  unsigned char bytes[kObjects + 1][kObjectBytes];
  uint64_t last;
  int slow;
};
struct request {
  int looks;
  int ended;
  size_t failed;
};

static void* create(const stator_transfer_host* host, const char* params, char* cause,
                    size_t cause_size) {
  struct mirror* self = NULL;
  if (host->size < sizeof *host || (*params != 0 && strncmp(params, "slow=", 5) != 0)) {
    strncpy(cause, "only slow=N is known", cause_size - 1);
    return NULL;
  }
  self = calloc(1, sizeof *self);
  if (self != NULL && *params != 0) {
    self->slow = atoi(params + 5);
  }
  return self;
}

static int supports(void* self, int local, int remote) {
  (void)self;
  return local == STATOR_MEM_DRAM && remote == STATOR_MEM_OBJ;
}

static int open_object(void* self, int mem, const char* name, uint64_t* dev) {
  struct mirror* mirror = self;
  if (mem != STATOR_MEM_OBJ || *name == 0 || mirror->last == kObjects) {
    return STATOR_INVALID_PARAM;
  }
  *dev = ++mirror->last;
  return STATOR_SUCCESS;
}

static int query(void* self, uint64_t dev, uint64_t* bytes) {
  if (dev == 0 || dev > ((struct mirror*)self)->last) {
    return STATOR_NOT_FOUND;
  }
  *bytes = kObjectBytes;
  return STATOR_SUCCESS;
}

static int post(void* self, const stator_transfer_job* job, void** out) {
  struct mirror* mirror = self;
  struct request* request = calloc(1, sizeof *request);
  size_t i;
  if (request == NULL) {
    return STATOR_BACKEND;
  }
  request->looks = mirror->slow;
  for (i = 0; i < job->count && request->ended == STATOR_SUCCESS; ++i) {
    const stator_transfer_pair* pair = &job->pairs[i];
    if (pair->remote.addr + pair->remote.len > kObjectBytes) {
      request->ended = STATOR_NOT_FOUND;
      request->failed = i;
    } else {
      unsigned char* object = mirror->bytes[pair->remote.dev] + pair->remote.addr;
      void* memory = (void*)(uintptr_t)pair->local.addr;
      memcpy(job->op == STATOR_WRITE ? (void*)object : memory,
             job->op == STATOR_WRITE ? memory : (void*)object, pair->local.len);
    }
  }
  *out = request;
  return STATOR_IN_PROGRESS;
}

static int check(void* self, void* request, size_t* failed) {
  struct request* one = request;
  (void)self;
  *failed = one->failed;
  return --one->looks > 0 ? STATOR_IN_PROGRESS : one->ended;
}

static int release(void* self, void* request) {
  (void)self;
  free(request);
  return STATOR_SUCCESS;
}

const stator_transfer_backend_v1* stator_transfer_plugin_v1(void) {
  static stator_transfer_backend_v1 table;
  table.size = sizeof table;
#ifdef STATOR_TEST_OLD_PLUGIN
  table.api_version = STATOR_TRANSFER_BACKEND_API + 1;
  table.name = "old";
#else
  table.api_version = STATOR_TRANSFER_BACKEND_API;
  table.name = "mirror";
#endif
  table.options = "slow=0";
  table.mem_types = 1u << STATOR_MEM_DRAM | 1u << STATOR_MEM_OBJ;
  table.create = create;
  table.destroy = free;
  table.supports = supports;
  table.open = open_object;
  table.query = query;
  table.post = post;
  table.check = check;
  table.release = release;
  return &table;
}
