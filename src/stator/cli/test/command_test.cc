// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace stator::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "stator");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = run_command_line(static_cast<int>(arguments.size()), arguments.data());
  std::string out = ::testing::internal::GetCapturedStdout();
  return {status, std::move(out), ::testing::internal::GetCapturedStderr()};
}

TEST(Commands, HaveUniqueNamesASummaryAndSomethingToRun) {
  std::set<std::string_view> names;
  for (const Command& command : commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_NE(command.run, nullptr) << command.name;
    EXPECT_TRUE(!command.positional_required || !command.positional.empty()) << command.name;
  }
}

TEST(Commands, AllExplainThemselves) {
  const Outcome overview = run({"--help"});
  EXPECT_EQ(overview.status, 0);
  for (const Command& command : commands()) {
    EXPECT_THAT(overview.out, HasSubstr(command.name));
    EXPECT_THAT(overview.out, HasSubstr(command.summary));
    const Outcome help = run({std::string(command.name).c_str(), "--help"});
    EXPECT_EQ(help.status, 0) << command.name;
    EXPECT_EQ(help.err, "") << command.name;
    for (const CommandOption& option : command.options) {
      EXPECT_THAT(help.out, HasSubstr(option.flag));
      EXPECT_FALSE(option.help.empty()) << option.flag;
    }
    EXPECT_THAT(help.out, HasSubstr("Usage: stator " + std::string(command.name)));
    if (!command.positional.empty()) {
      EXPECT_THAT(command.description, HasSubstr(std::string(command.positional) + " is "));
    }
  }
}

TEST(Commands, HelpNamesWhatAValueIs) {
  const Outcome serve = run({"serve", "--help"});
  for (const char* words : {"--port INTEGER", "--config FILE", "--http-idle-timeout DURATION",
                            "MODEL (optional)", "(cpu | sim | "}) {
    EXPECT_THAT(serve.out, HasSubstr(words));
  }
  const Outcome index_bench = run({"index-bench", "--help"});
  EXPECT_THAT(index_bench.out, HasSubstr("TRACE (required)"));
  EXPECT_THAT(index_bench.out, HasSubstr("--workers VALUE"));
  EXPECT_THAT(index_bench.out, Not(HasSubstr("TEXT")));
}

TEST(Commands, CompletionsOfEveryShellNameEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run({"completion", shell});
    EXPECT_EQ(outcome.status, 0) << shell;
    for (const Command& command : commands()) {
      EXPECT_THAT(outcome.out, HasSubstr(command.name)) << shell;
    }
  }
}

TEST(Commands, WrongUseIsOneLineAndStatusTwo) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{"fly"}, "unknown command 'fly'"},
      {{}, "stator --help"},
      {{"serve"}, "MODEL"},
      {{"serve", "m", "--warp", "9"}, "unknown flag '--warp'"},
      {{"serve", "m", "--prot", "9"}, "did you mean '--port'"},
      {{"serve", "m", "--port", "-1"}, "port"},
      {{"completion", "tcsh"}, "tcsh"},
      {{"frontend"}, "--discovery"},
  };
  for (const auto& [arguments, named] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << named;
    EXPECT_THAT(outcome.err, HasSubstr(named));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "") << named;
  }
}

TEST(Commands, ConfigPrintsItsDocumentation) {
  const Outcome outcome = run({"config", "--markdown"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("# Configuration"));
  EXPECT_THAT(outcome.out, HasSubstr("`http.port`"));
}

}  // namespace
}  // namespace stator::cli
