// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ChatTemplate> compile(const std::string& source, SpecialTokens tokens = {}) {
  auto compiled = ChatTemplate::compile(source, std::move(tokens));
  EXPECT_TRUE(compiled) << compiled.error().to_string();
  return std::move(*compiled);
}

Result<std::string> render(const std::string& source, RenderInput input) {
  return compile(source)->render(input);
}

RenderInput messages(std::string_view json) {
  RenderInput input;
  input.messages_json = json;
  return input;
}

constexpr std::string_view kPlain =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

TEST(Conversation, SpecialTokensAndExtraVariablesAreVisibleAndExtraWins) {
  const auto chat = compile("{{ bos_token }}{{ eos_token }}{{ a }}{{ pad_token is defined }}",
                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  RenderInput input = messages("[]");
  input.extra_json = R"({"a":1,"eos_token":"E"})";

  EXPECT_EQ(chat->render(input).value_or("?"), "<s>E1False");
}

TEST(Conversation, PartListsAreJoinedForTextTemplates) {
  const std::string source(kPlain);
  const auto input = messages(
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}])");

  EXPECT_EQ(render(source, input).value_or("?"), "[user]a\nb</s>[assistant]");
  EXPECT_FALSE(compile(source)->traits().content_parts);
}

TEST(Conversation, PartListsStayForTemplatesThatWalkThem) {
  const std::string loop =
      "{% for m in messages %}{% set c = m['content'] %}{% for p in c %}<{{ p.type }}>{% endfor %}"
      "{% endfor %}";
  const std::string macro =
      "{% macro show(x) %}{% for p in x %}<{{ p.type }}>{% endfor %}{% endmacro %}"
      "{% for m in messages %}{{ show(m.content) }}{% endfor %}";
  const std::string index = "{{ '<' + messages[0].content[0].type + '>' }}";
  const auto input = messages(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])");

  for (const std::string& source : {loop, macro, index}) {
    EXPECT_TRUE(compile(source)->traits().content_parts) << source;
    EXPECT_EQ(render(source, input).value_or("?"), "<text>") << source;
  }
  // The same templates never ask for plain text, so it comes as a part too.
  EXPECT_EQ(render(loop, messages(R"([{"role":"user","content":"a"}])")).value_or("?"), "<text>");
}

TEST(Conversation, PlainTextStaysForTemplatesThatAskForIt) {
  const std::string source =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}";

  EXPECT_EQ(render(source, messages(R"([{"role":"user","content":"a"}])")).value_or("?"), "a");
}

TEST(Conversation, PlainTextStaysForTemplatesThatOnlyWalkWhatIsNotText) {
  // As published: where a message is calls, its content may be a list of them.
  const std::string source =
      "{% for m in messages %}{% if m.role == 'tool_calls' %}{% set calls = m.content %}"
      "{% for c in calls %}{{ c.function | tojson }}{% endfor %}"
      "{% else %}{{ '[INST]' + m.content + '[/INST]' }}{% endif %}{% endfor %}";

  EXPECT_EQ(render(source, messages(R"([{"role":"user","content":"a"}])")).value_or("?"),
            "[INST]a[/INST]");
  EXPECT_EQ(render(source, messages(R"([{"role":"user","content":[{"type":"text","text":"a"},)"
                                    R"({"type":"text","text":"b"}]}])"))
                .value_or("?"),
            "[INST]a\nb[/INST]");
}

TEST(Conversation, DeveloperIsSystemUnlessTheTemplateKnowsIt) {
  const auto input = messages(R"([{"role":"developer","content":"x"}])");

  EXPECT_EQ(render(std::string(kPlain), input).value_or("?"), "[system]x</s>[assistant]");
  EXPECT_EQ(render(std::string(kPlain) + "{# developer #}", input).value_or("?"),
            "[developer]x</s>[assistant]");
}

TEST(Conversation, ToolCallArgumentsTakeTheFormTheTemplateNeeds) {
  const std::string head = "{% for m in messages %}{% for c in m.tool_calls %}";
  const std::string tail = "{% endfor %}{% endfor %}";
  const auto text = messages(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"id\":12345678901234567890123}"}}]}])");
  const auto object = messages(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}])");

  EXPECT_EQ(render(head + "{{ c.function.arguments | tojson }}" + tail, text).value_or("?"),
            R"({"id": 12345678901234567890123})");
  EXPECT_EQ(render(head + "{{ 'x' + c.function.arguments }}" + tail, object).value_or("?"),
            R"(x{"a": 1})");
  EXPECT_EQ(render(head + "{{ c.function.arguments }}" + tail, object).value_or("?"),
            R"({"a": 1})");
}

TEST(Conversation, ContentThatIsNotThereIsEmptyText) {
  const std::string adding = "{% for m in messages %}[{{ m.role + m['content'] }}]{% endfor %}";
  const std::string parts =
      "{% for m in messages %}[{{ m.role }}{% for p in m.content %}{{ p.text }}{% endfor %}]"
      "{% endfor %}";
  for (const std::string_view json :
       {R"([{"role":"tool","content":null},{"role":"b","content":"c"}])",
        R"([{"role":"tool"},{"role":"b","content":"c"}])"}) {
    EXPECT_EQ(render(adding, messages(json)).value_or("?"), "[tool][bc]") << json;
    EXPECT_EQ(render(std::string(kPlain), messages(json)).value_or("?"),
              "[tool]</s>[b]c</s>[assistant]")
        << json;
    EXPECT_EQ(render(parts, messages(json)).value_or("?"), "[tool][bc]") << json;
  }
  EXPECT_FALSE(render(adding, messages(R"([{"role":"user"}])")).has_value());
}

TEST(Conversation, ContentThatIsNotThereIsNullForTemplatesThatKnowIt) {
  const std::string source =
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
      "<{{ c.function.arguments }}>{% endfor %}{% else %}[{{ m.content }}]{% endif %}{% endfor %}";
  const std::string calls = R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}])";

  EXPECT_EQ(
      render(source, messages(R"([{"role":"assistant","content":null,)" + calls)).value_or("?"),
      "<{}>");
  EXPECT_EQ(render(source, messages(R"([{"role":"assistant",)" + calls)).value_or("?"), "<{}>");
}

TEST(Conversation, MembersThatSayNothingAreNotThere) {
  const std::string source = "{% for m in messages %}{{ m | list | join(',') }}{% endfor %}";
  const auto input = messages(
      R"([{"name":null,"role":"assistant","reasoning_content":null,"content":"c","tool_calls":[],"thinking":null,"refusal":null}])");

  EXPECT_EQ(render(source, input).value_or("?"), "role,content");
}

TEST(Conversation, CallsWithoutArgumentsHaveEmptyOnes) {
  const std::string head = "{% for m in messages %}{% for c in m.tool_calls %}";
  const std::string tail = "{% endfor %}{% endfor %}";
  const auto input = messages(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"function":{"name":"f","arguments":null}}]}])");

  EXPECT_EQ(render(head + "{{ c.function.arguments | tojson }}" + tail, input).value_or("?"),
            "{}{}");
  EXPECT_EQ(render(head + "{{ '' + c.function.arguments }}" + tail, input).value_or("?"), "{}{}");
}

TEST(Conversation, ToolsStayAsTheClientSentThemAndNoToolsAreUndefined) {
  const std::string source =
      "{% if tools is defined %}{{ tools | tojson }}{% else %}none{% endif %}";
  RenderInput input = messages("[]");
  for (const std::string_view sent :
       {R"([{"type": "function", "function": {"name": "f"}}])",
        R"([{"type": "function", "function": {"name": "f", "parameters": null}}])"}) {
    input.tools_json = sent;
    EXPECT_EQ(render(source, input).value_or("?"), sent);
  }

  input.tools_json = "[]";
  EXPECT_EQ(render(source, input).value_or("?"), "none");
}

TEST(Conversation, ToolsWithoutParametersGetAnEmptySchemaWhereTheTemplateFailsWithoutOne) {
  const std::string source =
      "{{ messages.append({'role': 'x', 'content': ''}) or '' }}{{ messages | length }}"
      "{% for t in tools %}{{ t.function.parameters | tojson }}"
      "{{ t.function.parameters.properties.items() | list }}{% endfor %}";
  RenderInput input = messages("[]");
  for (const std::string_view sent :
       {R"([{"function":{"name":"f"}}])", R"([{"function":{"name":"f","parameters":null}}])"}) {
    input.tools_json = sent;
    EXPECT_EQ(render(source, input).value_or("?"), R"(1{"type": "object", "properties": {}}[])");
  }
  // What fails with a schema as well is told as it failed first.
  const auto failed = render("{{ t.x }}{{ tools[0].function.parameters.a.b.c }}", input);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message().find("line 1"), std::string_view::npos);
}

TEST(Conversation, NoToolsAreNoneForTemplatesThatOnlyAskForThat) {
  const auto input = messages("[]");
  EXPECT_EQ(render("{{ tools is not none }}", input).value_or("?"), "False");
  EXPECT_EQ(render("{{ tools is defined and tools is not none }}", input).value_or("?"), "False");
  EXPECT_EQ(render("{% for t in tools %}{% endfor %}x", input).value_or("?"), "x");
}

TEST(Conversation, ToolsThatTheTemplateHasNoUseForAreNotRead) {
  RenderInput input = messages("[]");
  input.tools_json = "[broken";
  EXPECT_EQ(render("plain", input).value_or("?"), "plain");
  EXPECT_FALSE(render("{% if tools %}x{% endif %}", input));
}

TEST(Conversation, ToolUseTemplateServesRequestsWithTools) {
  auto chat = ChatTemplate::compile(ChatTemplateSource{"plain", "with tools", {}});
  ASSERT_TRUE(chat);
  RenderInput input = messages("[]");
  EXPECT_EQ((*chat)->render(input).value_or("?"), "plain");
  input.tools_json = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ((*chat)->render(input).value_or("?"), "with tools");
}

TEST(Conversation, ReasoningIsReadableUnderItsNames) {
  const auto input = messages(R"([{"role":"assistant","content":"c","reasoning":"r"}])");

  EXPECT_EQ(
      render("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", input).value_or("?"),
      "rr");
}

TEST(Conversation, ContinuingTheFinalMessageCutsBehindItsContent) {
  RenderInput input =
      messages(R"([{"role":"user","content":"s"},{"role":"assistant","content":"once upon "}])");
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  EXPECT_EQ(render(std::string(kPlain), input).value_or("?"), "[user]s</s>[assistant]once upon ");

  const std::string trimming =
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}";
  EXPECT_EQ(render(trimming, input).value_or("?"), "[user]s</s>[assistant]once upon");

  EXPECT_FALSE(render("nothing", input));
  input.add_generation_prompt = true;
  EXPECT_FALSE(render(std::string(kPlain), input));
}

TEST(Conversation, ExceptionsOfTheTemplateArriveWordForWord) {
  const auto prompt = render("{{ raise_exception('No ' ~ 'system role!') }}", messages("[]"));

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(prompt.error().message(), "No system role!");
}

TEST(Conversation, OtherFailuresNameTheLine) {
  const auto prompt = render("\n\n{{ messages.x.y }}", messages("[]"));

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().message(),
            "rendering the chat template: line 3: 'list object' has no attribute 'x'");
}

TEST(Conversation, SyntaxErrorsNameTheLine) {
  const auto chat = ChatTemplate::compile("a\n{% if %}", {});

  ASSERT_FALSE(chat);
  EXPECT_TRUE(chat.error().message().starts_with("chat template line 2: "))
      << chat.error().message();
}

TEST(Conversation, WrongShapesAreErrors) {
  const std::string source = std::string(kPlain) + "{{ tools }}";
  RenderInput tools = messages("[]");
  tools.tools_json = "{}";
  RenderInput extra = messages("[]");
  extra.extra_json = "[]";
  RenderInput documents = messages("[]");
  documents.documents_json = "[";
  for (const RenderInput& input : {messages(""), messages("{}"), messages("[1]"), messages("[}"),
                                   messages("[\"\xff\"]"), tools, extra, documents}) {
    const auto prompt = render(source, input);
    ASSERT_FALSE(prompt) << input.messages_json;
    EXPECT_EQ(prompt.error().code(), Code::kInvalidArgument);
  }
}

class TemplateSource : public testing::Test {
 protected:
  TemplateSource()
      : dir_(fs::path(testing::TempDir()) /
             (std::string("stator_chat_template_") +
              testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~TemplateSource() override { fs::remove_all(dir_); }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(dir_ / name) << text;
  }
  fs::path dir_;
};

TEST_F(TemplateSource, IsEmptyWithoutFiles) {
  const auto source = find_chat_template(dir_);
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_FALSE(source->has_value());
}

TEST_F(TemplateSource, PrefersJinjaThenJsonThenTheTokenizerConfig) {
  write(
      "tokenizer_config.json",
      R"({"chat_template":"config","bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null})");
  const auto from_config = find_chat_template(dir_);
  ASSERT_TRUE(from_config && *from_config);
  EXPECT_EQ((**from_config).text, "config");
  const SpecialTokens tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  EXPECT_EQ((**from_config).special_tokens, tokens);

  write("chat_template.json", R"({"chat_template":"json"})");
  EXPECT_EQ((**find_chat_template(dir_)).text, "json");
  write("chat_template.jinja", "jinja");
  EXPECT_EQ((**find_chat_template(dir_)).text, "jinja");
  EXPECT_EQ((**find_chat_template(dir_)).special_tokens, tokens);
}

TEST_F(TemplateSource, ReadsNamedTemplates) {
  write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]})");
  const auto source = find_chat_template(dir_);
  ASSERT_TRUE(source && *source);
  EXPECT_EQ((**source).text, "d");
  EXPECT_EQ((**source).tool_use_text, "t");
}

TEST_F(TemplateSource, BrokenFilesAreCorrupt) {
  for (const std::string_view text :
       {"{", "[]", R"({"chat_template":1})", R"({"chat_template":[{"name":"x"}]})",
        R"({"chat_template":[{"name":"tool_use","template":"t"}]})"}) {
    write("tokenizer_config.json", text);
    const auto source = find_chat_template(dir_);
    ASSERT_FALSE(source) << text;
    EXPECT_EQ(source.error().code(), Code::kCorrupt);
    EXPECT_NE(source.error().message().find("tokenizer_config.json"), std::string::npos);
  }
  write("chat_template.json", "{}");
  EXPECT_EQ(find_chat_template(dir_).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace stator::chat_template
