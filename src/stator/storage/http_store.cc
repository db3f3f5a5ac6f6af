// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/http_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stator/json/value.h"

namespace stator::storage {
namespace {

constexpr size_t kClientsKept = 64;
constexpr Duration kTimeout = std::chrono::seconds(2);

}  // namespace

HttpStore::HttpStore(std::string_view address, const Digest& space)
    : base_(address.contains("://") ? std::string(address) : fmt::format("http://{}", address)),
      space_(space) {}

std::string HttpStore::url(const BlockName& name) const {
  return fmt::format("{}{}{}/{}", base_, kStoreBlocks, to_hex(space_), name.lineage.text());
}

Result<net::HttpClientResponse> HttpStore::ask(const net::HttpClientRequest& request,
                                               const net::OnChunk& on_chunk) {
  std::unique_ptr<net::HttpClient> client;
  {
    const MutexLock lock(mutex_);
    if (!clients_.empty()) {
      client = std::move(clients_.back());
      clients_.pop_back();
    }
  }
  if (client == nullptr) {
    client = std::make_unique<net::HttpClient>();
  }
  auto answer = client->request(request,
                                {.connect_timeout = kTimeout,
                                 .timeout = kTimeout,
                                 .stall_timeout = {},
                                 .follow_redirects = false},
                                on_chunk);
  const MutexLock lock(mutex_);
  if (answer && clients_.size() < kClientsKept) {
    clients_.push_back(std::move(client));
  }
  return answer;
}

Result<size_t> HttpStore::count(std::span<const BlockName> names) {
  json::Value body = json::Value::object();
  body["namespace"] = to_hex(space_);
  json::Value list = json::Value::array();
  for (const BlockName& name : names) {
    list.push_back(name.lineage.text());
  }
  body["blocks"] = std::move(list);
  STATOR_TRY(const auto answer, ask({.method = "POST",
                                     .url = base_ + std::string(kStoreCount),
                                     .headers = {{"Content-Type", "application/json"}},
                                     .body = json::to_text(body)}));
  STATOR_TRY(const json::Value read, json::parse(answer.body));
  const json::Value* const count = read.find("count");
  const auto number = count == nullptr ? std::nullopt : count->as_uint64();
  if (answer.status != 200 || !number || *number > names.size()) {
    return Error(Code::kUnavailable, fmt::format("the store answers {}", answer.status));
  }
  return *number;
}

Status HttpStore::get(const BlockName& name, std::span<std::byte> record) {
  size_t filled = 0;
  bool too_long = false;
  STATOR_TRY(const auto answer, ask({.url = url(name)}, [&](std::string_view bytes) {
               const size_t fits = std::min(bytes.size(), record.size() - filled);
               std::memcpy(record.data() + filled, bytes.data(), fits);
               filled += fits;
               too_long = too_long || fits < bytes.size();
               return true;
             }));
  if (answer.status == 404) {
    return Error(Code::kNotFound, "the block is not in the store");
  }
  if (answer.status != 200) {
    return Error(Code::kUnavailable, fmt::format("the store answers {}", answer.status));
  }
  if (filled != record.size() || too_long) {
    return Error(Code::kCorrupt, "a record of the store has another length");
  }
  return {};
}

Status HttpStore::put(const BlockName& name, std::span<const std::byte> record) {
  STATOR_TRY(const auto answer,
             ask({.method = "PUT",
                  .url = url(name),
                  .headers = {{"Content-Type", "application/octet-stream"}},
                  .body = {reinterpret_cast<const char*>(record.data()), record.size()}}));
  if (answer.status == 409) {
    return Error(Code::kAlreadyExists, "the block is there");
  }
  if (answer.status / 100 != 2) {
    return Error(answer.status == 413 ? Code::kInvalidArgument : Code::kUnavailable,
                 fmt::format("the store answers {}: {}", answer.status, answer.body));
  }
  return {};
}

}  // namespace stator::storage
