// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/sim_replies.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "stator/io/read_file.h"

namespace stator::cli {
namespace {

namespace json = boost::json;

Result<std::string> read_file(const std::string& path) {
  STATOR_TRY(std::string text, io::read_file(path, kMaxSimReplyFileBytes), "sim.reply");
  return text;
}

Result<engine::ScriptedReply> make_reply(std::string_view when, std::string_view text,
                                         const tokenizer::Tokenizer& tokenizer) {
  engine::ScriptedReply reply;
  reply.when = when;
  STATOR_CHECK(tokenizer.encode(text, {}, reply.tokens));
  return reply;
}

Result<engine::ScriptedReply> read_line(std::string_view line,
                                        const tokenizer::Tokenizer& tokenizer) {
  boost::system::error_code error;
  const json::value root = json::parse(line, error);
  if (error || !root.is_object()) {
    return Error(Code::kInvalidArgument, "not a JSON object {\"when\":…,\"reply\":…}");
  }
  const auto text_of = [&](std::string_view key) -> const json::string* {
    const json::value* value = root.as_object().if_contains(key);
    return value == nullptr ? nullptr : value->if_string();
  };
  const json::string* reply = text_of("reply");
  if (reply == nullptr) {
    return Error(Code::kInvalidArgument, "the member \"reply\" is missing or not a string");
  }
  const json::string* when = text_of("when");
  return make_reply(when == nullptr ? std::string_view() : *when, *reply, tokenizer);
}

}  // namespace

Result<std::vector<engine::ScriptedReply>> read_sim_replies(const std::string& path,
                                                            const tokenizer::Tokenizer& tokenizer) {
  STATOR_TRY(const std::string text, read_file(path));
  std::vector<engine::ScriptedReply> replies;
  if (!path.ends_with(".jsonl")) {
    STATOR_TRY(auto reply, make_reply("", text, tokenizer));
    replies.push_back(std::move(reply));
    return replies;
  }
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    STATOR_TRY(auto reply, read_line(line, tokenizer),
               fmt::format("sim.reply: '{}' line {}", path, number));
    replies.push_back(std::move(reply));
  }
  return replies;
}

}  // namespace stator::cli
