# Third-party packages, all from Debian 12 (scripts/setup.sh installs them). Configure is offline.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS url)
find_package(simdjson REQUIRED)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(libzmq REQUIRED IMPORTED_TARGET libzmq)
# CMake 3.25 reads `-isystem DIR` of a .pc file differently in a second configure, and flags that change compile half the tree anew.
get_target_property(STATOR_ZMQ_INCLUDES PkgConfig::libzmq INTERFACE_INCLUDE_DIRECTORIES)
foreach(flag IN LISTS libzmq_CFLAGS_OTHER)
  if(IS_DIRECTORY "${flag}")
    list(APPEND STATOR_ZMQ_INCLUDES ${flag})
  endif()
endforeach()
list(REMOVE_DUPLICATES STATOR_ZMQ_INCLUDES)
set_target_properties(PkgConfig::libzmq PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${STATOR_ZMQ_INCLUDES}" INTERFACE_COMPILE_OPTIONS "")
pkg_check_modules(libnghttp2 REQUIRED IMPORTED_TARGET libnghttp2)
pkg_check_modules(libnats REQUIRED IMPORTED_TARGET libnats)
pkg_check_modules(libzstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(snappy REQUIRED IMPORTED_TARGET snappy)
pkg_check_modules(abseil REQUIRED absl_flat_hash_map absl_flat_hash_set)
pkg_check_modules(protobuf REQUIRED protobuf-lite)

# Abseil and protobuf come as a dozen shared objects, each a part of every start: programs take them from their archives. Not under
# a sanitizer, whose suppressions name shared objects, and not for our shared library, as archives are not position-independent.
function(stator_link_archives target)
  list(REMOVE_DUPLICATES ARGN)
  foreach(name IN LISTS ARGN)
    find_library(STATOR_ARCHIVE_${name} lib${name}.a)
    if(STATOR_ARCHIVE_${name} AND NOT STATOR_SANITIZE AND NOT name MATCHES "^(z|ssl|crypto|dl|rt|pthread|atomic)$")
      set(shared $<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>)
      target_link_libraries(${target} INTERFACE $<IF:${shared},${name},${STATOR_ARCHIVE_${name}}>)
    else()
      target_link_libraries(${target} INTERFACE ${name})
    endif()
  endforeach()
endfunction()
add_library(stator_abseil INTERFACE)
stator_link_archives(stator_abseil ${abseil_STATIC_LIBRARIES})
add_library(stator_protobuf INTERFACE)
stator_link_archives(stator_protobuf ${protobuf_STATIC_LIBRARIES})
if(STATOR_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "the tests need packages that are not installed: run scripts/setup.sh test, or configure with -DSTATOR_TESTS=OFF")
  endif()
  include(GoogleTest)
endif()
if(STATOR_BENCHES)
  find_package(benchmark REQUIRED)
  # What our matrix products are raced against. Debian's dnnl-config.cmake insists on OpenCL: name the library directly.
  find_library(STATOR_DNNL_LIBRARY dnnl REQUIRED)
  add_library(stator_dnnl INTERFACE)
  target_link_libraries(stator_dnnl INTERFACE ${STATOR_DNNL_LIBRARY})
endif()

# What most processes never call.
include(lazy_library)
stator_lazy_library(curl FILE libcurl.so.4 PACKAGE libcurl4 FOR "requests to other HTTP servers" INSTEAD_OF CURL::libcurl
  SYMBOLS
    curl_easy_cleanup curl_easy_getinfo curl_easy_init curl_easy_perform curl_easy_reset curl_easy_setopt curl_easy_strerror
    curl_easy_header curl_free curl_global_init curl_multi_add_handle curl_multi_assign curl_multi_cleanup curl_multi_info_read curl_multi_init
    curl_multi_remove_handle curl_multi_setopt curl_multi_socket_action curl_multi_strerror curl_share_cleanup curl_share_init
    curl_share_setopt curl_slist_append curl_slist_free_all curl_url curl_url_cleanup curl_url_get curl_url_set
    curl_version_info)
stator_lazy_library(zmq FILE libzmq.so.5 PACKAGE libzmq5 FOR "KV events of engines over ZeroMQ" INSTEAD_OF PkgConfig::libzmq
  SYMBOLS
    zmq_bind zmq_close zmq_connect zmq_ctx_new zmq_ctx_set zmq_ctx_term zmq_errno zmq_getsockopt zmq_msg_close zmq_msg_data
    zmq_msg_init zmq_msg_more zmq_msg_recv zmq_msg_send zmq_msg_size zmq_poll zmq_send zmq_setsockopt zmq_socket
    zmq_socket_monitor zmq_strerror)
stator_lazy_library(nats FILE libnats.so.3.4 PACKAGE libnats3.4 FOR "KV events over NATS" INSTEAD_OF PkgConfig::libnats
  SYMBOLS
    jsCtx_Destroy jsMsgMetaData_Destroy jsOptions_Init jsPubAck_Destroy jsPubOptions_Init jsStreamConfig_Init
    jsStreamInfo_Destroy jsSubOptions_Init js_AddStream js_DeleteStream js_GetLastMsg js_GetStreamInfo js_PublishMsg
    js_PurgeStream js_SubscribeSync natsConnection_Close natsConnection_Connect natsConnection_Destroy
    natsConnection_FlushTimeout natsConnection_GetMaxPayload natsConnection_JetStream natsConnection_Publish
    natsConnection_PublishRequest natsConnection_Status natsConnection_Subscribe natsInbox_Create natsInbox_Destroy
    natsMsgHeader_Set natsMsg_Create natsMsg_Destroy natsMsg_GetData natsMsg_GetDataLength natsMsg_GetMetaData
    natsMsg_GetReply natsMsg_GetSequence natsMsg_GetSubject natsOptions_Create natsOptions_Destroy natsOptions_SetClosedCB
    natsOptions_SetDisconnectedCB natsOptions_SetErrorHandler natsOptions_SetMaxPingsOut natsOptions_SetMaxReconnect
    natsOptions_SetName natsOptions_SetPingInterval natsOptions_SetReconnectJitter natsOptions_SetReconnectWait
    natsOptions_SetReconnectedCB natsOptions_SetRetryOnFailedConnect natsOptions_SetSecure natsOptions_SetTimeout
    natsOptions_SetURL natsOptions_SetWriteDeadline natsStatus_GetText natsSubscription_Destroy natsSubscription_NextMsg
    natsSubscription_SetOnCompleteCB natsSubscription_SetPendingLimits natsSubscription_Unsubscribe)
