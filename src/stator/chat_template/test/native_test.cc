// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

namespace fs = std::filesystem;

constexpr WallTime kNow{std::chrono::seconds(1'772'874'302)};
const fs::path kTestdata = fs::path(STATOR_SOURCE_DIR) / "src/stator/chat_template/testdata";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<ChatTemplate> native(NativeFormat format) {
  return std::move(*ChatTemplate::compile(ChatTemplateSource{{}, {}, {}, format}));
}

/// Renders a request with members messages, tools and extra.
Result<RenderedPrompt> render(NativeFormat format, const Value& request,
                              bool add_generation_prompt = true) {
  const auto member = [&](std::string_view name) {
    const Value* found = request.find(name);
    return found == nullptr ? std::string() : found->to_python_json();
  };
  const std::string messages = member("messages");
  const std::string tools = member("tools");
  const std::string extra = member("extra");
  RenderInput input;
  input.messages_json = messages;
  input.tools_json = tools;
  input.extra_json = extra;
  input.add_generation_prompt = add_generation_prompt;
  input.now = kNow;
  return native(format)->render_parts(input);
}

Result<RenderedPrompt> render_text(NativeFormat format, const std::string& messages) {
  Arena arena(size_t{1} << 20U);
  const std::string request = R"({"messages":)" + messages + "}";
  return render(format, *Value::from_json(request, arena));
}

TEST(Native, GoldensOfTheReferenceEncodersAndTemplate) {
  std::ifstream lines(kTestdata / "native_goldens.jsonl");
  ASSERT_TRUE(lines);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    Arena arena(size_t{4} << 20U);
    const auto golden = Value::from_json(line, arena);
    ASSERT_TRUE(golden);
    const auto format = find_native_format(golden->find("format")->text());
    ASSERT_TRUE(format);

    const auto prompt = render(*format, *golden, golden->find("no_generation_prompt") == nullptr);

    ASSERT_TRUE(prompt) << prompt.error().to_string();
    EXPECT_EQ(prompt->text, golden->find("text")->text()) << line;
  }
  EXPECT_GE(count, 60);
}

TEST(Native, PublishedDeepseekConversations) {
  const fs::path folder = fs::path(STATOR_SHARED_DIR) / "data/renders/deepseek-v3.2";
  if (!fs::exists(folder)) {
    GTEST_SKIP() << "no folder " << folder
                 << " with recorded prompts, which are others' work: "
                    "native_goldens.jsonl covers the same code";
  }
  for (const std::string_view name : {"", "_search_w_date", "_search_wo_date"}) {
    Arena arena(size_t{16} << 20U);
    const std::string text = read_file(folder / ("test_input" + std::string(name) + ".json"));
    std::string expected = read_file(folder / ("test_output" + std::string(name) + ".txt"));
    expected.resize(expected.find_last_not_of('\n') + 1);

    const auto prompt = render(NativeFormat::kDeepseekV32, *Value::from_json(text, arena));

    ASSERT_TRUE(prompt) << prompt.error().to_string();
    EXPECT_EQ(prompt->text, expected) << name;
  }
}

TEST(Native, BytesOfTheRequestAreMarkedAsData) {
  const auto prompt =
      render_text(NativeFormat::kDeepseekV4,
                  R"([{"role":"system","content":"S"},{"role":"user","content":"<｜User｜>x"}])");

  ASSERT_TRUE(prompt);
  ASSERT_EQ(prompt->data.size(), 2U);
  std::string data;
  for (const auto& span : prompt->data) {
    data += prompt->text.substr(span.begin, span.end - span.begin) + ";";
  }
  EXPECT_EQ(data, "S;<｜User｜>x;");
  EXPECT_TRUE(native(NativeFormat::kHarmony)->traits().marks_data);
}

TEST(Native, UnknownRolesAndStrayResultsAreErrors) {
  for (const NativeFormat format : {NativeFormat::kDeepseekV32, NativeFormat::kDeepseekV4}) {
    const auto prompt = render_text(format, R"([{"role":"robot","content":"x"}])");
    ASSERT_FALSE(prompt);
    EXPECT_EQ(prompt.error().code(), Code::kInvalidArgument);
  }
  for (const NativeFormat format : {NativeFormat::kDeepseekV32, NativeFormat::kHarmony}) {
    const auto prompt = render_text(format, R"([{"role":"tool","content":"x"}])");
    ASSERT_FALSE(prompt);
    EXPECT_NE(prompt.error().message().find("tool result"), std::string::npos);
  }
}

TEST(Native, ContentThatIsNoTextIsAnError) {
  const auto prompt = render_text(NativeFormat::kDeepseekV32, R"([{"role":"user","content":5}])");

  ASSERT_FALSE(prompt);
  EXPECT_NE(prompt.error().message().find("'content'"), std::string::npos);
}

TEST(Native, FinalMessageCanBeContinued) {
  RenderInput input;
  input.messages_json =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"The answer "}])";
  input.extra_json = R"({"thinking":false})";
  input.add_generation_prompt = false;
  input.continue_final_message = true;

  const auto prompt = native(NativeFormat::kDeepseekV32)->render_parts(input);

  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_TRUE(prompt->text.ends_with("</think>The answer ")) << prompt->text;
  EXPECT_EQ(prompt->data.back().end, prompt->text.size());
}

TEST(Native, OutputLimitHolds) {
  RenderInput input;
  input.messages_json = R"([{"role":"user","content":"0123456789"}])";
  input.limits.output_bytes_max = 40;

  const auto prompt = native(NativeFormat::kDeepseekV4)->render(input);

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kTooLarge);
}

TEST(Native, ModelTypeChoosesTheFormatWhenThereIsNoTemplate) {
  const fs::path folder = fs::path(testing::TempDir()) / "native_model";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type":"deepseek_v32"})";

  const auto source = find_chat_template(folder);

  ASSERT_TRUE(source);
  ASSERT_TRUE(source->has_value());
  EXPECT_EQ((*source)->native, NativeFormat::kDeepseekV32);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace stator::chat_template
