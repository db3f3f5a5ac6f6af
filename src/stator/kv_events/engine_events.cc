// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/engine_events.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "stator/kv_events/msgpack_reader.h"

namespace stator::kv_events {
namespace {

using Kind = MsgpackReader::Kind;

constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
constexpr size_t kDigestHexDigits = 64;

// Of events in positional form: field i + 1 of the array (0 is the tag).
constexpr std::array<std::string_view, 8> kStoredFields = {
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
    "medium",       "lora_name",         "extra_keys"};
constexpr std::array<std::string_view, 2> kRemovedFields = {"block_hashes", "medium"};

/// Of a map. Keys that are no texts are nobody's field.
std::string_view read_key(MsgpackReader& in) {
  if (in.peek() == Kind::kText) {
    return in.read_text();
  }
  in.skip();
  return {};
}

std::string text_or_nil(MsgpackReader& in) {
  return in.take_nil() ? std::string() : std::string(in.read_text());
}

uint64_t read_hash(MsgpackReader& in) {
  if (in.peek() != Kind::kBytes) {
    return in.read_integer_bits();
  }
  const std::string_view digest = in.read_bytes();
  if (digest.size() < sizeof(uint64_t)) {
    in.fail("a block hash of fewer than 8 bytes");
    return 0;
  }
  uint64_t hash = 0;
  for (const char byte : digest.substr(digest.size() - sizeof(uint64_t))) {
    hash = hash << 8 | static_cast<uint8_t>(byte);
  }
  return hash;
}

std::vector<uint64_t> read_hashes(MsgpackReader& in) {
  const uint32_t count = in.read_array();
  std::vector<uint64_t> hashes;
  hashes.reserve(count);
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    hashes.push_back(read_hash(in));
  }
  return hashes;
}

TokenId read_token(MsgpackReader& in) {
  return static_cast<TokenId>(in.read_unsigned_max(kU32Max));
}

/// Flat, or as pairs: then all first members and the last second one.
void read_tokens(MsgpackReader& in, EngineStored& stored) {
  const uint32_t count = in.read_array();
  stored.bigram = count > 0 && in.peek() == Kind::kArray;
  stored.tokens.clear();
  stored.tokens.reserve(count + (stored.bigram ? 1 : 0));
  TokenId second = 0;
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    if (stored.bigram && in.read_array() != 2) {
      in.fail("a token pair that is not two tokens");
    }
    stored.tokens.push_back(read_token(in));
    second = stored.bigram ? read_token(in) : 0;
  }
  if (stored.bigram) {
    stored.tokens.push_back(second);
  }
}

/// The first 16 of 64 hexadecimal digits; nothing for any other text.
std::optional<uint64_t> digest_of(std::string_view text) {
  if (text.size() != kDigestHexDigits) {
    return std::nullopt;
  }
  uint64_t value = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint64_t>(c - '0');
    } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
      digit = static_cast<uint64_t>((c | 32) - 'a' + 10);
    } else {
      return std::nullopt;
    }
    value = i < 16 ? value << 4 | digit : value;
  }
  return value;
}

void add_text(std::string_view text, EngineBlockExtras& extras) {
  if (const auto digest = digest_of(text)) {
    extras.mm_hashes.push_back(*digest);
  } else {
    extras.texts.emplace_back(text);
  }
}

/// A text, a (text, offset) pair, or something we cannot read a meaning into.
void read_extra_key(MsgpackReader& in, EngineBlockExtras& extras) {
  switch (in.peek()) {
    case Kind::kNil:
      in.skip();
      return;
    case Kind::kText:
      add_text(in.read_text(), extras);
      return;
    case Kind::kArray: {
      const uint32_t members = in.read_array();
      for (uint32_t i = 0; i < members && in.ok(); ++i) {
        if (i == 0 && in.peek() == Kind::kText) {
          add_text(in.read_text(), extras);
          continue;
        }
        const bool is_offset = i == 1 && in.peek() != Kind::kArray && in.peek() != Kind::kBytes;
        extras.opaque = extras.opaque || !is_offset;
        in.skip();
      }
      return;
    }
    default:
      extras.opaque = true;
      in.skip();
  }
}

EngineBlockExtras& extras_of(EngineStored& stored, size_t block) {
  if (stored.extras.size() <= block) {
    stored.extras.resize(block + 1);
  }
  return stored.extras[block];
}

void read_extra_keys(MsgpackReader& in, EngineStored& stored) {
  if (in.take_nil()) {
    return;
  }
  const uint32_t count = in.read_array();
  for (uint32_t block = 0; block < count && in.ok(); ++block) {
    if (in.take_nil()) {
      continue;
    }
    EngineBlockExtras& extras = extras_of(stored, block);
    const uint32_t keys = in.read_array();
    for (uint32_t i = 0; i < keys && in.ok(); ++i) {
      read_extra_key(in, extras);
    }
  }
}

void read_mm_objects(MsgpackReader& in, EngineBlockExtras& extras) {
  const uint32_t count = in.read_array();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const uint32_t fields = in.read_map();
    for (uint32_t field = 0; field < fields && in.ok(); ++field) {
      if (read_key(in) == "mm_hash") {
        extras.mm_hashes.push_back(in.read_integer_bits());
      } else {
        in.skip();
      }
    }
  }
}

/// A list by block of nil or {mm_objects: [{mm_hash, offsets}]}.
void read_mm_infos(MsgpackReader& in, EngineStored& stored) {
  if (in.take_nil()) {
    return;
  }
  const uint32_t count = in.read_array();
  for (uint32_t block = 0; block < count && in.ok(); ++block) {
    if (in.take_nil()) {
      continue;
    }
    const uint32_t fields = in.read_map();
    for (uint32_t field = 0; field < fields && in.ok(); ++field) {
      if (read_key(in) == "mm_objects") {
        read_mm_objects(in, extras_of(stored, block));
      } else {
        in.skip();
      }
    }
  }
}

/// True if `name` is one of the fields that say where blocks are; then it is consumed.
bool read_scope_field(std::string_view name, MsgpackReader& in, EngineEventScope& scope) {
  if (name == "medium") {
    scope.medium = text_or_nil(in);
  } else if (name == "kv_cache_spec_kind") {
    scope.kind = text_or_nil(in);
  } else if (name == "locality") {
    scope.locality = text_or_nil(in);
  } else if (name == "ownership") {
    scope.ownership = text_or_nil(in);
  } else if (name == "group_idx") {
    scope.group.reset();
    if (!in.take_nil()) {
      scope.group = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
    }
  } else {
    return false;
  }
  return true;
}

void read_field(std::string_view name, MsgpackReader& in, EngineStored& stored) {
  if (name == "block_hashes") {
    stored.hashes = read_hashes(in);
  } else if (name == "parent_block_hash") {
    stored.parent.reset();
    if (!in.take_nil()) {
      stored.parent = read_hash(in);
    }
  } else if (name == "token_ids") {
    read_tokens(in, stored);
  } else if (name == "block_size") {
    stored.block_size = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
  } else if (name == "lora_id") {
    stored.has_lora_id = in.peek() != Kind::kNil;
    in.skip();
  } else if (name == "lora_name") {
    stored.lora_name = text_or_nil(in);
  } else if (name == "cache_salt") {
    stored.cache_salt = text_or_nil(in);
  } else if (name == "extra_keys") {
    read_extra_keys(in, stored);
  } else if (name == "block_mm_infos") {
    read_mm_infos(in, stored);
  } else if (!read_scope_field(name, in, stored.scope)) {
    in.skip();
  }
}

void read_field(std::string_view name, MsgpackReader& in, EngineRemoved& removed) {
  if (name == "block_hashes") {
    removed.hashes = read_hashes(in);
  } else if (!read_scope_field(name, in, removed.scope)) {
    in.skip();
  }
}

void read_field(std::string_view name, MsgpackReader& in, EngineCleared& cleared) {
  if (name == "ownership") {
    cleared.ownership = text_or_nil(in);
  } else {
    in.skip();
  }
}

/// The end of a positional event: group, kind, window, locality, ownership, session. Releases left
/// slots out instead of writing nil, so each value is known by its type and, for texts, by what it
/// says; a text that says nothing we know takes the first free place.
class TailReader {
 public:
  explicit TailReader(EngineEventScope& scope) : scope_(scope) {}

  void read(MsgpackReader& in) {
    switch (in.peek()) {
      case Kind::kText:
        read_text(in.read_text());
        break;
      case Kind::kUnsigned:
        read_number(in);
        break;
      case Kind::kNil:
        ++slot_;
        in.skip();
        break;
      default:
        in.skip();
    }
  }

 private:
  enum Slot : uint8_t { kGroup, kKind, kWindow, kLocality, kOwnership, kSession };

  void read_number(MsgpackReader& in) {
    if (slot_ == kGroup) {
      scope_.group = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
      slot_ = kKind;
    } else {
      in.skip();  // the window: blocks of windowed groups are told by their kind
      slot_ = std::max<uint32_t>(slot_, kLocality);
    }
  }

  void read_text(std::string_view text) {
    if (text == "LOCAL" || text == "REMOTE") {
      scope_.locality = text;
      slot_ = kOwnership;
    } else if (text == "framework" || text == "kvcr") {
      scope_.ownership = text;
      slot_ = kSession;
    } else if (slot_ <= kKind) {
      scope_.kind = text;
      slot_ = kWindow;
    } else if (slot_ <= kLocality) {
      scope_.locality = text;
      slot_ = kOwnership;
    } else if (slot_ == kOwnership) {
      scope_.ownership = text;
      slot_ = kSession;
    }
  }

  EngineEventScope& scope_;
  uint32_t slot_ = kGroup;
};

template <size_t kFields>
void read_positional(uint32_t count, const std::array<std::string_view, kFields>& names,
                     MsgpackReader& in, auto& event) {
  TailReader tail(event.scope);
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    if (i < kFields) {
      read_field(names[i], in, event);
    } else if (in.peek() == Kind::kArray) {
      if constexpr (requires { event.extras; }) {
        read_mm_infos(in, event);
      } else {
        in.skip();
      }
    } else {
      tail.read(in);
    }
  }
}

void skip_values(uint32_t count, MsgpackReader& in) {
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    in.skip();
  }
}

template <typename Event>
Event read_map_event(uint32_t fields, MsgpackReader& in) {
  Event event;
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    read_field(name, in, event);
  }
  return event;
}

/// The value of `type`, wherever in the map it stands. On a copy: the fields are read afterwards.
std::string_view find_type(MsgpackReader in, uint32_t fields) {
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    if (read_key(in) == "type") {
      return in.read_text();
    }
    in.skip();
  }
  return {};
}

void read_map_form(MsgpackReader& in, EngineEventBatch& batch) {
  const uint32_t fields = in.read_map();
  const std::string_view type = find_type(in, fields);
  if (type == "BlockStored") {
    batch.events.emplace_back(read_map_event<EngineStored>(fields, in));
  } else if (type == "BlockRemoved") {
    batch.events.emplace_back(read_map_event<EngineRemoved>(fields, in));
  } else if (type == "AllBlocksCleared") {
    batch.events.emplace_back(read_map_event<EngineCleared>(fields, in));
  } else {
    ++batch.ignored_events;
    skip_values(2 * fields, in);
  }
}

void read_array_form(MsgpackReader& in, EngineEventBatch& batch) {
  const uint32_t members = in.read_array();
  if (members == 0) {
    ++batch.ignored_events;
    return;
  }
  const std::string_view type = in.read_text();
  if (type == "BlockStored") {
    EngineStored stored;
    read_positional(members - 1, kStoredFields, in, stored);
    batch.events.emplace_back(std::move(stored));
  } else if (type == "BlockRemoved") {
    EngineRemoved removed;
    read_positional(members - 1, kRemovedFields, in, removed);
    batch.events.emplace_back(std::move(removed));
  } else if (type == "AllBlocksCleared") {
    EngineCleared cleared;
    const bool owned = members > 1 && in.peek() == Kind::kText;
    if (owned) {
      cleared.ownership = in.read_text();
    }
    skip_values(members - (owned ? 2 : 1), in);
    batch.events.emplace_back(std::move(cleared));
  } else {
    ++batch.ignored_events;
    skip_values(members - 1, in);
  }
}

void read_events(MsgpackReader& in, EngineEventBatch& batch) {
  const uint32_t count = in.read_array();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    if (in.peek() == Kind::kMap) {
      read_map_form(in, batch);
    } else {
      read_array_form(in, batch);
    }
  }
}

void read_rank(MsgpackReader& in, EngineEventBatch& batch) {
  if (!in.take_nil()) {
    batch.dp_rank = static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
  }
}

void read_batch_array(MsgpackReader& in, EngineEventBatch& batch) {
  const uint32_t members = in.read_array();
  if (members < 2) {
    in.fail("an event batch needs a time and a list of events");
    return;
  }
  batch.timestamp_s = in.read_number();
  read_events(in, batch);
  if (members > 2) {
    read_rank(in, batch);
    skip_values(members - 3, in);
  }
}

void read_batch_map(MsgpackReader& in, EngineEventBatch& batch) {
  const uint32_t fields = in.read_map();
  bool has_events = false;
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = read_key(in);
    if (name == "ts") {
      batch.timestamp_s = in.read_number();
    } else if (name == "events") {
      has_events = true;
      read_events(in, batch);
    } else if (name == "data_parallel_rank") {
      read_rank(in, batch);
    } else {
      in.skip();
    }
  }
  if (!has_events) {
    in.fail("an event batch needs a list of events");
  }
}

}  // namespace

Result<EngineEventBatch> decode_engine_events(std::string_view payload) {
  MsgpackReader in(payload);
  EngineEventBatch batch;
  if (in.peek() == Kind::kMap) {
    read_batch_map(in, batch);
  } else {
    read_batch_array(in, batch);
  }
  if (in.ok() && !in.at_end()) {
    in.fail("bytes after the event batch");
  }
  STATOR_CHECK(in.status(), "engine events");
  return batch;
}

}  // namespace stator::kv_events
