// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/grammar_compiler.h"

#include <chrono>
#include <span>
#include <utility>

#include "stator/core/clock.h"

namespace stator::engine {
namespace {

constexpr size_t kGrammarsMax = 64;
constexpr size_t kGrammarsBytesMax = 256U << 20U;
constexpr double kCompileSeconds[] = {1e-4, 3e-4, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1, 3};

/// The text behind which the shape of an answer with reasoning begins: what most families write.
constexpr std::string_view kReasoningBegin = "<think>";
constexpr std::string_view kReasoningEnd = "</think>";

}  // namespace

GrammarCompiler::GrammarCompiler(VocabularySource source, Clock& clock, Metrics& metrics,
                                 std::string_view engine_name)
    : source_(std::move(source)), clock_(clock), cache_(kGrammarsMax, kGrammarsBytesMax) {
  const MetricLabels labels = {{"engine", std::string(engine_name)}};
  seconds_ =
      metrics.histogram("stator_engine_grammar_compile_seconds",
                        "time to compile a grammar of structured output", kCompileSeconds, labels);
  hits_ = metrics.counter("stator_engine_grammars_reused_total",
                          "requests whose grammar an earlier request had compiled", labels);
  refused_ = metrics.counter("stator_engine_grammars_refused_total",
                             "grammars that cannot be followed", labels);
}

void GrammarCompiler::compile(std::string structured_outputs, Done done) {
  std::shared_ptr<guided::Grammar> known;
  {
    const MutexLock lock(mutex_);
    known = cache_.find(structured_outputs);
  }
  if (known != nullptr) {
    hits_.add();
    done(std::move(known));
    return;
  }
  jobs_.add([this, text = std::move(structured_outputs),
             done = std::move(done)](net::JobThread::Turn turn) {
    if (turn == net::JobThread::Turn::kStopped) {
      done(Error(Code::kDraining, "the engine is shutting down"));
      return;
    }
    done(compile_now(text));
  });
}

Result<std::shared_ptr<guided::Grammar>> GrammarCompiler::compile_now(const std::string& text) {
  {
    const MutexLock lock(mutex_);
    if (auto known = cache_.find(text)) {  // meanwhile, for a request in front of this one
      hits_.add();
      return known;
    }
  }
  if (vocabulary_ == nullptr) {
    STATOR_TRY(vocabulary_, source_());
  }
  const TimePoint begin = clock_.now();
  auto grammar = guided::Grammar::compile(text, vocabulary_);
  seconds_.observe(std::chrono::duration<double>(clock_.now() - begin).count());
  if (!grammar) {
    refused_.add();
    return grammar;
  }
  const MutexLock lock(mutex_);
  cache_.add(text, *grammar);
  return grammar;
}

namespace {

/// Whether the prompt ends with the opener, and maybe white space: the model is thinking already.
bool begins_thinking(const guided::Vocabulary& vocabulary, std::span<const TokenId> prompt) {
  constexpr size_t kTailMax = 16;
  const auto opener = vocabulary.find_token(kReasoningBegin);
  std::string tail;
  for (size_t i = prompt.size(); i > 0 && prompt.size() - i < kTailMax; --i) {
    const std::string_view bytes = vocabulary.bytes(prompt[i - 1]);
    const bool blank = tail.find_first_not_of(" \r\n\t") == tail.npos;
    if (blank && opener == prompt[i - 1]) {
      return true;
    }
    if (bytes.empty()) {
      break;
    }
    tail.insert(0, bytes);
  }
  tail.erase(tail.find_last_not_of(" \r\n\t") + 1);
  return tail.ends_with(kReasoningBegin);
}

}  // namespace

Result<std::unique_ptr<guided::Guide>> make_guide(std::shared_ptr<guided::Grammar> grammar,
                                                  const inference::EngineRequest& request) {
  if (grammar == nullptr) {
    return std::unique_ptr<guided::Guide>();
  }
  guided::Guide::Options options;
  if (request.require_reasoning) {
    options.begins_after = kReasoningEnd;
    const std::span tokens(request.tokens);
    if (!begins_thinking(grammar->vocabulary(), tokens.first(tokens.size() - request.generated))) {
      options.opened_by = kReasoningBegin;
    }
  }
  auto guide = std::make_unique<guided::Guide>(std::move(grammar), std::move(options));
  for (const TokenId token : std::span(request.tokens).last(request.generated)) {
    if (!guide->accept(token)) {
      return Error(Code::kInvalidArgument,
                   "the tokens generated so far do not follow structured_outputs");
    }
  }
  return guide;
}

}  // namespace stator::engine
