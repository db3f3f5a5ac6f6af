// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/parser.h"

namespace stator::chat_template::detail {
namespace {

constexpr uint32_t kSlotsMax = 60'000;

}  // namespace

Scopes::Scope* Scopes::enter_scope() {
  auto scope = std::make_unique<Scope>();
  scope->parent = current_;
  scope->function = current_ == nullptr ? nullptr : current_->function;
  scopes_.push_back(std::move(scope));
  current_ = scopes_.back().get();
  return current_;
}

Scopes::Scope* Scopes::enter_function() {
  auto function = std::make_unique<Function>();
  function->parent = current_ == nullptr ? nullptr : current_->function;
  functions_.push_back(std::move(function));
  Scope* scope = enter_scope();
  scope->function = functions_.back().get();
  return scope;
}

ScopeSlots Scopes::leave() {
  std::vector<uint16_t> slots;
  for (const auto& [name, slot] : current_->names) {
    slots.push_back(slot);
  }
  current_ = current_->parent;
  return {arena_.copy(slots)};
}

uint16_t Scopes::declare(std::string_view name, uint32_t line) {
  const auto [entry, is_new] = current_->names.try_emplace(name, 0);
  if (is_new) {
    if (current_->function->slots >= kSlotsMax) {
      fail_at(line, "too many variables");
    }
    entry->second = static_cast<uint16_t>(current_->function->slots++);
  }
  return entry->second;
}

NameExpr* Scopes::read(std::string_view name, uint32_t line) {
  auto* expr = arena_.make<NameExpr>(NameExpr{{ExprKind::kName, line}, name, 0, {}, nullptr});
  reads_.push_back({expr, current_});
  return expr;
}

std::vector<std::string_view> Scopes::bind() {
  std::map<std::string_view, uint32_t> ids;
  std::vector<std::string_view> names;
  std::vector<SlotRef> slots;
  for (const Read& read : reads_) {
    const std::string_view name = read.expr->name;
    const auto [id, is_new] = ids.try_emplace(name, static_cast<uint32_t>(names.size()));
    if (is_new) {
      names.push_back(name);
    }
    read.expr->name_id = id->second;
    read.expr->global = find_global(name);
    slots.clear();
    uint16_t hops = 0;
    for (Scope* scope = read.scope; scope != nullptr; scope = scope->parent) {
      if (const auto found = scope->names.find(name); found != scope->names.end()) {
        slots.push_back({hops, found->second});
        scope->read.push_back(name);
      }
      if (scope->parent != nullptr && scope->parent->function != scope->function) {
        ++hops;
      }
    }
    read.expr->slots = arena_.copy(slots);
  }
  return names;
}

bool Scopes::is_read(const Scope& scope, std::string_view name) {
  return std::ranges::find(scope.read, name) != scope.read.end();
}

}  // namespace stator::chat_template::detail
