// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/engine_events.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {

/// A batch array whose single event `out` is about to get.
MsgpackWriter batch_of_one() {
  MsgpackWriter out;
  out.array(2).number(1.5).array(1);
  return out;
}

EngineEventBatch decode(const std::string& bytes) {
  auto batch = decode_engine_events(bytes);
  EXPECT_TRUE(batch.has_value()) << batch.error().message();
  return batch.has_value() ? std::move(*batch) : EngineEventBatch{};
}

template <typename Event>
Event only(const EngineEventBatch& batch) {
  EXPECT_EQ(batch.events.size(), 1U);
  return batch.events.empty() ? Event{} : std::get<Event>(batch.events.front());
}

MsgpackWriter& integers(MsgpackWriter& out, std::initializer_list<uint64_t> values) {
  out.array(static_cast<uint32_t>(values.size()));
  for (const uint64_t value : values) {
    out.integer(value);
  }
  return out;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The same store in vLLM's current map form and in the earlier positional form, as on the wire.
constexpr std::string_view kMapForm =
    "93 cb 41 d9 54 fc 40 20 00 00 91 8b a4 74 79 70 65 ab 42 6c 6f 63 6b 53 74 6f 72 65 64 ac 62 "
    "6c 6f 63 6b 5f 68 61 73 68 65 73 91 cf 11 22 33 44 55 66 77 88 b1 70 61 72 65 6e 74 5f 62 6c "
    "6f 63 6b 5f 68 61 73 68 c0 a9 74 6f 6b 65 6e 5f 69 64 73 94 01 cc c8 ce 00 01 11 70 ce 00 02 "
    "50 5c aa 62 6c 6f 63 6b 5f 73 69 7a 65 04 a7 6c 6f 72 61 5f 69 64 c0 a6 6d 65 64 69 75 6d a3 "
    "47 50 55 a9 6c 6f 72 61 5f 6e 61 6d 65 c0 aa 65 78 74 72 61 5f 6b 65 79 73 91 c0 a9 67 72 6f "
    "75 70 5f 69 64 78 00 b2 6b 76 5f 63 61 63 68 65 5f 73 70 65 63 5f 6b 69 6e 64 ae 66 75 6c 6c "
    "5f 61 74 74 65 6e 74 69 6f 6e 00";
constexpr std::string_view kArrayForm =
    "93 cb 41 d9 54 fc 40 20 00 00 91 97 ab 42 6c 6f 63 6b 53 74 6f 72 65 64 91 cf 11 22 33 44 55 "
    "66 77 88 c0 94 01 cc c8 ce 00 01 11 70 ce 00 02 50 5c 04 c0 a3 47 50 55 00";
constexpr std::string_view kRemoveAndClear =
    "93 cb 41 d9 54 fc 40 40 00 00 92 93 ac 42 6c 6f 63 6b 52 65 6d 6f 76 65 64 91 cf 11 22 33 44 "
    "55 66 77 88 a3 47 50 55 91 b0 41 6c 6c 42 6c 6f 63 6b 73 43 6c 65 61 72 65 64 01";

TEST(EngineEvents, MapAndPositionalFormSayTheSame) {
  for (const std::string_view form : {kMapForm, kArrayForm}) {
    const EngineEventBatch batch = decode(from_hex(form));

    EXPECT_EQ(batch.timestamp_s, 1700000000.5);
    EXPECT_EQ(batch.dp_rank, 0U);
    const auto stored = only<EngineStored>(batch);
    EXPECT_EQ(stored.hashes, std::vector<uint64_t>{0x1122334455667788});
    EXPECT_EQ(stored.parent, std::nullopt);
    EXPECT_EQ(stored.tokens, (std::vector<TokenId>{1, 200, 70000, 151644}));
    EXPECT_EQ(stored.block_size, 4U);
    EXPECT_EQ(stored.scope.medium, "GPU");
    EXPECT_FALSE(stored.has_lora_id);
    EXPECT_FALSE(stored.bigram);
  }
  const auto stored = only<EngineStored>(decode(from_hex(kMapForm)));
  EXPECT_EQ(stored.scope.group, 0U);
  EXPECT_EQ(stored.scope.kind, "full_attention");
}

TEST(EngineEvents, RemovalsAndClearsAreReadWithTheirRank) {
  const EngineEventBatch batch = decode(from_hex(kRemoveAndClear));

  EXPECT_EQ(batch.dp_rank, 1U);
  ASSERT_EQ(batch.events.size(), 2U);
  EXPECT_EQ(std::get<EngineRemoved>(batch.events[0]).hashes,
            std::vector<uint64_t>{0x1122334455667788});
  EXPECT_TRUE(std::holds_alternative<EngineCleared>(batch.events[1]));
}

TEST(EngineEvents, TheBatchMayBeAMapWithoutRank) {
  MsgpackWriter out;
  out.map(3).text("events").array(1).map(1).text("type").text("AllBlocksCleared");
  out.text("ts").integer(7).text("news").map(1).text("a").nil();

  const EngineEventBatch batch = decode(out.take());

  EXPECT_EQ(batch.timestamp_s, 7);
  EXPECT_EQ(batch.dp_rank, std::nullopt);
  EXPECT_EQ(batch.events.size(), 1U);
}

TEST(EngineEvents, HashesAreSignedUnsignedOrDigests) {
  MsgpackWriter out = batch_of_one();
  out.array(2).text("BlockRemoved").array(3).negative(-2).integer(~uint64_t{0});
  out.bytes(std::string(24, '\x55') + std::string("\x01\x02\x03\x04\x05\x06\x07\x08"));

  const auto removed = only<EngineRemoved>(decode(out.take()));

  EXPECT_EQ(removed.hashes,
            (std::vector<uint64_t>{~uint64_t{1}, ~uint64_t{0}, 0x0102030405060708}));
}

TEST(EngineEvents, TokenPairsBecomeOneRowAndAreMarked) {
  MsgpackWriter out = batch_of_one();
  integers(out.array(5).text("BlockStored"), {9}).nil().array(3);
  integers(integers(integers(out, {1, 2}), {2, 3}), {3, 4}).integer(3);

  const auto stored = only<EngineStored>(decode(out.take()));

  EXPECT_TRUE(stored.bigram);
  EXPECT_EQ(stored.tokens, (std::vector<TokenId>{1, 2, 3, 4}));
}

TEST(EngineEvents, ExtraKeysAreSortedByWhatTheyAre) {
  const std::string digest = "00000000000000ff" + std::string(48, 'A');
  MsgpackWriter out = batch_of_one();
  out.map(2).text("type").text("BlockStored").text("extra_keys").array(4);
  out.array(2).text("ad1").array(2).text(digest).integer(12);  // name, (digest, offset)
  out.nil();
  out.array(1).text(digest);
  out.array(1).bytes("embedding");

  const auto stored = only<EngineStored>(decode(out.take()));

  ASSERT_EQ(stored.extras.size(), 4U);
  EXPECT_EQ(stored.extras[0].texts, std::vector<std::string>{"ad1"});
  EXPECT_EQ(stored.extras[0].mm_hashes, std::vector<uint64_t>{0xff});
  EXPECT_FALSE(stored.extras[0].opaque);
  EXPECT_EQ(stored.extras[2].mm_hashes, std::vector<uint64_t>{0xff});
  EXPECT_TRUE(stored.extras[3].opaque);
}

/// A positional removal with `tail` after the medium.
EngineEventScope removed_with_tail(uint32_t count, const std::string& tail) {
  MsgpackWriter out = batch_of_one();
  integers(out.array(3 + count).text("BlockRemoved"), {1}).text("GPU");
  return only<EngineRemoved>(decode(out.take() + tail)).scope;
}

TEST(EngineEvents, PositionalTailsAreReadWithAndWithoutTheirEmptySlots) {
  using W = MsgpackWriter;
  const auto whole = removed_with_tail(
      6, W().integer(2).text("mamba").integer(7).text("REMOTE").text("kvcr").text("s").take());
  EXPECT_EQ(whole.group, 2U);
  EXPECT_EQ(whole.kind, "mamba");
  EXPECT_EQ(whole.locality, "REMOTE");
  EXPECT_EQ(whole.ownership, "kvcr");

  const auto without_kind =
      removed_with_tail(3, W().integer(1).text("LOCAL").text("framework").take());
  EXPECT_EQ(without_kind.group, 1U);
  EXPECT_EQ(without_kind.kind, "");
  EXPECT_EQ(without_kind.locality, "LOCAL");
  EXPECT_EQ(without_kind.ownership, "framework");

  const auto with_nils = removed_with_tail(5, W().nil().nil().nil().nil().text("else").take());
  EXPECT_EQ(with_nils.group, std::nullopt);
  EXPECT_EQ(with_nils.ownership, "else");

  const auto odd = removed_with_tail(2, W().array(1).integer(1).text("mamba").take());
  EXPECT_EQ(odd.kind, "mamba");
}

TEST(EngineEvents, MediaAreReadFromTheirOwnFieldInBothForms) {
  MsgpackWriter infos;
  infos.array(2).nil().map(1).text("mm_objects").array(1);
  infos.map(2).text("mm_hash").integer(5).text("offsets").array(0);
  const std::string bytes = infos.take();
  MsgpackWriter positional = batch_of_one();
  integers(positional.array(11).text("BlockStored"), {1}).nil();
  integers(positional, {1, 2}).integer(2).nil().nil().nil().nil();
  MsgpackWriter map = batch_of_one();
  map.map(2).text("block_mm_infos");

  const auto first =
      only<EngineStored>(decode(positional.take() + bytes + MsgpackWriter().integer(3).take()));
  const auto second = only<EngineStored>(
      decode(map.take() + bytes + MsgpackWriter().text("type").text("BlockStored").take()));

  EXPECT_EQ(first.scope.group, 3U);
  for (const EngineStored& stored : {first, second}) {
    ASSERT_EQ(stored.extras.size(), 2U);
    EXPECT_EQ(stored.extras[1].mm_hashes, std::vector<uint64_t>{5});
  }
}

TEST(EngineEvents, UnknownEventsAndFieldsAreSkippedAndCounted) {
  MsgpackWriter out;
  out.array(5).number(1).array(5);
  out.map(2).text("type").text("Ignored").text("x").array(1).nil();
  out.map(1).integer(7).text("no type");
  out.array(2).text("BlockMoved").map(1).text("to").integer(3);
  out.array(0);
  out.map(3).text("new_field").map(0).text("type").text("BlockRemoved").integer(9).array(1).nil();
  out.nil().text("surplus").integer(1);

  const EngineEventBatch batch = decode(out.take());

  EXPECT_EQ(batch.ignored_events, 4U);
  EXPECT_EQ(batch.events.size(), 1U);
}

TEST(EngineEvents, WrongTypesAndStrayBytesAreCorrupt) {
  const std::string cases[] = {
      "",
      MsgpackWriter().nil().take(),
      MsgpackWriter().array(1).number(1).take(),
      MsgpackWriter().map(1).text("ts").number(1).take(),
      MsgpackWriter().array(2).text("ts").array(0).take(),
      MsgpackWriter().array(2).number(1).array(1).array(2).text("BlockRemoved").text("x").take(),
      MsgpackWriter()
          .array(2)
          .number(1)
          .array(1)
          .array(2)
          .text("BlockRemoved")
          .array(1)
          .text("x")
          .take(),
      MsgpackWriter()
          .array(2)
          .number(1)
          .array(1)
          .array(2)
          .text("BlockRemoved")
          .array(1)
          .bytes("1")
          .take(),
      MsgpackWriter().array(2).number(1).array(0).take() + "\x01",
      MsgpackWriter().array(3).number(1).array(0).integer(uint64_t{1} << 32).take()};
  for (const std::string& bytes : cases) {
    const auto batch = decode_engine_events(bytes);

    ASSERT_FALSE(batch.has_value());
    EXPECT_EQ(batch.error().code(), Code::kCorrupt);
  }
}

}  // namespace
}  // namespace stator::kv_events
