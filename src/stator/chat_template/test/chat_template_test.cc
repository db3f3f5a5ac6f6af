// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/chat_template.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

namespace fs = std::filesystem;

const fs::path kTestdata = fs::path(STATOR_SOURCE_DIR) / "src/stator/chat_template/testdata";
const fs::path kTemplates = fs::path(STATOR_SHARED_DIR) / "data/templates";

// 2026-03-07 09:05:02 UTC, as in make_goldens.py.
constexpr WallTime kNow{std::chrono::seconds(1'772'874'302)};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string sha256_start(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (int i = 0; i < 8; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4U];
    hex += "0123456789abcdef"[digest[i] & 15U];
  }
  return hex;
}

std::string text_member(const Value& object, std::string_view name) {
  const Value* found = object.find(name);
  return found == nullptr || !found->is_string() ? std::string() : std::string(found->text());
}

RenderInput input_at_golden_time() {
  RenderInput input;
  input.now = kNow;
  return input;
}

/// Compiles and renders without adaptation; compile errors count as failures of the render.
Result<std::string> render_plain(const std::string& source, const std::string& context) {
  STATOR_TRY(const auto compiled, ChatTemplate::compile(source, {}));
  return compiled->render_context(context, input_at_golden_time());
}

TEST(ChatTemplate, RendersEveryLanguageFeatureAsPythonDoes) {
  for (const std::string& line : read_lines(kTestdata / "feature_goldens.jsonl")) {
    Arena arena(size_t{16} << 20U);
    const auto golden = Value::from_json(line, arena);
    ASSERT_TRUE(golden) << golden.error().to_string();
    SCOPED_TRACE(text_member(*golden, "name") + ": " + text_member(*golden, "template"));

    const auto prompt =
        render_plain(text_member(*golden, "template"), golden->find("context")->to_python_json());

    const Value* expected_error = golden->find("error");
    if (expected_error == nullptr) {
      EXPECT_TRUE(prompt) << prompt.error().to_string();
      EXPECT_EQ(prompt.value_or(""), text_member(*golden, "text"));
      continue;
    }
    EXPECT_FALSE(prompt) << *prompt;
    if (prompt) {
      continue;
    }
    EXPECT_EQ(prompt.error().code(), Code::kInvalidArgument);
    if (expected_error->is_string()) {
      EXPECT_EQ(prompt.error().message(), expected_error->text());
    }
  }
}

TEST(ChatTemplate, EveryFilterTestMethodAndOperatorDoesWhatPythonDoes) {
  const std::string context = read_file(kTestdata / "matrix_context.json");
  int differences = 0;
  int templates = 0;
  for (const std::string& line : read_lines(kTestdata / "matrix_goldens.jsonl")) {
    Arena arena(size_t{1} << 20U);
    const auto golden = Value::from_json(line, arena);
    ASSERT_TRUE(golden);
    const auto prompt = render_plain(text_member(*golden, "t"), context);
    const Value* expected = golden->find("o");
    const bool same = expected == nullptr ? !prompt : prompt && *prompt == expected->text();
    EXPECT_TRUE(same) << line << "\n  got: " << (prompt ? *prompt : prompt.error().message());
    differences += same ? 0 : 1;
    ++templates;
    ASSERT_LT(differences, 20);
  }
  EXPECT_GT(templates, 5000);
}

TEST(ChatTemplate, SaysWhichArgumentDoesNotFit) {
  const std::pair<std::string, std::string_view> cases[] = {
      {"{{ 'a'|trim(1, 2) }}", "trim() takes at most 1 argument(s), not 2"},
      {"{{ 'a'|trim(char='b') }}", "trim() got an unexpected keyword argument 'char'"},
      {"{{ 'a'|default(1, default_value=2) }}",
       "default() got multiple values for argument 'default_value'"},
      {"{{ 'a'|replace('b') }}", "replace() is missing its argument 'new'"},
      {"{{ 1 is odd(2) }}", "odd() takes at most 0 argument(s), not 1"},
      {"{{ 'a'.strip(chars='b') }}", "strip() got an unexpected keyword argument 'chars'"},
      {"{{ ['a']|map('upper', 1)|list }}", "upper() takes at most 0 argument(s), not 1"},
      {"{{ range(stop=3) }}", "range() got an unexpected keyword argument 'stop'"},
  };
  for (const auto& [source, message] : cases) {
    const auto prompt = render_plain(source, "{}");
    ASSERT_FALSE(prompt) << source;
    EXPECT_TRUE(prompt.error().message().ends_with(message)) << prompt.error().message();
  }
}

/// Compares one recorded render of a published template; empty when equal.
std::string compare_model_render(const Value& golden, const Value& conversations) {
  const auto compiled = ChatTemplate::compile(read_file(kTemplates / text_member(golden, "t")), {});
  if (!compiled) {
    return golden.find("error") != nullptr ? "" : compiled.error().message();
  }
  Arena arena(size_t{1} << 20U);
  auto* context = DictData::make(arena, 8);
  const std::pair<std::string_view, std::string_view> tokens[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  for (const auto& [name, text] : tokens) {
    context->set(arena, Value::string(name), Value::string(text));
  }
  context->set(arena, Value::string("add_generation_prompt"), Value::boolean(true));
  for (const auto& entry : conversations.find(text_member(golden, "c"))->as_dict().items()) {
    context->set(arena, entry.key, entry.value);
  }
  const auto prompt =
      (*compiled)->render_context(Value::dict(context).to_python_json(), input_at_golden_time());
  const Value* expected_error = golden.find("error");
  if (!prompt) {
    const bool same_text =
        expected_error != nullptr &&
        (!expected_error->is_string() || expected_error->text() == prompt.error().message());
    return same_text ? "" : prompt.error().message();
  }
  if (expected_error != nullptr) {
    return "rendered, but Python fails";
  }
  return sha256_start(*prompt) == text_member(golden, "h") ? "" : "differs:\n" + *prompt;
}

TEST(ChatTemplate, RendersPublishedTemplatesAsPythonDoes) {
  if (!fs::exists(kTemplates)) {
    GTEST_SKIP() << "no folder " << kTemplates
                 << " with published chat templates, which are others' work: "
                    "matrix_goldens.jsonl covers the same code";
  }
  Arena arena(size_t{16} << 20U);
  const std::string text = read_file(kTestdata / "conversations.json");
  const auto conversations = Value::from_json(text, arena);
  ASSERT_TRUE(conversations);
  int equal = 0;
  for (const std::string& line : read_lines(kTestdata / "model_goldens.jsonl")) {
    const auto golden = Value::from_json(line, arena);
    ASSERT_TRUE(golden);
    const std::string difference = compare_model_render(*golden, *conversations);
    EXPECT_EQ(difference, "") << text_member(*golden, "t") << " with " << text_member(*golden, "c");
    equal += difference.empty() ? 1 : 0;
  }
  RecordProperty("equal_renders", equal);
}

}  // namespace
}  // namespace stator::chat_template
