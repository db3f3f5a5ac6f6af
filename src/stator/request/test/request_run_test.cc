// SPDX-License-Identifier: Apache-2.0
#include "stator/request/request_run.h"

#include <cstdlib>
#include <set>

#include "stator/request/test/run_fixture.h"

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using continuity::Loss;
using PromptLoss = ChoiceRun::PromptLoss;
using testing::ElementsAre;
using testing::IsEmpty;

uint64_t test_seed() {
  const char* given = std::getenv("STATOR_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): one thread
  return given == nullptr ? 20261126 : std::strtoull(given, nullptr, 10);
}

class RequestRunTest : public RunFixture {
 protected:
  RequestRun two() const { return RequestRun({spec(0), spec(1)}); }
  /// All choices written to their ends.
  void finish(RequestRun& request) {
    for (ChoiceRun& run : request.choices()) {
      at_worker(run);
      request.close(run);
      run.on_finished(now_, out_);
    }
    out_.clear();
  }
};

TEST_F(RequestRunTest, ItsLastChoiceCompletesTheAnswer) {
  RequestRun request = two();
  ChoiceRun& first = request.choices()[0];
  ChoiceRun& second = request.choices()[1];
  at_worker(first);
  at_worker(second);
  request.close(first);
  request.close(first);
  EXPECT_FALSE(request.on_choice_done());
  EXPECT_FALSE(request.all_closed());
  request.close(second);
  EXPECT_TRUE(request.on_choice_done());
  EXPECT_EQ(request.state(), RequestRun::State::kAnswering);
  EXPECT_FALSE(request.on_choice_done());
  EXPECT_EQ(booked(), 0);
}

TEST_F(RequestRunTest, AnAnswerThatLeftIsTheEnd) {
  RequestRun request = two();
  finish(request);
  ASSERT_TRUE(request.on_choice_done());
  EXPECT_TRUE(request.on_sent(RequestRun::Copy::kComplete));
}

TEST_F(RequestRunTest, AStreamWaitsForItsCopy) {
  RequestRun request = two();
  finish(request);
  EXPECT_FALSE(request.on_copied());
  ASSERT_TRUE(request.on_choice_done());
  EXPECT_FALSE(request.on_sent(RequestRun::Copy::kUnderWay));
  EXPECT_EQ(request.state(), RequestRun::State::kCopying);
  EXPECT_TRUE(request.on_copied());
}

TEST_F(RequestRunTest, ABodyIsWrittenOnce) {
  RequestRun request = two();
  EXPECT_DEATH(request.on_writing(), "R1");
  finish(request);
  EXPECT_FALSE(request.on_written());
  ASSERT_TRUE(request.on_choice_done());
  request.on_writing();
  EXPECT_EQ(request.state(), RequestRun::State::kWriting);
  EXPECT_TRUE(request.on_written());
  EXPECT_FALSE(request.on_written());
}

TEST_F(RequestRunTest, StoppedItGivesBackEverythingOnce) {
  RequestRun request = two();
  for (ChoiceRun& run : request.choices()) {
    at_worker(run);
  }
  request.stop(MigrationOutcome::kCancelled, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCancel, Kind::kCancel));
  EXPECT_EQ(booked(), 0);
  request.stop(MigrationOutcome::kCancelled, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_FALSE(request.on_choice_done());
  EXPECT_FALSE(request.on_written());
  EXPECT_FALSE(request.on_copied());
  EXPECT_FALSE(request.on_sent(RequestRun::Copy::kComplete));
}

TEST_F(RequestRunTest, AWorkerAtWorkIsASignAndSoIsAPlaceInAQueue) {
  RequestRun request({spec()});
  ChoiceRun& run = request.choices()[0];
  EXPECT_EQ(request.last_sign(TimePoint(1s), now_ + 5s), TimePoint(1s));
  at_worker(run);
  EXPECT_EQ(request.last_sign(TimePoint(1s), now_ + 5s), now_);
  output(run, 1);
  run.on_lost(Loss::kVanished, Error(Code::kUnavailable, "gone"), recovery_, now_, out_);
  run.on_no_route(Error(Code::kUnavailable, "no worker"), recovery_, now_, out_);
  ASSERT_EQ(run.state(), State::kParked);
  EXPECT_EQ(request.last_sign(TimePoint(1s), now_ + 5s), now_ + 5s);
}

/// A driver that answers actions and throws in events at random: workers that refuse, fail, hang,
/// come late or say nonsense, prompts that are offered, lost or dropped.
class RandomDriver {
 public:
  RandomDriver(RequestRun& request, Recovery& recovery, Random& random,
               std::function<router::LoadLease()> book)
      : request_(request), recovery_(recovery), random_(random), book_(std::move(book)) {}

  void start() {
    for (ChoiceRun& run : request_.choices()) {
      if (over_) {
        return;
      }
      run.name(RequestId(++last_id_));
      Actions actions;
      run.start({}, recovery_, now_, actions);
      perform(run, std::move(actions));
    }
  }
  /// Any event, whether it makes sense now or not.
  void step() {
    now_ += std::chrono::milliseconds(random_.below(3000));
    ChoiceRun& run = request_.choices()[random_.below(request_.choices().size())];
    Actions actions;
    throw_event(run, random_.below(18), actions);
    perform(run, std::move(actions));
  }
  void stop() {
    Actions actions;
    request_.stop(MigrationOutcome::kCancelled, now_, actions);
    perform(request_.choices().front(), std::move(actions));
    stopped_ = true;
  }
  bool over() const { return over_; }
  size_t prompts() const { return prompts_.size(); }

 private:
  Error error() {
    constexpr std::array kCodes = {Code::kUnavailable, Code::kOverloaded, Code::kDraining,
                                   Code::kInternal, Code::kInvalidArgument};
    return {kCodes[random_.below(kCodes.size())], "an error"};
  }
  router::Decision decision() {
    router::Decision made;
    made.worker = {WorkerId(1 + random_.below(4)), 0};
    made.lease = book_();
    return made;
  }
  FleetShape fleet() {
    return {.some_split = random_.below(2) == 0,
            .some_whole = random_.below(4) != 0,
            .has_prefill = random_.below(2) == 0};
  }
  Reach reach() {
    Reach reach{.reachable = random_.below(5) != 0, .all_whole = random_.below(2) == 0};
    if (random_.below(4) != 0) {
      reach.giver_lives = Incarnation(5);
    }
    return reach;
  }
  void route_to(ChoiceRun& run, Actions& out) {
    if (random_.below(5) == 0) {
      run.on_no_route(error(), recovery_, now_, out);
    } else if (random_.below(6) == 0) {
      run.on_waiting({});
    } else {
      run.on_routed(decision(), reach(), now_, out);
    }
  }
  void split(ChoiceRun& run, Actions& out) {
    switch (random_.below(5)) {
      case 0:
        run.on_split({}, fleet(), now_, out);
        break;
      case 1:
        run.on_waiting({});
        break;
      case 2:
        run.look_again({.worker = WorkerKey{WorkerId(9), 0}}, out);
        break;
      default:
        run.on_split(
            ChoiceRun::Split{.room = 77,
                             .giver = {.worker = {WorkerId(5 + random_.below(3)), 0},
                                       .life = Incarnation(5),
                                       .kind = "k",
                                       .meeting_point = random_.below(3) == 0 ? "here" : ""},
                             .lease = book_()},
            fleet(), now_, out);
    }
  }
  void speak(ChoiceRun& run, Actions& out) {
    constexpr std::array kHow = {Progress::kRunning,
                                 Progress::kRunning,
                                 Progress::kStale,
                                 Progress::kBroken,
                                 Progress::kThoughtEnough,
                                 Progress::kChoiceDone,
                                 Progress::kChoiceDoneCancelEngine};
    const Progress how = kHow[random_.below(kHow.size())];
    if (!run.at_worker()) {
      return;  // whoever has no work says nothing that the journal takes
    }
    const uint32_t offset = run.journal().generated();
    const std::vector<TokenId> tokens(1 + random_.below(2), 1);
    if (how != Progress::kStale && how != Progress::kBroken) {
      run.journal().take(run.journal().attempt(), offset, tokens);
    }
    if (how == Progress::kChoiceDone || how == Progress::kChoiceDoneCancelEngine) {
      request_.close(run);
    }
    run.on_output(
        {.progress = how, .offset = offset, .tokens = static_cast<uint32_t>(tokens.size())},
        recovery_, now_, out);
  }
  void prompt_speaks(ChoiceRun& run, Actions& out) {
    if (!run.prompt().at_worker()) {
      return;
    }
    const RequestId id = run.prompt().at_worker()->id;
    inference::Handoff offer{.id = random_.below(5) == 0 ? 1U : 77U, .kind = "k"};
    const inference::Delta delta{
        .key = {id, Attempt()},
        .token_count = 1,
        .finish = std::array{inference::FinishReason::kNone, inference::FinishReason::kStop,
                             inference::FinishReason::kLength}[random_.below(3)]};
    const auto word = run.on_prompt_output({delta, random_.below(2) == 0 ? &offer : nullptr},
                                           recovery_, now_, out);
    if (word != ChoiceRun::PromptWord::kUnderWay) {
      prompts_.erase(id);
    }
  }
  void throw_event(ChoiceRun& run, uint64_t which, Actions& out) {
    switch (which) {
      case 0:
        run.on_accepted(recovery_, now_, out);
        break;
      case 1:
        run.on_lost(Loss::kRefused, error(), recovery_, now_, out);
        break;
      case 2:
        run.on_lost(Loss::kFailed, error(), recovery_, now_, out);
        break;
      case 3:
        run.on_lost(Loss::kStalled, error(), recovery_, now_, out);
        break;
      case 4:
        run.on_lost(Loss::kVanished, error(), recovery_, now_, out);
        break;
      case 5:
        if (run.prompt().at_worker()) {
          prompts_.erase(run.prompt().at_worker()->id);
          run.on_prompt_lost(PromptLoss::kFailed, error(), recovery_, now_, out);
        }
        break;
      case 6:
        run.on_prompt_lost(PromptLoss::kSilent, error(), recovery_, now_, out);
        break;
      case 7:
        run.on_prompt_lost(PromptLoss::kGiverGone, error(), recovery_, now_, out);
        break;
      case 8:
        run.on_retry_due(recovery_, now_, out);
        break;
      case 9:
        if (run.take_ticket(run.journal().attempt())) {
          run.on_routed(decision(), reach(), now_, out);  // late, or for a ticket
        }
        break;
      case 10:
        if (run.take_ticket(run.journal().attempt()) && !run.prompt().handover().active()) {
          split(run, out);
        }
        break;
      case 11:
      case 12:
        prompt_speaks(run, out);
        break;
      default:
        speak(run, out);
    }
  }
  void perform(ChoiceRun& run, Actions actions) {
    EXPECT_TRUE(!stopped_ || actions.empty()) << "R1: nothing is asked for after the end";
    for (size_t i = 0; i < actions.size(); ++i) {
      if (over_ && !ending_) {
        return;
      }
      const Action action = std::move(actions[i]);
      carry_out(run, action, actions);
    }
  }
  void carry_out(ChoiceRun& run, const Action& action, Actions& out) {
    switch (action.kind) {
      case Kind::kRoute:
        run.route(fleet(), recovery_, now_, out);
        break;
      case Kind::kPlanPrompt:
        split(run, out);
        break;
      case Kind::kPlanAnswer:
        route_to(run, out);
        break;
      case Kind::kAskPrefill:
        run.prompt().take_for_prompt();
        prompts_.insert(RequestId(++last_id_));
        run.prompt().on_asked(RequestId(last_id_), now_);
        break;
      case Kind::kSubmit:
        run.prompt().take_for_answer();
        EXPECT_TRUE(run.at_worker()) << "I2";
        break;
      case Kind::kDropPrompt:
        EXPECT_EQ(prompts_.erase(action.key.request), 1U) << "I4: a prompt is dropped once";
        break;
      case Kind::kEndThinking:
        run.on_thought(run.journal().interject(std::vector<TokenId>{9}), recovery_, now_, out);
        break;
      case Kind::kFinish:
        request_.close(run);
        run.on_finished(now_, out);
        break;
      case Kind::kDone:
        over_ = over_ || request_.on_choice_done();
        break;
      case Kind::kFail: {
        over_ = ending_ = true;
        Actions last;
        request_.stop(MigrationOutcome::kFailure, now_, last);
        perform(run, std::move(last));
        ending_ = false;
        break;
      }
      default:
        break;
    }
  }

  RequestRun& request_;
  Recovery& recovery_;
  Random& random_;
  std::function<router::LoadLease()> book_;
  std::set<RequestId> prompts_;  // at workers
  uint64_t last_id_ = 0;
  TimePoint now_{100s};
  bool over_ = false;
  bool ending_ = false;
  bool stopped_ = false;
};

TEST_F(RequestRunTest, InAnyOrderOfEventsNothingIsLeakedAndNothingAskedForAfterTheEnd) {
  Random random(test_seed());
  size_t answered = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    SCOPED_TRACE("seed " + std::to_string(test_seed()) + ", trial " + std::to_string(trial));
    stop_.max_tokens = 1 + static_cast<uint32_t>(random.below(8));
    RequestRun request(random.below(2) == 0 ? std::vector{spec(0)} : std::vector{spec(0), spec(1)});
    RandomDriver driver(request, recovery_, random, [this] { return lease(); });
    driver.start();
    for (int event = 0; event < 60 && !driver.over(); ++event) {
      driver.step();
      for (const ChoiceRun& run : request.choices()) {
        ASSERT_FALSE(run.done() && run.search().waits());
        ASSERT_FALSE(run.done() && run.at_worker());
        ASSERT_FALSE(run.done() && run.prompt().at_worker().has_value());
      }
    }
    answered += request.all_closed() ? 1 : 0;
    driver.stop();
    ASSERT_EQ(driver.prompts(), 0U) << "I4";
    ASSERT_EQ(booked(), 0) << "I1, I2: every lease was given back";
    for (int event = 0; event < 20; ++event) {
      driver.step();
    }
    ASSERT_EQ(booked(), 0);
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(answered, 100U);
  EXPECT_TRUE(recovery_.take_place(continuity::Journal({.limits = {}})).has_value());
}

}  // namespace
}  // namespace stator::request
