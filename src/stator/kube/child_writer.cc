// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/child_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace stator::kube {
namespace {

using json::Value;

constexpr size_t kEventNoteMax = 1000;  // the API's bound is 1024
constexpr size_t kEventNameMax = 200;
constexpr int kUnknownFieldsMax = 16;

/// The field that a server of this version does not have, of its refusal.
std::string unknown_field(std::string_view message) {
  constexpr std::string_view kEnd = ": field not declared in schema";
  const size_t end = message.find(kEnd);
  const size_t begin = end == std::string_view::npos ? end : message.rfind(' ', end);
  return begin == std::string_view::npos ? std::string()
                                         : std::string(message.substr(begin + 1, end - begin - 1));
}

}  // namespace

bool covers(const Value& live, const Value& desired) {
  if (desired.is_object()) {
    return live.is_object() &&
           std::ranges::all_of(desired.members(), [&](const json::Member& member) {
             const Value* own = live.find(member.key);
             return own != nullptr && covers(*own, member.value);
           });
  }
  if (desired.is_array()) {
    if (!live.is_array() || live.size() < desired.size()) {
      return false;
    }
    for (size_t i = 0; i < desired.size(); ++i) {
      const Value& element = desired.elements()[i];
      const std::string_view name = element.text_at({"name"});
      const Value* own = name.empty() ? &live.elements()[i] : find_named(&live, name);
      if (own == nullptr || !covers(*own, element)) {
        return false;
      }
    }
    // Others may add to a list whose elements have names; one that should be empty has none of
    // ours.
    return live.size() == desired.size() ||
           (desired.size() > 0 && !desired.elements().front().text_at({"name"}).empty());
  }
  return live == desired || (live.text() == desired.text() && !live.text().empty());
}

void set_condition(Value& conditions, const Value* before, Value made) {
  if (before != nullptr) {
    for (const Value& old : before->elements()) {
      if (old.text_at({"type"}) == made.text_at({"type"}) &&
          old.text_at({"status"}) == made.text_at({"status"})) {
        made["lastTransitionTime"] = old.text_at({"lastTransitionTime"});
      }
    }
  }
  conditions.push_back(std::move(made));
}

Value diff_as_merge_patch(const Value& before, const Value& after) {
  Value patch = Value::object();
  for (const json::Member& member : after.members()) {
    const Value* old = before.find(member.key);
    if (old != nullptr && same(*old, member.value)) {
      continue;
    }
    patch[member.key] = old != nullptr && old->is_object() && member.value.is_object()
                            ? diff_as_merge_patch(*old, member.value)
                            : member.value;
  }
  for (const json::Member& member : before.members()) {
    if (after.find(member.key) == nullptr) {
      patch[member.key] = nullptr;
    }
  }
  return patch;
}

Value make_event(const Value& object, const Happening& happening, const std::string& instance,
                 const std::string& now_micro) {
  const ObjectName name = name_of(object);
  // Objects of the cluster tell theirs in the namespace that always is.
  const std::string space = name.space.empty() ? "default" : name.space;
  Value event =
      make_object(resource_of("Event"),
                  {space, fmt::format("{}.{}", name.name.substr(0, kEventNameMax),
                                      short_hash(happening.reason + happening.note + now_micro))});
  event["eventTime"] = now_micro;
  event["reportingController"] = "stator.dev/operator";
  event["reportingInstance"] = instance;
  event["action"] = "Reconcile";
  event["reason"] = happening.reason;
  event["type"] = happening.is_warning ? "Warning" : "Normal";
  event["note"] = happening.note.substr(0, kEventNoteMax);
  Value& regarding = event["regarding"];
  regarding["apiVersion"] = object.text_at({"apiVersion"});
  regarding["kind"] = object.text_at({"kind"});
  regarding["name"] = name.name;
  regarding["namespace"] = name.space;
  regarding["uid"] = uid_of(object);
  return event;
}

bool erase_path(Value& object, std::string_view path) {
  Value* at = &object;
  while (at != nullptr && !path.empty()) {
    const char kind = path.front();
    path.remove_prefix(1);
    if (kind == '[') {
      const size_t close = path.find(']');
      if (close == std::string_view::npos) {
        return false;
      }
      const std::string_view key = path.substr(0, close);
      path.remove_prefix(close + 1);
      if (key.starts_with("name=\"") && key.ends_with('"')) {
        at = find_named(at, key.substr(6, key.size() - 7));
        continue;
      }
      size_t index = 0;
      const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), index);
      auto* elements = at->mutable_elements();
      const bool is_there =
          failed == std::errc() && elements != nullptr && index < elements->size();
      at = is_there ? &(*elements)[index] : nullptr;
      continue;
    }
    if (kind != '.') {
      return false;
    }
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view key = path.substr(0, end);
    path.remove_prefix(end);
    if (path.empty()) {
      return at->is_object() && at->erase(key);
    }
    at = at->find(key);
  }
  return false;
}

Result<Value> ChildWriter::write(const Resource& resource, Value child,
                                 std::vector<std::string>* ignored) {
  for (int round = 0;; ++round) {
    auto written = client_.apply(resource, child, {.manager = manager_});
    if (written || round == kUnknownFieldsMax) {
      return written;
    }
    const std::string field = unknown_field(written.error().message());
    if (field.empty() || !erase_path(child, field)) {
      return written;
    }
    if (ignored != nullptr) {
      ignored->push_back(field);
    }
  }
}

Status ChildWriter::apply(const Value& child, const Informer* copies,
                          std::vector<std::string>* ignored) {
  const std::string_view kind = child.text_at({"kind"});
  const auto found = find_resource(child.text_at({"apiVersion"}), kind);
  const Resource resource = found ? *found : resource_of(kind);
  const ObjectName name = name_of(child);
  const auto live = copies == nullptr ? std::nullopt : copies->get(name);
  const std::string key = fmt::format("{}/{}", resource.kind, name.to_string());
  if (live && covers(*live, child)) {
    return {};
  }
  const std::string hash = short_hash(json::to_text(child));
  const int64_t generation = live ? generation_of(*live) : 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = applied_.find(key);
    const bool is_unchanged = it != applied_.end() && it->second.hash == hash &&
                              (copies == nullptr || (live && it->second.generation == generation));
    if (is_unchanged) {
      return {};  // the server wrote it in its own spelling
    }
  }
  STATOR_TRY(const Value written, write(resource, child, ignored));
  const std::lock_guard lock(mutex_);
  applied_[key] = {hash, generation_of(written)};
  return {};
}

Status ChildWriter::write_status(const Value& object, const Value& status) {
  const Value* before = object.find("status");
  if (before != nullptr && same(*before, status)) {
    return {};
  }
  Value patch = Value::object();
  patch["status"] = diff_as_merge_patch(before == nullptr ? Value::object() : *before, status);
  const auto found = find_resource(object.text_at({"apiVersion"}), object.text_at({"kind"}));
  if (!found) {
    return Error(Code::kInvalidArgument, "an object of an unknown kind has no status");
  }
  const auto written = client_.merge_patch(*found, name_of(object), patch, "status");
  if (!written && written.error().code() != Code::kNotFound) {
    return written.error().clone();
  }
  return {};
}

}  // namespace stator::kube
