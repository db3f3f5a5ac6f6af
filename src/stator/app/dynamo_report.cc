// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "stator/app/dynamo_flags.h"
#include "stator/app/terminal.h"
#include "stator/io/read_file.h"
#include "stator/json/writer.h"

namespace stator::app {
namespace {

using Kind = DynamoFinding::Kind;

std::string_view describe(Kind kind) {
  static constexpr std::string_view kWords[] = {"mapped", "ignored", "unknown", "invalid",
                                                "differs"};
  return kWords[static_cast<size_t>(kind)];
}

/// A default of Dynamo's that is another one here.
struct OtherDefault {
  std::string_view key;
  std::string_view theirs;
  std::string_view why;
};
constexpr auto kOtherDefaults = std::to_array<OtherDefault>({
    {"router.mode", "round-robin", "prompts go where their prefix is cached"},
    {"frontend.migration_limit", "0", "streams outlive their workers"},
    {"http.body_bytes_max", "45 MiB", "larger requests are taken"},
    {"frontend.keep_alive_interval", "0", "quiet streams are kept alive"},
    {"frontend.stream_idle_timeout", "0", "an engine that says nothing ends its streams"},
    {"frontend.overload_status", "529", "what a request gets when everybody is busy"},
});

const ConfigField* field_of(const ConfigSchema& schema, std::string_view key) {
  const auto found = std::ranges::find(schema.fields(), key, &ConfigField::key);
  return found == schema.fields().end() ? nullptr : &*found;
}

const ConfigField* field_of_flag(const ConfigSchema& schema, std::string_view flag) {
  const auto& fields = schema.fields();
  const auto found = std::ranges::find_if(fields, [flag](const ConfigField& field) {
    return field.flag == flag || (!field.flag_peer.empty() && field.flag_peer == flag);
  });
  return found == fields.end() ? nullptr : &*found;
}

class Assessment {
 public:
  explicit Assessment(const ConfigSchema& schema) : schema_(schema) {}

  void take(const DynamoVariable& variable) {
    DynamoFinding finding = assess_dynamo(schema_, std::vector<std::string>{variable.name}).front();
    const auto field = std::ranges::find(schema_.fields(), variable.name, &ConfigField::env_peer);
    if (field != schema_.fields().end()) {
      given_.insert(field->key);
      if (variable.value && !variable.value->contains('$')) {
        std::string value = dynamo_value(variable.name, *variable.value);
        value += variable.name.ends_with("_MB") && field->kind == "bytes" ? "MiB" : "";
        value += variable.name.ends_with("_MS") && field->kind == "duration" ? "ms" : "";
        try_value(*field, value, finding);
      }
    }
    add(std::move(finding));
  }

  void take(const DynamoFlag& flag) {
    const OwnFlags own{
        .has = [this](std::string_view name) { return field_of_flag(schema_, name) != nullptr; },
        .is_switch =
            [this](std::string_view name) {
              const ConfigField* field = field_of_flag(schema_, name);
              return field != nullptr && field->is_switch;
            },
        .takes_model = flag.module != "frontend" && flag.module != "router"};
    std::vector<const char*> words = {flag.flag.c_str()};
    if (!flag.value.empty()) {
      words.push_back(flag.value.c_str());
    }
    const auto translated = translate_dynamo_flags(words, own);
    if (!translated) {
      add({flag.flag, Kind::kInvalid, translated.error().message()});
    } else if (!translated->ignored.empty()) {
      add({flag.flag, Kind::kIgnored, translated->ignored.front().advice});
    } else if (!translated->dump_config_to.empty()) {
      add({flag.flag, Kind::kMapped, "--dump-config-to"});
    } else {
      take_words(flag, translated->words);
    }
  }

  std::vector<DynamoFinding> finish() {
    for (const OtherDefault& other : kOtherDefaults) {
      const ConfigField* field = field_of(schema_, other.key);
      if (field != nullptr && !given_.contains(field->key)) {
        add({field->key, Kind::kDiffers,
             fmt::format("{} here, {} there: {}", field->default_text, other.theirs, other.why)});
      }
    }
    return std::move(findings_);
  }

 private:
  /// A flag in our words: "--port=8000", or flag and value.
  void take_words(const DynamoFlag& flag, const std::vector<std::string>& words) {
    const std::string& first = words.empty() ? flag.flag : words.front();
    const size_t equals = std::min(first.find('='), first.size());
    const std::string name = first.substr(0, equals);
    if (!name.starts_with("--")) {
      add({flag.flag, Kind::kMapped, "the argument MODEL"});
      return;
    }
    const ConfigField* field = field_of_flag(schema_, name);
    if (field == nullptr) {
      const bool engine =
          flag.module == "vllm" || flag.module == "sglang" || flag.module == "trtllm";
      add({flag.flag, engine ? Kind::kIgnored : Kind::kUnknown,
           engine ? fmt::format("give it to the {} server itself", flag.module)
                  : "not a flag that we know of Dynamo"});
      return;
    }
    given_.insert(field->key);
    DynamoFinding finding{flag.flag, Kind::kMapped,
                          fmt::format("{} ({})", field->key, field->flag)};
    std::string value = equals < first.size() ? first.substr(equals + 1)
                        : words.size() > 1    ? words[1]
                                              : std::string();
    value = value.empty() && field->is_switch ? "true" : value;
    if (!value.contains('$')) {  // a shell says what it is
      try_value(*field, value, finding);
    }
    add(std::move(finding));
  }

  static void try_value(const ConfigField& field, const std::string& value,
                        DynamoFinding& finding) {
    if (const Status taken = field.set(value); !taken) {
      finding.kind = Kind::kInvalid;
      finding.advice = fmt::format("{}: {}", field.key, taken.error().message());
    }
  }

  void add(DynamoFinding finding) {
    const auto known = std::ranges::find_if(findings_, [&](const DynamoFinding& old) {
      return old.name == finding.name && old.kind == finding.kind && old.advice == finding.advice;
    });
    if (known == findings_.end()) {
      findings_.push_back(std::move(finding));
    }
  }

  const ConfigSchema& schema_;
  std::set<std::string> given_;  // keys
  std::vector<DynamoFinding> findings_;
};

std::string to_json(const std::vector<DynamoFinding>& findings) {
  std::string out;
  json::Writer json(out);
  json.begin_array();
  for (const DynamoFinding& finding : findings) {
    json.begin_object().key("name").value(finding.name).key("what");
    json.value(describe(finding.kind)).key("advice").value(finding.advice).end_object();
  }
  json.end_array();
  return out + "\n";
}

}  // namespace

std::vector<DynamoFinding> assess_source(const ConfigSchema& schema, const DynamoSource& source) {
  Assessment assessment(schema);
  for (const DynamoVariable& variable : source.variables) {
    assessment.take(variable);
  }
  for (const DynamoFlag& flag : source.flags) {
    assessment.take(flag);
  }
  return assessment.finish();
}

Status report_dynamo(const ConfigSchema& schema, const std::string& source, bool as_json) {
  DynamoSource said;
  if (source == "env") {
    for (std::string& name : dynamo_variables()) {
      auto value = read_env(name);
      said.variables.push_back({std::move(name), std::move(value)});
    }
  } else {
    STATOR_TRY(const std::string text, io::read_file(source));
    said = read_dynamo_source(text);
  }
  const std::vector<DynamoFinding> findings = assess_source(schema, said);
  const auto count = [&findings](Kind kind) {
    return std::ranges::count(findings, kind, &DynamoFinding::kind);
  };
  if (as_json) {
    print(to_json(findings));
  } else {
    for (const DynamoFinding& finding : findings) {
      print(fmt::format("{:<8} {:<44} {}\n", describe(finding.kind), finding.name, finding.advice));
    }
    print(fmt::format("{} variables and flags of Dynamo, {} of them mean settings here\n",
                      findings.size() - static_cast<size_t>(count(Kind::kDiffers)),
                      count(Kind::kMapped)));
  }
  if (const auto invalid = count(Kind::kInvalid); invalid > 0) {
    return Error(Code::kUnavailable, fmt::format("{} values would be refused", invalid));
  }
  return {};
}

}  // namespace stator::app
