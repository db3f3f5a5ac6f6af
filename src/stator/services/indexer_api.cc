// SPDX-License-Identifier: Apache-2.0
#include "stator/services/indexer_api.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "stator/json/writer.h"
#include "stator/services/json_fields.h"
#include "stator/services/prompt_fields.h"
#include "stator/services/scores.h"

namespace stator::services {
namespace {

Result<ServiceReply> register_worker(Indexer& indexer, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  FeedSpec spec;
  STATOR_TRY(const uint64_t instance, fields.number("instance_id"));
  STATOR_TRY(const auto rank, fields.rank());
  STATOR_TRY(const uint64_t block_size, fields.number("block_size", 1 << 20));
  STATOR_TRY(spec.endpoint, fields.text("endpoint"));
  STATOR_TRY(spec.replay_endpoint, fields.text_or("replay_endpoint", ""));
  if (!spec.replay_endpoint.empty()) {
    STATOR_CHECK(check_endpoint(spec.replay_endpoint), "replay_endpoint");
  }
  spec.worker = {WorkerId(instance), rank.value_or(0)};
  spec.block_size = static_cast<uint32_t>(block_size);
  STATOR_CHECK(indexer.follow(name, spec));
  return ok_reply(201);
}

/// From every routing group of the model that has it.
Status unregister_everywhere(Indexer& indexer, std::string_view model, WorkerId instance,
                             std::optional<uint32_t> rank) {
  Status done = Error(Code::kNotFound, fmt::format("worker {} is not registered for model '{}'",
                                                   instance.value(), model));
  for (const PartitionName& name : indexer.partitions()) {
    if (name.model == model && indexer.unfollow(name, instance, rank)) {
      done = {};
    }
  }
  return done;
}

Result<ServiceReply> unregister_worker(Indexer& indexer, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const uint64_t instance, fields.number("instance_id"));
  STATOR_TRY(const auto rank, fields.rank());
  if (!fields.has("routing_group")) {
    STATOR_CHECK(unregister_everywhere(indexer, name.model, WorkerId(instance), rank));
    return ok_reply();
  }
  STATOR_CHECK(indexer.unfollow(name, WorkerId(instance), rank));
  return ok_reply();
}

/// One entry per instance, its ranks inside.
void write_instance(json::Writer& out, std::span<const Indexer::Listener> ranks) {
  const Indexer::Listener& first = ranks.front();
  out.begin_object().key("instance_id").value(first.spec.worker.worker.value());
  out.key("model_name").value(first.partition.model);
  out.key("routing_group").value(first.partition.group);
  out.key("block_size").value(first.spec.block_size);
  const bool same = std::ranges::all_of(
      ranks, [&](const Indexer::Listener& each) { return each.status == first.status; });
  out.key("status").value(same ? first.status : std::string_view("pending"));
  out.key("endpoints").begin_object();
  for (const Indexer::Listener& each : ranks) {
    out.key(std::to_string(each.spec.worker.dp_rank)).value(each.spec.endpoint);
  }
  out.end_object().key("listeners").begin_object();
  for (const Indexer::Listener& each : ranks) {
    out.key(std::to_string(each.spec.worker.dp_rank)).begin_object();
    out.key("endpoint").value(each.spec.endpoint);
    out.key("replay_endpoint");
    each.spec.replay_endpoint.empty() ? out.null() : out.value(each.spec.replay_endpoint);
    out.key("status").value(each.status).end_object();
  }
  out.end_object().end_object();
}

Result<ServiceReply> list_workers(const Indexer& indexer, const ServiceRequest& request) {
  const PartitionFilter filter = read_filter(request.query);
  std::vector<Indexer::Listener> all = indexer.listeners();
  std::erase_if(all, [&](const auto& each) { return !filter.matches(each.partition); });
  ServiceReply reply;
  json::Writer out(reply.body);
  out.begin_array();
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    while (end < all.size() && all[end].partition == all[begin].partition &&
           all[end].spec.worker.worker == all[begin].spec.worker.worker) {
      ++end;
    }
    write_instance(out, std::span(all).subspan(begin, end - begin));
    begin = end;
  }
  out.end_array();
  return reply;
}

Result<ServiceReply> answer_scores(const Indexer& indexer, const PartitionName& name,
                                   const PromptFields& prompt) {
  STATOR_TRY(const uint32_t block_size, indexer.block_size(name));
  STATOR_TRY(const auto overlaps, indexer.find(name, prompt.index_hashes(block_size)));
  return ServiceReply{.body = render_scores(overlaps, block_size)};
}

Result<ServiceReply> query(const Indexer& indexer, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  if (!fields.has("token_ids")) {
    return fields.wrong("token_ids", "an array of token ids");
  }
  STATOR_TRY(PromptFields prompt, read_prompt(fields));
  prompt.block_hashes.clear();
  return answer_scores(indexer, name, prompt);
}

Result<ServiceReply> query_by_hash(const Indexer& indexer, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  if (!fields.has("block_hashes")) {
    return fields.wrong("block_hashes", "an array of whole 64-bit numbers");
  }
  if (fields.has("cache_salt")) {
    return fields.wrong("cache_salt", "absent: it is in the hashes already");
  }
  PromptFields prompt;
  STATOR_TRY(prompt.block_hashes, fields.hashes("block_hashes"));
  return answer_scores(indexer, name, prompt);
}

/// Events by hand, in the form of a dump: for engines and tests without a publisher.
Result<ServiceReply> take_events(Indexer& indexer, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  uint64_t block_size = 0;
  if (fields.has("block_size")) {
    STATOR_TRY(block_size, fields.number("block_size", 1 << 20));
  } else {
    STATOR_TRY(block_size, indexer.block_size(name));
  }
  if (block_size == 0) {
    return fields.wrong("block_size", "at least 1");
  }
  STATOR_TRY(const json::Value* events, fields.array("events"));
  if (events == nullptr) {
    return fields.wrong("events", "an array");
  }
  for (size_t i = 0; i < events->size(); ++i) {
    STATOR_TRY(const WorkerEvent event, read_event(events->elements()[i]),
               fmt::format("events[{}]", i));
    STATOR_CHECK(indexer.apply(name, static_cast<uint32_t>(block_size), event));
  }
  return ServiceReply{.body = fmt::format(R"({{"status":"ok","events":{}}})", events->size())};
}

Result<std::string> read_url(const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  return fields.text("url");
}

ServiceReply list_peers(const PeerList& peers) {
  ServiceReply reply;
  json::Writer out(reply.body);
  out.begin_array();
  for (const std::string& url : peers.all()) {
    out.value(url);
  }
  out.end_array();
  return reply;
}

void add_peer_endpoints(ServiceApi& api, PeerList& peers) {
  api.add("POST", "/register_peer", [&peers](const auto& request) -> Result<ServiceReply> {
    STATOR_TRY(std::string url, read_url(request));
    STATOR_CHECK(peers.add(std::move(url)));
    return ok_reply(201);  // again, too
  });
  api.add("POST", "/deregister_peer", [&peers](const auto& request) -> Result<ServiceReply> {
    STATOR_TRY(const std::string url, read_url(request));
    STATOR_CHECK(peers.remove(url));
    return ok_reply();
  });
  api.add("GET", "/peers", [&peers](const auto&) { return list_peers(peers); });
}

}  // namespace

Result<PeerList::Added> PeerList::add(std::string url) {
  if (std::ranges::none_of(schemes_, [&](auto scheme) { return url.starts_with(scheme); })) {
    return Error(Code::kInvalidArgument,
                 fmt::format("a peer's address must begin with {}", fmt::join(schemes_, " or ")));
  }
  STATOR_CHECK(check_reachable(url));
  const MutexLock lock(mutex_);
  if (std::ranges::find(urls_, url) != urls_.end()) {
    return Added::kBefore;
  }
  if (urls_.size() >= kPeersMax) {
    return Error(Code::kOverloaded, fmt::format("more than {} peers", kPeersMax));
  }
  urls_.insert(std::ranges::upper_bound(urls_, url), std::move(url));
  return Added::kNow;
}

Status PeerList::remove(std::string_view url) {
  const MutexLock lock(mutex_);
  if (std::erase(urls_, url) == 0) {
    return Error(Code::kNotFound, fmt::format("peer '{}' is not registered", url));
  }
  return {};
}

std::vector<std::string> PeerList::all() const {
  const MutexLock lock(mutex_);
  return urls_;
}

void add_indexer_endpoints(ServiceApi& api, Indexer& indexer, PeerList& peers) {
  const auto bind = [&api, &indexer](std::string_view method, std::string_view path, auto call) {
    api.add(method, path, [&indexer, call](const auto& request) { return call(indexer, request); });
  };
  bind("POST", "/register", register_worker);
  bind("POST", "/unregister", unregister_worker);
  bind("GET", "/workers", list_workers);
  bind("POST", "/query", query);
  bind("POST", "/query_by_hash", query_by_hash);
  add_event_endpoint(api, indexer);
  api.add("GET", "/dump",
          [&indexer](const auto&) { return ServiceReply{.body = render_dump(indexer)}; });
  // Logs go to standard error and are not files of ours: nothing to reopen.
  api.add("POST", "/reopen_logs", [](const auto&) { return ok_reply(); });
  add_peer_endpoints(api, peers);
}

void add_event_endpoint(ServiceApi& api, Indexer& indexer) {
  api.add("POST", "/events",
          [&indexer](const auto& request) { return take_events(indexer, request); });
}

std::string render_dump(const Indexer& indexer) {
  std::string body;
  json::Writer out(body);
  out.begin_object();
  for (const Indexer::PartitionDump& dump : indexer.dump()) {
    out.key_escaped(dump.name.text()).begin_object();
    out.key("block_size").value(dump.block_size).key("events").begin_array();
    for (const WorkerEvent& event : dump.events) {
      write_event(out, event);
    }
    out.end_array().end_object();
  }
  out.end_object();
  return body;
}

Result<size_t> apply_dump(Indexer& indexer, std::string_view text) {
  STATOR_TRY(const Fields dump, Fields::parse(text));
  size_t count = 0;
  for (const auto& [key, value] : dump.raw().members()) {
    const std::string_view name = key;
    const size_t colon = name.rfind(':');
    if (colon == std::string_view::npos || !value.is_object()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("'{}' must be \"model:group\" with an object", name));
    }
    const Fields partition(value, std::string(name) + ".");
    STATOR_TRY(const uint64_t block_size, partition.number("block_size", 1 << 20));
    STATOR_TRY(const json::Value* events, partition.array("events"));
    for (size_t i = 0; events != nullptr && i < events->size(); ++i) {
      STATOR_TRY(const WorkerEvent event, read_event(events->elements()[i]));
      const PartitionName into{std::string(name.substr(0, colon)),
                               std::string(name.substr(colon + 1))};
      STATOR_CHECK(indexer.apply(into, static_cast<uint32_t>(block_size), event));
      ++count;
    }
  }
  return count;
}

}  // namespace stator::services
