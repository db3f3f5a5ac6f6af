// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/messages.h"

#include "stator/kv_events/msgpack_reader.h"
#include "stator/kv_events/msgpack_writer.h"

namespace stator::memory_service {
namespace {

constexpr uint32_t kFields = 9;
constexpr uint64_t kKindMax = static_cast<uint64_t>(Message::Kind::kError);

void write(kv_events::MsgpackWriter& out, const Place& place) {
  out.array(4)
      .integer(place.allocation)
      .integer(place.offset)
      .integer(place.bytes)
      .text(place.about);
}

std::string text_of(kv_events::MsgpackReader& in) {
  const std::string_view text = in.read_text();
  if (text.size() > Layout::kTextMax) {
    in.fail("a text is too long");
  }
  return std::string(text);
}

Place place_of(kv_events::MsgpackReader& in) {
  Place out;
  if (in.read_array() != 4) {
    in.fail("a place has four parts");
  }
  out.allocation = in.read_unsigned();
  out.offset = in.read_unsigned();
  out.bytes = in.read_unsigned();
  out.about = text_of(in);
  return out;
}

Allocation allocation_of(kv_events::MsgpackReader& in) {
  Allocation out;
  if (in.read_array() != 5) {
    in.fail("an allocation has five parts");
  }
  out.id = in.read_unsigned();
  out.bytes = in.read_unsigned();
  out.mapped_bytes = in.read_unsigned();
  out.tag = text_of(in);
  out.slot = static_cast<uint32_t>(in.read_unsigned_max(UINT32_MAX));
  return out;
}

}  // namespace

std::string encode(const Message& message) {
  kv_events::MsgpackWriter out;
  out.array(kFields)
      .integer(static_cast<uint64_t>(message.kind))
      .integer(static_cast<uint64_t>(message.mode))
      .integer(message.id)
      .integer(message.bytes)
      .integer(message.number)
      .text(message.text);
  write(out, message.place);
  out.array(static_cast<uint32_t>(message.allocations.size()));
  for (const Allocation& one : message.allocations) {
    out.array(5)
        .integer(one.id)
        .integer(one.bytes)
        .integer(one.mapped_bytes)
        .text(one.tag)
        .integer(one.slot);
  }
  out.array(static_cast<uint32_t>(message.keys.size()));
  for (const std::string& key : message.keys) {
    out.text(key);
  }
  const std::string body = out.take();
  const auto size = static_cast<uint32_t>(body.size());
  std::string framed;
  for (const int shift : {24, 16, 8, 0}) {
    framed.push_back(static_cast<char>(size >> shift));
  }
  return framed + body;
}

Result<Message> decode_message(std::string_view bytes) {
  kv_events::MsgpackReader in(bytes);
  Message out;
  if (in.read_array() != kFields) {
    in.fail("a message has nine fields");
  }
  const uint64_t kind = in.read_unsigned_max(kKindMax);
  if (kind == 0) {
    in.fail("no such kind of message");
  }
  out.kind = static_cast<Message::Kind>(kind);
  out.mode = static_cast<Mode>(in.read_unsigned_max(static_cast<uint64_t>(Mode::kWriteOrRead)));
  out.id = in.read_unsigned();
  out.bytes = in.read_unsigned();
  out.number = in.read_unsigned();
  out.text = text_of(in);
  out.place = place_of(in);
  for (uint32_t i = 0, count = in.read_array(); i < count && in.ok(); ++i) {
    out.allocations.push_back(allocation_of(in));
  }
  for (uint32_t i = 0, count = in.read_array(); i < count && in.ok(); ++i) {
    out.keys.push_back(text_of(in));
  }
  if (in.ok() && !in.at_end()) {
    in.fail("bytes follow the message");
  }
  STATOR_CHECK(in.status());
  return out;
}

}  // namespace stator::memory_service
