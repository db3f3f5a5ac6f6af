// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/native.h"

namespace stator::chat_template::detail {
namespace {

// DeepSeek publishes V3.2 and V4 with an encoder in code instead of a template. Both write tool
// calls in DSML, an XML-like markup around their own special token.

constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

constexpr std::string_view kToolsV32 =
    "## Tools\n"
    "\n"
    "You have access to a set of tools you can use to answer the user's question.\n"
    "You can invoke functions by writing a \"<｜DSML｜function_calls>\" block like the "
    "following as part of your reply to the user:\n"
    "<｜DSML｜function_calls>\n"
    "<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" "
    "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"$FUNCTION_NAME2\">\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜function_calls>\n"
    "\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, "
    "while lists and objects should use JSON format. The \"string\" attribute should be set "
    "to \"true\" for string type parameters and \"false\" for other types (numbers, "
    "booleans, arrays, objects).\n"
    "\n"
    "If the thinking_mode is enabled, then after function results you should strongly "
    "consider outputting a thinking block. Here is an example:\n"
    "\n"
    "<｜DSML｜function_calls>\n"
    "...\n"
    "</｜DSML｜function_calls>\n"
    "\n"
    "<function_results>\n"
    "...\n"
    "</function_results>\n"
    "\n"
    "<think>...thinking about results</think>\n"
    "\n"
    "Here are the functions available in JSONSchema format:\n"
    "<functions>\n";
constexpr std::string_view kToolsEndV32 = "\n</functions>\n";

constexpr std::string_view kToolsV4 =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke "
    "tools by writing a \"<｜DSML｜tool_calls>\" block like the following:\n"
    "\n"
    "<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" "
    "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other "
    "types (numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete "
    "reasoning inside <think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n";
constexpr std::string_view kToolsEndV4 =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

constexpr std::string_view kEffortMax =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve "
    "the root cause, rigorously stress-testing your logic against all potential paths, edge cases, "
    "and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";

/// One message with what belongs to it.
struct Turn {
  const Value* message = nullptr;  // null: made here, to carry the tools
  std::string_view role;
  const Value* tools = nullptr;
  const Value* response_format = nullptr;
  std::vector<const Value*> blocks;  // V4: user texts and tool results that follow one another
};

bool is_user(const Turn& turn) {
  return turn.role == "user" || turn.role == "developer";
}

class DeepseekRenderer {
 public:
  DeepseekRenderer(const NativeInput& input, PromptWriter& out) : input_(input), out_(out) {
    thinking_ = reads_thinking();
  }

 protected:
  /// On unless the request says otherwise.
  bool reads_thinking() const {
    const std::string_view mode = input_.text_option("thinking_mode", "");
    if (mode == "chat" || mode == "disabled") {
      return false;
    }
    bool given = false;
    for (const std::string_view name : {"thinking", "enable_thinking"}) {
      if (const Value* value = input_.option(name)) {
        given = true;
        if (value->truthy()) {
          return true;
        }
      }
    }
    return !given && input_.text_option("reasoning_effort", "") != "none";
  }

  /// The messages, with the request's tools and response format at the leading system or developer
  /// message; one is made when there is none.
  std::vector<Turn> make_turns() const {
    std::vector<Turn> turns;
    for (const Value& message : input_.messages.as_list().values()) {
      const Value* tools = message.find("tools");
      const Value* format = message.find("response_format");
      turns.push_back({&message,
                       message_text(message, "role"),
                       tools != nullptr && tools->is_list() && tools->truthy() ? tools : nullptr,
                       format != nullptr && format->truthy() ? format : nullptr,
                       {}});
    }
    const Value* tools = input_.tools.is_list() && input_.tools.truthy() ? &input_.tools : nullptr;
    const Value* format = input_.option("response_format");
    if (tools == nullptr && format == nullptr) {
      return turns;
    }
    const bool leads =
        !turns.empty() && (turns[0].role == "system" || turns[0].role == "developer");
    if (!leads) {
      turns.insert(turns.begin(), Turn{nullptr, "system", nullptr, nullptr, {}});
    }
    turns[0].tools = tools != nullptr ? tools : turns[0].tools;
    turns[0].response_format = format != nullptr ? format : turns[0].response_format;
    return turns;
  }

  static size_t last_user(const std::vector<Turn>& turns) {
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < turns.size(); ++i) {
      last = is_user(turns[i]) ? i : last;
    }
    return last;
  }

  std::string_view content(const Turn& turn) const {
    return turn.message == nullptr ? std::string_view() : message_text(*turn.message, "content");
  }

  void write_attachments(const Turn& turn, std::string_view intro, std::string_view outro) {
    if (turn.tools != nullptr) {
      out_.mark("\n\n");
      out_.mark(intro);
      bool first = true;
      for (const Value& tool : turn.tools->as_list().values()) {
        const Value* function = tool.find("function");
        out_.mark(std::exchange(first, false) ? "" : "\n");
        out_.data_json(function == nullptr ? tool : *function);
      }
      out_.mark(outro);
    }
    if (turn.response_format != nullptr) {
      out_.mark("\n\n");
      out_.mark(kResponseFormat);
      out_.data_json(*turn.response_format);
    }
  }

  void write_parameter(std::string_view name, const Value& value) {
    out_.mark("<｜DSML｜parameter name=\"");
    out_.data(name);
    out_.mark(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
    if (value.is_string()) {
      out_.data(value.text());
    } else {
      out_.data_json(value);
    }
    out_.mark("</｜DSML｜parameter>");
  }

  void write_call(const Value& call) {
    const Value* function = call.find("function");
    const Value& owner = function == nullptr ? call : *function;
    out_.mark("<｜DSML｜invoke name=\"");
    out_.data(message_text(owner, "name"));
    out_.mark("\">\n");
    const Value* arguments = owner.find("arguments");
    if (arguments != nullptr && arguments->is_dict()) {
      bool first = true;
      for (const auto& entry : arguments->as_dict().items()) {
        out_.mark(std::exchange(first, false) ? "" : "\n");
        write_parameter(entry.key.text(), entry.value);
      }
    } else if (arguments != nullptr) {
      write_parameter("arguments", *arguments);  // what a model once wrote need not be an object
    }
    out_.mark("\n</｜DSML｜invoke>\n");
  }

  static const Value* calls_of(const Turn& turn) {
    const Value* calls = turn.message == nullptr ? nullptr : turn.message->find("tool_calls");
    return calls != nullptr && calls->is_list() && calls->truthy() ? calls : nullptr;
  }

  void write_calls(const Turn& turn, std::string_view block) {
    const Value* calls = calls_of(turn);
    if (calls == nullptr) {
      return;
    }
    out_.mark("\n\n<｜DSML｜");
    out_.mark(block);
    out_.mark(">\n");
    for (const Value& call : calls->as_list().values()) {
      write_call(call);
    }
    out_.mark("</｜DSML｜");
    out_.mark(block);
    out_.mark(">");
  }

  [[noreturn]] static void fail_role(std::string_view role) {
    fail("messages: the role '" + std::string(role) + "' is not known to this model");
  }

  const NativeInput& input_;
  PromptWriter& out_;
  bool thinking_;
};

class V32Renderer : public DeepseekRenderer {
 public:
  using DeepseekRenderer::DeepseekRenderer;

  void run() {
    turns_ = make_turns();
    last_user_ = last_user(turns_);
    out_.mark(kBegin);
    for (size_t i = 0; i < turns_.size(); ++i) {
      write_turn(i);
    }
  }

 private:
  void write_turn(size_t index) {
    const Turn& turn = turns_[index];
    if (turn.role == "system") {
      out_.data(content(turn));
      write_attachments(turn, kToolsV32, kToolsEndV32);
    } else if (is_user(turn)) {
      write_user(turn, index);
    } else if (turn.role == "tool") {
      write_result(turn, index);
    } else if (turn.role == "assistant") {
      write_assistant(turn, index);
    } else {
      fail_role(turn.role);
    }
  }

  void write_user(const Turn& turn, size_t index) {
    out_.mark(kUser);
    if (turn.role == "developer") {
      write_attachments(turn, kToolsV32, kToolsEndV32);
      out_.mark("\n\n# The user's message is: ");
    }
    out_.data(content(turn));
    out_.mark(kAssistant);
    out_.mark(index == last_user_ && thinking_ ? kThink : kThinkEnd);
  }

  void write_result(const Turn& turn, size_t index) {
    size_t caller = index;
    while (caller > 0 && turns_[caller].role == "tool") {
      --caller;
    }
    const Value* calls = turns_[caller].role == "assistant" ? calls_of(turns_[caller]) : nullptr;
    const size_t order = index - caller;
    if (calls == nullptr || calls->as_list().size < order) {
      fail("messages: a tool result without a tool call before it");
    }
    out_.mark(order == 1 ? "\n\n<function_results>\n<result>" : "\n<result>");
    out_.data(content(turn));
    out_.mark("</result>");
    if (order == calls->as_list().size) {
      out_.mark("\n</function_results>\n\n");
      const bool current = last_user_ == SIZE_MAX || index >= last_user_;
      out_.mark(current && thinking_ ? kThink : kThinkEnd);
    }
  }

  void write_assistant(const Turn& turn, size_t index) {
    if (thinking_ && (last_user_ == SIZE_MAX || index > last_user_)) {
      out_.data(message_text(*turn.message, "reasoning_content"));
      out_.mark(kThinkEnd);
    }
    out_.data(content(turn));
    write_calls(turn, "function_calls");
    out_.mark(kEnd);
  }

  std::vector<Turn> turns_;
  size_t last_user_ = SIZE_MAX;
};

class V4Renderer : public DeepseekRenderer {
 public:
  using DeepseekRenderer::DeepseekRenderer;

  void run() {
    merge_results(make_turns());
    sort_results();
    const Value* drop = input_.option("drop_thinking");
    drop_thinking_ = drop == nullptr || drop->truthy();
    for (const Turn& turn : turns_) {
      drop_thinking_ = drop_thinking_ && turn.tools == nullptr;
    }
    if (thinking_ && drop_thinking_) {
      // The reference encoder keeps the latest developer message only.
      const size_t last = last_user(turns_);
      std::vector<Turn> kept;
      for (size_t i = 0; i < turns_.size(); ++i) {
        if (turns_[i].role != "developer" || i >= last) {
          kept.push_back(turns_[i]);
        }
      }
      turns_ = std::move(kept);
    }
    last_user_ = last_user(turns_);
    out_.mark(kBegin);
    if (thinking_ && !turns_.empty() && input_.text_option("reasoning_effort", "") == "max") {
      out_.mark(kEffortMax);
    }
    for (size_t i = 0; i < turns_.size(); ++i) {
      write_turn(turns_[i], i);
      write_transition(i);
    }
  }

 private:
  /// V4 has no tool role: results are blocks of a user turn, and so is text that follows them.
  void merge_results(std::vector<Turn> turns) {
    for (Turn& turn : turns) {
      const bool joins =
          !turns_.empty() && turns_.back().role == "user" && task_of(turns_.back()).empty();
      const bool is_result = turn.role == "tool";
      if (!is_result && turn.role != "user") {
        turns_.push_back(std::move(turn));
      } else if (joins) {
        turns_.back().blocks.push_back(turn.message);
      } else {
        turn.role = "user";
        turn.blocks.push_back(turn.message);
        turns_.push_back(std::move(turn));
      }
    }
  }

  static bool is_result(const Value* block) { return message_text(*block, "role") == "tool"; }

  /// Results in the order of the calls they answer; texts stay where they are.
  void sort_results() {
    std::map<std::string_view, size_t> order;
    for (Turn& turn : turns_) {
      if (const Value* calls = calls_of(turn)) {
        order.clear();
        for (const Value& call : calls->as_list().values()) {
          order.try_emplace(message_text(call, "id"), order.size());
        }
      }
      std::vector<std::tuple<size_t, size_t, const Value*>> results;  // rank, place, result
      for (const Value* block : turn.blocks) {
        if (is_result(block)) {
          const auto found = order.find(message_text(*block, "tool_call_id"));
          results.emplace_back(found == order.end() ? 0 : found->second, results.size(), block);
        }
      }
      std::ranges::sort(results);
      size_t next = 0;
      for (const Value*& block : turn.blocks) {
        block = is_result(block) ? std::get<2>(results[next++]) : block;
      }
    }
  }

  static std::string_view task_of(const Turn& turn) {
    return turn.message == nullptr ? std::string_view() : message_text(*turn.message, "task");
  }

  void write_turn(const Turn& turn, size_t index) {
    if (turn.role == "system") {
      out_.data(content(turn));
      write_attachments(turn, kToolsV4, kToolsEndV4);
    } else if (turn.role == "developer") {
      out_.mark(kUser);
      out_.data(content(turn));
      write_attachments(turn, kToolsV4, kToolsEndV4);
    } else if (turn.role == "user") {
      write_blocks(turn);
    } else if (turn.role == "latest_reminder") {
      out_.mark("<｜latest_reminder｜>");
      out_.data(content(turn));
    } else if (turn.role == "assistant") {
      write_assistant(turn, index);
    } else {
      fail_role(turn.role);
    }
  }

  void write_blocks(const Turn& turn) {
    out_.mark(kUser);
    for (size_t i = 0; i < turn.blocks.size(); ++i) {
      const Value* block = turn.blocks[i];
      out_.mark(i == 0 ? "" : "\n\n");
      out_.mark(is_result(block) ? "<tool_result>" : "");
      out_.data(message_text(*block, "content"));
      out_.mark(is_result(block) ? "</tool_result>" : "");
    }
  }

  void write_assistant(const Turn& turn, size_t index) {
    const bool answers_task = index > 0 && !task_of(turns_[index - 1]).empty();
    const bool current = last_user_ == SIZE_MAX || index > last_user_;
    if (thinking_ && !answers_task && (!drop_thinking_ || current)) {
      out_.data(message_text(*turn.message, "reasoning_content"));
      out_.mark(kThinkEnd);
    }
    out_.data(content(turn));
    write_calls(turn, "tool_calls");
    const Value* open = turn.message->find("wo_eos");
    out_.mark(open != nullptr && open->truthy() ? "" : kEnd);
  }

  /// What leads from turn `index` to an answer, when one follows.
  void write_transition(size_t index) {
    const Turn& turn = turns_[index];
    if (index + 1 < turns_.size() && turns_[index + 1].role != "assistant" &&
        turns_[index + 1].role != "latest_reminder") {
      return;
    }
    if (const std::string_view task = task_of(turn); !task.empty()) {
      write_task(task);
    } else if (is_user(turn)) {
      out_.mark(kAssistant);
      out_.mark(thinking_ && (!drop_thinking_ || index >= last_user_) ? kThink : kThinkEnd);
    }
  }

  void write_task(std::string_view task) {
    static constexpr std::string_view kTasks[] = {"action", "query", "authority",
                                                  "domain", "title", "read_url"};
    if (std::ranges::find(kTasks, task) == std::end(kTasks)) {
      fail("messages: the task '" + std::string(task) + "' is not known to this model");
    }
    if (task == "action") {
      out_.mark(kAssistant);
      out_.mark(thinking_ ? kThink : kThinkEnd);
    }
    out_.mark("<｜" + std::string(task) + "｜>");
  }

  std::vector<Turn> turns_;
  size_t last_user_ = SIZE_MAX;
  bool drop_thinking_ = true;
};

}  // namespace

void render_deepseek_v32(const NativeInput& input, PromptWriter& out) {
  V32Renderer(input, out).run();
}

void render_deepseek_v4(const NativeInput& input, PromptWriter& out) {
  V4Renderer(input, out).run();
}

}  // namespace stator::chat_template::detail
