// SPDX-License-Identifier: Apache-2.0
#include "stator/request/choice_run.h"

#include "stator/request/test/run_fixture.h"

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using continuity::Journal;
using continuity::Loss;
using PromptLoss = ChoiceRun::PromptLoss;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChoiceRunTest : public RunFixture {
 protected:
  static Error unavailable(std::string text = "gone") {
    return {Code::kUnavailable, std::move(text)};
  }
  /// kPrefill: worker 5 computes the prompt as request 50.
  void in_prefill(ChoiceRun& run) {
    run.name(RequestId(1));
    run.start({}, recovery_, now_, out_);
    run.route(kSplit, recovery_, now_, out_);
    run.on_split(ChoiceRun::Split{.room = 77, .giver = giver(5), .lease = lease()}, kSplit, now_,
                 out_);
    EXPECT_EQ(asked(), (std::vector{Kind::kRoute, Kind::kPlanPrompt, Kind::kAskPrefill}));
    EXPECT_EQ(run.prompt().take_for_prompt().id, 77U);
    run.prompt().on_asked(RequestId(50), now_);
    EXPECT_EQ(run.state(), State::kPrefill);
  }
  /// kHandover: worker 1 has been asked to go on from what worker 5 gave.
  void in_handover(ChoiceRun& run) {
    in_prefill(run);
    offer_prompt(run);
    asked();
    run.route(kSplit, recovery_, now_, out_);
    run.on_routed(decision(), {.giver_lives = Incarnation(5)}, now_, out_);
    EXPECT_EQ(asked(), (std::vector{Kind::kPlanAnswer, Kind::kSubmit}));
    EXPECT_TRUE(run.prompt().take_for_answer().has_value());
    EXPECT_EQ(run.state(), State::kHandover);
  }
  ChoiceRun::PromptWord offer_prompt(ChoiceRun& run) {
    inference::Handoff given = offer();
    return run.on_prompt_output({word(run, 1, inference::FinishReason::kLength), &given}, recovery_,
                                now_, out_);
  }
  /// The request ends with what it asked to fail with.
  std::string failure() {
    for (const Action& action : out_) {
      if (action.kind == Kind::kFail) {
        return action.error->message();
      }
    }
    return "";
  }
  void expect_nothing_held(ChoiceRun& run) {
    EXPECT_TRUE(run.done());
    EXPECT_EQ(booked(), 0);
    EXPECT_FALSE(run.prompt().at_worker().has_value());
    EXPECT_FALSE(run.search().waits());
  }
};

TEST_F(ChoiceRunTest, TheStraightWay) {
  ChoiceRun run(spec());
  EXPECT_EQ(run.state(), State::kPreparing);
  run.name(RequestId(1));
  run.start({}, recovery_, now_, out_);
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  run.route(kWhole, recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kPlanAnswer));
  run.on_routed(decision(3), {}, now_, out_);
  EXPECT_EQ(run.state(), State::kStreaming);
  EXPECT_EQ(run.facts().worker.worker, WorkerId(3));
  EXPECT_THAT(asked(), ElementsAre(Kind::kSubmit));
  EXPECT_EQ(booked(), 1);
  run.on_accepted(recovery_, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
  output(run, 2);
  EXPECT_THAT(asked(), ElementsAre(Kind::kNote));
  output(run, 1);
  EXPECT_THAT(asked(), IsEmpty());
  output(run, 1, Progress::kChoiceDone);
  EXPECT_THAT(asked(), ElementsAre(Kind::kReport, Kind::kDone));
  expect_nothing_held(run);
}

TEST_F(ChoiceRunTest, WhatTheEngineDoesNotKnowIsOverIsCancelled) {
  ChoiceRun run(spec());
  at_worker(run);
  output(run, 1, Progress::kChoiceDoneCancelEngine);
  EXPECT_THAT(asked(), ElementsAre(Kind::kNote, Kind::kCancel, Kind::kReport, Kind::kDone));
}

TEST_F(ChoiceRunTest, InAQueueItWaitsForADecisionOfItsAttempt) {
  ChoiceRun run(spec());
  begin(run);
  run.on_waiting({});
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_FALSE(run.take_ticket(Attempt(1)));
  EXPECT_TRUE(run.take_ticket(Attempt(0)));
  asked();
  run.on_routed(decision(), {}, now_, out_);
  EXPECT_EQ(run.state(), State::kStreaming);
  EXPECT_FALSE(run.take_ticket(Attempt(0)));
}

TEST_F(ChoiceRunTest, ASecondDecisionIsGivenBack) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_routed(decision(2), {}, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_EQ(run.facts().worker.worker, WorkerId(1));
  EXPECT_EQ(booked(), 1);
}

TEST_F(ChoiceRunTest, AWorkerOutOfReachIsAvoided) {
  ChoiceRun run(spec());
  begin(run);
  asked();
  run.on_routed(decision(4), {.reachable = false}, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  EXPECT_THAT(run.journal().avoided(), ElementsAre(WorkerKey{WorkerId(4), 0}));
  EXPECT_EQ(booked(), 0);
}

TEST_F(ChoiceRunTest, ANewRequestIsToldAtOnceThatNobodyIsThere) {
  ChoiceRun run(spec());
  begin(run);
  asked();
  run.on_no_route(unavailable("no worker"), recovery_, now_, out_);
  EXPECT_EQ(failure(), "no worker");
}

TEST_F(ChoiceRunTest, WhatHasTokensIsParkedAndThenTellsWhatItLost) {
  ChoiceRun run(spec());
  at_worker(run);
  output(run, 2);
  asked();
  run.on_lost(Loss::kVanished, unavailable("worker 1 was lost"), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCount, Kind::kNote, Kind::kRoute));
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_EQ(run.key().attempt, Attempt(1));
  run.route(kWhole, recovery_, now_, out_);
  run.on_no_route(unavailable("no worker"), recovery_, now_ + 1s, out_);
  EXPECT_EQ(run.state(), State::kParked);
  EXPECT_THAT(asked(), ElementsAre(Kind::kPlanAnswer, Kind::kPark));
  run.on_retry_due(recovery_, now_ + 1100ms, out_);
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  run.on_no_route(unavailable("no worker"), recovery_, now_ + 10s, out_);
  EXPECT_EQ(failure(), "worker 1 was lost");
}

TEST_F(ChoiceRunTest, AtAnotherWorkersFirstTokenItHasRecovered) {
  ChoiceRun run(spec());
  at_worker(run);
  output(run, 2);
  run.on_lost(Loss::kVanished, unavailable(), recovery_, now_, out_);
  run.route(kWhole, recovery_, now_, out_);
  run.on_routed(decision(2), {}, now_, out_);
  asked();
  output(run, 1);
  EXPECT_THAT(asked(), ElementsAre(Kind::kNote, Kind::kRecovered));
  EXPECT_FALSE(run.search().lost().has_value());
}

TEST_F(ChoiceRunTest, ARefusalIsNoMove) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_lost(Loss::kRefused, Error(Code::kOverloaded, "full"), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCount, Kind::kRoute));
  EXPECT_FALSE(run.search().lost().has_value());
  EXPECT_EQ(run.journal().refusals(), 1U);
}

TEST_F(ChoiceRunTest, WhatNoWorkerWouldTakeFails) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_lost(Loss::kRefused, Error(Code::kInvalidArgument, "no such token"), recovery_, now_,
              out_);
  EXPECT_EQ(failure(), "no such token");
}

TEST_F(ChoiceRunTest, AFailureIsTheWorkersAndAHandOffNobodys) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_lost(Loss::kFailed, unavailable(), recovery_, now_, out_);
  EXPECT_EQ(out_[0].outcome, WorkOutcome::kFailed);
  EXPECT_EQ(run.journal().migrations(), 1U);

  ChoiceRun drained(spec(1));
  out_.clear();
  at_worker(drained);
  drained.on_lost(Loss::kFailed, Error(Code::kDraining, "bye"), recovery_, now_, out_);
  EXPECT_EQ(out_[0].event, Event::kDrainHandoff);
  EXPECT_EQ(drained.journal().migrations(), 0U);
}

TEST_F(ChoiceRunTest, ASilentWorkerIsCancelledAndReported) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_lost(Loss::kStalled, unavailable("silent"), recovery_, now_, out_);
  ASSERT_GE(out_.size(), 2U);
  EXPECT_EQ(out_[0].kind, Kind::kCancel);
  EXPECT_EQ(out_[0].key, (inference::RequestKey{run.facts().id, Attempt(0)}));
  EXPECT_EQ(out_[1].outcome, WorkOutcome::kHung);
}

TEST_F(ChoiceRunTest, BrokenOutputCostsTheAttempt) {
  ChoiceRun run(spec());
  at_worker(run);
  run.on_output({.progress = Progress::kBroken}, recovery_, now_, out_);
  EXPECT_EQ(out_[0].event, Event::kOffsetGap);
  EXPECT_EQ(out_[1].kind, Kind::kCancel);
  EXPECT_EQ(run.key().attempt, Attempt(1));
  EXPECT_EQ(booked(), 0);
  out_.clear();
  run.on_output({.progress = Progress::kStale}, recovery_, now_, out_);
  EXPECT_EQ(out_[0].event, Event::kStaleDelta);
}

TEST_F(ChoiceRunTest, WhenOnlyTheLastWordIsMissingItIsWrittenHere) {
  stop_.max_tokens = 2;
  ChoiceRun run(spec());
  at_worker(run);
  output(run, 2);
  asked();
  run.on_lost(Loss::kVanished, unavailable(), recovery_, now_, out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].kind, Kind::kFinish);
  EXPECT_EQ(out_[0].finish, inference::FinishReason::kLength);
  asked();
  run.close();
  run.on_finished(now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kDone));
  expect_nothing_held(run);
}

TEST_F(ChoiceRunTest, WorkersThatDieUnderItEndIt) {
  ChoiceRun run(spec());
  begin(run);
  for (uint64_t worker = 1; worker <= 3; ++worker) {
    out_.clear();
    run.on_routed(decision(worker), {}, now_, out_);
    run.on_lost(Loss::kVanished, unavailable(), recovery_, now_, out_);
    run.on_retry_due(recovery_, now_, out_);
  }
  EXPECT_THAT(failure(), HasSubstr("3 workers died"));
}

TEST_F(ChoiceRunTest, AfterTheLimitItSaysHowOftenItMoved) {
  ChoiceRun::Spec limited = spec();
  limited.journal.limits = {.migrations_max = 1};
  ChoiceRun run(limited);
  at_worker(run);
  run.on_lost(Loss::kFailed, unavailable(), recovery_, now_, out_);
  run.on_routed(decision(2), {}, now_, out_);
  out_.clear();
  run.on_lost(Loss::kFailed, unavailable(), recovery_, now_, out_);
  EXPECT_THAT(failure(), HasSubstr("after 1 moves"));
}

TEST_F(ChoiceRunTest, AfterItsThinkingBudgetItGoesOnElsewhereOrEnds) {
  ChoiceRun run(spec());
  at_worker(run);
  output(run, 1, Progress::kThoughtEnough);
  EXPECT_THAT(asked(), ElementsAre(Kind::kNote, Kind::kCancel, Kind::kEndThinking));
  run.on_thought(run.journal().interject(std::vector<TokenId>{9}), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  EXPECT_EQ(booked(), 0);
  run.on_routed(decision(), {}, now_, out_);
  out_.clear();
  run.on_thought(Journal::Step::kFinishLength, recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kFinish));
}

TEST_F(ChoiceRunTest, ADryRunEndsWithTheNameOfAWorker) {
  ChoiceRun::Spec dry = spec();
  dry.dry_run = true;
  ChoiceRun run(dry);
  run.start({}, recovery_, now_, out_);
  run.route(kSplit, recovery_, now_, out_);
  run.on_routed(decision(6), {}, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute, Kind::kPlanAnswer, Kind::kTellWorker));
  EXPECT_EQ(run.facts().worker.worker, WorkerId(6));
  EXPECT_EQ(booked(), 0);
}

TEST_F(ChoiceRunTest, BegunElsewhereItGoesOnFromItsJournal) {
  ChoiceRun run(spec());
  run.name(RequestId(1));
  run.journal().take(Attempt(0), 0, std::vector<TokenId>{1, 2, 3});
  run.start(unavailable("the frontend was lost"), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCount, Kind::kNote, Kind::kRoute));
  EXPECT_EQ(run.key().attempt, Attempt(1));
}

// Prompts that another worker computes.

TEST_F(ChoiceRunTest, APromptIsHandedOver) {
  ChoiceRun run(spec());
  in_handover(run);
  output(run, 1);
  EXPECT_EQ(run.state(), State::kStreaming);
  EXPECT_EQ(run.prompt().from(), (WorkerKey{WorkerId(5), 0}));
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kCount, Kind::kNote));
}

TEST_F(ChoiceRunTest, AnEarlyOfferIsTakenWhileThePromptIsComputed) {
  ChoiceRun run(spec());
  in_prefill(run);
  inference::Handoff given = offer();
  EXPECT_EQ(run.on_prompt_output({word(run, 0), &given}, recovery_, now_, out_),
            ChoiceRun::PromptWord::kUnderWay);
  EXPECT_EQ(run.state(), State::kHandover);
  EXPECT_THAT(asked(), ElementsAre(Kind::kNote, Kind::kRoute));
  EXPECT_TRUE(run.prompt().at_worker().has_value());
  EXPECT_EQ(run.on_prompt_output({word(run, 1, inference::FinishReason::kLength), nullptr},
                                 recovery_, now_, out_),
            ChoiceRun::PromptWord::kEnded);
  EXPECT_THAT(asked(), ElementsAre(Kind::kReport));
  EXPECT_EQ(booked(), 0);
}

TEST_F(ChoiceRunTest, APromptsOneTokenMayBeTheAnswer) {
  ChoiceRun run(spec());
  in_prefill(run);
  EXPECT_EQ(run.on_prompt_output({word(run, 1, inference::FinishReason::kStop), nullptr}, recovery_,
                                 now_, out_),
            ChoiceRun::PromptWord::kIsAnswer);
  EXPECT_EQ(run.facts().worker.worker, WorkerId(5));
  EXPECT_THAT(asked(), ElementsAre(Kind::kReport, Kind::kHandoverEnded));
  output(run, 1, Progress::kChoiceDone);
  expect_nothing_held(run);
}

TEST_F(ChoiceRunTest, ALostPromptBeginsAgain) {
  ChoiceRun run(spec());
  in_prefill(run);
  run.on_prompt_lost(PromptLoss::kFailed, unavailable(), recovery_, now_, out_);
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kRoute));
  EXPECT_EQ(booked(), 0);
  run.on_prompt_lost(PromptLoss::kFailed, unavailable(), recovery_, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(ChoiceRunTest, ASilentPrefillWorkerIsReportedAndItsPromptDropped) {
  ChoiceRun run(spec());
  in_prefill(run);
  run.on_prompt_lost(PromptLoss::kSilent, unavailable(), recovery_, now_, out_);
  EXPECT_THAT(asked(),
              ElementsAre(Kind::kReport, Kind::kDropPrompt, Kind::kHandoverEnded, Kind::kRoute));
}

TEST_F(ChoiceRunTest, AGoneGiverCostsWhatWasTakenFromIt) {
  ChoiceRun run(spec());
  in_handover(run);
  run.on_prompt_lost(PromptLoss::kGiverGone, unavailable(), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kCancel, Kind::kCount, Kind::kCount,
                                   Kind::kNote, Kind::kRoute));
  EXPECT_EQ(booked(), 0);
  run.on_prompt_lost(PromptLoss::kGiverGone, unavailable(), recovery_, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(ChoiceRunTest, AWorkerThatRefusesAPromptOfOthersDoesEverythingItself) {
  ChoiceRun run(spec());
  in_handover(run);
  run.on_lost(Loss::kRefused, Error(Code::kInvalidArgument, "no such hand-off"), recovery_, now_,
              out_);
  EXPECT_EQ(run.state(), State::kRouting);
  EXPECT_THAT(run.journal().avoided(), ElementsAre(WorkerKey{WorkerId(5), 0}));
  asked();
  run.route(kSplit, recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kPlanAnswer));
  EXPECT_TRUE(run.prompt().whole_only());
}

TEST_F(ChoiceRunTest, AnotherLifeOfTheGiverHasNothingToGive) {
  ChoiceRun run(spec());
  in_prefill(run);
  offer_prompt(run);
  asked();
  run.on_routed(decision(), {.giver_lives = Incarnation(6), .all_whole = true}, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kSubmit));
  EXPECT_FALSE(run.prompt().take_for_answer().has_value());
  EXPECT_EQ(run.state(), State::kStreaming);
}

TEST_F(ChoiceRunTest, WhereSomeNeedItAnotherWorkerIsFoundThen) {
  ChoiceRun run(spec());
  in_prefill(run);
  offer_prompt(run);
  asked();
  run.on_routed(decision(), {.giver_lives = std::nullopt, .all_whole = false}, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kRoute));
  EXPECT_EQ(booked(), 0);
}

TEST_F(ChoiceRunTest, WithAMeetingPointBothAreAskedAtOnce) {
  ChoiceRun run(spec());
  run.start({}, recovery_, now_, out_);
  run.route(kSplit, recovery_, now_, out_);
  run.on_split(ChoiceRun::Split{.room = 77, .giver = giver(5, "here"), .lease = lease()}, kSplit,
               now_, out_);
  EXPECT_EQ(run.state(), State::kHandover);
  run.on_routed(decision(), {.giver_lives = Incarnation(5)}, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute, Kind::kPlanPrompt, Kind::kPlanAnswer,
                                   Kind::kAskPrefill, Kind::kSubmit));
  EXPECT_EQ(run.prompt().take_for_prompt().payload, "here");
  EXPECT_EQ(run.prompt().take_for_answer()->payload, "here");
  EXPECT_EQ(booked(), 2);
}

TEST_F(ChoiceRunTest, WithoutADecodeWorkerTheWholeIsTried) {
  ChoiceRun run(spec());
  in_prefill(run);
  offer_prompt(run);
  asked();
  run.on_no_route(unavailable(), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kRoute));
  run.on_no_route(unavailable("no worker"), recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kFail));
}

TEST_F(ChoiceRunTest, ADecisionForTheAnswerThatComesBeforeThePromptIsGivenBack) {
  ChoiceRun run(spec());
  in_prefill(run);
  run.on_routed(decision(), {.giver_lives = Incarnation(5)}, now_, out_);
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_EQ(run.state(), State::kPrefill);
  EXPECT_EQ(booked(), 1);  // the prompt's
}

TEST_F(ChoiceRunTest, LogProbabilitiesOfAPromptNeedAWorkerThatDoesBoth) {
  ChoiceRun::Spec scored = spec();
  scored.scores_prompt = true;
  ChoiceRun run(scored);
  run.start({}, recovery_, now_, out_);
  run.route({.some_split = true, .has_prefill = true}, recovery_, now_, out_);
  EXPECT_THAT(failure(), HasSubstr("echo with logprobs"));
  ChoiceRun whole(scored);
  out_.clear();
  whole.start({}, recovery_, now_, out_);
  whole.route(kSplit, recovery_, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute, Kind::kPlanAnswer));
}

TEST_F(ChoiceRunTest, StoppedItGivesBackEverything) {
  ChoiceRun run(spec());
  in_handover(run);
  run.stop(MigrationOutcome::kCancelled, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCancel, Kind::kHandoverEnded));
  expect_nothing_held(run);

  ChoiceRun prompt(spec(1));
  in_prefill(prompt);
  prompt.stop(MigrationOutcome::kCancelled, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kHandoverEnded, Kind::kDropPrompt));
  expect_nothing_held(prompt);

  ChoiceRun moving(spec(2));
  at_worker(moving);
  output(moving, 1);
  moving.on_lost(Loss::kVanished, unavailable(), recovery_, now_, out_);
  asked();
  moving.stop(MigrationOutcome::kFailure, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRecovered));
  expect_nothing_held(moving);
}

TEST_F(ChoiceRunTest, AfterItsEndNoEventDoesAnything) {
  ChoiceRun run(spec());
  at_worker(run);
  run.stop(MigrationOutcome::kFailure, now_, out_);
  out_.clear();
  inference::Handoff given = offer();
  run.route(kSplit, recovery_, now_, out_);
  run.on_split(ChoiceRun::Split{.room = 77, .giver = giver(5), .lease = lease()}, kSplit, now_,
               out_);
  run.on_split({}, kSplit, now_, out_);
  run.look_again({.prefill = true}, out_);
  run.look_again({}, out_);
  run.on_waiting({});
  run.look_again({.worker = WorkerKey{}}, out_);
  run.on_routed(decision(), {}, now_, out_);
  run.on_no_route(unavailable(), recovery_, now_, out_);
  run.on_retry_due(recovery_, now_, out_);
  run.on_accepted(recovery_, now_, out_);
  run.on_output({.tokens = 1}, recovery_, now_, out_);
  run.on_output({.progress = Progress::kStale}, recovery_, now_, out_);
  run.on_thought(Journal::Step::kResubmit, recovery_, now_, out_);
  run.on_finished(now_, out_);
  run.on_lost(Loss::kRefused, unavailable(), recovery_, now_, out_);
  run.on_lost(Loss::kFailed, unavailable(), recovery_, now_, out_);
  run.on_lost(Loss::kStalled, unavailable(), recovery_, now_, out_);
  run.on_lost(Loss::kVanished, unavailable(), recovery_, now_, out_);
  run.on_prompt_output({word(run, 1), &given}, recovery_, now_, out_);
  run.on_prompt_lost(PromptLoss::kFailed, unavailable(), recovery_, now_, out_);
  run.on_prompt_lost(PromptLoss::kSilent, unavailable(), recovery_, now_, out_);
  run.on_prompt_lost(PromptLoss::kGiverGone, unavailable(), recovery_, now_, out_);
  run.stop(MigrationOutcome::kFailure, now_, out_);
  EXPECT_FALSE(run.take_ticket(run.journal().attempt()));
  EXPECT_THAT(asked(), IsEmpty());
  expect_nothing_held(run);
}

TEST_F(ChoiceRunTest, ItIsStartedOnce) {
  ChoiceRun run(spec());
  begin(run);
  EXPECT_DEATH(run.start({}, recovery_, now_, out_), "started once");
  EXPECT_DEATH(run.start(unavailable(), recovery_, now_, out_), "started once");
  EXPECT_DEATH(run.on_finished(now_, out_), "R2");
}

}  // namespace
}  // namespace stator::request
