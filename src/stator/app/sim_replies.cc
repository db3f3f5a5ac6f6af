// SPDX-License-Identifier: Apache-2.0
#include "stator/app/sim_replies.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <string_view>

#include "stator/io/read_file.h"
#include "stator/json/value.h"

namespace stator::app {
namespace {

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
  const auto root = json::parse(line);
  if (!root || !root->is_object()) {
    return Error(Code::kInvalidArgument, "not a JSON object {\"when\":…,\"reply\":…}");
  }
  const auto reply = root->at("reply").as_string();
  if (!reply) {
    return Error(Code::kInvalidArgument, "the member \"reply\" is missing or not a string");
  }
  return make_reply(root->text_at({"when"}), *reply, tokenizer);
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

}  // namespace stator::app
