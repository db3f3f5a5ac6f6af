// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/engine_watch.h"
#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Status read(const Dialect& dialect, const Control& control, const std::string& recorded) {
  const Recorded answer = load_recorded(recorded);
  return dialect.read_control(control, answer.status, answer.body);
}

TEST(VllmControl, IsSaidOnItsRoutes) {
  const auto dialect = make_vllm_dialect({});
  const auto load = dialect->lower_control(LoadAdapter{"poet", "/a \"b\""});
  ASSERT_TRUE(load.has_value());
  EXPECT_EQ(load->path, "/v1/load_lora_adapter");
  EXPECT_EQ(load->body, R"({"lora_name":"poet","lora_path":"/a \"b\""})");
  EXPECT_EQ(dialect->lower_control(UnloadAdapter{"poet"})->body, R"({"lora_name":"poet"})");
  EXPECT_EQ(dialect->lower_control(Sleep{2})->path, "/sleep?level=2&mode=wait");
  EXPECT_EQ(dialect->lower_control(WakeUp{})->path, "/wake_up");
  EXPECT_EQ(dialect->lower_control(ResetPrefixCache{})->path, "/reset_prefix_cache");
}

TEST(VllmControl, RecordedAnswersAreToldApart) {
  const auto dialect = make_vllm_dialect({});
  const Control load = LoadAdapter{"ad1", "x"};
  const struct {
    std::string recorded;
    Code code;
    std::string text;
  } refusals[] = {
      {"vllm-0.32/lora-load-again", Code::kAlreadyExists, "already been loaded"},
      {"vllm-0.32/lora-load-missing", Code::kNotFound, "/nonexistent"},
      {"vllm-0.32/error-lora-not-enabled", Code::kUnsupported, "--enable-lora"},
      {"vllm-0.32/error-404", Code::kUnsupported, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"},
  };
  EXPECT_TRUE(read(*dialect, load, "vllm-0.32/lora-load"));
  for (const auto& refusal : refusals) {
    const Status got = read(*dialect, load, refusal.recorded);
    ASSERT_FALSE(got.has_value()) << refusal.recorded;
    EXPECT_EQ(got.error().code(), refusal.code) << refusal.recorded;
    EXPECT_THAT(got.error().message(), HasSubstr(refusal.text));
  }
  const Status gone = read(*dialect, UnloadAdapter{"ad1"}, "vllm-0.32/lora-unload-again");
  EXPECT_EQ(gone.error().code(), Code::kNotFound);
  EXPECT_THAT(read(*dialect, Sleep{}, "vllm-0.32/error-404").error().message(),
              HasSubstr("--enable-sleep-mode"));
}

TEST(VllmControl, AResetThatDidNotHappenIsAFailure) {
  const auto dialect = make_vllm_dialect({});
  EXPECT_TRUE(dialect->read_control(ResetPrefixCache{}, 200, R"({"success":true})"));
  EXPECT_TRUE(dialect->read_control(ResetPrefixCache{}, 200, ""));  // before 0.11
  EXPECT_FALSE(dialect->read_control(ResetPrefixCache{}, 200, R"({"success":false})"));
}

TEST(SglangControl, IsSaidAndReadInItsWords) {
  const auto dialect = make_sglang_dialect({});
  EXPECT_EQ(dialect->lower_control(LoadAdapter{"poet", "/a"})->body,
            R"({"lora_name":"poet","lora_path":"/a"})");
  EXPECT_EQ(dialect->lower_control(Sleep{})->path, "/release_memory_occupation");
  EXPECT_EQ(dialect->lower_control(ResetPrefixCache{})->body, "");
  const Status without = dialect->read_control(
      LoadAdapter{}, 400,
      R"({"success":false,"error_message":"LoRA is not enabled. Please set `--enable-lora`"})");
  EXPECT_EQ(without.error().code(), Code::kUnsupported);
  EXPECT_THAT(without.error().message(), HasSubstr("--enable-lora"));
}

TEST(OtherControl, IsRefusedByName) {
  const auto dialect = make_llamacpp_dialect({});
  const auto refused = dialect->lower_control(Sleep{});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_THAT(refused.error().message(), HasSubstr("'llamacpp' has no sleep"));
}

TEST(Facts, AdaptersAreListedBesideTheirModel) {
  const auto dialect = make_vllm_dialect({});
  EngineFacts facts;
  ASSERT_TRUE(dialect->learn(kModelsPath, load_recorded("vllm-0.32/lora-models").body, facts));
  EXPECT_EQ(facts.model, "m");
  EXPECT_THAT(facts.adapters, ElementsAre("ad1"));
}

class EngineWatchTest : public testing::Test {
 protected:
  EngineWatch::Finding poll(int status, const std::string& body) {
    watch.next_path();
    return watch.on_answer({}, status, body);
  }
  static std::string scrape(double start, double awake = 1) {
    return "vllm:num_requests_running 1\nprocess_start_time_seconds " + std::to_string(start) +
           "\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} " +
           std::to_string(awake) +
           "\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} 0\n";
  }

  std::unique_ptr<Dialect> dialect = make_vllm_dialect({});
  EngineFacts facts{.model = "m"};
  EngineWatch watch{*dialect, facts, "http://engine"};
};

TEST_F(EngineWatchTest, SleepIsReadFromTheMetrics) {
  EXPECT_EQ(poll(200, scrape(5)).reading->asleep, false);
  EXPECT_EQ(poll(200, scrape(5, 0)).reading->asleep, true);
  EXPECT_EQ(poll(200, "vllm:num_requests_running 1\n").reading->asleep, std::nullopt);
}

TEST_F(EngineWatchTest, ANewProcessIsAskedForItsAdapters) {
  poll(200, scrape(5));
  EXPECT_EQ(watch.next_path(), "/metrics");
  watch.on_answer({}, 200, scrape(6));
  EXPECT_EQ(watch.next_path(), kModelsPath);
  const auto found = watch.on_answer({}, 200, load_recorded("vllm-0.32/lora-models").body);
  EXPECT_THAT(*found.adapters, ElementsAre("ad1"));
  EXPECT_EQ(watch.next_path(), "/metrics");
}

TEST_F(EngineWatchTest, AdaptersAreLookedForNowAndThen) {
  size_t polls = 0;
  while (watch.next_path() != kModelsPath) {
    watch.on_answer({}, 200, scrape(5));
    ASSERT_LT(++polls, 100U);
  }
  EXPECT_EQ(polls, 10U);
}

TEST_F(EngineWatchTest, AServerIsGoneWhenItRefusesOrFailsThreeTimes) {
  EXPECT_FALSE(poll(500, "").up.has_value());
  EXPECT_FALSE(poll(500, "").up.has_value());
  EXPECT_EQ(poll(500, "").up, false);
  EXPECT_EQ(watch.next_path(), kModelsPath) << "it may come back with others";
  watch.on_answer({}, 200, "{}");
  EXPECT_EQ(poll(200, scrape(7)).up, true);
  EXPECT_EQ(poll(503, "").up, false);
  watch.next_path();
  EXPECT_EQ(watch.on_answer(Error(Code::kUnavailable, "refused"), 0, "").up, false);
}

}  // namespace
}  // namespace stator::engine::adapters
