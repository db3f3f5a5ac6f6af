// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_envelope.h"

#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "stator/kv_events/msgpack_reader.h"
#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {

using Kind = MsgpackReader::Kind;

constexpr std::string_view kTopic = "kv-events";
constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
// By kv::StorageTier.
constexpr std::array<std::string_view, 4> kTiers = {"device", "host_pinned", "disk", "external"};
// By EventReply::Kind.
constexpr std::array<std::string_view, 3> kReplies = {"events", "tree_dump", "error"};

std::string_view read_key(MsgpackReader& in) {
  if (in.peek() == Kind::kText) {
    return in.read_text();
  }
  in.skip();
  return {};
}

template <size_t kCount>
size_t read_name(MsgpackReader& in, const std::array<std::string_view, kCount>& names) {
  const std::string_view text = in.read_text();
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == text) {
      return i;
    }
  }
  in.fail("an unknown name");
  return 0;
}

void write(MsgpackWriter& out, const kv::BlocksStored& stored) {
  out.map(1).text("stored").map(3).text("parent_hash");
  if (stored.parent) {
    out.integer(stored.parent->value());
  } else {
    out.nil();
  }
  out.text("start_position").nil();
  out.text("blocks").array(static_cast<uint32_t>(stored.blocks.size()));
  for (const kv::StoredBlock& block : stored.blocks) {
    out.map(2).text("block_hash").integer(block.external.value());
    out.text("tokens_hash").integer(block.local.value());
  }
}

void write(MsgpackWriter& out, const kv::BlocksRemoved& removed) {
  out.map(1).text("removed").map(1).text("block_hashes");
  out.array(static_cast<uint32_t>(removed.blocks.size()));
  for (const auto block : removed.blocks) {
    out.integer(block.value());
  }
}

void write(MsgpackWriter& out, const kv::AllCleared& /*cleared*/) {
  out.text("cleared");
}

void write_events(MsgpackWriter& out, WorkerId worker, const std::vector<kv::KvEvent>& events) {
  out.array(static_cast<uint32_t>(events.size()));
  for (const kv::KvEvent& event : events) {
    out.map(3).text("worker_id").integer(worker.value());
    out.text("storage_tier").text(kTiers[static_cast<size_t>(event.tier)]);
    out.text("event").map(3).text("event_id").integer(event.event_id);
    out.text("dp_rank").integer(event.dp_rank).text("data");
    std::visit([&](const auto& data) { write(out, data); }, event.data);
  }
}

kv::StoredBlock read_block(MsgpackReader& in) {
  uint64_t external = 0;
  uint64_t local = 0;
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "block_hash") {
      external = in.read_integer_bits();
    } else if (name == "tokens_hash") {
      local = in.read_integer_bits();
    } else {
      in.skip();
    }
  }
  return {blocks::ExternalHash(external), blocks::LocalHash(local)};
}

kv::BlocksStored read_stored(MsgpackReader& in) {
  kv::BlocksStored stored;
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "parent_hash") {
      if (!in.take_nil()) {
        stored.parent = blocks::ExternalHash(in.read_integer_bits());
      }
    } else if (name == "blocks") {
      const uint32_t count = in.read_array();
      stored.blocks.reserve(count);
      for (uint32_t block = 0; block < count && in.ok(); ++block) {
        stored.blocks.push_back(read_block(in));
      }
    } else {
      in.skip();
    }
  }
  return stored;
}

kv::BlocksRemoved read_removed(MsgpackReader& in) {
  kv::BlocksRemoved removed;
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    if (read_key(in) != "block_hashes") {
      in.skip();
      continue;
    }
    const uint32_t count = in.read_array();
    removed.blocks.reserve(count);
    for (uint32_t block = 0; block < count && in.ok(); ++block) {
      removed.blocks.emplace_back(in.read_integer_bits());
    }
  }
  return removed;
}

kv::KvEventData read_data(MsgpackReader& in) {
  if (in.peek() == Kind::kText) {
    if (in.read_text() != "cleared") {
      in.fail("an unknown kind of event");
    }
    return kv::AllCleared{};
  }
  if (in.read_map() != 1) {
    in.fail("an event of one kind was expected");
    return kv::AllCleared{};
  }
  const std::string_view kind = read_key(in);
  if (kind == "stored") {
    return read_stored(in);
  }
  if (kind == "removed") {
    return read_removed(in);
  }
  in.fail("an unknown kind of event");
  return kv::AllCleared{};
}

void read_inner_event(MsgpackReader& in, kv::KvEvent& event) {
  bool has_data = false;
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "event_id") {
      event.event_id = in.read_unsigned();
    } else if (name == "dp_rank") {
      event.dp_rank = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
    } else if (name == "data") {
      event.data = read_data(in);
      has_data = true;
    } else {
      in.skip();
    }
  }
  if (!has_data) {
    in.fail("an event without data");
  }
}

kv::KvEvent read_event(MsgpackReader& in, WorkerId worker) {
  kv::KvEvent event;
  std::optional<uint64_t> of;
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "worker_id") {
      of = in.read_unsigned();
    } else if (name == "storage_tier") {
      event.tier = static_cast<kv::StorageTier>(read_name(in, kTiers));
    } else if (name == "event") {
      read_inner_event(in, event);
    } else {
      in.skip();
    }
  }
  if (of != worker.value()) {
    in.fail("an event of another worker than the publisher");
  }
  return event;
}

std::vector<kv::KvEvent> read_events(MsgpackReader& in, WorkerId worker) {
  const uint32_t count = in.read_array();
  std::vector<kv::KvEvent> events;
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    events.push_back(read_event(in, worker));
  }
  return events;
}

Status check_dense(std::span<const kv::KvEvent> events, uint64_t last_id) {
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].event_id + (events.size() - 1 - i) != last_id) {
      return Error(Code::kCorrupt, "event ids are not dense");
    }
  }
  return {};
}

}  // namespace

size_t block_count(const kv::KvEvent& event) {
  if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
    return stored->blocks.size();
  }
  const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data);
  return removed == nullptr ? 0 : removed->blocks.size();
}

std::string encode(const EventEnvelope& envelope) {
  MsgpackWriter payload;
  write_events(payload, envelope.publisher, envelope.events);
  MsgpackWriter out;
  out.map(7).text("publisher_id").integer(envelope.publisher.value());
  out.text("inc").integer(envelope.incarnation.value());
  out.text("sequence").integer(envelope.sequence);
  out.text("published_at").negative(envelope.published_at_ms);
  out.text("topic").text(kTopic);
  out.text("last_event_id").integer(envelope.last_event_id);
  out.text("payload").bytes(payload.bytes_so_far());
  return out.take();
}

Result<EventEnvelope> decode_envelope(std::string_view bytes) {
  EventEnvelope envelope;
  std::optional<uint64_t> last_id;
  std::string_view payload;
  MsgpackReader in(bytes);
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "publisher_id") {
      envelope.publisher = WorkerId(in.read_unsigned());
    } else if (name == "inc") {
      envelope.incarnation = Incarnation(in.read_unsigned());
    } else if (name == "sequence") {
      envelope.sequence = in.read_unsigned();
    } else if (name == "published_at") {
      envelope.published_at_ms = static_cast<int64_t>(in.read_integer_bits());
    } else if (name == "last_event_id") {
      last_id = in.read_unsigned();
    } else if (name == "payload") {
      payload = in.read_bytes();
    } else {
      in.skip();
    }
  }
  STATOR_CHECK(in.status(), "event envelope");
  MsgpackReader inner(payload);
  envelope.events = read_events(inner, envelope.publisher);
  STATOR_CHECK(inner.status(), "event envelope's payload");
  const uint64_t newest = envelope.events.empty() ? 0 : envelope.events.back().event_id;
  envelope.last_event_id = last_id.value_or(newest);
  STATOR_CHECK(check_dense(envelope.events, envelope.last_event_id), "event envelope");
  return envelope;
}

std::string encode(const EventQuery& query) {
  MsgpackWriter out;
  out.map(5).text("worker_id").integer(query.worker.value());
  out.text("inc").integer(query.incarnation.value());
  out.text("dp_rank").integer(query.dp_rank).text("start_event_id");
  if (query.start_event_id == 0) {
    out.nil();
  } else {
    out.integer(query.start_event_id);
  }
  return out.text("kind").text("recovery").take();
}

Result<EventQuery> decode_query(std::string_view bytes) {
  EventQuery query;
  MsgpackReader in(bytes);
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "worker_id") {
      query.worker = WorkerId(in.read_unsigned());
    } else if (name == "inc") {
      query.incarnation = Incarnation(in.read_unsigned());
    } else if (name == "dp_rank") {
      query.dp_rank = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
    } else if (name == "start_event_id") {
      query.start_event_id = in.take_nil() ? 0 : in.read_unsigned();
    } else {
      in.skip();
    }
  }
  STATOR_CHECK(in.status(), "event query");
  return query;
}

std::string encode(const EventReply& reply) {
  MsgpackWriter out;
  out.map(8).text("kind").text(kReplies[static_cast<size_t>(reply.kind)]);
  out.text("worker_id").integer(reply.worker.value());
  out.text("inc").integer(reply.incarnation.value());
  out.text("part").integer(reply.part).text("last").boolean(reply.last);
  out.text("last_event_id").integer(reply.last_event_id);
  out.text("message").text(reply.message).text("events");
  write_events(out, reply.worker, reply.events);
  return out.take();
}

Result<EventReply> decode_reply(std::string_view bytes) {
  EventReply reply;
  MsgpackReader in(bytes);
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "kind") {
      reply.kind = static_cast<EventReply::Kind>(read_name(in, kReplies));
    } else if (name == "worker_id") {
      reply.worker = WorkerId(in.read_unsigned());
    } else if (name == "inc") {
      reply.incarnation = Incarnation(in.read_unsigned());
    } else if (name == "part") {
      reply.part = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
    } else if (name == "last") {
      reply.last = in.read_bool();
    } else if (name == "last_event_id") {
      reply.last_event_id = in.read_unsigned();
    } else if (name == "message") {
      reply.message = in.read_text();
    } else if (name == "events") {
      reply.events = read_events(in, reply.worker);
    } else {
      in.skip();
    }
  }
  STATOR_CHECK(in.status(), "event reply");
  if (reply.kind == EventReply::Kind::kEvents) {
    STATOR_CHECK(check_dense(reply.events, reply.events.empty() ? 0 : reply.last_event_id),
                 "event reply");
  }
  return reply;
}

}  // namespace stator::kv_events
