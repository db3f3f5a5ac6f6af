// SPDX-License-Identifier: Apache-2.0
#if __has_include(<ucp/api/ucp.h>)
#include "stator/transfer/ucx_library.h"

#include <dlfcn.h>

#include <utility>

namespace stator::transfer {
namespace {

template <typename Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool bind_all(void* library, UcxLibrary& ucx) {
  return bind(library, "ucp_init_version", ucx.init_version) &&
         bind(library, "ucp_cleanup", ucx.cleanup) &&
         bind(library, "ucp_config_read", ucx.config_read) &&
         bind(library, "ucp_config_modify", ucx.config_modify) &&
         bind(library, "ucp_config_release", ucx.config_release) &&
         bind(library, "ucp_worker_create", ucx.worker_create) &&
         bind(library, "ucp_worker_destroy", ucx.worker_destroy) &&
         bind(library, "ucp_worker_get_address", ucx.worker_get_address) &&
         bind(library, "ucp_worker_release_address", ucx.worker_release_address) &&
         bind(library, "ucp_worker_progress", ucx.worker_progress) &&
         bind(library, "ucp_worker_arm", ucx.worker_arm) &&
         bind(library, "ucp_worker_get_efd", ucx.worker_get_efd) &&
         bind(library, "ucp_worker_signal", ucx.worker_signal) &&
         bind(library, "ucp_worker_set_am_recv_handler", ucx.set_am_handler) &&
         bind(library, "ucp_ep_create", ucx.ep_create) &&
         bind(library, "ucp_ep_close_nbx", ucx.ep_close) &&
         bind(library, "ucp_ep_flush_nbx", ucx.ep_flush) &&
         bind(library, "ucp_ep_rkey_unpack", ucx.rkey_unpack) &&
         bind(library, "ucp_rkey_destroy", ucx.rkey_destroy) &&
         bind(library, "ucp_rkey_pack", ucx.rkey_pack) &&
         bind(library, "ucp_rkey_buffer_release", ucx.rkey_buffer_release) &&
         bind(library, "ucp_mem_map", ucx.mem_map) &&
         bind(library, "ucp_mem_unmap", ucx.mem_unmap) && bind(library, "ucp_put_nbx", ucx.put) &&
         bind(library, "ucp_get_nbx", ucx.get) && bind(library, "ucp_am_send_nbx", ucx.am_send) &&
         bind(library, "ucp_request_check_status", ucx.request_status) &&
         bind(library, "ucp_request_cancel", ucx.request_cancel) &&
         bind(library, "ucp_request_free", ucx.request_free) &&
         bind(library, "ucs_status_string", ucx.status_string);
}

}  // namespace

const UcxLibrary* UcxLibrary::load(std::string& cause) {
  static const std::pair<UcxLibrary, std::string> loaded = [] {
    std::pair<UcxLibrary, std::string> out;
    void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      out.second = "libucp.so.0 does not load: install UCX (Debian: libucx0)";
    } else if (!bind_all(library, out.first)) {
      out.second = "libucp.so.0 lacks functions: UCX 1.13 or newer is needed";
    }
    return out;
  }();
  cause = loaded.second;
  return cause.empty() ? &loaded.first : nullptr;
}

}  // namespace stator::transfer
#endif
