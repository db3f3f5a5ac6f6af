// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/handoff.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>

#include "stator/json/writer.h"

namespace stator::engine::adapters {
namespace {

namespace ondemand = simdjson::ondemand;

std::string kind_of(std::string_view engine, std::string_view carrier, const EngineFacts& facts) {
  // Servers of different releases, or that loaded a model under another name, refuse each other,
  // which a request would find out after seconds only.
  return fmt::format("{}-{}/{}/{}", engine, facts.version.empty() ? "?" : facts.version, carrier,
                     facts.model_root.empty() ? facts.model : facts.model_root);
}

Result<inference::WorkerRole> choose_role(const HandoffWish& wish, const EngineFacts& facts) {
  if (wish.role == "auto") {
    return facts.role.value_or(inference::WorkerRole::kAggregated);
  }
  const auto wanted = inference::find_role(wish.role);
  if (!wanted || (facts.role && *facts.role != *wanted)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("worker.role is {}, but the engine says that its role is {}", wish.role,
                    to_string(facts.role.value_or(inference::WorkerRole::kAggregated))));
  }
  return *wanted;
}

/// The value at `path`; an error where there is none.
ondemand::value find_value(ondemand::document& document,
                           std::initializer_list<std::string_view> path,
                           simdjson::error_code& error) {
  ondemand::value value;
  bool first = true;
  for (const std::string_view step : path) {
    simdjson::simdjson_result<ondemand::value> next =
        first ? document.find_field_unordered(step)
              : (step == "0" ? value.at(0) : value.find_field_unordered(step));
    first = false;
    error = next.get(value);
    if (error != simdjson::SUCCESS) {
      break;
    }
  }
  return value;
}

}  // namespace

Result<inference::HandoffAbility> make_ability(std::string_view kind, const HandoffWish& wish,
                                               const EngineFacts& facts, std::string_view host) {
  STATOR_TRY(const inference::WorkerRole role, choose_role(wish, facts));
  inference::HandoffAbility ability{.role = role};
  if (role == inference::WorkerRole::kAggregated) {
    return ability;
  }
  if (kind == "vllm") {
    ability.kind = kind_of(kind, wish.carrier, facts);
  } else if (kind == "sglang") {
    ability.kind = kind_of(kind, "bootstrap", facts);
    ability.runs_whole = false;
    if (role == inference::WorkerRole::kPrefill) {
      if (facts.bootstrap_port == 0) {
        return Error(Code::kInvalidArgument,
                     "a prefill worker needs an SGLang started with --disaggregation-mode prefill: "
                     "this one names no --disaggregation-bootstrap-port");
      }
      ability.meeting_point = fmt::format("{}:{}", host, facts.bootstrap_port);
    }
  } else if (kind == "trtllm") {
    ability.kind = kind_of(kind, "opaque", facts);
  } else {
    return Error(
        Code::kUnsupported,
        fmt::format("worker.role {}: engine '{}' cannot hand prompts over", to_string(role), kind));
  }
  return ability;
}

std::string raw_object(std::string_view json, std::initializer_list<std::string_view> path) {
  ondemand::parser parser;
  const simdjson::padded_string padded(json);
  ondemand::document document;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS) {
    return {};
  }
  auto error = simdjson::SUCCESS;
  ondemand::value value = find_value(document, path, error);
  ondemand::object object;
  std::string_view raw;
  if (error != simdjson::SUCCESS || value.get_object().get(object) != simdjson::SUCCESS ||
      object.raw_json().get(raw) != simdjson::SUCCESS) {
    return {};
  }
  return std::string(raw.substr(0, raw.rfind('}') + 1));
}

Result<std::string> with_text_member(std::string_view object, std::string_view key,
                                     std::string_view value) {
  const Error broken(Code::kCorrupt, "a hand-off is no JSON object");
  ondemand::parser parser;
  const simdjson::padded_string padded(object);
  ondemand::document document;
  ondemand::object members;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS ||
      document.get_object().get(members) != simdjson::SUCCESS) {
    return broken.clone();
  }
  std::string out = "{";
  const auto add = [&out](std::string_view name) {
    json::append_string(out, name);
    out += ':';
  };
  for (auto member : members) {
    std::string_view name;
    if (member.unescaped_key().get(name) != simdjson::SUCCESS) {
      return broken.clone();
    }
    const std::string own(name);
    ondemand::value old;
    std::string_view raw;
    if (member.value().get(old) != simdjson::SUCCESS ||
        simdjson::to_json_string(old).get(raw) != simdjson::SUCCESS) {
      return broken.clone();
    }
    if (own != key) {
      add(own);
      out += raw;
      out += ',';
    }
  }
  add(key);
  json::append_string(out, value);
  return out + "}";
}

Result<MeetingPoint> read_meeting_point(std::string_view text) {
  const size_t colon = text.rfind(':');
  MeetingPoint out;
  if (colon != std::string_view::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, out.port);
    if (read.ec == std::errc() && read.ptr == end && out.port != 0) {
      out.host = text.substr(0, colon);
      return out;
    }
  }
  return Error(Code::kInvalidArgument,
               fmt::format("'{}' is no meeting point: it must be HOST:PORT", text));
}

}  // namespace stator::engine::adapters
