// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <vector>

#include "stator/app/admin_server.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/frontend/endpoints.h"
#include "stator/json/writer.h"

namespace stator::cli {
namespace {

using access::Role;

constexpr Role kRoles[] = {Role::kAnyone, Role::kUser, Role::kService, Role::kOperator};

std::string as_json(const std::vector<frontend::RouteRow>& rows) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("roles").begin_array();
  for (const Role role : kRoles) {
    json.value(describe(role));
  }
  json.end_array().key("routes").begin_array();
  for (const frontend::RouteRow& row : rows) {
    json.begin_object().key("method").value(row.method).key("path").value(row.path);
    json.key("listener").value(describe(row.access.plane));
    json.key("role").value(describe(row.access.role));
    json.key("metered").value(row.access.metered).key("allowed").begin_object();
    for (const Role role : kRoles) {
      json.key(describe(role)).value(role >= row.access.role);
    }
    json.end_object().end_object();
  }
  json.end_array().end_object();
  return out + "\n";
}

std::string as_table(const std::vector<frontend::RouteRow>& rows) {
  std::string out = fmt::format("{:<8}{:<36}{:<10}", "method", "path", "listener");
  for (const Role role : kRoles) {
    out += fmt::format("{:<10}", describe(role));
  }
  out += "\n";
  for (const frontend::RouteRow& row : rows) {
    out += fmt::format("{:<8}{:<36}{:<10}", row.method, row.path, describe(row.access.plane));
    for (const Role role : kRoles) {
      out += fmt::format("{:<10}", role >= row.access.role ? "yes" : "-");
    }
    out += "\n";
  }
  return out;
}

}  // namespace

Status run_routes(Invocation& invocation) {
  std::vector<frontend::RouteRow> rows = frontend::list_routes();
  const auto admin = app::list_admin_routes();
  rows.insert(rows.end(), admin.begin(), admin.end());
  print(invocation.options.contains("--json") ? as_json(rows) : as_table(rows));
  return {};
}

}  // namespace stator::cli
