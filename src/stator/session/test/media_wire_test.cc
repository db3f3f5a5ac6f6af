// SPDX-License-Identifier: Apache-2.0
// Requests with media on the wire.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "stator/discovery/instance_record.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

inference::EngineRequest request() {
  auto blob = std::make_shared<inference::MediaBlob>();
  blob->kind = inference::MediaKind::kAudio;
  blob->type = "audio/wav";
  blob->bytes = std::string("a\0b", 3);
  blob->digest = std::string(64, 'a');
  auto media = std::make_shared<inference::MediaInput>();
  media->chat_json = R"({"messages":[]})";
  media->pieces = {"before", "after"};
  media->items = {{.blob = blob, .detail = "low", .token_begin = 1, .token_count = 2}};
  inference::EngineRequest made{.key = {RequestId(7), Attempt(1)}, .tokens = {1, 2, 3, 4, 5}};
  made.media = media;
  return made;
}

TEST(MediaWire, RequestsSurviveTheRoundTrip) {
  pb::Submit message;
  wire::encode(request(), message);
  const auto again = wire::decode(message);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  ASSERT_NE(again->media, nullptr);
  const inference::MediaInput& media = *again->media;
  EXPECT_EQ(media.chat_json, request().media->chat_json);
  EXPECT_EQ(media.pieces, request().media->pieces);
  ASSERT_EQ(media.items.size(), 1U);
  EXPECT_EQ(media.items[0].detail, "low");
  EXPECT_EQ(media.items[0].token_begin, 1U);
  EXPECT_EQ(media.items[0].token_count, 2U);
  EXPECT_EQ(media.items[0].blob->kind, inference::MediaKind::kAudio);
  EXPECT_EQ(media.items[0].blob->type, "audio/wav");
  EXPECT_EQ(media.items[0].blob->bytes, request().media->items[0].blob->bytes);
  EXPECT_EQ(media.items[0].blob->hash(), 0xaaaaaaaaaaaaaaaaU);
}

TEST(MediaWire, RequestsThatContradictThemselvesAreRefused) {
  const std::function<void(pb::MediaInput&)> wrongs[] = {
      [](pb::MediaInput& media) { media.clear_items(); },
      [](pb::MediaInput& media) { media.add_pieces("one too many"); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_kind("smell"); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_digest("ABC"); },
      [](pb::MediaInput& media) { media.mutable_items(0)->clear_data(); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_type(std::string(200, 'x')); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_detail(std::string(65, 'x')); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_token_begin(6); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_token_count(5); },
      [](pb::MediaInput& media) { media.mutable_items(0)->set_token_count(UINT32_MAX); },
      [](pb::MediaInput& media) {
        media.mutable_items(0)->set_data(std::string(wire::kMediaBytesMax + 1, 'x'));
      },
  };
  for (size_t i = 0; i < std::size(wrongs); ++i) {
    pb::Submit message;
    wire::encode(request(), message);
    wrongs[i](*message.mutable_media());
    EXPECT_FALSE(wire::decode(message).has_value()) << i;
  }
}

TEST(MediaWire, RecordsSayWhatAWorkerTakes) {
  discovery::InstanceRecord record;
  record.key.worker = WorkerId(5);
  record.address = "h:1";
  record.model.name = "m";
  record.model.media.add(inference::MediaKind::kImage);
  record.model.media.add(inference::MediaKind::kVideo);
  const std::string json = discovery::to_json(record);
  EXPECT_TRUE(json.contains(R"("media":["image","video"])")) << json;
  const auto again = discovery::parse_instance_record(json);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->model.media, record.model.media);
}

}  // namespace
}  // namespace stator::session
