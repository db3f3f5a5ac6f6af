// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "stator/parsers/detail/body.h"

// The cautious reader for models that nobody knows: JSON calls count only if they are all there
// is. Same spec keys as json_calls. A rehearsal runs along with the text, so that anything else is
// given back as soon as it shows; the performance is at the end.

namespace stator::parsers {
namespace {

struct WholeJsonMachine final : BodyMachine {
  explicit WholeJsonMachine(const BodyContext& context) : calls(make_json_calls_machine(context)) {}
  std::unique_ptr<Body> start() const override;

  std::unique_ptr<const BodyMachine> calls;
};

class WholeJsonBody final : public Body {
 public:
  explicit WholeJsonBody(const WholeJsonMachine& machine)
      : machine_(machine), rehearsal_(machine.calls->start()) {}

  Progress step(Window& in, CallWriter& out) override {
    const std::string_view before = in.rest();
    const size_t consumed = in.consumed();
    Progress progress = Progress::kDone;
    if (!over_) {
      CallWriter nobody(out.options(), rehearsed_, ignored_);
      progress = rehearsal_->step(in, nobody);
      ignored_.clear();
    }
    text_.append(before.substr(0, in.consumed() - consumed));
    over_ = progress == Progress::kDone;
    if (over_) {
      in.consume(leading_space(in.rest()));
    }
    const bool goes_on = progress != Progress::kNotACall && (in.empty() || !over_);
    if (!in.ending()) {
      return goes_on ? Progress::kMore : Progress::kNotACall;
    }
    const bool complete = over_ || (rehearsal_->between_calls() && in.empty());
    if (!goes_on || !complete || rehearsed_.next_index == 0 || rehearsed_.open) {
      return Progress::kNotACall;
    }
    Window whole(text_, {}, Window::Ending::kYes);
    machine_.calls->start()->step(whole, out);
    performed_ = true;
    return Progress::kDone;
  }
  bool between_calls() const override { return performed_; }
  bool committed() const override { return performed_; }

 private:
  const WholeJsonMachine& machine_;
  std::unique_ptr<Body> rehearsal_;
  WriterState rehearsed_;
  EventList ignored_;
  std::string text_;   // consumed by the rehearsal
  bool over_ = false;  // the calls are over; only white space may follow
  bool performed_ = false;
};

std::unique_ptr<Body> WholeJsonMachine::start() const {
  return std::make_unique<WholeJsonBody>(*this);
}

}  // namespace

std::unique_ptr<const BodyMachine> make_whole_json_machine(const BodyContext& context) {
  return std::make_unique<WholeJsonMachine>(context);
}

}  // namespace stator::parsers
