// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/fault_simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/core/random.h"

namespace stator::fault_sim {
namespace {

constexpr uint64_t kSeedsPerKind = 40;
constexpr uint64_t kMixedSeeds = 160;  // per shard of the test
constexpr uint64_t kFreshSeeds = 120;

const FaultSimulation& simulation() {
  static const std::unique_ptr<FaultSimulation> made = [] {
    log::configure(log::Format::kHuman, "off");
    auto simulation = FaultSimulation::create(STATOR_SOURCE_DIR "/models/demo");
    STATOR_ASSERT(simulation.has_value(), simulation ? "" : simulation.error().message().c_str());
    return std::move(*simulation);
  }();
  return *made;
}

std::string replay(const Options& options, std::string_view faults) {
  return fmt::format("replay: stator sim models/demo --fault {} --seed {}", faults, options.seed);
}

/// Runs seeds, adds up, and fails with what to type.
Outcome run_seeds(FaultSet faults, std::string_view names, uint64_t first, uint64_t count) {
  Outcome sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Options options{.seed = seed, .faults = faults, .print = nullptr};
    const Outcome out = simulation().run(options);
    for (const std::string& violation : out.violations) {
      ADD_FAILURE() << violation << "\n" << replay(options, names);
    }
    sum.requests += out.requests;
    sum.exact += out.exact;
    sum.refused += out.refused;
    sum.gone += out.gone;
    sum.moves += out.moves;
    sum.resumed += out.resumed;
    sum.queued += out.queued;
    sum.heard += out.heard;
    sum.unheard += out.unheard;
    sum.stale += out.stale;
    if (::testing::Test::HasFailure()) {
      break;
    }
  }
  return sum;
}

class EveryFault : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EveryFault, AloneLeavesAnswersExact) {
  FaultSet faults;
  faults.add(static_cast<Fault>(GetParam()));
  const Outcome sum =
      run_seeds(faults, to_string(static_cast<Fault>(GetParam())), 1, kSeedsPerKind);
  EXPECT_GT(sum.exact, sum.requests / 2);
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryFault, ::testing::Range(0U, uint32_t{kFaultCount}),
                         [](const auto& kind) {
                           std::string name(to_string(static_cast<Fault>(kind.param)));
                           std::erase(name, '-');
                           return name;
                         });

class AllFaults : public ::testing::TestWithParam<uint64_t> {};

TEST_P(AllFaults, TogetherLeaveAnswersExactOrRefused) {
  const Outcome sum =
      run_seeds(FaultSet::all(), "all", 10'000 + GetParam() * kMixedSeeds, kMixedSeeds);
  EXPECT_GT(sum.exact, sum.requests / 2);
  EXPECT_GT(sum.moves, 0U) << "no request was moved: the runs proved little";
  EXPECT_GT(sum.resumed, 0U) << "no stream went on at another frontend";
  EXPECT_GT(sum.queued, 0U) << "no request waited in a router's queue";
  EXPECT_GT(sum.heard, 0U) << "no router heard of another's bookings";
  EXPECT_GT(sum.unheard, 0U) << "and nothing of that was lost or came twice";
}

INSTANTIATE_TEST_SUITE_P(Sim, AllFaults, ::testing::Range(uint64_t{0}, uint64_t{8}));

// Other ones at every run of the tests.
TEST(FaultSimulationTest, FreshSeedsHoldToo) {
  const char* fixed = std::getenv("STATOR_TEST_SEED");
  const uint64_t first =
      fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : Random::from_entropy().next() >> 16;
  RecordProperty("seed", std::to_string(first));
  SCOPED_TRACE(fmt::format("STATOR_TEST_SEED={}", first));
  run_seeds(FaultSet::all(), "all", first, kFreshSeeds);
}

TEST(FaultSimulationTest, EqualSeedsRunEqually) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Options options{.seed = seed, .print = nullptr};
    EXPECT_EQ(simulation().run(options).log_hash, simulation().run(options).log_hash) << seed;
  }
}

TEST(FaultSimulationTest, DifferentSeedsRunDifferently) {
  EXPECT_NE(simulation().run({.seed = 1, .print = nullptr}).log_hash,
            simulation().run({.seed = 2, .print = nullptr}).log_hash);
}

// The oracle sees: a worker with another model under the same name alters answers.
TEST(FaultSimulationTest, AWorkerThatRunsAnotherModelIsFound) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    found += simulation().run({.seed = seed, .impostor = true, .print = nullptr}).violations.size();
  }
  EXPECT_GT(found, 0U);
}

TEST(FaultSet, NamesAreReadAndWrittenEqually) {
  for (const Fault fault : FaultSet::all().list()) {
    const auto parsed = FaultSet::parse(to_string(fault));
    ASSERT_TRUE(parsed.has_value()) << to_string(fault);
    EXPECT_TRUE(parsed->has(fault));
    EXPECT_EQ(parsed->list().size(), 1U);
  }
  EXPECT_EQ(FaultSet::parse("all")->list().size(), kFaultCount);
  EXPECT_TRUE(FaultSet::parse("none")->empty());
}

TEST(FaultSet, AnUnknownNameIsToldWithTheKnownOnes) {
  const auto parsed = FaultSet::parse("crash,crush");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_NE(parsed.error().message().find("partition"), std::string::npos);
  EXPECT_NE(parsed.error().message().find("'crush'"), std::string::npos);
}

}  // namespace
}  // namespace stator::fault_sim
