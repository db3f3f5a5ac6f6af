// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/output_pipeline.h"

#include <utility>
#include <vector>

namespace stator::frontend {
namespace {

using inference::FinishReason;
using parsers::EventKind;

/// Counts the tokens of reasoning by what the parser made of each. A token of which nothing came
/// yet (half a character, a newline that may be trimmed, part of a marker) is reasoning if what
/// comes next is.
class ReasoningCounter {
 public:
  explicit ReasoningCounter(bool starts_inside) : inside_(starts_inside) {}

  /// After each token: `before` is where `events` stood then. Returns the tokens found to be
  /// reasoning.
  struct Mark {
    size_t events;
    size_t bytes;
  };
  static Mark mark(const parsers::EventList& events) {
    return {events.all().size(), events.size_bytes()};
  }
  bool inside() const { return inside_; }
  uint32_t count(Mark before, const parsers::EventList& events) {
    if (events.size_bytes() == before.bytes && events.all().size() == before.events) {
      pending_ += inside_ ? 1 : 0;
      return 0;
    }
    bool reasoned = false;
    const auto all = events.all();
    // The last event of before may have grown.
    for (size_t i = before.events == 0 ? 0 : before.events - 1; i < all.size(); ++i) {
      const bool has_new_bytes = all[i].offset + all[i].length_bytes > before.bytes;
      reasoned = reasoned || (all[i].kind == EventKind::kReasoning && has_new_bytes);
      if (all[i].kind != EventKind::kRecovered) {
        inside_ = all[i].kind == EventKind::kReasoning;
      }
    }
    const uint32_t found = reasoned ? pending_ + 1 : 0;
    pending_ = 0;
    return found;
  }

 private:
  bool inside_;
  uint32_t pending_ = 0;
};

parsers::StreamEnd to_stream_end(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return parsers::StreamEnd::kLength;
    case FinishReason::kCancelled:
    case FinishReason::kError:
      return parsers::StreamEnd::kCancelled;
    case FinishReason::kStop:
    case FinishReason::kNone:
      break;
  }
  return parsers::StreamEnd::kStop;
}

DecodeOptions decode_options(DecodeOptions options, const OutputFormat* format) {
  if (format != nullptr) {
    options.skip_special = tokenizer::SkipSpecial::kNo;  // the pipeline itself leaves out the rest
  }
  return options;
}

}  // namespace

struct OutputPipeline::Parsing {
  Parsing(const tokenizer::Tokenizer& tokenizer_in, const OutputFormat& format_in, uint32_t choice)
      : tokenizer(&tokenizer_in),
        format(&format_in),
        state(format_in.parser->make_state(choice)),
        counter(format_in.starts_inside) {}

  /// A marker token within the decoded text; bytes from the start of the choice.
  struct Mark {
    uint64_t begin;
    uint64_t end;
  };

  void add_mark(TokenId token, uint64_t decoded_bytes) {
    const size_t length = tokenizer->token_bytes(token).size();
    if (length > 0) {
      marks.push_back({decoded_bytes - length, decoded_bytes});
    }
  }

  /// Hands newly released text to the parser. Text that belongs to a marker token waits until all
  /// of the token has been released: a stop string may still swallow its rest.
  void deliver(std::string_view text, parsers::EventList& events) {
    if (marks.empty() && waiting.empty()) {
      format->parser->feed(state, text, events);
      delivered += text.size();
      return;
    }
    waiting += text;
    std::string_view rest = waiting;
    while (!marks.empty() && marks.front().begin < delivered + rest.size()) {
      const Mark mark = marks.front();
      take(rest, mark.begin - delivered, false, events);
      if (mark.end > delivered + rest.size()) {
        break;
      }
      take(rest, mark.end - mark.begin, true, events);
      marks.erase(marks.begin());
    }
    if (marks.empty() || marks.front().begin >= delivered + rest.size()) {
      take(rest, rest.size(), false, events);
    }
    waiting = std::string(rest);
  }

  parsers::Outcome finish(FinishReason reason, parsers::EventList& events) {
    marks.clear();  // a marker that a stop string cut is none
    deliver({}, events);
    return format->parser->finish(state, to_stream_end(reason), events);
  }

  void take(std::string_view& rest, uint64_t count, bool special, parsers::EventList& events) {
    if (count > 0) {
      const parsers::Piece piece{.text = rest.substr(0, count), .special = special};
      format->parser->feed(state, std::span(&piece, 1), events);
      rest.remove_prefix(count);
      delivered += count;
    }
  }

  const tokenizer::Tokenizer* tokenizer;
  const OutputFormat* format;
  parsers::OutputParser::State state;
  ReasoningCounter counter;
  std::vector<Mark> marks;  // not delivered yet; bounded by the longest stop string
  std::string waiting;      // released, but inside the first of `marks`
  uint64_t delivered = 0;
};

OutputPipeline::OutputPipeline(const Parts& parts, uint32_t choice)
    : decoder_(parts.tokenizer, parts.stops, decode_options(parts.options, parts.format)),
      parsing_(parts.format == nullptr
                   ? nullptr
                   : std::make_unique<Parsing>(parts.tokenizer, *parts.format, choice)) {}
OutputPipeline::OutputPipeline(OutputPipeline&&) noexcept = default;
OutputPipeline& OutputPipeline::operator=(OutputPipeline&&) noexcept = default;
OutputPipeline::~OutputPipeline() = default;

bool OutputPipeline::is_reasoning() const {
  return parsing_ != nullptr && parsing_->counter.inside();
}

PipelineResult OutputPipeline::feed(std::span<const TokenId> tokens, FinishReason finish,
                                    bool stopped_by_token, PipelineOutput& out) {
  if (parsing_ != nullptr) {
    return parse(tokens, finish, stopped_by_token, out);
  }
  PipelineResult result;
  result.decoded = decoder_.feed(tokens, finish, stopped_by_token, out.text);
  result.finish = to_choice_finish(result.decoded.finish, api::ToolCallsSeen::kNo);
  return result;
}

PipelineResult OutputPipeline::parse(std::span<const TokenId> tokens, FinishReason finish,
                                     bool stopped_by_token, PipelineOutput& out) {
  Parsing& parsing = *parsing_;
  const OutputFormat& format = *parsing.format;
  PipelineResult result;
  Decoded& decoded = result.decoded;
  // An ending token that is a marker (harmony's <|call|>) is for the parser; EOS is for nobody.
  const bool hides_last =
      finish == FinishReason::kStop && !tokens.empty() && !format.markers.contains(tokens.back());
  const auto shown = hides_last ? tokens.first(tokens.size() - 1) : tokens;
  for (const TokenId token : shown) {
    ++decoded.tokens_used;
    const bool is_marker = format.markers.contains(token);
    const auto before = ReasoningCounter::mark(out.events);
    if (!is_marker && format.hides_special && parsing.tokenizer->is_special(token)) {
      decoder_.skip_token();
      continue;
    }
    out.text.clear();
    const Decoded one = decoder_.feed(std::span(&token, 1), FinishReason::kNone, false, out.text);
    if (is_marker) {
      parsing.add_mark(token, decoder_.decoded_bytes());
    }
    parsing.deliver(out.text, out.events);
    result.reasoning_tokens += parsing.counter.count(before, out.events);
    if (one.finish != FinishReason::kNone) {
      decoded.finish = one.finish;
      decoded.stop_string = one.stop_string;
      end_parse(result, out.events);
      return result;
    }
  }
  if (finish == FinishReason::kNone) {
    return result;
  }
  const auto before = ReasoningCounter::mark(out.events);
  out.text.clear();
  const uint32_t used = decoded.tokens_used;
  decoded = decoder_.feed(tokens.last(hides_last ? 1 : 0), finish, stopped_by_token, out.text);
  decoded.tokens_used += used;
  parsing.deliver(out.text, out.events);
  end_parse(result, out.events);
  const uint32_t late = parsing.counter.count(before, out.events);
  result.reasoning_tokens += late > 0 ? late - 1 : 0;  // the end itself is no token
  return result;
}

void OutputPipeline::end_parse(PipelineResult& result, parsers::EventList& events) {
  const parsers::Outcome outcome = parsing_->finish(result.decoded.finish, events);
  const auto calls = outcome.has_calls && !parsing_->format->named_call ? api::ToolCallsSeen::kYes
                                                                        : api::ToolCallsSeen::kNo;
  result.finish = to_choice_finish(result.decoded.finish, calls);
  if (outcome.truncated_call && result.finish != api::ChoiceFinish::kNone) {
    result.finish = api::ChoiceFinish::kLength;
  }
}

}  // namespace stator::frontend
