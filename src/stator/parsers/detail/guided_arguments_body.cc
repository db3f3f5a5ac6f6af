// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/json_stream.h"

// tool_choice named a function and the engine is guided: the whole output is its arguments object.

namespace stator::parsers {
namespace {

class GuidedArgumentsBody final : public Body {
 public:
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override { return false; }
  bool committed() const override { return begun_; }

 private:
  bool begun_ = false;
  JsonStream json_;
};

Progress GuidedArgumentsBody::step(Window& in, CallWriter& out) {
  if (!begun_) {
    in.consume(leading_space(in.rest()));
    if (in.empty()) {
      return in.ending() ? Progress::kNotACall : Progress::kMore;
    }
    out.begin_call(out.options().named_tool);
    begun_ = true;
  }
  std::string& fragment = out.scratch();
  in.consume(json_.feed(in.rest(), fragment));
  out.arguments(fragment);
  switch (json_.status()) {
    case JsonStream::Status::kMore:
      return Progress::kMore;
    case JsonStream::Status::kDone:
      out.end_call();
      return Progress::kDone;
    case JsonStream::Status::kMalformed:
      break;
  }
  out.break_call(Recovery::kMalformedBody);
  return Progress::kDone;
}

struct GuidedArgumentsMachine final : BodyMachine {
  std::unique_ptr<Body> start() const override { return std::make_unique<GuidedArgumentsBody>(); }
};

}  // namespace

std::unique_ptr<const BodyMachine> make_guided_arguments_machine() {
  return std::make_unique<GuidedArgumentsMachine>();
}

}  // namespace stator::parsers
