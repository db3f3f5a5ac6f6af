// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_partial.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/api/responses_encoder.h"
#include "stator/json/value.h"

namespace stator::api {
namespace {

/// What follows "data: " in each frame.
std::vector<std::string> data_of(const std::string& frames) {
  std::vector<std::string> events;
  for (size_t at = frames.find("data: "); at != std::string::npos;
       at = frames.find("data: ", at + 1)) {
    events.push_back(frames.substr(at + 6, frames.find('\n', at) - at - 6));
  }
  return events;
}

TEST(PartialOutput, HasWhatTheEventsToldWhereverTheyEnd) {
  ResponsesEncoder encoder({.id = "resp_1", .model = "m", .created_s = 1, .echo_json = ""}, {});
  std::string frames;
  encoder.begin(frames);
  encoder.reasoning(frames, "Let me ");
  encoder.reasoning(frames, "see.");
  encoder.text(frames, "It is ");
  encoder.text(frames, "\"12\"");
  encoder.call(frames, {.index = 0, .id = "call_1", .name = "f", .arguments = "{\"a\":"});
  encoder.call(frames, {.index = 0, .arguments = "1"});
  const std::vector<std::string> events = data_of(frames);

  const auto whole = json::parse("[" + partial_output(events) + "]");
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), 3U);
  EXPECT_EQ(whole->at(size_t{0}).text_at({"status"}), "completed");
  EXPECT_EQ(whole->at(size_t{0}).at("content").at(size_t{0}).text_at({"text"}), "Let me see.");
  EXPECT_EQ(whole->at(size_t{1}).at("content").at(size_t{0}).text_at({"text"}), "It is \"12\"");
  EXPECT_EQ(whole->at(size_t{2}).text_at({"arguments"}), "{\"a\":1");
  EXPECT_EQ(whole->at(size_t{2}).text_at({"status"}), "incomplete");

  std::string longest;  // of the text, as events come
  for (size_t count = 0; count <= events.size(); ++count) {
    const auto items = json::parse("[" + partial_output(std::span(events).first(count)) + "]");
    ASSERT_TRUE(items) << count;
    for (const json::Value& item : items->elements()) {
      if (item.text_at({"type"}) == "message" && item.at("content").size() > 0) {
        const std::string text(item.at("content").at(size_t{0}).text_at({"text"}));
        EXPECT_TRUE(text.starts_with(longest)) << text;
        longest = text;
      }
    }
  }
  EXPECT_EQ(longest, "It is \"12\"");
}

TEST(PartialOutput, PassesOverWhatIsNoEvent) {
  EXPECT_EQ(partial_output(std::vector<std::string>{"", "{", "[]", R"({"type":"error"})",
                                                    R"({"type":"response.output_text.delta"})"}),
            "");
}

}  // namespace
}  // namespace stator::api
