// SPDX-License-Identifier: Apache-2.0
// The "cuda" backend: copies between host memory and GPUs of this process, where a driver is.
#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/mutex.h"
#include "stator/transfer/plugins.h"

namespace stator::transfer {
namespace {

// What is used of CUDA's driver API, by its documented ABI.
using CuResult = int;
using CuDevice = int;
using CuContext = void*;
using CuStream = void*;
using CuEvent = void*;
using CuPointer = unsigned long long;
constexpr CuResult kCuSuccess = 0;
constexpr CuResult kCuNotReady = 600;
constexpr CuResult kCuAlreadyRegistered = 712;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostRegisterPortable = 1;

/// The driver, loaded at run time.
struct Driver {
  CuResult (*init)(unsigned flags) = nullptr;
  CuResult (*count)(int* count) = nullptr;
  CuResult (*device)(CuDevice* device, int ordinal) = nullptr;
  CuResult (*retain)(CuContext* context, CuDevice device) = nullptr;
  CuResult (*release)(CuDevice device) = nullptr;
  CuResult (*set_current)(CuContext context) = nullptr;
  CuResult (*stream_create)(CuStream* stream, unsigned flags) = nullptr;
  CuResult (*stream_destroy)(CuStream stream) = nullptr;
  CuResult (*event_create)(CuEvent* event, unsigned flags) = nullptr;
  CuResult (*event_record)(CuEvent event, CuStream stream) = nullptr;
  CuResult (*event_query)(CuEvent event) = nullptr;
  CuResult (*event_destroy)(CuEvent event) = nullptr;
  CuResult (*to_device)(CuPointer to, const void* from, size_t size, CuStream stream) = nullptr;
  CuResult (*to_host)(void* to, CuPointer from, size_t size, CuStream stream) = nullptr;
  CuResult (*within)(CuPointer to, CuPointer from, size_t size, CuStream stream) = nullptr;
  CuResult (*pin)(void* memory, size_t size, unsigned flags) = nullptr;
  CuResult (*unpin)(void* memory) = nullptr;

  bool load(const std::string& file, std::string& cause);
};

template <typename Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool Driver::load(const std::string& file, std::string& cause) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    cause = file + " does not load: this host has no NVIDIA driver";
    return false;
  }
  const bool all =
      bind(library, "cuInit", init) && bind(library, "cuDeviceGetCount", count) &&
      bind(library, "cuDeviceGet", device) && bind(library, "cuDevicePrimaryCtxRetain", retain) &&
      bind(library, "cuDevicePrimaryCtxRelease_v2", release) &&
      bind(library, "cuCtxSetCurrent", set_current) &&
      bind(library, "cuStreamCreate", stream_create) &&
      bind(library, "cuStreamDestroy_v2", stream_destroy) &&
      bind(library, "cuEventCreate", event_create) &&
      bind(library, "cuEventRecord", event_record) && bind(library, "cuEventQuery", event_query) &&
      bind(library, "cuEventDestroy_v2", event_destroy) &&
      bind(library, "cuMemcpyHtoDAsync_v2", to_device) &&
      bind(library, "cuMemcpyDtoHAsync_v2", to_host) &&
      bind(library, "cuMemcpyDtoDAsync_v2", within) && bind(library, "cuMemHostRegister_v2", pin) &&
      bind(library, "cuMemHostUnregister", unpin);
  if (!all) {
    cause = file + " lacks functions of CUDA 11 or newer";
  }
  return all;
}

/// A GPU that is used: its context and a stream for each direction.
struct Gpu {
  CuDevice device = 0;
  CuContext context = nullptr;
  CuStream to_device = nullptr;
  CuStream to_host = nullptr;
};

struct Request {
  Gpu* gpu = nullptr;
  CuEvent copied = nullptr;  // after the last copy
  int failed = STATOR_SUCCESS;
  size_t failed_pair = 0;
};

/// Host memory is pinned when it is registered. Copies are queued on the GPU's streams; an event
/// behind the last tells when they are over.
class Cuda {
 public:
  bool start(const std::string& library, std::string& cause) {
    int gpus = 0;
    if (!driver_.load(library, cause)) {
      return false;
    }
    if (driver_.init(0) != kCuSuccess || driver_.count(&gpus) != kCuSuccess || gpus == 0) {
      cause = "the driver finds no GPU";
      return false;
    }
    return true;
  }
  Cuda() = default;
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;
  ~Cuda() {
    const MutexLock lock(mutex_);
    for (const auto& [ordinal, gpu] : gpus_) {
      driver_.set_current(gpu->context);
      driver_.stream_destroy(gpu->to_device);
      driver_.stream_destroy(gpu->to_host);
      driver_.release(gpu->device);
    }
  }

  int register_mem(int mem, const stator_transfer_range& range) {
    Gpu* const gpu = use(mem == STATOR_MEM_VRAM ? range.dev : 0);
    if (gpu == nullptr) {
      return STATOR_NOT_FOUND;
    }
    if (mem == STATOR_MEM_VRAM) {
      return STATOR_SUCCESS;
    }
    const CuResult pinned =
        driver_.pin(reinterpret_cast<void*>(range.addr), range.len, kHostRegisterPortable);
    return pinned == kCuSuccess || pinned == kCuAlreadyRegistered ? STATOR_SUCCESS : STATOR_BACKEND;
  }
  int deregister_mem(int mem, const stator_transfer_range& range) {
    if (mem == STATOR_MEM_DRAM && use(0) != nullptr) {
      driver_.unpin(reinterpret_cast<void*>(range.addr));
    }
    return STATOR_SUCCESS;
  }

  int post(const stator_transfer_job& job, void** out) {
    if (job.count == 0) {
      return STATOR_SUCCESS;
    }
    const bool local_is_gpu = job.local_mem == STATOR_MEM_VRAM;
    Gpu* const gpu = use(local_is_gpu ? job.pairs[0].local.dev : job.pairs[0].remote.dev);
    if (gpu == nullptr) {
      return STATOR_NOT_FOUND;
    }
    auto request = std::make_unique<Request>();
    request->gpu = gpu;
    const bool down = (job.op == STATOR_WRITE) == local_is_gpu;  // from the GPU
    CuStream const stream = down ? gpu->to_host : gpu->to_device;
    if (driver_.event_create(&request->copied, kEventDisableTiming) != kCuSuccess) {
      return STATOR_BACKEND;
    }
    for (size_t i = 0; i < job.count && request->failed == STATOR_SUCCESS; ++i) {
      if (copy(job, job.pairs[i], stream) != kCuSuccess) {
        request->failed = STATOR_BACKEND;
        request->failed_pair = i;
      }
    }
    if (driver_.event_record(request->copied, stream) != kCuSuccess) {
      request->failed = STATOR_BACKEND;
    }
    *out = request.release();
    return STATOR_IN_PROGRESS;
  }

  int check(Request& request, size_t* failed) {
    *failed = request.failed_pair;
    driver_.set_current(request.gpu->context);
    const CuResult state = driver_.event_query(request.copied);
    if (state == kCuNotReady) {
      return STATOR_IN_PROGRESS;
    }
    return state == kCuSuccess ? request.failed : static_cast<int>(STATOR_BACKEND);
  }

  int release(Request* request) {
    size_t failed = 0;
    if (check(*request, &failed) == STATOR_IN_PROGRESS) {
      return STATOR_IN_PROGRESS;  // what a GPU copies cannot be stopped
    }
    driver_.event_destroy(request->copied);
    const std::unique_ptr<Request> owned(request);
    return STATOR_SUCCESS;
  }

 private:
  CuResult copy(const stator_transfer_job& job, const stator_transfer_pair& pair, CuStream stream) {
    const bool write = job.op == STATOR_WRITE;
    const uint64_t to = write ? pair.remote.addr : pair.local.addr;
    const uint64_t from = write ? pair.local.addr : pair.remote.addr;
    const bool to_gpu = (write ? job.remote_mem : job.local_mem) == STATOR_MEM_VRAM;
    const bool from_gpu = (write ? job.local_mem : job.remote_mem) == STATOR_MEM_VRAM;
    if (to_gpu && from_gpu) {
      return driver_.within(to, from, pair.local.len, stream);
    }
    return to_gpu
               ? driver_.to_device(to, reinterpret_cast<const void*>(from), pair.local.len, stream)
               : driver_.to_host(reinterpret_cast<void*>(to), from, pair.local.len, stream);
  }

  /// The GPU, made this thread's; null: there is none of that number.
  Gpu* use(uint64_t ordinal) {
    const MutexLock lock(mutex_);
    auto& known = gpus_[ordinal];
    if (known == nullptr) {
      auto gpu = std::make_unique<Gpu>();
      if (driver_.device(&gpu->device, static_cast<int>(ordinal)) != kCuSuccess ||
          driver_.retain(&gpu->context, gpu->device) != kCuSuccess ||
          driver_.set_current(gpu->context) != kCuSuccess ||
          driver_.stream_create(&gpu->to_device, kStreamNonBlocking) != kCuSuccess ||
          driver_.stream_create(&gpu->to_host, kStreamNonBlocking) != kCuSuccess) {
        gpus_.erase(ordinal);
        return nullptr;
      }
      known = std::move(gpu);
    }
    driver_.set_current(known->context);
    return known.get();
  }

  Driver driver_;
  Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Gpu>> gpus_ STATOR_GUARDED_BY(mutex_);
};

void* create_cuda(const stator_transfer_host* /*host*/, const char* params, char* cause,
                  size_t cause_size) {
  std::string_view text = params;
  std::string library = "libcuda.so.1";
  constexpr std::string_view kLibrary = "library=";
  std::string why;
  if (text.starts_with(kLibrary)) {
    library = text.substr(kLibrary.size());
  } else if (!text.empty()) {
    why = fmt::format("{} is no parameter: library=FILE", text);
  }
  auto made = std::make_unique<Cuda>();
  if (why.empty() && made->start(library, why)) {
    return made.release();
  }
  cause[why.copy(cause, cause_size - 1)] = '\0';
  return nullptr;
}

Cuda& cuda(void* self) {
  return *static_cast<Cuda*>(self);
}

int has_path(void* /*self*/, int local, int remote) {
  const bool memory = (local == STATOR_MEM_DRAM || local == STATOR_MEM_VRAM) &&
                      (remote == STATOR_MEM_DRAM || remote == STATOR_MEM_VRAM);
  return memory && (local == STATOR_MEM_VRAM || remote == STATOR_MEM_VRAM) ? 1 : 0;
}

void rest(void* /*self*/, void* /*request*/, uint32_t microseconds) {
  constexpr uint32_t kMostMicros = 50;  // nothing wakes it earlier
  const timespec pause{.tv_sec = 0,
                       .tv_nsec = static_cast<long>(std::min(microseconds, kMostMicros)) * 1000};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

const stator_transfer_backend_v1& cuda_table() {
  static const stator_transfer_backend_v1 table{
      .size = sizeof table,
      .api_version = STATOR_TRANSFER_BACKEND_API,
      .name = "cuda",
      .options = "library=libcuda.so.1",
      .mem_types = 1U << STATOR_MEM_DRAM | 1U << STATOR_MEM_VRAM,
      .capabilities = 0,
      .create = &create_cuda,
      .destroy = [](void* self) { const std::unique_ptr<Cuda> owned(static_cast<Cuda*>(self)); },
      .supports = &has_path,
      .register_mem =
          [](void* self, int mem, const stator_transfer_range* r) {
            return cuda(self).register_mem(mem, *r);
          },
      .deregister_mem =
          [](void* self, int mem, const stator_transfer_range* r) {
            return cuda(self).deregister_mem(mem, *r);
          },
      .open = nullptr,
      .close = nullptr,
      .query = nullptr,
      .conn_info = nullptr,
      .connect = nullptr,
      .disconnect = nullptr,
      .post = [](void* self, const stator_transfer_job* job,
                 void** request) { return cuda(self).post(*job, request); },
      .check =
          [](void* self, void* request, size_t* failed) {
            return cuda(self).check(*static_cast<Request*>(request), failed);
          },
      .wait = &rest,
      .release = [](void* self,
                    void* request) { return cuda(self).release(static_cast<Request*>(request)); },
      .notify = nullptr};
  return table;
}

}  // namespace stator::transfer
