// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/captured_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/lab/simulator/json_row.h"

namespace stator::simulator {
namespace {

struct Captured {
  TraceRequest request;
  Duration end{};
  std::string parent;  // session that opened this one
};

/// What the sessions of agents waited for, from the times at which their requests began and ended.
class Dependencies {
 public:
  explicit Dependencies(std::vector<Captured>& rows) : rows_(rows) {
    for (const Captured& row : rows_) {
      sessions_[row.request.session].rows.push_back(&row);
      if (!row.parent.empty()) {
        auto& children = sessions_[row.parent].children;
        if (std::ranges::find(children, row.request.session) == children.end()) {
          children.push_back(row.request.session);
        }
      }
    }
  }

  void link() {
    for (Captured& row : rows_) {
      TraceRequest& request = row.request;
      request.wait_for.emplace();
      Duration latest{};
      const auto wait = [&](const Captured* earlier) {
        if (earlier != nullptr) {
          request.wait_for->push_back(earlier->request.request_id);
          latest = std::max(latest, earlier->end);
        }
      };
      const Session& session = sessions_.at(request.session);
      const Captured* before = last_ended(session, request.arrival);
      wait(before);
      if (before == nullptr && !row.parent.empty()) {
        wait(last_ended(sessions_.at(row.parent), request.arrival));
      }
      for (const std::string& child : session.children) {
        const Captured* answer = last_ended(sessions_.at(child), request.arrival);
        wait(answer != nullptr && (before == nullptr || answer->end > before->end) ? answer
                                                                                   : nullptr);
      }
      if (!request.wait_for->empty()) {
        request.delay = std::max(Duration(), request.arrival - latest);
      }
    }
  }

 private:
  struct Session {
    std::vector<const Captured*> rows;
    std::vector<std::string> children;
  };

  static const Captured* last_ended(const Session& session, Duration time) {
    const Captured* last = nullptr;
    for (const Captured* row : session.rows) {
      if (row->end <= time && (last == nullptr || row->end > last->end)) {
        last = row;
      }
    }
    return last;
  }

  std::vector<Captured>& rows_;
  std::map<std::string, Session> sessions_;
};

class CapturedTrace final : public TraceSource {
 public:
  Status load(LineReader& lines) {
    name_ = lines.name();
    std::string_view line;
    while (true) {
      STATOR_TRY(const bool found, lines.next(line));
      if (!found) {
        break;
      }
      STATOR_TRY(const JsonRow outer, JsonRow::parse(parser_, line, lines));
      const JsonRow event = outer.find_object("event").value_or(outer);
      std::string type;
      STATOR_CHECK(event.read_text("event_type", type));
      if (type == "request_end") {
        STATOR_CHECK(read(event, lines));
      } else if (type.empty()) {
        return event.fail("event_type", "must be there");
      }
    }
    std::ranges::sort(rows_, {}, [](const Captured& row) {
      return std::pair(row.request.arrival, row.request.line);
    });
    if (has_agents_) {
      Dependencies(rows_).link();
    }
    const Duration begin = rows_.empty() ? Duration() : rows_.front().request.arrival;
    for (Captured& row : rows_) {
      row.request.arrival -= begin;
    }
    return {};
  }

  Result<bool> next(TraceRequest& request) override {
    if (position_ == rows_.size()) {
      return false;
    }
    request = std::move(rows_[position_++].request);
    return true;
  }

  uint32_t block_tokens() const override { return block_tokens_ == 0 ? 1 : block_tokens_; }
  std::string_view name() const override { return name_; }

 private:
  Status read(const JsonRow& event, const LineReader& lines) {
    const auto request = event.find_object("request");
    if (!request) {
      return event.fail("request", "must be an object");
    }
    Captured row;
    row.request.line = lines.number();
    STATOR_CHECK(request->read_text("request_id", row.request.request_id));
    if (row.request.request_id.empty() || !ids_.insert(row.request.request_id).second) {
      return request->fail("request_id", "must be there, once");
    }
    STATOR_TRY(row.request.arrival, request->read_time({"request_received_ms"}));
    STATOR_TRY(row.end, event.read_time({"event_time_unix_ms"}));
    STATOR_TRY(row.request.output_tokens, read_answer(*request));
    STATOR_CHECK(read_replay(*request, row.request));
    const auto agent = event.find_object("agent_context");
    if (!rows_.empty() && agent.has_value() != has_agents_) {
      return event.fail("agent_context", "must be in all rows or in none");
    }
    has_agents_ = agent.has_value();
    if (agent) {
      STATOR_CHECK(agent->read_text("session_id", row.request.session));
      STATOR_CHECK(agent->read_text("parent_session_id", row.parent));
    }
    rows_.push_back(std::move(row));
    return {};
  }

  /// Of a request whose client left before the first token its prompt was computed all the same.
  static Result<uint32_t> read_answer(const JsonRow& request) {
    const auto tokens = request.read_number("output_tokens", 0, 0, -1);
    return tokens && *tokens == 0 ? Result<uint32_t>(1) : request.read_tokens({"output_tokens"});
  }

  Status read_replay(const JsonRow& row, TraceRequest& request) {
    const auto replay = row.find_object("replay");
    if (!replay) {
      STATOR_TRY(request.input_tokens, row.read_tokens({"input_tokens"}));
      return {};
    }
    STATOR_TRY(request.input_tokens, replay->read_tokens({"input_length"}));
    STATOR_CHECK(replay->read_ids("input_sequence_hashes", request.hash_ids));
    STATOR_TRY(const uint32_t block_tokens, replay->read_tokens({"trace_block_size"}));
    if (block_tokens_ != 0 && block_tokens != block_tokens_) {
      return replay->fail(
          "trace_block_size",
          fmt::format("must be the same in all rows: {}, not {}", block_tokens_, block_tokens));
    }
    block_tokens_ = block_tokens;
    if (uint64_t{request.hash_ids.size()} * block_tokens < request.input_tokens) {
      return replay->fail("input_sequence_hashes",
                          fmt::format("{} hashes of {} tokens do not cover input_length {}",
                                      request.hash_ids.size(), block_tokens, request.input_tokens));
    }
    return {};
  }

  simdjson::dom::parser parser_;
  std::vector<Captured> rows_;
  FlatSet<std::string> ids_;
  bool has_agents_ = false;
  uint32_t block_tokens_ = 0;
  size_t position_ = 0;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<TraceSource>> make_captured_trace(LineReader& lines) {
  auto trace = std::make_unique<CapturedTrace>();
  STATOR_CHECK(trace->load(lines));
  return trace;
}

}  // namespace stator::simulator
