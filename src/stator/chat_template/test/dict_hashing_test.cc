// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/meter.h"
#include "stator/chat_template/value.h"
#include "stator/core/random.h"

namespace stator::chat_template {
namespace {

constexpr uint64_t kStepsMax = 10'000'000;

// libstdc++'s std::hash of 16 bytes (MurmurHash64A, Appleby; seed 0xc70f6907), taken apart: the
// second word that gives `target` after any first one.
constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995ULL;
constexpr uint64_t kStart = 0xc70f6907ULL ^ (16 * kMultiplier);

constexpr uint64_t inverse(uint64_t odd) {
  uint64_t result = odd;
  for (int i = 0; i < 6; ++i) {
    result *= 2 - odd * result;
  }
  return result;
}

uint64_t mixed(uint64_t word) {
  word *= kMultiplier;
  return (word ^ word >> 47U) * kMultiplier;
}

uint64_t unmixed(uint64_t word) {
  word *= inverse(kMultiplier);
  return (word ^ word >> 47U) * inverse(kMultiplier);
}

/// 16 bytes below 0x80 (so text) that all have one hash with std::hash.
std::vector<std::string> colliding_keys(size_t count) {
  Random random(7);
  std::vector<std::string> keys;
  while (keys.size() < count) {
    const uint64_t words[2] = {
        random.next() & 0x7f7f7f7f7f7f7f7fULL,
        0,
    };
    const uint64_t after_first = (kStart ^ mixed(words[0])) * kMultiplier;
    const uint64_t second = unmixed(after_first ^ 0x5ca1ab1e0ddba11ULL);
    if ((second & 0x8080808080808080ULL) == 0) {
      std::string key(16, '\0');
      std::memcpy(key.data(), &words[0], 8);
      std::memcpy(key.data() + 8, &second, 8);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::vector<std::string> harmless_keys(size_t count) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) {
    keys.push_back("member_" + std::to_string(1'000'000'000 + i).substr(1));
  }
  return keys;
}

std::string as_object(const std::vector<std::string>& keys) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string json = "{";
  for (const std::string& key : keys) {
    json += json.size() == 1 ? "\"" : ",\"";
    for (const char c : key) {
      json += "\\u00";
      json += kHex[static_cast<unsigned char>(c) >> 4U];
      json += kHex[static_cast<unsigned char>(c) & 15U];
    }
    json += "\":1";
  }
  return json + '}';
}

/// Steps that reading an object with these keys takes.
uint64_t steps_to_read(const std::vector<std::string>& keys) {
  const std::string json = as_object(keys);
  Meter meter(kStepsMax, nullptr);
  Arena arena(size_t{1} << 30U, &meter);
  const auto value = Value::from_json(json, arena);
  EXPECT_TRUE(value) << value.error().to_string();
  EXPECT_EQ(value->as_dict().size, keys.size());
  return meter.steps();
}

TEST(DictHashing, TheTestsKeysCollideInTheStandardLibrary) {
  const auto keys = colliding_keys(100);

  for (const std::string& key : keys) {
    ASSERT_EQ(std::hash<std::string>{}(key), std::hash<std::string>{}(keys.front()));
  }
}

TEST(DictHashing, KeysThatCollideElsewhereCostWhatOthersCost) {
  constexpr size_t kKeys = 100'000;

  const uint64_t colliding = steps_to_read(colliding_keys(kKeys));
  const uint64_t harmless = steps_to_read(harmless_keys(kKeys));

  EXPECT_LT(colliding, 2 * harmless);
  EXPECT_LT(harmless, 10 * kKeys);  // in vain, per key
}

TEST(DictHashing, ConversationsWithSuchKeysRender) {
  const auto chat = ChatTemplate::compile(
      "{% for m in messages %}{{ m.content }}{{ m | length }}{% endfor %}", {});
  ASSERT_TRUE(chat) << chat.error().to_string();
  std::string message = as_object(colliding_keys(20'000));
  message.insert(1, R"("role":"user","content":"q",)");
  const std::string messages = "[" + message + "]";
  RenderInput input;
  input.messages_json = messages;

  const auto prompt = (*chat)->render(input);

  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_EQ(*prompt, "q20002");
}

// Members that say nothing are taken out of a message; one by one that took the square of their
// number.
TEST(DictHashing, ManyEmptyMembersAreDroppedInOnePass) {
  const auto chat =
      ChatTemplate::compile("{{ messages[0].content }}{{ messages[0] | length }}", {});
  ASSERT_TRUE(chat) << chat.error().to_string();
  std::string messages = R"([{"role":"user","content":"q")";
  for (size_t i = 0; i < 200'000; ++i) {
    messages += ",\"m" + std::to_string(i) + "\":null";
  }
  messages += "}]";
  RenderInput input;
  input.messages_json = messages;

  const auto prompt = (*chat)->render(input);

  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_EQ(*prompt, "q2");
}

TEST(DictHashing, PlacesLookedAtInVainAreCharged) {
  Meter meter(kStepsMax, nullptr);
  Arena arena(size_t{1} << 24U, &meter);
  auto* dict = DictData::make(arena, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();  // equal to nothing, one hash

  for (int i = 0; i < 1000; ++i) {
    dict->set(arena, Value::number(nan), Value::none());
  }

  EXPECT_EQ(dict->size, 1000U);
  EXPECT_GT(meter.steps(), 1000U * 999U / 2U);
}

TEST(DictHashing, ErasedEntriesAreGoneAndTheOthersStay) {
  Arena arena(size_t{1} << 24U);
  auto* dict = DictData::make(arena, 0);
  for (int i = 0; i < 100; ++i) {
    dict->set(arena, Value::integer(i), Value::integer(i * i));
  }

  dict->erase_if(arena, [](const DictData::Entry& entry) { return entry.key.as_int() % 3 == 0; });

  EXPECT_EQ(dict->size, 66U);
  EXPECT_EQ(dict->find(Value::integer(33)), nullptr);
  ASSERT_NE(dict->find(Value::integer(34)), nullptr);
  EXPECT_EQ(dict->find(Value::integer(34))->as_int(), 34 * 34);
  EXPECT_EQ(dict->items()[1].key.as_int(), 2);
}

TEST(DictHashing, RangesAreToldApart) {
  const auto chat = ChatTemplate::compile(
      "{% set d = {range(3): 'a', range(1, 4): 'b', range(0, 9, 3): 'c', range(7, 8): 'd'} %}"
      "{{ d[range(3)] }}{{ d[range(1, 4)] }}{{ d[range(0, 7, 3)] }}{{ d[range(7, 99, 200)] }}",
      {});
  ASSERT_TRUE(chat) << chat.error().to_string();

  const auto text = (*chat)->render_context("{}", {});

  ASSERT_TRUE(text) << text.error().to_string();
  EXPECT_EQ(*text, "abcd");
}

TEST(Cancelling, ARenderEndsWithinOneLook) {
  const auto chat = ChatTemplate::compile(
      "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", {});
  ASSERT_TRUE(chat) << chat.error().to_string();
  CancelToken cancel;
  cancel.cancel();
  RenderInput input;
  input.messages_json = "[]";
  input.cancel = &cancel;

  const auto prompt = (*chat)->render(input);

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kCancelled);
  EXPECT_EQ(prompt.error().message(), "the client left");
}

TEST(Cancelling, ReadingJsonEndsWithinOneLook) {
  const std::vector<std::string> texts = {as_object(harmless_keys(10'000)),
                                          "\"" + std::string(4 << 20U, 'a') + "\"", [] {
                                            std::string text = "\"";
                                            for (int i = 0; i < 100'000; ++i) {
                                              text += "\\n";
                                            }
                                            return text + '"';
                                          }()};
  for (const std::string& json : texts) {
    CancelToken cancel;
    cancel.cancel();
    Meter meter(kStepsMax, &cancel);
    Arena arena(size_t{1} << 26U, &meter);

    const auto value = Value::from_json(json, arena);

    ASSERT_FALSE(value) << json.substr(0, 20);
    EXPECT_EQ(value.error().code(), Code::kCancelled);
    EXPECT_LE(meter.steps(), 5 * Meter::kLookEvery);
  }
}

}  // namespace
}  // namespace stator::chat_template
