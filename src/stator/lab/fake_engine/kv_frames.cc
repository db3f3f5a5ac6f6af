// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/kv_frames.h"

#include <algorithm>

#include "stator/core/random.h"
#include "stator/lab/fake_engine/msgpack_writer.h"

namespace stator::fake_engine {
namespace {

std::string_view medium_of(kv::StorageTier tier) {
  return tier == kv::StorageTier::kDevice ? "GPU" : "CPU";  // our engines have no further ones
}

/// A whole digest whose last eight bytes are the number; the rest is filler that depends on it.
std::string digest_of(uint64_t hash) {
  std::string bytes;
  uint64_t word = hash;
  for (int i = 0; i < 4; ++i) {
    word = i == 3 ? hash : mix64(word);
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(word >> static_cast<unsigned>(shift)));
    }
  }
  return bytes;
}

void write_hash(MsgpackWriter& out, uint64_t hash, EventHash form) {
  switch (form) {
    case EventHash::kUnsigned:
      out.unsigned_integer(hash);
      return;
    case EventHash::kSigned:
      out.integer(static_cast<int64_t>(hash));
      return;
    case EventHash::kBytes:
      out.binary(digest_of(hash));
      return;
  }
}

void write_hashes(MsgpackWriter& out, const std::vector<uint64_t>& hashes, EventHash form) {
  out.array(hashes.size());
  for (const uint64_t hash : hashes) {
    write_hash(out, hash, form);
  }
}

void write_parent(MsgpackWriter& out, const WireStored& stored, EventHash form) {
  if (stored.parent) {
    write_hash(out, *stored.parent, form);
  } else {
    out.nil();
  }
}

void write_tokens(MsgpackWriter& out, const WireStored& stored) {
  out.array(stored.tokens.size());
  for (const TokenId token : stored.tokens) {
    out.unsigned_integer(token);
  }
}

void write_lora_id(MsgpackWriter& out, const WireStored& stored) {
  if (stored.lora_id) {
    out.unsigned_integer(*stored.lora_id);
  } else {
    out.nil();
  }
}

void write_lora_name(MsgpackWriter& out, const WireStored& stored) {
  if (stored.lora_name.empty()) {
    out.nil();
  } else {
    out.text(stored.lora_name);
  }
}

void write_extra_keys(MsgpackWriter& out, const WireStored& stored) {
  out.array(stored.hashes.size());
  for (size_t i = 0; i < stored.hashes.size(); ++i) {
    if (i >= stored.extra_keys.size() || stored.extra_keys[i].empty()) {
      out.nil();
      continue;
    }
    out.array(stored.extra_keys[i].size());
    for (const std::string& key : stored.extra_keys[i]) {
      out.text(key);
    }
  }
}

/// The members every dialect has, in their order.
void write_stored_map(MsgpackWriter& out, const WireStored& stored, EventHash form) {
  out.text("type").text("BlockStored").text("block_hashes");
  write_hashes(out, stored.hashes, form);
  out.text("parent_block_hash");
  write_parent(out, stored, form);
  out.text("token_ids");
  write_tokens(out, stored);
  out.text("block_size").unsigned_integer(stored.block_size).text("lora_id");
  write_lora_id(out, stored);
  out.text("medium").text(medium_of(stored.tier));
}

void write_stored_array(MsgpackWriter& out, const WireStored& stored, EventHash form) {
  out.text("BlockStored");
  write_hashes(out, stored.hashes, form);
  write_parent(out, stored, form);
  write_tokens(out, stored);
  out.unsigned_integer(stored.block_size);
  write_lora_id(out, stored);
  out.text(medium_of(stored.tier));
}

void write_vllm_stored(MsgpackWriter& out, const WireStored& stored, EventForm form,
                       EventHash hash) {
  if (form == EventForm::kArray) {
    const bool named = !stored.lora_name.empty() ||
                       std::ranges::any_of(stored.extra_keys, [](auto& k) { return !k.empty(); });
    out.array(named ? 9 : 7);
    write_stored_array(out, stored, hash);
    if (named) {
      write_lora_name(out, stored);
      write_extra_keys(out, stored);
    }
    return;
  }
  out.map(stored.session_id.empty() ? 11 : 12);
  write_stored_map(out, stored, hash);
  out.text("lora_name");
  write_lora_name(out, stored);
  out.text("extra_keys");
  write_extra_keys(out, stored);
  out.text("group_idx").unsigned_integer(0);
  out.text("kv_cache_spec_kind").text("full_attention");
  if (!stored.session_id.empty()) {
    out.text("session_id").text(stored.session_id);
  }
}

void write_vllm_removed(MsgpackWriter& out, uint64_t block, kv::StorageTier tier, EventForm form,
                        EventHash hash) {
  if (form == EventForm::kArray) {
    out.array(3).text("BlockRemoved").array(1);
    write_hash(out, block, hash);
    out.text(medium_of(tier));
    return;
  }
  out.map(4).text("type").text("BlockRemoved").text("block_hashes").array(1);
  write_hash(out, block, hash);
  out.text("medium").text(medium_of(tier)).text("group_idx").unsigned_integer(0);
}

void write_sglang_removed(MsgpackWriter& out, const WireRemoved& removed, EventForm form,
                          EventHash hash) {
  if (form == EventForm::kArray) {
    out.array(3).text("BlockRemoved");
    write_hashes(out, removed.hashes, hash);
    out.text(medium_of(removed.tier));
    return;
  }
  out.map(3).text("type").text("BlockRemoved").text("block_hashes");
  write_hashes(out, removed.hashes, hash);
  out.text("medium").text(medium_of(removed.tier));
}

void write_cleared(MsgpackWriter& out, EventForm form) {
  if (form == EventForm::kArray) {
    out.array(1).text("AllBlocksCleared");
  } else {
    out.map(1).text("type").text("AllBlocksCleared");
  }
}

size_t count_vllm_events(const WireBatch& batch) {
  size_t count = 0;
  for (const WireEvent& event : batch.events) {
    const auto* removed = std::get_if<WireRemoved>(&event);
    count += removed == nullptr ? 1 : removed->hashes.size();
  }
  return count;
}

}  // namespace

std::string encode_vllm_batch(const WireBatch& batch, EventForm form, EventHash hash) {
  std::string bytes;
  MsgpackWriter out(bytes);
  out.array(3).float64(batch.unix_seconds).array(count_vllm_events(batch));
  for (const WireEvent& event : batch.events) {
    if (const auto* stored = std::get_if<WireStored>(&event)) {
      write_vllm_stored(out, *stored, form, hash);
    } else if (const auto* removed = std::get_if<WireRemoved>(&event)) {
      for (const uint64_t block : removed->hashes) {
        write_vllm_removed(out, block, removed->tier, form, hash);
      }
    } else {
      write_cleared(out, form);
    }
  }
  out.unsigned_integer(batch.dp_rank);
  return bytes;
}

std::string encode_sglang_batch(const WireBatch& batch, EventForm form, EventHash hash) {
  std::string bytes;
  MsgpackWriter out(bytes);
  out.array(3).float64(batch.unix_seconds).array(batch.events.size());
  for (const WireEvent& event : batch.events) {
    if (const auto* stored = std::get_if<WireStored>(&event)) {
      form == EventForm::kArray ? out.array(7) : out.map(7);
      form == EventForm::kArray ? write_stored_array(out, *stored, hash)
                                : write_stored_map(out, *stored, hash);
    } else if (const auto* removed = std::get_if<WireRemoved>(&event)) {
      write_sglang_removed(out, *removed, form, hash);
    } else {
      write_cleared(out, form);
    }
  }
  out.unsigned_integer(batch.dp_rank);
  return bytes;
}

}  // namespace stator::fake_engine
