// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/json/writer.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::cli {
namespace {

using tokenizer::AddSpecial;
using tokenizer::EncodeOptions;
using tokenizer::SkipSpecial;
using tokenizer::SpecialTokens;
using tokenizer::Tokenizer;
using Json = simdjson::dom::element;

/// What is done with each input line, and its working memory.
struct Job {
  const Tokenizer& tokenizer;
  EncodeOptions encode_options;
  SkipSpecial skip_special;
  bool stream = false;  // decode as a stream is
  simdjson::dom::parser parser{};
  std::vector<TokenId> ids{};
  std::string out{};
};

Status encode_text(std::string_view text, Job& job) {
  job.ids.clear();
  STATOR_CHECK(job.tokenizer.encode(text, job.encode_options, job.ids));
  job.out = fmt::format("{{\"tokens\":[{}]}}\n", fmt::join(job.ids, ","));
  print(job.out);
  return {};
}

Status encode_line(const std::string& line, Job& job) {
  std::string_view text;
  const auto error = job.parser.parse(line).get(text);
  if (error == simdjson::EMPTY || error == simdjson::INCORRECT_TYPE) {
    return Error(Code::kInvalidArgument,
                 "not a JSON string: --jsonl reads one per line, such as \"text\"");
  }
  if (error != simdjson::SUCCESS) {
    return Error(Code::kInvalidArgument,
                 fmt::format("not a JSON string: {}", simdjson::error_message(error)));
  }
  return encode_text(text, job);
}

/// What each id completes, and last what the end leaves: together the text of all ids.
void print_deltas(Job& job) {
  tokenizer::IncrementalDetokenizer detokenizer(job.tokenizer, job.skip_special,
                                                tokenizer::StreamStart::kStartOfText);
  std::string delta;
  job.out = "{\"deltas\":[";
  for (size_t i = 0; i <= job.ids.size(); ++i) {
    delta.clear();
    if (i < job.ids.size()) {
      detokenizer.step(job.ids[i], delta);
    } else {
      detokenizer.finish(delta);
    }
    job.out += i == 0 ? "\"" : ",\"";
    json::append_escaped(job.out, delta);
    job.out += '"';
  }
  job.out += "]}\n";
  print(job.out);
}

Status decode_line(const std::string& line, Job& job) {
  Json root;
  if (const auto error = job.parser.parse(line).get(root); error != simdjson::SUCCESS) {
    return Error(Code::kInvalidArgument,
                 fmt::format("not JSON: {}", simdjson::error_message(error)));
  }
  simdjson::dom::array values;
  if (root.get(values) != simdjson::SUCCESS && root["tokens"].get(values) != simdjson::SUCCESS) {
    return Error(Code::kInvalidArgument, "neither a JSON array of ids nor {\"tokens\":[…]}");
  }
  job.ids.clear();
  for (const Json value : values) {
    uint64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id > UINT32_MAX) {
      return Error(Code::kInvalidArgument,
                   fmt::format("tokens[{}] is not a token id", job.ids.size()));
    }
    if (!job.tokenizer.contains(static_cast<TokenId>(id))) {
      return Error(Code::kInvalidArgument,
                   fmt::format("tokens[{}] is {}, which the vocabulary of {} tokens does not have",
                               job.ids.size(), id, job.tokenizer.vocab_size()));
    }
    job.ids.push_back(static_cast<TokenId>(id));
  }
  if (job.stream) {
    print_deltas(job);
    return {};
  }
  job.out = "{\"text\":\"";
  json::append_escaped(job.out, job.tokenizer.decode(job.ids, job.skip_special));
  job.out += "\"}\n";
  print(job.out);
  return {};
}

/// What came in is at fault, not what was typed or configured: exit status 1.
Status as_failure(Status status) {
  return status ? std::move(status) : Status(std::move(status.error()).with_code(Code::kIo));
}

Status run_lines(Status (*run_line)(const std::string&, Job&), Job& job) {
  size_t number = 0;
  while (const auto line = app::read_line()) {
    ++number;
    if (Status status = run_line(*line, job); !status) {
      return as_failure(std::move(status.error()).with_context(fmt::format("line {}", number)));
    }
  }
  return {};
}

}  // namespace

Status run_tokenize(Invocation& invocation) {
  const auto path = invocation.options.find("--tokenizer");
  if (path == invocation.options.end()) {
    return Error(Code::kInvalidArgument,
                 "--tokenizer PATH is missing: a model folder or a vocabulary file");
  }
  STATOR_TRY(const auto tokenizer, Tokenizer::load(path->second), "--tokenizer");
  const bool plain = invocation.options.contains("--no-special");
  Job job{.tokenizer = *tokenizer,
          .encode_options = {plain ? SpecialTokens::kAsText : SpecialTokens::kParse,
                             plain ? AddSpecial::kNo : AddSpecial::kYes},
          .skip_special = plain ? SkipSpecial::kYes : SkipSpecial::kNo,
          .stream = invocation.options.contains("--stream")};
  if (job.stream && !invocation.options.contains("--decode")) {
    return Error(Code::kInvalidArgument, "--stream goes with --decode");
  }
  if (invocation.options.contains("--decode")) {
    return run_lines(decode_line, job);
  }
  if (invocation.options.contains("--jsonl")) {
    return run_lines(encode_line, job);
  }
  return as_failure(encode_text(app::read_input(), job));
}

}  // namespace stator::cli
