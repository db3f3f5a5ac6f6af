// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/transfer/agent.h"
#include "stator/transfer/metadata_place.h"
#include "stator/transfer/stator_transfer.h"

namespace {

using stator::transfer::Agent;
using stator::transfer::Desc;
using stator::transfer::MemType;
using stator::transfer::Op;
using stator::transfer::Outcome;

int code(Outcome outcome) {
  return static_cast<int>(outcome);
}

std::vector<Desc> ranges_of(const stator_transfer_range* ranges, size_t count) {
  std::vector<Desc> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back({.addr = ranges[i].addr, .len = ranges[i].len, .dev = ranges[i].dev});
  }
  return out;
}

void copy_text(const std::string& text, char* out, size_t size) {
  if (out != nullptr && size > 0) {
    const size_t count = std::min(text.size(), size - 1);
    std::memcpy(out, text.data(), count);
    out[count] = '\0';
  }
}

stator::transfer::Params params_of(std::string_view text) {
  stator::transfer::Params out;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const size_t equals = one.find('=');
    if (equals != std::string_view::npos) {
      out.emplace(one.substr(0, equals), one.substr(equals + 1));
    }
  }
  return out;
}

/// Its size, whatever fits of it being copied.
int64_t give_text(const std::string& text, char* out, size_t size) {
  copy_text(text, out, size);
  return static_cast<int64_t>(text.size());
}

int code(const stator::Error& error) {
  switch (error.code()) {
    case stator::Code::kNotFound:
      return STATOR_NOT_FOUND;
    case stator::Code::kInvalidArgument:
    case stator::Code::kTooLarge:
      return STATOR_INVALID_PARAM;
    case stator::Code::kCorrupt:
      return STATOR_MISMATCH;
    default:
      return STATOR_BACKEND;
  }
}

bool is_mem(int mem) {
  return mem >= 0 && mem < stator::transfer::kMemTypes;
}

}  // namespace

struct stator_transfer_agent {
  explicit stator_transfer_agent(const char* name) : agent(name, {}, clock, metrics) {}
  stator::SystemClock clock;
  stator::Metrics metrics;
  Agent agent;
  stator::Mutex mutex;
  std::deque<std::pair<std::string, std::string>> unread STATOR_GUARDED_BY(mutex);
  std::unique_ptr<stator::transfer::MetadataListener> listener STATOR_GUARDED_BY(mutex);
};

int stator_transfer_version(void) {
  return 1;
}

const char* stator_transfer_status_name(int status) {
  return to_string(static_cast<Outcome>(static_cast<int8_t>(status))).data();
}

stator_transfer_agent* stator_transfer_create(const char* name) {
  return name == nullptr || *name == '\0' ? nullptr
                                          : std::make_unique<stator_transfer_agent>(name).release();
}

void stator_transfer_destroy(stator_transfer_agent* agent) {
  const std::unique_ptr<stator_transfer_agent> owned(agent);
}

int stator_transfer_backend(stator_transfer_agent* agent, const char* type, const char* params) {
  if (agent == nullptr || type == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  return code(agent->agent.create_backend(type, params_of(params == nullptr ? "" : params)));
}

int64_t stator_transfer_backend_types(char* out, size_t size) {
  std::string names;
  for (const std::string& name : Agent::backend_types()) {
    names += (names.empty() ? "" : ",") + name;
  }
  return give_text(names, out, size);
}

void* stator_transfer_allocate(stator_transfer_agent* agent, size_t bytes) {
  return agent == nullptr ? nullptr : agent->agent.allocate(bytes).data();
}

int stator_transfer_register(stator_transfer_agent* agent, int mem,
                             const stator_transfer_range* ranges, size_t count) {
  if (agent == nullptr || !is_mem(mem) || (ranges == nullptr && count > 0)) {
    return STATOR_INVALID_PARAM;
  }
  return code(agent->agent.register_mem(static_cast<MemType>(mem), ranges_of(ranges, count)));
}

int stator_transfer_deregister(stator_transfer_agent* agent, int mem,
                               const stator_transfer_range* ranges, size_t count) {
  if (agent == nullptr || !is_mem(mem) || (ranges == nullptr && count > 0)) {
    return STATOR_INVALID_PARAM;
  }
  return code(agent->agent.deregister_mem(static_cast<MemType>(mem), ranges_of(ranges, count)));
}

int64_t stator_transfer_register_named(stator_transfer_agent* agent, int mem, const char* meta) {
  if (agent == nullptr || !is_mem(mem) || meta == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  uint64_t dev = 0;
  const Outcome outcome = agent->agent.register_named(static_cast<MemType>(mem), meta, dev);
  return outcome == Outcome::kSuccess ? static_cast<int64_t>(dev) : code(outcome);
}

int64_t stator_transfer_query(stator_transfer_agent* agent, int mem, uint64_t dev) {
  if (agent == nullptr || !is_mem(mem)) {
    return STATOR_INVALID_PARAM;
  }
  const auto bytes = agent->agent.query_mem(static_cast<MemType>(mem), dev);
  return bytes ? static_cast<int64_t>(*bytes) : STATOR_NOT_FOUND;
}

int64_t stator_transfer_partial_metadata(stator_transfer_agent* agent, int mem,
                                         const stator_transfer_range* ranges, size_t count,
                                         int connection, void* out, size_t size) {
  if (agent == nullptr || !is_mem(mem) || (ranges == nullptr && count > 0)) {
    return STATOR_INVALID_PARAM;
  }
  std::string blob;
  const Outcome outcome = agent->agent.local_partial_md(
      static_cast<MemType>(mem), ranges_of(ranges, count), connection != 0, blob);
  if (outcome != Outcome::kSuccess) {
    return code(outcome);
  }
  if (out != nullptr && blob.size() <= size) {
    std::memcpy(out, blob.data(), blob.size());
  }
  return static_cast<int64_t>(blob.size());
}

int stator_transfer_send_metadata(stator_transfer_agent* agent, const char* place) {
  if (agent == nullptr || place == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto opened = stator::transfer::open_metadata_place(place);
  if (!opened) {
    return code(opened.error());
  }
  const stator::Status put = (*opened)->put(agent->agent.name(), agent->agent.local_md());
  return put ? STATOR_SUCCESS : code(put.error());
}

int stator_transfer_fetch_metadata(stator_transfer_agent* agent, const char* place,
                                   const char* peer, char* name, size_t name_size) {
  if (agent == nullptr || place == nullptr || peer == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto opened = stator::transfer::open_metadata_place(place);
  if (!opened) {
    return code(opened.error());
  }
  const auto blob = (*opened)->get(peer);
  return blob ? stator_transfer_load_peer(agent, blob->data(), blob->size(), name, name_size)
              : code(blob.error());
}

int stator_transfer_withdraw_metadata(stator_transfer_agent* agent, const char* place) {
  if (agent == nullptr || place == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto opened = stator::transfer::open_metadata_place(place);
  if (!opened) {
    return code(opened.error());
  }
  const stator::Status erased = (*opened)->erase(agent->agent.name());
  return erased ? STATOR_SUCCESS : code(erased.error());
}

int stator_transfer_listen(stator_transfer_agent* agent, const char* host, int port) {
  if (agent == nullptr || host == nullptr || port < 0 || port > 65535) {
    return STATOR_INVALID_PARAM;
  }
  const stator::MutexLock lock(agent->mutex);
  if (agent->listener != nullptr) {
    return STATOR_NOT_ALLOWED;
  }
  auto started =
      stator::transfer::MetadataListener::start(agent->agent, host, static_cast<uint16_t>(port));
  if (!started) {
    return code(started.error());
  }
  agent->listener = std::move(*started);
  return agent->listener->port();
}

int stator_transfer_knows(stator_transfer_agent* agent, const char* peer) {
  return agent == nullptr || peer == nullptr ? STATOR_INVALID_PARAM
                                             : static_cast<int>(agent->agent.knows(peer));
}

int64_t stator_transfer_metadata(stator_transfer_agent* agent, void* out, size_t size) {
  if (agent == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const std::string blob = agent->agent.local_md();
  if (out != nullptr && blob.size() <= size) {
    std::memcpy(out, blob.data(), blob.size());
  }
  return static_cast<int64_t>(blob.size());
}

int stator_transfer_load_peer(stator_transfer_agent* agent, const void* blob, size_t size,
                              char* name, size_t name_size) {
  if (agent == nullptr || blob == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  std::string peer;
  const Outcome outcome = agent->agent.load_remote_md({static_cast<const char*>(blob), size}, peer);
  copy_text(peer, name, name_size);
  return code(outcome);
}

int stator_transfer_forget_peer(stator_transfer_agent* agent, const char* name) {
  return agent == nullptr || name == nullptr ? STATOR_INVALID_PARAM
                                             : code(agent->agent.invalidate_remote_md(name));
}

int64_t stator_transfer_list(stator_transfer_agent* agent, const char* owner, int mem,
                             const stator_transfer_range* ranges, size_t count) {
  if (agent == nullptr || owner == nullptr || !is_mem(mem) || (ranges == nullptr && count > 0)) {
    return STATOR_INVALID_PARAM;
  }
  stator::transfer::ListId list = 0;
  const Outcome outcome =
      agent->agent.prep_list(owner, static_cast<MemType>(mem), ranges_of(ranges, count), list);
  return outcome == Outcome::kSuccess ? static_cast<int64_t>(list) : code(outcome);
}

int64_t stator_transfer_list_runs(stator_transfer_agent* agent, const char* owner, int mem,
                                  const stator_transfer_run* runs, size_t count) {
  if (agent == nullptr || owner == nullptr || !is_mem(mem) || (runs == nullptr && count > 0)) {
    return STATOR_INVALID_PARAM;
  }
  std::vector<stator::transfer::StridedDesc> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back({.addr = runs[i].addr,
                   .len = runs[i].len,
                   .dev = runs[i].dev,
                   .stride = runs[i].stride,
                   .count = runs[i].count});
  }
  stator::transfer::ListId list = 0;
  const Outcome outcome = agent->agent.prep_strided(owner, static_cast<MemType>(mem), all, list);
  return outcome == Outcome::kSuccess ? static_cast<int64_t>(list) : code(outcome);
}

void stator_transfer_release_list(stator_transfer_agent* agent, int64_t list) {
  if (agent != nullptr) {
    agent->agent.release_list(static_cast<uint64_t>(list));
  }
}

namespace {

int64_t make(stator_transfer_agent* agent, int op, Agent::Wanted wanted, const char* notification) {
  if (agent == nullptr || (op != STATOR_READ && op != STATOR_WRITE)) {
    return STATOR_INVALID_PARAM;
  }
  wanted.op = op == STATOR_READ ? Op::kRead : Op::kWrite;
  wanted.notification = notification == nullptr ? "" : notification;
  stator::transfer::TransferId transfer = 0;
  const Outcome outcome = agent->agent.make_xfer(wanted, transfer);
  return outcome == Outcome::kSuccess ? static_cast<int64_t>(transfer) : code(outcome);
}

}  // namespace

int64_t stator_transfer_make(stator_transfer_agent* agent, int op, int64_t local, int64_t remote,
                             const char* notification) {
  return make(agent, op,
              {.local = static_cast<uint64_t>(local),
               .local_indices = {},
               .remote = static_cast<uint64_t>(remote),
               .remote_indices = {},
               .notification = {},
               .all = true},
              notification);
}

int64_t stator_transfer_make_indexed(stator_transfer_agent* agent, int op, int64_t local,
                                     const uint32_t* local_indices, int64_t remote,
                                     const uint32_t* remote_indices, size_t count,
                                     const char* notification) {
  if (count > 0 && (local_indices == nullptr || remote_indices == nullptr)) {
    return STATOR_INVALID_PARAM;
  }
  return make(agent, op,
              {.local = static_cast<uint64_t>(local),
               .local_indices = {local_indices, count},
               .remote = static_cast<uint64_t>(remote),
               .remote_indices = {remote_indices, count},
               .notification = {}},
              notification);
}

int stator_transfer_post(stator_transfer_agent* agent, int64_t transfer) {
  return agent == nullptr ? STATOR_INVALID_PARAM
                          : code(agent->agent.post(static_cast<uint64_t>(transfer)));
}

int stator_transfer_status(stator_transfer_agent* agent, int64_t transfer) {
  return agent == nullptr ? STATOR_INVALID_PARAM
                          : code(agent->agent.status(static_cast<uint64_t>(transfer)));
}

int stator_transfer_wait(stator_transfer_agent* agent, int64_t transfer, uint32_t milliseconds) {
  return agent == nullptr ? STATOR_INVALID_PARAM
                          : code(agent->agent.wait(static_cast<uint64_t>(transfer),
                                                   std::chrono::milliseconds(milliseconds)));
}

int64_t stator_transfer_cause(stator_transfer_agent* agent, int64_t transfer, char* out,
                              size_t size) {
  return agent == nullptr
             ? STATOR_INVALID_PARAM
             : give_text(agent->agent.cause(static_cast<uint64_t>(transfer)), out, size);
}

int64_t stator_transfer_failed_range(stator_transfer_agent* agent, int64_t transfer) {
  if (agent == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto failed = agent->agent.failed_range(static_cast<uint64_t>(transfer));
  return failed ? static_cast<int64_t>(*failed) : STATOR_NOT_FOUND;
}

int stator_transfer_telemetry(stator_transfer_agent* agent, int64_t transfer,
                              stator_transfer_numbers* out) {
  if (agent == nullptr || out == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto numbers = agent->agent.telemetry(static_cast<uint64_t>(transfer));
  if (!numbers) {
    return STATOR_NO_TELEMETRY;
  }
  *out = {
      .seconds = numbers->seconds, .bytes = numbers->bytes, .descriptors = numbers->descriptors};
  return STATOR_SUCCESS;
}

int64_t stator_transfer_estimate(stator_transfer_agent* agent, int64_t transfer) {
  if (agent == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const auto time = agent->agent.estimate(static_cast<uint64_t>(transfer));
  return time ? std::chrono::duration_cast<std::chrono::microseconds>(*time).count()
              : int64_t{STATOR_NO_TELEMETRY};
}

int64_t stator_transfer_backend_of(stator_transfer_agent* agent, int64_t transfer, char* out,
                                   size_t size) {
  return agent == nullptr
             ? STATOR_INVALID_PARAM
             : give_text(agent->agent.backend_of(static_cast<uint64_t>(transfer)), out, size);
}

int stator_transfer_release(stator_transfer_agent* agent, int64_t transfer) {
  return agent == nullptr ? STATOR_INVALID_PARAM
                          : code(agent->agent.release(static_cast<uint64_t>(transfer)));
}

int stator_transfer_next_notification(stator_transfer_agent* agent, char* peer, size_t peer_size,
                                      char* message, size_t message_size) {
  if (agent == nullptr) {
    return STATOR_INVALID_PARAM;
  }
  const stator::MutexLock lock(agent->mutex);
  if (agent->unread.empty()) {
    for (auto& [from, messages] : agent->agent.notifications()) {
      for (std::string& one : messages) {
        agent->unread.emplace_back(from, std::move(one));
      }
    }
  }
  if (agent->unread.empty()) {
    return STATOR_NOT_FOUND;
  }
  copy_text(agent->unread.front().first, peer, peer_size);
  copy_text(agent->unread.front().second, message, message_size);
  agent->unread.pop_front();
  return STATOR_SUCCESS;
}

int stator_transfer_notify(stator_transfer_agent* agent, const char* peer, const char* message) {
  return agent == nullptr || peer == nullptr || message == nullptr
             ? STATOR_INVALID_PARAM
             : code(agent->agent.gen_notification(peer, message));
}
