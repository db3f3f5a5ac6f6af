// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/family_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "stator/parsers/output_parser.h"

namespace stator::parsers {
namespace {

using testing::HasSubstr;

TEST(FamilyRegistry, HasUniqueNamesAndAliases) {
  const FamilyRegistry& registry = FamilyRegistry::builtin();
  const auto expect_all_lead_to = [](const auto& spec, const auto& find) {
    std::vector<std::string> names = spec.aliases;
    names.push_back(spec.name);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << spec.name;
    for (const std::string& name : names) {
      EXPECT_EQ((*find(name))->name, spec.name) << name;
    }
  };
  for (const auto& spec : registry.tools()) {
    expect_all_lead_to(*spec, [&](const std::string& name) { return registry.find_tools(name); });
  }
  for (const auto& spec : registry.reasonings()) {
    expect_all_lead_to(*spec,
                       [&](const std::string& name) { return registry.find_reasoning(name); });
  }
}

/// What users of other servers pass as --tool-call-parser and --dyn-tool-call-parser.
TEST(FamilyRegistry, KnowsTheNamesOfOtherServers) {
  constexpr std::string_view kTools[] = {
      // vLLM
      "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41",
      "cohere_command3", "cohere_command4", "dots", "ernie45", "glm45", "glm47", "ling3",
      "granite-20b-fc", "granite", "granite4", "hermes", "poolside_v1", "hunyuan_a13b", "hy_v3",
      "hy_v4", "internlm", "jamba", "lfm2", "kimi_k2", "kimi_k3", "llama3_json", "llama4_json",
      "llama4_pythonic", "longcat", "mimo", "minimax_m2", "minimax_m3", "minicpm5", "mistral",
      "olmo3", "muse_glimmer", "inkling", "llm_jp", "openai", "phi4_mini_json", "pythonic",
      "qwen3_coder", "qwen3_xml", "seed_oss", "step3", "step3p5", "xlam", "gigachat3",
      "functiongemma", "gemma4", "apertus", "solar_open2", "k2_horizon", "plamo3", "step5",
      "musespark1x", "qwen3_json",
      // SGLang
      "apertus2509", "muse", "deepseekv3", "deepseekv31", "deepseekv32", "deepseekv4", "glm",
      "gpt-oss", "llama3", "qwen", "qwen25", "spark25", "minimax-m2", "minimax-m3", "trinity",
      "interns1", "hunyuan", "gigachat35", "iquest_q1", "nanbeige",
      // Dynamo
      "nemotron_deci", "nemotron_nano", "phi4", "harmony", "deepseek_v3_1", "deepseek_v3_2",
      "deepseek-v4", "gemma-4", "default"};
  for (const std::string_view name : kTools) {
    EXPECT_TRUE(FamilyRegistry::builtin().find_tools(name)) << name;
  }
  constexpr std::string_view kReasonings[] = {
      // vLLM
      "deepseek_r1", "deepseek_v3", "deepseek_v4", "poolside_v1", "cohere_command3",
      "cohere_command4", "ernie45", "gemma4", "glm45", "glm47", "ling3", "openai_gptoss", "granite",
      "holo2", "hunyuan_a13b", "hy_v3", "hy_v4", "kimi_k2", "kimi_k3", "mimo", "minimax_m2",
      "minimax_m2_append_think", "minimax_m3", "mistral", "nemotron_v3", "olmo3", "muse_glimmer",
      "inkling", "qwen3", "seed_oss", "step3", "step3p5", "solar_open2", "step5", "plamo3",
      "musespark1x", "deepseek_v41",
      // SGLang
      "apertus2509", "muse", "deepseek-r1", "deepseek-v3", "deepseek-v4", "hunyuan", "gpt-oss",
      "kimi", "qwen3-thinking", "minimax", "minimax-append-think", "minimax-m3", "nemotron_3",
      "interns1", "dots", "nanbeige", "gigachat35", "iquest_q1",
      // Dynamo
      "basic", "gpt_oss", "nemotron_deci", "nemotron_nano", "nemotron3", "kimi_k25",
      "minimax_append_think", "gemma-4"};
  for (const std::string_view name : kReasonings) {
    EXPECT_TRUE(FamilyRegistry::builtin().find_reasoning(name)) << name;
  }
}

TEST(FamilyRegistry, EveryFamilyHasAMachineAndAKnownReasoning) {
  for (const auto& spec : FamilyRegistry::builtin().tools()) {
    ParserOptions options;
    options.tools_family = spec;
    options.tool_mode = ToolMode::kNative;
    EXPECT_FALSE(OutputParser::create(options)->is_pass_through()) << spec->name;
    if (!spec->reasoning.empty()) {
      EXPECT_TRUE(FamilyRegistry::builtin().find_reasoning(spec->reasoning)) << spec->name;
    }
  }
}

TEST(FamilyRegistry, EveryFamilyHasGoldensAndAPage) {
  for (const auto& spec : FamilyRegistry::builtin().tools()) {
    EXPECT_TRUE(std::filesystem::exists(STATOR_SOURCE_DIR "/src/stator/parsers/testdata/goldens/" +
                                        spec->name + ".json"))
        << spec->name;
    EXPECT_TRUE(std::filesystem::exists(STATOR_SOURCE_DIR "/docs/reference/tool_calls/" +
                                        spec->name + ".md"))
        << spec->name;
  }
}

TEST(FamilyRegistry, FindsNamesInEverySpelling) {
  const FamilyRegistry& registry = FamilyRegistry::builtin();
  for (const std::string_view name : {"deepseek_v3_1", "DeepSeek-V3.1", "deepseekv31"}) {
    auto found = registry.find_tools(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ((*found)->name, "deepseek_v3_1");
  }
}

TEST(FamilyRegistry, NamesWhatThereIsWhenAskedForMore) {
  auto found = FamilyRegistry::builtin().find_tools("nope");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kNotFound);
  EXPECT_THAT(found.error().message(), HasSubstr("'nope'"));
  EXPECT_THAT(found.error().message(), HasSubstr("hermes"));
  EXPECT_FALSE(FamilyRegistry::builtin().find_reasoning("nope"));
}

constexpr std::string_view kMine = R"({"kind": "tools", "name": "My-Calls", "aliases": "mine",
  "body": "json_calls", "ids": "alnum9", "flags": ["keep_opener"],
  "markers": {"section_begin": [{"text": "<<", "special": true}], "section_end": ">>"},
  "words": {"name_keys": ["fn"]}, "match": {"models": ["mine"], "priority": 3}})";

TEST(FamilyRegistry, ReadsAFamilyAtRunTime) {
  auto registry = FamilyRegistry::with_specs(kMine);
  ASSERT_TRUE(registry) << registry.error().message();
  auto spec = registry->find_tools("mine");
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)->name, "my_calls");
  EXPECT_EQ((*spec)->ids, IdScheme::kAlnum9);
  EXPECT_TRUE((*spec)->has_flag("keep_opener"));
  EXPECT_FALSE((*spec)->has_flag("other"));
  EXPECT_EQ((*spec)->find_markers("section_begin"), (Markers{{.text = "<<", .special = true}}));
  EXPECT_EQ((*spec)->find_markers("section_end"), (Markers{{.text = ">>"}}));
  EXPECT_TRUE((*spec)->find_markers("call_end").empty());
  EXPECT_EQ((*spec)->find_words("name_keys"), (std::vector<std::string>{"fn"}));
  EXPECT_TRUE((*spec)->find_words("none").empty());
  EXPECT_TRUE(registry->find_tools("hermes"));
}

TEST(FamilyRegistry, ReplacesAFamilyOfTheSameName) {
  const size_t count = FamilyRegistry::builtin().tools().size();
  auto registry = FamilyRegistry::with_specs(
      R"([{"kind": "tools", "name": "hermes", "body": "named_json"},
          {"kind": "reasoning", "name": "mine", "open": "<t>", "close": "</t>"}])");
  ASSERT_TRUE(registry) << registry.error().message();
  EXPECT_EQ(registry->tools().size(), count);
  EXPECT_EQ((*registry->find_tools("hermes"))->body, BodyKind::kNamedJson);
  EXPECT_TRUE(registry->find_reasoning("mine"));
}

TEST(FamilyRegistry, NamesTheKeyThatIsWrong) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"{", "JSON"},
      {"5", "'spec'"},
      {"{}", "'kind'"},
      {R"({"kind":"tools"})", "'name'"},
      {R"({"kind":"tools","name":""})", "'name'"},
      {R"({"kind":"tools","name":"x"})", "'body'"},
      {R"({"kind":"tools","name":"x","body":"y"})", "'y'"},
      {R"({"kind":"tools","name":"x","body":5})", "'body'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","colour":1})", "'colour'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","ids":"z"})", "'ids'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","flags":5})", "'flags'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","markers":[]})", "'markers'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","markers":{"a":5}})", "'a'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","markers":{"a":""}})", "'a'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","markers":{"a":{"text":"b","c":1}}})",
       "'a'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","words":5})", "'words'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","match":5})", "'match'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","match":{"priority":"1"}})", "'priority'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","match":{"other":[]}})", "'match'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","structural_tag":{"x":""}})",
       "'structural_tag'"},
      {R"({"kind":"tools","name":"x","body":"json_calls","always_on":1})", "'always_on'"},
      {R"({"kind":"reasoning","name":"x","body":"json_calls"})", "'body'"},
      {R"({"kind":"reasoning","name":"x","open":5})", "'open'"},
  };
  for (const auto& [text, key] : cases) {
    auto registry = FamilyRegistry::with_specs(text);
    ASSERT_FALSE(registry) << text;
    EXPECT_EQ(registry.error().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(registry.error().message(), HasSubstr(key)) << text;
  }
}

TEST(FamilyRegistry, RefusesAHugeSpec) {
  auto registry = FamilyRegistry::with_specs(std::string(2 << 20, ' '));
  ASSERT_FALSE(registry);
  EXPECT_EQ(registry.error().code(), Code::kTooLarge);
}

TEST(ChooseFamily, PrefersTheTemplateToTheName) {
  const FamilyChoice choice =
      choose_family(FamilyRegistry::builtin(), "{{ '[TOOL_CALLS]' }}", "Qwen/Qwen2.5-7B-Instruct");
  EXPECT_EQ(choice.tools, "mistral");
  EXPECT_THAT(choice.why, HasSubstr("[TOOL_CALLS]"));
}

TEST(ChooseFamily, FallsBackToTheModelName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"Qwen/Qwen2.5-7B-Instruct", "hermes"},
      {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"},
      {"meta-llama/Llama-3.1-8B-Instruct", "llama3_json"},
      {"nvidia/Llama-3_3-Nemotron-Super-49B-v1", "nemotron_deci"},
      {"mistralai/Mistral-Nemo-Instruct-2407", "mistral"},
      {"deepseek-ai/DeepSeek-R1", "deepseek_v3"},
      {"deepseek-ai/DeepSeek-V3.1", "deepseek_v3_1"},
      {"moonshotai/Kimi-K2-Instruct", "kimi_k2"},
      {"zai-org/GLM-4.6", "glm45"},
      {"zai-org/GLM-4.7", "glm47"},
      {"MiniMaxAI/MiniMax-M2", "minimax_m2"},
      {"microsoft/Phi-4-mini-instruct", "phi4"},
      {"ibm-granite/granite-4.0-h-small", "granite"},
      {"ByteDance-Seed/Seed-OSS-36B-Instruct", "seed_oss"},
  };
  for (const auto& [model, family] : cases) {
    EXPECT_EQ(choose_family(FamilyRegistry::builtin(), "", model).tools, family) << model;
  }
}

TEST(ChooseFamily, ChoosesNothingForTheUnknown) {
  const FamilyChoice choice =
      choose_family(FamilyRegistry::builtin(), "{{ messages }}", "acme/model");
  EXPECT_EQ(choice.tools, "");
  EXPECT_EQ(choice.reasoning, "");
  EXPECT_FALSE(choice.why.empty());
}

/// The published templates, where they are at hand.
TEST(ChooseFamily, RecognisesPublishedTemplates) {
  const std::string folder = STATOR_SHARED_DIR "/data/templates/";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is not there: others' work; the tests above cover the same code";
  }
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"ByteDance-Seed-OSS", "seed_oss"},
      {"GLM-4.6", "glm45"},
      {"Kimi-K2-Instruct", "kimi_k2"},
      {"Kimi-K2-Thinking", "kimi_k2"},
      {"MiniMax-M2", "minimax_m2"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder"},
      {"NVIDIA-Nemotron-Nano-v2", "nemotron_deci"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
      {"Qwen-QwQ-32B", "hermes"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
      {"Qwen-Qwen3-0.6B", "hermes"},
      {"Qwen3-Coder", "qwen3_coder"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v3_1"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
      {"ibm-granite-granite-4.0", "granite"},
      {"meetkai-functionary-medium-v3.1", "functionary_v3_1"},
      {"meetkai-functionary-medium-v3.2", "functionary_v3_2"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json"},
      {"moonshotai-Kimi-K2", "kimi_k2"},
      {"openai-gpt-oss-120b", "harmony"},
      {"google-gemma-2-2b-it", ""},
      {"microsoft-Phi-3.5-mini-instruct", ""},
  };
  for (const auto& [name, family] : cases) {
    std::ostringstream text;
    text << std::ifstream(folder + std::string(name) + ".jinja").rdbuf();
    EXPECT_EQ(choose_family(FamilyRegistry::builtin(), text.str(), "").tools, family) << name;
  }
}

}  // namespace
}  // namespace stator::parsers
