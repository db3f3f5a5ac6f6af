// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/diff.h"

#include <fmt/format.h>

#include "stator/kube/object.h"

namespace stator::op {
namespace {

using json::Value;

void compare(const std::string& path, const Value* before, const Value* after,
             std::vector<FieldChange>& changes) {
  if (before != nullptr && after != nullptr && kube::same(*before, *after)) {
    return;
  }
  const bool are_objects =
      (before == nullptr || before->is_object()) && (after == nullptr || after->is_object());
  if (are_objects && before != nullptr && after != nullptr) {
    for (const json::Member& member : before->members()) {
      compare(path + "." + member.key, &member.value, after->find(member.key), changes);
    }
    for (const json::Member& member : after->members()) {
      if (before->find(member.key) == nullptr) {
        compare(path + "." + member.key, nullptr, &member.value, changes);
      }
    }
    return;
  }
  const auto has_names = [](const Value* list) {
    return list != nullptr && list->is_array() && list->size() > 0 &&
           !list->elements().front().text_at({"name"}).empty();
  };
  if (has_names(before) && has_names(after)) {
    for (const Value& element : before->elements()) {
      const std::string_view name = element.text_at({"name"});
      compare(fmt::format("{}[name=\"{}\"]", path, name), &element, kube::find_named(after, name),
              changes);
    }
    for (const Value& element : after->elements()) {
      const std::string_view name = element.text_at({"name"});
      if (kube::find_named(before, name) == nullptr) {
        compare(fmt::format("{}[name=\"{}\"]", path, name), nullptr, &element, changes);
      }
    }
    return;
  }
  changes.push_back({path, before == nullptr ? std::string() : json::to_text(*before),
                     after == nullptr ? std::string() : json::to_text(*after)});
}

Value without_bookkeeping(const Value& object) {
  Value rest = object;
  rest.erase("status");
  if (Value* metadata = rest.find("metadata"); metadata != nullptr && metadata->is_object()) {
    for (const std::string_view key :
         {"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"}) {
      metadata->erase(key);
    }
  }
  return rest;
}

}  // namespace

std::vector<FieldChange> compare_objects(const Value& before, const Value& after) {
  std::vector<FieldChange> changes;
  const Value old = without_bookkeeping(before);
  const Value made = without_bookkeeping(after);
  compare("", &old, &made, changes);
  return changes;
}

Result<std::vector<ObjectDiff>> diff_with_cluster(kube::Client& client,
                                                  const std::vector<Value>& objects) {
  std::vector<ObjectDiff> diffs;
  for (const Value& object : objects) {
    const std::string_view kind = object.text_at({"kind"});
    const auto resource = kube::find_resource(object.text_at({"apiVersion"}), kind);
    if (!resource) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("{} {} is of no kind that the operator makes: leave it to kubectl diff", kind,
                      kube::name_of(object).to_string()));
    }
    const kube::ObjectName name = kube::name_of(object);
    const std::string title = fmt::format("{} {}", kind, name.to_string());
    auto live = client.get(*resource, name);
    if (!live && live.error().code() != Code::kNotFound) {
      return live.error().clone();
    }
    STATOR_TRY(const Value made, client.apply(*resource, object, {.dry_run = true}), title);
    if (!live) {
      diffs.push_back({.object = title, .is_new = true});
      continue;
    }
    auto changes = compare_objects(*live, made);
    if (!changes.empty()) {
      diffs.push_back({.object = title, .is_new = false, .changes = std::move(changes)});
    }
  }
  return diffs;
}

std::string to_text(const std::vector<ObjectDiff>& diffs) {
  std::string out;
  for (const ObjectDiff& diff : diffs) {
    out += fmt::format("{} {}\n", diff.is_new ? "+" : "~", diff.object);
    for (const FieldChange& change : diff.changes) {
      out += fmt::format("    {}: {} -> {}\n", change.path,
                         change.before.empty() ? "(nothing)" : change.before,
                         change.after.empty() ? "(nothing)" : change.after);
    }
  }
  return out;
}

Value to_json(const std::vector<ObjectDiff>& diffs) {
  Value list = Value::array();
  for (const ObjectDiff& diff : diffs) {
    Value entry = Value::object();
    entry["object"] = diff.object;
    entry["new"] = diff.is_new;
    entry["changes"] = Value::array();
    for (const FieldChange& change : diff.changes) {
      Value made = Value::object();
      made["path"] = change.path;
      made["before"] = json::parse(change.before).value_or(Value());
      made["after"] = json::parse(change.after).value_or(Value());
      entry["changes"].push_back(std::move(made));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace stator::op
