// SPDX-License-Identifier: Apache-2.0
// The "ucx" backend: InfiniBand, RoCE, shared memory and TCP through UCX, where it is installed.
#include "stator/transfer/plugins.h"

#if __has_include(<ucp/api/ucp.h>)

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/thread.h"
#include "stator/transfer/ucx_info.h"
#include "stator/transfer/ucx_library.h"

namespace stator::transfer {
namespace {

constexpr unsigned kNotifyId = 1;
constexpr size_t kNotifyMax = 65'536;
constexpr size_t kAheadMax = 64;  ///< operations of one request with UCX at once
constexpr int kPollMillis = 100;  ///< a lost wake-up costs no more

struct Settings {
  std::string transports;
  std::string devices;
  bool peer_errors = true;
  std::vector<std::pair<std::string, std::string>> config;
};

/// "key=value,…" of stator_transfer_backend_v1::options.
bool read_settings(std::string_view text, Settings& out, std::string& cause) {
  while (!text.empty()) {
    std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const size_t equals = one.find('=');
    const std::string_view key = one.substr(0, equals);
    std::string value(equals == std::string_view::npos ? "" : one.substr(equals + 1));
    std::ranges::replace(value, '+', ',');  // lists within a value
    if (key == "tls") {
      out.transports = value;
    } else if (key == "device_list") {
      out.devices = value;
    } else if (key == "ucx_error_handling_mode" && (value == "peer" || value == "none")) {
      out.peer_errors = value == "peer";
    } else if (key == "engine_config" && value.find('=') != std::string::npos) {
      const size_t at = value.find('=');
      out.config.emplace_back(value.substr(0, at), value.substr(at + 1));
    } else {
      cause = fmt::format(
          "{} is no parameter: tls=…, device_list=…, ucx_error_handling_mode=peer|none, "
          "engine_config=NAME=VALUE, with '+' between parts of a list",
          one);
      return false;
    }
  }
  return true;
}

/// A worker of UCX, its peers and the requests with it. One mutex guards all: UCX is called by one
/// thread at a time. A thread of its own drives what others want from this worker.
class Ucx {
 public:
  Ucx(const UcxLibrary& ucx, const stator_transfer_host& host) : ucx_(ucx), host_(host) {}
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  ~Ucx();
  bool start(const Settings& settings, std::string& cause);

  int register_mem(const stator_transfer_range& range);
  int deregister_mem(const stator_transfer_range& range);
  int64_t conn_info(void* out, size_t size);
  int connect(const char* name, std::string_view info);
  void disconnect(const char* name);

  struct Request;
  int post(const stator_transfer_job& job, void** request);
  int check(Request& request, size_t* failed);
  void wait(uint32_t microseconds);
  int release(Request* request);
  int notify(const char* peer, const void* message, size_t size);

 private:
  struct Memory {
    stator_transfer_range range;
    ucp_mem_h handle;
    std::string packed;
  };
  struct Key {
    uint64_t addr = 0;
    uint64_t len = 0;
    ucp_rkey_h handle = nullptr;
  };
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    std::vector<Key> keys;  // by address
    bool lost = false;
    bool forgotten = false;
    uint32_t requests = 0;  // under way; it falls with the last
  };
  using Come = std::deque<std::pair<std::string, std::string>>;

  static ucs_status_t on_message(void* self, const void* header, size_t header_size, void* data,
                                 size_t size, const ucp_am_recv_param_t* param)
      __attribute__((no_thread_safety_analysis));
  static void on_lost(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  void serve();
  void deliver(Come come) const;
  Come progress() STATOR_REQUIRES(mutex_);
  void drop(Peer& peer) STATOR_REQUIRES(mutex_);
  void await(void* request) STATOR_REQUIRES(mutex_);
  bool settle(Request& request) STATOR_REQUIRES(mutex_);
  int advance(Request& request) STATOR_REQUIRES(mutex_);
  int issue(Request& request) STATOR_REQUIRES(mutex_);
  int begin(Request& request, ucs_status_ptr_t started, size_t pair) STATOR_REQUIRES(mutex_);
  static const Key* find_key(const Peer& peer, const stator_transfer_range& range);

  const UcxLibrary& ucx_;
  const stator_transfer_host host_;
  bool peer_errors_ = true;

  Mutex mutex_;
  ucp_context_h context_ STATOR_GUARDED_BY(mutex_) = nullptr;
  ucp_worker_h worker_ STATOR_GUARDED_BY(mutex_) = nullptr;
  std::string address_ STATOR_GUARDED_BY(mutex_);
  std::vector<Memory> memory_ STATOR_GUARDED_BY(mutex_);
  std::map<std::string, Peer*, std::less<>> peers_ STATOR_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Peer>> all_ STATOR_GUARDED_BY(mutex_);  // with forgotten ones
  Come come_ STATOR_GUARDED_BY(mutex_);
  int wake_ = -1;  // readable when the worker has something to do; UCX's
  std::atomic<bool> stopping_{false};
  net::Thread server_;
};

struct Ucx::Request {
  stator_transfer_job job{};
  Peer* peer = nullptr;
  size_t next = 0;  // pair
  enum class Step : uint8_t { kMove, kFlush, kNotify, kDone } step = Step::kMove;
  struct Pending {
    void* request;
    size_t pair;
  };
  std::deque<Pending> pending;
  int failed = STATOR_SUCCESS;
  size_t failed_pair = 0;
  std::string notification;  // of notify(): the caller's may be gone
};

int status_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return STATOR_SUCCESS;
    case UCS_INPROGRESS:
      return STATOR_IN_PROGRESS;
    case UCS_ERR_CANCELED:
      return STATOR_CANCELED;
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_REJECTED:
      return STATOR_REMOTE_DISCONNECT;
    default:
      return STATOR_BACKEND;
  }
}

bool Ucx::start(const Settings& settings, std::string& cause) {
  const MutexLock lock(mutex_);
  ucp_config_t* config = nullptr;
  const auto good = [&](ucs_status_t status, const char* what) {
    if (status != UCS_OK) {
      cause = fmt::format("{}: {}", what, ucx_.status_string(status));
    }
    return status == UCS_OK;
  };
  if (!good(ucx_.config_read(nullptr, nullptr, &config), "ucp_config_read")) {
    return false;
  }
  bool fine = settings.transports.empty() ||
              good(ucx_.config_modify(config, "TLS", settings.transports.c_str()), "tls");
  fine = fine &&
         (settings.devices.empty() ||
          good(ucx_.config_modify(config, "NET_DEVICES", settings.devices.c_str()), "device_list"));
  for (const auto& [name, value] : settings.config) {
    fine = fine && good(ucx_.config_modify(config, name.c_str(), value.c_str()), name.c_str());
  }
  peer_errors_ = settings.peer_errors;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  fine = fine && good(ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_),
                      "ucp_init");
  ucx_.config_release(config);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  fine = fine && good(ucx_.worker_create(context_, &worker, &worker_), "ucp_worker_create");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kNotifyId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Ucx::on_message;
  handler.arg = this;
  fine = fine && good(ucx_.set_am_handler(worker_, &handler), "ucp_worker_set_am_recv_handler") &&
         good(ucx_.worker_get_efd(worker_, &wake_), "ucp_worker_get_efd");
  ucp_address_t* address = nullptr;
  size_t size = 0;
  fine = fine && good(ucx_.worker_get_address(worker_, &address, &size), "ucp_worker_get_address");
  if (fine) {
    address_.assign(reinterpret_cast<const char*>(address), size);
    ucx_.worker_release_address(worker_, address);
    server_ = net::Thread("transfer-ucx", [this] { serve(); });
  }
  return fine;
}

Ucx::~Ucx() {
  stopping_ = true;
  if (server_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ucx_.worker_signal(worker_);
    }
    server_.join();
  }
  const MutexLock lock(mutex_);
  for (const auto& peer : all_) {
    drop(*peer);
  }
  for (const Memory& memory : memory_) {
    ucx_.mem_unmap(context_, memory.handle);
  }
  if (worker_ != nullptr) {
    ucx_.worker_destroy(worker_);
  }
  if (context_ != nullptr) {
    ucx_.cleanup(context_);
  }
}

ucs_status_t Ucx::on_message(void* self, const void* header, size_t header_size, void* data,
                             size_t size, const ucp_am_recv_param_t* param) {
  // Called by progress(), which holds the mutex.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && size <= kNotifyMax) {
    static_cast<Ucx*>(self)->come_.emplace_back(
        std::string(static_cast<const char*>(header), header_size),
        std::string(static_cast<const char*>(data), size));
  }
  return UCS_OK;
}

void Ucx::on_lost(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {
  static_cast<Peer*>(peer)->lost = true;
}

/// What came meanwhile is to be delivered without the mutex.
Ucx::Come Ucx::progress() {
  while (ucx_.worker_progress(worker_) != 0) {
  }
  return std::exchange(come_, {});
}

void Ucx::deliver(Come come) const {
  for (const auto& [peer, message] : come) {
    host_.deliver(host_.context, peer.c_str(), message.data(), message.size());
  }
}

void Ucx::serve() {
  while (!stopping_) {
    Come come;
    bool sleep = false;
    {
      const MutexLock lock(mutex_);
      come = progress();
      sleep = ucx_.worker_arm(worker_) == UCS_OK;
    }
    deliver(std::move(come));
    if (sleep) {
      pollfd wake{.fd = wake_, .events = POLLIN, .revents = 0};
      ::poll(&wake, 1, kPollMillis);
    }
  }
}

int Ucx::register_mem(const stator_transfer_range& range) {
  const MutexLock lock(mutex_);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = reinterpret_cast<void*>(range.addr);
  params.length = range.len;
  Memory memory{.range = range, .handle = nullptr, .packed = {}};
  if (ucx_.mem_map(context_, &params, &memory.handle) != UCS_OK) {
    return STATOR_BACKEND;
  }
  void* packed = nullptr;
  size_t size = 0;
  if (ucx_.rkey_pack(context_, memory.handle, &packed, &size) != UCS_OK) {
    ucx_.mem_unmap(context_, memory.handle);
    return STATOR_BACKEND;
  }
  memory.packed.assign(static_cast<const char*>(packed), size);
  ucx_.rkey_buffer_release(packed);
  memory_.push_back(std::move(memory));
  return STATOR_SUCCESS;
}

int Ucx::deregister_mem(const stator_transfer_range& range) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(memory_, [&](const Memory& memory) {
    return memory.range.addr == range.addr && memory.range.len == range.len;
  });
  if (found == memory_.end()) {
    return STATOR_NOT_FOUND;
  }
  ucx_.mem_unmap(context_, found->handle);
  memory_.erase(found);
  return STATOR_SUCCESS;
}

int64_t Ucx::conn_info(void* out, size_t size) {
  const MutexLock lock(mutex_);
  UcxInfo info{.address = address_, .keys = {}};
  for (const Memory& memory : memory_) {
    info.keys.push_back(
        {.addr = memory.range.addr, .len = memory.range.len, .packed = memory.packed});
  }
  const std::string bytes = encode(info);
  if (out != nullptr && bytes.size() <= size) {
    std::memcpy(out, bytes.data(), bytes.size());
  }
  return static_cast<int64_t>(bytes.size());
}

int Ucx::connect(const char* name, std::string_view bytes) {
  const auto info = decode_ucx_info(bytes);
  if (!info) {
    return STATOR_MISMATCH;
  }
  disconnect(name);
  const MutexLock lock(mutex_);
  auto peer = std::make_unique<Peer>();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(info->address.data());
  params.err_mode = peer_errors_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = &Ucx::on_lost;
  params.err_handler.arg = peer.get();
  if (ucx_.ep_create(worker_, &params, &peer->endpoint) != UCS_OK) {
    // Shared memory cannot tell that a peer is gone; then a transfer's deadline does.
    params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    if (ucx_.ep_create(worker_, &params, &peer->endpoint) != UCS_OK) {
      return STATOR_NOT_SUPPORTED;
    }
  }
  for (const UcxInfo::Key& key : info->keys) {
    ucp_rkey_h handle = nullptr;
    if (ucx_.rkey_unpack(peer->endpoint, key.packed.data(), &handle) != UCS_OK) {
      drop(*peer);
      return STATOR_NOT_SUPPORTED;
    }
    peer->keys.push_back({.addr = key.addr, .len = key.len, .handle = handle});
  }
  std::ranges::sort(peer->keys, {}, &Key::addr);
  peers_.insert_or_assign(name, peer.get());
  all_.push_back(std::move(peer));
  return STATOR_SUCCESS;
}

void Ucx::disconnect(const char* name) {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(std::string_view(name));
  if (found == peers_.end()) {
    return;
  }
  Peer* const peer = found->second;
  peers_.erase(found);
  peer->forgotten = true;
  if (peer->requests == 0) {
    drop(*peer);
    std::erase_if(all_, [&](const auto& one) { return one.get() == peer; });
  }
}

void Ucx::await(void* request) {
  while (ucx_.request_status(request) == UCS_INPROGRESS) {
    ucx_.worker_progress(worker_);
  }
  ucx_.request_free(request);
}

/// Closes without asking the other side: it may be gone.
void Ucx::drop(Peer& peer) {
  for (const Key& key : peer.keys) {
    ucx_.rkey_destroy(key.handle);
  }
  peer.keys.clear();
  if (peer.endpoint != nullptr) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t closing = ucx_.ep_close(peer.endpoint, &param);
    if (UCS_PTR_IS_PTR(closing)) {
      await(closing);
    }
    peer.endpoint = nullptr;
  }
}

const Ucx::Key* Ucx::find_key(const Peer& peer, const stator_transfer_range& range) {
  const auto behind = std::ranges::upper_bound(peer.keys, range.addr, {}, &Key::addr);
  if (behind == peer.keys.begin()) {
    return nullptr;
  }
  const Key& key = *std::prev(behind);
  return range.len <= key.len && range.addr - key.addr <= key.len - range.len ? &key : nullptr;
}

int Ucx::begin(Request& request, ucs_status_ptr_t started, size_t pair) {
  if (UCS_PTR_IS_ERR(started)) {
    request.failed = status_of(UCS_PTR_STATUS(started));
    request.failed_pair = pair;
    return request.failed;
  }
  if (UCS_PTR_IS_PTR(started)) {
    request.pending.push_back({.request = started, .pair = pair});
  }
  return STATOR_SUCCESS;
}

/// Gives UCX the next pairs; neighbours that touch on both sides go as one.
int Ucx::issue(Request& request) {
  const stator_transfer_job& job = request.job;
  while (request.next < job.count && request.pending.size() < kAheadMax) {
    const size_t first = request.next++;
    stator_transfer_range local = job.pairs[first].local;
    stator_transfer_range remote = job.pairs[first].remote;
    for (; request.next < job.count; ++request.next) {
      const stator_transfer_pair& more = job.pairs[request.next];
      if (more.local.addr != local.addr + local.len ||
          more.remote.addr != remote.addr + remote.len ||
          find_key(*request.peer, {remote.addr, remote.len + more.remote.len, 0}) == nullptr) {
        break;
      }
      local.len += more.local.len;
      remote.len += more.remote.len;
    }
    const Key* const key = find_key(*request.peer, remote);
    if (key == nullptr) {
      request.failed_pair = first;
      return request.failed = STATOR_NOT_FOUND;
    }
    ucp_request_param_t param{};
    auto* const memory = reinterpret_cast<void*>(local.addr);
    const ucs_status_ptr_t started =
        job.op == STATOR_WRITE
            ? ucx_.put(request.peer->endpoint, memory, local.len, remote.addr, key->handle, &param)
            : ucx_.get(request.peer->endpoint, memory, local.len, remote.addr, key->handle, &param);
    if (const int status = begin(request, started, first); status != STATOR_SUCCESS) {
      return status;
    }
  }
  return STATOR_SUCCESS;
}

/// Takes what has ended from the front; true: nothing is under way.
bool Ucx::settle(Request& request) {
  while (!request.pending.empty()) {
    const auto [pending, pair] = request.pending.front();
    const ucs_status_t status = ucx_.request_status(pending);
    if (status == UCS_INPROGRESS) {
      return false;
    }
    ucx_.request_free(pending);
    request.pending.pop_front();
    if (status != UCS_OK && request.failed == STATOR_SUCCESS) {
      request.failed = status_of(status);
      request.failed_pair = pair;
    }
  }
  return true;
}

int Ucx::advance(Request& request) {
  using Step = Request::Step;
  const stator_transfer_job& job = request.job;
  while (true) {
    const bool settled = settle(request);
    if (request.failed != STATOR_SUCCESS) {
      return settled ? request.failed : STATOR_IN_PROGRESS;
    }
    if (request.peer->lost) {
      request.failed = STATOR_REMOTE_DISCONNECT;
      continue;
    }
    if (request.step == Step::kMove && request.next < job.count) {
      issue(request);
      if (!request.pending.empty() && request.failed == STATOR_SUCCESS) {
        return STATOR_IN_PROGRESS;
      }
      continue;
    }
    if (!settled) {
      return STATOR_IN_PROGRESS;
    }
    ucp_request_param_t param{};
    switch (request.step) {
      case Step::kMove:
        request.step = Step::kFlush;
        if (job.count > 0 && job.op == STATOR_WRITE) {
          begin(request, ucx_.ep_flush(request.peer->endpoint, &param), 0);
        }
        break;
      case Step::kFlush:
        request.step = Step::kNotify;
        if (job.notification_size > 0) {
          param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
          param.flags = UCP_AM_SEND_FLAG_EAGER;
          begin(
              request,
              ucx_.am_send(request.peer->endpoint, kNotifyId, host_.agent, std::strlen(host_.agent),
                           job.notification, job.notification_size, &param),
              0);
        }
        break;
      case Step::kNotify:
        request.step = Step::kDone;
        break;
      case Step::kDone:
        return STATOR_SUCCESS;
    }
  }
}

int Ucx::post(const stator_transfer_job& job, void** request) {
  if (job.notification_size > kNotifyMax) {
    return STATOR_INVALID_PARAM;
  }
  const MutexLock lock(mutex_);
  const auto found = peers_.find(std::string_view(job.peer));
  if (found == peers_.end()) {
    return STATOR_NOT_FOUND;
  }
  if (found->second->lost) {
    return STATOR_REMOTE_DISCONNECT;
  }
  auto made = std::make_unique<Request>();
  made->job = job;
  made->peer = found->second;
  ++made->peer->requests;
  *request = made.release();
  return STATOR_IN_PROGRESS;
}

int Ucx::check(Request& request, size_t* failed) {
  Come come;
  int status = STATOR_IN_PROGRESS;
  {
    const MutexLock lock(mutex_);
    status = advance(request);
    if (status == STATOR_IN_PROGRESS) {
      come = progress();
      status = advance(request);
    }
    *failed = request.failed_pair;
  }
  deliver(std::move(come));
  return status;
}

void Ucx::wait(uint32_t microseconds) {
  {
    const MutexLock lock(mutex_);
    if (ucx_.worker_arm(worker_) != UCS_OK) {
      return;  // there is something to do
    }
  }
  pollfd wake{.fd = wake_, .events = POLLIN, .revents = 0};
  const timespec most{.tv_sec = 0, .tv_nsec = static_cast<long>(microseconds) * 1000};
  ::ppoll(&wake, 1, &most, nullptr);
}

int Ucx::release(Request* request) {
  Come come;
  {
    const MutexLock lock(mutex_);
    if (!request->pending.empty()) {
      if (request->failed == STATOR_SUCCESS) {
        request->failed = STATOR_CANCELED;
      }
      for (const Request::Pending& pending : request->pending) {
        ucx_.request_cancel(worker_, pending.request);
      }
      come = progress();
      if (!settle(*request)) {
        return STATOR_IN_PROGRESS;
      }
    }
    Peer* const peer = request->peer;
    if (--peer->requests == 0 && peer->forgotten) {
      drop(*peer);
      std::erase_if(all_, [&](const auto& one) { return one.get() == peer; });
    }
  }
  const std::unique_ptr<Request> owned(request);
  deliver(std::move(come));
  return STATOR_SUCCESS;
}

int Ucx::notify(const char* peer, const void* message, size_t size) {
  const stator_transfer_job job{.size = sizeof job,
                                .op = STATOR_WRITE,
                                .local_mem = STATOR_MEM_DRAM,
                                .remote_mem = STATOR_MEM_DRAM,
                                .peer = peer,
                                .pairs = nullptr,
                                .count = 0,
                                .notification = message,
                                .notification_size = size};
  void* request = nullptr;
  if (const int status = post(job, &request); status != STATOR_IN_PROGRESS) {
    return status;
  }
  auto* const made = static_cast<Request*>(request);
  size_t failed = 0;
  int status = STATOR_IN_PROGRESS;
  while ((status = check(*made, &failed)) == STATOR_IN_PROGRESS) {
  }
  while (release(made) == STATOR_IN_PROGRESS) {
  }
  return status;
}

void* create_ucx(const stator_transfer_host* host, const char* params, char* cause,
                 size_t cause_size) {
  Settings settings;
  std::string why;
  const UcxLibrary* const library = UcxLibrary::load(why);
  if (library != nullptr && read_settings(params, settings, why)) {
    auto made = std::make_unique<Ucx>(*library, *host);
    if (made->start(settings, why)) {
      return made.release();
    }
  }
  cause[why.copy(cause, cause_size - 1)] = '\0';
  return nullptr;
}

Ucx& ucx(void* self) {
  return *static_cast<Ucx*>(self);
}

bool in_memory(int mem) {
  return mem == STATOR_MEM_DRAM || mem == STATOR_MEM_VRAM;
}

}  // namespace

const stator_transfer_backend_v1& ucx_table() {
  static const stator_transfer_backend_v1 table{
      .size = sizeof table,
      .api_version = STATOR_TRANSFER_BACKEND_API,
      .name = "ucx",
      .options = "tls=,device_list=,ucx_error_handling_mode=peer,engine_config=",
      .mem_types = 1U << STATOR_MEM_DRAM | 1U << STATOR_MEM_VRAM,
      .capabilities = STATOR_BACKEND_REMOTE | STATOR_BACKEND_NOTIFY,
      .create = &create_ucx,
      .destroy = [](void* self) { const std::unique_ptr<Ucx> owned(static_cast<Ucx*>(self)); },
      .supports = [](void* /*self*/, int local,
                     int remote) { return in_memory(local) && in_memory(remote) ? 1 : 0; },
      .register_mem = [](void* self, int /*mem*/,
                         const stator_transfer_range* r) { return ucx(self).register_mem(*r); },
      .deregister_mem = [](void* self, int /*mem*/,
                           const stator_transfer_range* r) { return ucx(self).deregister_mem(*r); },
      .open = nullptr,
      .close = nullptr,
      .query = nullptr,
      .conn_info = [](void* self, void* out,
                      size_t size) { return ucx(self).conn_info(out, size); },
      .connect =
          [](void* self, const char* peer, const void* info, size_t size) {
            return ucx(self).connect(peer, {static_cast<const char*>(info), size});
          },
      .disconnect = [](void* self, const char* peer) { ucx(self).disconnect(peer); },
      .post = [](void* self, const stator_transfer_job* job,
                 void** request) { return ucx(self).post(*job, request); },
      .check =
          [](void* self, void* request, size_t* failed) {
            return ucx(self).check(*static_cast<Ucx::Request*>(request), failed);
          },
      .wait = [](void* self, void* /*request*/,
                 uint32_t microseconds) { ucx(self).wait(microseconds); },
      .release =
          [](void* self, void* request) {
            return ucx(self).release(static_cast<Ucx::Request*>(request));
          },
      .notify = [](void* self, const char* peer, const void* message,
                   size_t size) { return ucx(self).notify(peer, message, size); }};
  return table;
}

}  // namespace stator::transfer

#else

namespace stator::transfer {

const stator_transfer_backend_v1& ucx_table() {
  static const stator_transfer_backend_v1 table{
      .size = sizeof table,
      .api_version = STATOR_TRANSFER_BACKEND_API,
      .name = "ucx",
      .options = "",
      .mem_types = 0,
      .capabilities = 0,
      .create = [](const stator_transfer_host* /*host*/, const char* /*params*/, char* cause,
                   size_t size) -> void* {
        const std::string_view why = "built without UCX's headers: install libucx-dev, build again";
        cause[why.copy(cause, size - 1)] = '\0';
        return nullptr;
      },
      .destroy = [](void* /*self*/) {},
      .supports = [](void* /*self*/, int /*local*/, int /*remote*/) { return 0; },
      .register_mem = nullptr,
      .deregister_mem = nullptr,
      .open = nullptr,
      .close = nullptr,
      .query = nullptr,
      .conn_info = nullptr,
      .connect = nullptr,
      .disconnect = nullptr,
      .post = [](void* /*self*/, const stator_transfer_job* /*job*/,
                 void** /*request*/) { return static_cast<int>(STATOR_NOT_SUPPORTED); },
      .check = [](void* /*self*/, void* /*request*/,
                  size_t* /*failed*/) { return static_cast<int>(STATOR_NOT_SUPPORTED); },
      .wait = nullptr,
      .release = [](void* /*self*/, void* /*request*/) { return static_cast<int>(STATOR_SUCCESS); },
      .notify = nullptr};
  return table;
}

}  // namespace stator::transfer

#endif
