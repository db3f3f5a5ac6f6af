// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/reasoning_mode.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace stator::parsers {
namespace {

constexpr auto kOff = ReasoningMode::kOff;
constexpr auto kOn = ReasoningMode::kOn;
constexpr auto kInside = ReasoningMode::kStartsInside;

ReasoningMode mode_of(std::string_view family, std::string_view prompt,
                      const ReasoningRequest& request = {}) {
  const auto spec = FamilyRegistry::builtin().find_reasoning(family);
  EXPECT_TRUE(spec) << family;
  return spec ? choose_reasoning_mode(**spec, prompt, request) : kOff;
}

struct Row {
  std::string_view family;
  ReasoningMode plain;         // nothing is said
  ReasoningMode thinking;      // thinking=true
  ReasoningMode not_thinking;  // thinking=false
  ReasoningMode chat;          // thinking_mode=chat
};

TEST(ReasoningMode, FollowsTheFamilyAndTheRequest) {
  constexpr Row kRows[] = {
      {"basic", kOn, kOn, kOn, kOn},
      {"qwen3", kOn, kOn, kOn, kOn},
      {"nemotron_deci", kOn, kOn, kOn, kOn},
      {"glm45", kOn, kOn, kOn, kOn},
      {"deepseek-v4", kOn, kOn, kOff, kOff},
      {"deepseekv4", kOn, kOn, kOff, kOff},
      {"deepseek_r1", kInside, kInside, kOff, kOff},
      {"deepseek_v3", kOff, kInside, kOff, kOff},
      {"deepseek_v3_1", kOff, kInside, kOff, kOff},
      {"deepseek_v3_2", kInside, kInside, kOff, kOff},
      {"step3", kInside, kInside, kInside, kInside},
      {"step3_5", kOn, kOn, kOn, kOn},
      {"nemotron_nano", kInside, kInside, kOff, kInside},
      {"nemotron3", kInside, kInside, kOff, kInside},
      {"nemotron_v3", kInside, kInside, kOff, kInside},
      {"minimax_m2", kInside, kInside, kOff, kOff},
      {"kimi_k25", kInside, kInside, kOff, kInside},
      {"kimi", kOn, kOn, kOn, kOn},
      {"mistral", kOff, kOff, kOff, kOff},
      {"granite", kOn, kOn, kOn, kOn},
      {"gemma-4", kOff, kOn, kOff, kOff},
      {"gpt_oss", kOn, kOn, kOn, kOn},
      {"minimax_m3", kOn, kOn, kOn, kOn},
      {"minimax_append_think", kOn, kOn, kOn, kOn},
      {"kimi_k3", kOn, kOn, kOff, kOn},
      {"cohere_cmd", kOn, kOn, kOn, kOn},
      {"seed_oss", kOn, kOn, kOn, kOn},
      {"ernie45", kInside, kInside, kInside, kInside},
      {"hunyuan", kOn, kOn, kOn, kOn},
      {"olmo3", kInside, kInside, kInside, kInside},
      {"longcat", kOn, kOn, kOn, kOn},
      {"apertus", kOn, kOn, kOn, kOn},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.family);
    EXPECT_EQ(mode_of(row.family, "<|assistant|>\n"), row.plain);
    EXPECT_EQ(mode_of(row.family, "<|assistant|>\n", {.thinking = true}), row.thinking);
    EXPECT_EQ(mode_of(row.family, "<|assistant|>\n", {.thinking = false}), row.not_thinking);
    EXPECT_EQ(mode_of(row.family, "<|assistant|>\n", {.thinking_mode = "chat"}), row.chat);
  }
}

TEST(ReasoningMode, KnowsTheOtherSwitches) {
  EXPECT_EQ(mode_of("mistral", "[/INST]", {.reasoning_effort = "high"}), kOn);
  EXPECT_EQ(mode_of("mistral", "[/INST]", {.reasoning_effort = "none"}), kOff);
  EXPECT_EQ(mode_of("minimax_m3", "", {.thinking_mode = "disabled"}), kOff);
  EXPECT_EQ(mode_of("minimax_m3", "", {.thinking_mode = "enabled"}), kOn);
}

TEST(ReasoningMode, StartsInsideWhenThePromptOpensReasoning) {
  EXPECT_EQ(mode_of("qwen3", "<|im_start|>assistant\n<think>\n"), kInside);
  EXPECT_EQ(mode_of("deepseek_v4", "<｜Assistant｜><think>"), kInside);
  EXPECT_EQ(mode_of("minimax_m3", "]~b]ai\n<mm:think>"), kInside);
  EXPECT_EQ(mode_of("kimi_k3", "<|open|>think<|sep|>"), kInside);
  EXPECT_EQ(mode_of("gemma4", "<|turn>model\n<|channel>thought\n"), kInside);
  EXPECT_EQ(mode_of("qwen3", "Write <think> tags."), kOn);
}

TEST(ReasoningMode, BelievesThePromptMoreThanTheRequest) {
  EXPECT_EQ(mode_of("deepseek_r1", "<｜Assistant｜><think>\n", {.thinking = false}), kInside);
  EXPECT_EQ(mode_of("deepseek_v3_1", "<｜Assistant｜><think>"), kInside);
}

TEST(ReasoningMode, DoesNotStartInsideWhenThePromptHasClosedReasoning) {
  EXPECT_EQ(mode_of("nemotron_nano", "assistant\n<think></think>"), kOn);
  EXPECT_EQ(mode_of("deepseek_r1", "<｜Assistant｜><think>\n\n</think>\n\n"), kOn);
  EXPECT_EQ(mode_of("gemma4", "<|channel>thought\n<channel|>", {.thinking = true}), kOn);
}

TEST(ChooseReasoning, RecognisesPublishedTemplates) {
  const std::filesystem::path folder = STATOR_SHARED_DIR "/data/templates";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no chat templates at " << folder
                 << ": others' work; the tests above cover the same code";
  }
  constexpr std::pair<std::string_view, std::string_view> kRows[] = {
      {"Apertus-8B-Instruct", "apertus"},
      {"Apriel-1.6-15b-Thinker-fixed", "apriel"},
      {"ByteDance-Seed-OSS", "seed_oss"},
      {"CohereForAI-c4ai-command-r-plus-tool_use", ""},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere_cmd"},
      {"GLM-4.6", "basic"},
      {"GigaChat3-10B-A1.8B", ""},
      {"HuggingFaceTB-SmolLM3-3B", "basic"},
      {"Kimi-K2-Instruct", ""},
      {"Kimi-K2-Thinking", "kimi_k25"},
      {"LFM2-8B-A1B", ""},
      {"LFM2.5-8B-A1B", "basic"},
      {"MiMo-VL", ""},
      {"MiniMax-M1", ""},
      {"MiniMax-M2", "minimax_m2"},
      {"Mistral-Small-3.2-24B-Instruct-2506", ""},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_nano"},
      {"NVIDIA-Nemotron-Nano-v2", "nemotron_nano"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", ""},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ""},
      {"Qwen-QwQ-32B", "basic"},
      {"Qwen-Qwen2.5-7B-Instruct", ""},
      {"Qwen-Qwen3-0.6B", "basic"},
      {"Qwen3-Coder", ""},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_r1"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_r1"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v3"},
      {"deepseek-ai-DeepSeek-V3.2", "deepseek_v3_2"},
      {"deepseek-ai-DeepSeek-V4", "deepseek_v4"},
      {"fireworks-ai-llama-3-firefunction-v2", ""},
      {"google-gemma-2-2b-it", ""},
      {"google-gemma-4-31B-it-interleaved", "gemma4"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
      {"ibm-granite-granite-4.0", ""},
      {"llama-cpp-deepseek-r1", "deepseek_r1"},
      {"llama-cpp-rwkv-world", "basic"},
      {"meetkai-functionary-medium-v3.1", ""},
      {"meetkai-functionary-medium-v3.2", ""},
      {"meta-llama-Llama-3.1-8B-Instruct", ""},
      {"meta-llama-Llama-3.2-3B-Instruct", ""},
      {"meta-llama-Llama-3.3-70B-Instruct", ""},
      {"microsoft-Phi-3.5-mini-instruct", ""},
      {"mistralai-Mistral-Nemo-Instruct-2407", ""},
      {"moonshotai-Kimi-K2", ""},
      {"openai-gpt-oss-120b", "gpt_oss"},
      {"unsloth-Apriel-1.5", "apriel"},
  };
  for (const auto& [name, family] : kRows) {
    std::ostringstream text;
    text << std::ifstream(folder / (std::string(name) + ".jinja")).rdbuf();
    const FamilyChoice choice = choose_family(FamilyRegistry::builtin(), text.str(), "");
    EXPECT_EQ(choice.reasoning, family) << name << ": " << choice.why;
  }
}

TEST(ChooseReasoning, GoesByTheModelsNameWithoutATemplate) {
  constexpr std::pair<std::string_view, std::string_view> kRows[] = {
      {"deepseek-ai/DeepSeek-R1-0528", "deepseek_r1"},
      {"deepseek-ai/DeepSeek-V3.1", "deepseek_v3"},
      {"deepseek-ai/DeepSeek-V3.2", "deepseek_v3_2"},
      {"openai/gpt-oss-20b", "gpt_oss"},
      {"Qwen/Qwen3-32B", "basic"},
      {"moonshotai/Kimi_K2.5", "kimi_k25"},
      {"google/gemma-4-31b-it", "gemma4"},
      {"meta-llama/Llama-3.1-8B-Instruct", ""},
  };
  for (const auto& [name, family] : kRows) {
    EXPECT_EQ(choose_family(FamilyRegistry::builtin(), "", name).reasoning, family) << name;
  }
}

TEST(ReasoningMode, KnowsItsConditions) {
  for (const std::string_view word :
       {"thinking=true", "thinking=false", "thinking_mode=chat", "reasoning_effort"}) {
    EXPECT_TRUE(is_reasoning_condition(word)) << word;
  }
  for (const std::string_view word : {"", "thinking", "thinking=maybe", "thinking_mode=", "x=y"}) {
    EXPECT_FALSE(is_reasoning_condition(word)) << word;
  }
}

TEST(ReasoningMode, SpecsMayOnlyUseConditionsThatExist) {
  constexpr std::string_view kSpec =
      R"({"kind": "reasoning", "name": "mine", "open": "<a>", "close": "</a>",
          "words": {"off_when": ["thinking=no"]}})";

  const auto registry = FamilyRegistry::with_specs(kSpec);

  ASSERT_FALSE(registry);
  EXPECT_NE(registry.error().message().find("off_when"), std::string::npos)
      << registry.error().message();
}

TEST(ReasoningMode, ASpecOfOnesOwnDecides) {
  const auto registry = FamilyRegistry::with_specs(
      R"({"kind": "reasoning", "name": "mine", "open": "<a>", "close": "</a>",
          "starts_inside": true, "words": {"off_when": ["thinking_mode=fast"]}})");
  ASSERT_TRUE(registry) << registry.error().message();
  const auto spec = registry->find_reasoning("Mine");
  ASSERT_TRUE(spec);

  EXPECT_EQ(choose_reasoning_mode(**spec, "", {}), kInside);
  EXPECT_EQ(choose_reasoning_mode(**spec, "", {.thinking_mode = "fast"}), kOff);
}

}  // namespace
}  // namespace stator::parsers
