// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/resource_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "stator/grove/names.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

bool is_per_replica(const Value& sharing) {
  return sharing.text_at({"scope"}) == "PerReplica";
}

std::string claim_name(const Value& sharing, std::string_view owner, int64_t index) {
  const std::string_view name = sharing.text_at({"name"});
  return is_per_replica(sharing) ? fmt::format("{}-{}-{}", owner, index, name)
                                 : fmt::format("{}-all-{}", owner, name);
}

bool is_listed(const Value& list, std::string_view name) {
  return std::ranges::any_of(list.elements(),
                             [&](const Value& each) { return each.text() == name; });
}

/// A filter of the set names cliques that are in no group, and groups; one of a group its cliques.
bool reaches(const Value& sharing, const CliqueInstance& clique) {
  const Value& filter = sharing.at("filter");
  const Value& cliques = filter.at("childCliqueNames");
  const Value& groups = filter.at("childScalingGroupNames");
  if (cliques.size() == 0 && groups.size() == 0) {
    return true;
  }
  return is_listed(cliques, clique.spec->name) ||
         (!clique.spec->group.empty() && is_listed(groups, clique.spec->group));
}

const GroupInstance* group_of(const SetContext& context, const CliqueInstance& clique) {
  const auto found = std::ranges::find(context.layout.groups, clique.group, &GroupInstance::name);
  return clique.group.empty() || found == context.layout.groups.end() ? nullptr : &*found;
}

const Value& sharings_of(const Value& owner) {
  return owner.at("resourceSharing");
}

const Value& template_of(const SetContext& context) {
  return context.spec.object->at("spec").at("template");
}

/// The spec of the claims of a template: of the set, else an object of its namespace.
const Value* spec_of(const SetContext& context, const Value& sharing) {
  const std::string_view name = sharing.text_at({"name"});
  const std::string_view space = sharing.text_at({"namespace"});
  if (space.empty()) {
    const Value* own = kube::find_named(&template_of(context).at("resourceClaimTemplates"), name);
    if (own != nullptr) {
      return own->find_at({"templateSpec", "spec"});
    }
  }
  const kube::ObjectName wanted{space.empty() ? context.spec.space : std::string(space),
                                std::string(name)};
  for (const Value& stored : context.view.claim_templates) {
    if (kube::name_of(stored) == wanted) {
      return stored.find_at({"spec", "spec"});
    }
  }
  return nullptr;
}

struct Owner {
  std::string name;
  const Value* object = nullptr;  ///< null: not made yet
  std::string_view index_label = {};
  int64_t replicas = 0;
};

class Claims {
 public:
  Claims(const SetContext& context, std::vector<std::string>& missing)
      : context_(context), missing_(missing) {}

  void add_all(const Value& sharings, const Owner& owner) {
    for (const Value& sharing : sharings.elements()) {
      if (owner.object == nullptr) {
        continue;
      }
      if (!is_per_replica(sharing)) {
        add(sharing, owner, -1);
        continue;
      }
      for (int64_t index = 0; index < owner.replicas; ++index) {
        add(sharing, owner, index);
      }
    }
  }

  std::vector<Value> finish() { return std::move(made_); }

 private:
  void add(const Value& sharing, const Owner& owner, int64_t index) {
    const std::string name = claim_name(sharing, owner.name, index);
    const Value* stored = find_object(context_.view.claims, name);
    const Value* spec = stored == nullptr ? spec_of(context_, sharing) : stored->find("spec");
    if (spec == nullptr) {
      missing_.emplace_back(sharing.text_at({"name"}));
      return;
    }
    Value claim = make_managed(context_, "ResourceClaim", name, "resource-claim");
    if (index >= 0) {
      claim["metadata"]["labels"][owner.index_label] = std::to_string(index);
    }
    claim["spec"] = *spec;
    kube::set_owner(claim, *owner.object);
    made_.push_back(std::move(claim));
  }

  const SetContext& context_;
  std::vector<std::string>& missing_;
  std::vector<Value> made_;
};

}  // namespace

std::vector<Value> make_claims(const SetContext& context, std::vector<std::string>& missing) {
  Claims claims(context, missing);
  claims.add_all(sharings_of(template_of(context)), {.name = context.spec.name,
                                                     .object = context.spec.object,
                                                     .index_label = kSetIndex,
                                                     .replicas = context.spec.replicas});
  for (const GroupInstance& group : context.layout.groups) {
    claims.add_all(sharings_of(*group.spec->entry),
                   {.name = group.name,
                    .object = find_object(context.view.groups, group.name),
                    .index_label = kGroupIndex,
                    .replicas = group.replicas});
  }
  for (const CliqueInstance& clique : context.layout.cliques) {
    claims.add_all(sharings_of(*clique.spec->entry),
                   {.name = clique.name,
                    .object = find_object(context.view.cliques, clique.name),
                    .index_label = kPodIndex,
                    .replicas = clique.replicas});
  }
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  return claims.finish();
}

void add_claims(const SetContext& context, const CliqueInstance& clique, int64_t index,
                Value& pod_spec) {
  std::vector<std::string> names;
  const auto collect = [&](const Value& sharings, std::string_view owner, int64_t own_index) {
    for (const Value& sharing : sharings.elements()) {
      if (reaches(sharing, clique)) {
        names.push_back(claim_name(sharing, owner, own_index));
      }
    }
  };
  collect(sharings_of(template_of(context)), context.spec.name, clique.set_index);
  if (const GroupInstance* group = group_of(context, clique)) {
    collect(sharings_of(*group->spec->entry), group->name, clique.group_index);
  }
  collect(sharings_of(*clique.spec->entry), clique.name, index);
  for (const std::string& name : names) {
    Value claim = Value::object();
    claim["name"] = name;
    Value of_pod = claim;
    of_pod["resourceClaimName"] = name;
    pod_spec["resourceClaims"].push_back(std::move(of_pod));
    for (const std::string_view key : {"initContainers", "containers"}) {
      Value* containers = pod_spec.find(key);
      if (containers == nullptr || containers->mutable_elements() == nullptr) {
        continue;
      }
      for (Value& container : *containers->mutable_elements()) {
        container["resources"]["claims"].push_back(claim);
      }
    }
  }
}

}  // namespace stator::grove
