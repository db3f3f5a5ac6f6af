/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver as the "cuda" backend uses it, over host memory: copies are queued on a stream and
 * run when an event behind them is asked for the third time. Two "GPUs". */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalid = 1, kNotInitialized = 3, kNoContext = 201, kNotReady = 600 };
enum { kQueueMax = 4096 };

struct copy {
  unsigned char* to;
  const unsigned char* from;
  size_t size;
};
struct stream {
  struct copy queue[kQueueMax];
  size_t queued;
  size_t run;
};
struct event {
  struct stream* stream;
  size_t until;
  int asked;
};

static int ready;
static __thread void* current;

int cuInit(unsigned flags) {
  ready = 1;
  return flags == 0 ? kSuccess : kInvalid;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return ready ? kSuccess : kNotInitialized;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? kSuccess : kInvalid;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  static int contexts[2];
  *context = &contexts[device];
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  return device < 2 ? kSuccess : kInvalid;
}
int cuCtxSetCurrent(void* context) {
  current = context;
  return kSuccess;
}
int cuStreamCreate(void** stream, unsigned flags) {
  *stream = calloc(1, sizeof(struct stream));
  return current != NULL && flags == 1 ? kSuccess : kNoContext;
}
int cuStreamDestroy_v2(void* stream) {
  free(stream);
  return kSuccess;
}
int cuEventCreate(void** event, unsigned flags) {
  *event = calloc(1, sizeof(struct event));
  return current != NULL && flags == 2 ? kSuccess : kNoContext;
}
int cuEventRecord(void* event, void* stream) {
  ((struct event*)event)->stream = stream;
  ((struct event*)event)->until = ((struct stream*)stream)->queued;
  return kSuccess;
}
int cuEventQuery(void* event) {
  struct event* one = event;
  if (++one->asked < 3) {
    return kNotReady;
  }
  for (; one->stream->run < one->until; ++one->stream->run) {
    const struct copy* copy = &one->stream->queue[one->stream->run];
    memcpy(copy->to, copy->from, copy->size);
  }
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  free(event);
  return kSuccess;
}
static int queue(void* stream, void* to, const void* from, size_t size) {
  struct stream* one = stream;
  if (current == NULL || one->queued == kQueueMax) {
    return kNoContext;
  }
  one->queue[one->queued].to = to;
  one->queue[one->queued].from = from;
  one->queue[one->queued++].size = size;
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t size, void* stream) {
  return queue(stream, (void*)(size_t)to, from, size);
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size, void* stream) {
  return queue(stream, to, (const void*)(size_t)from, size);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size,
                         void* stream) {
  return queue(stream, (void*)(size_t)to, (const void*)(size_t)from, size);
}
int cuMemHostRegister_v2(void* memory, size_t size, unsigned flags) {
  return memory != NULL && size > 0 && flags == 1 ? kSuccess : kInvalid;
}
int cuMemHostUnregister(void* memory) {
  return memory != NULL ? kSuccess : kInvalid;
}
