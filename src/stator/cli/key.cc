// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "stator/access/key_table.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/io/file_descriptor.h"
#include "stator/io/io_error.h"
#include "stator/json/writer.h"

namespace stator::cli {
namespace {

std::string option_or(const Invocation& invocation, std::string_view flag, std::string fallback) {
  const auto given = invocation.options.find(flag);
  return given == invocation.options.end() ? std::move(fallback) : given->second;
}

/// At the end of the file, which is made for this user alone where there is none.
Status append_line(const std::string& path, const std::string& line) {
  const io::FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.open()) {
    return io::io_error("open", path, errno);
  }
  const std::string text = line + "\n";
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    return io::io_error("write", path, errno);
  }
  return {};
}

}  // namespace

Status run_key(Invocation& invocation) {
  if (invocation.positionals.empty() || invocation.positionals.front() != "new") {
    return Error(Code::kInvalidArgument, "ACTION is new: `stator key new --tenant acme`");
  }
  const std::string word = option_or(invocation, "--role", "user");
  const auto role = access::parse_role(word);
  if (!role) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--role '{}' is not user, service or operator", word));
  }
  const std::string tenant = option_or(invocation, "--tenant", "default");
  STATOR_CHECK(access::check_tenant(tenant), "--tenant");
  const access::NewKey made = access::make_key(*role, tenant);
  if (const std::string file = option_or(invocation, "--file", ""); !file.empty()) {
    STATOR_CHECK(append_line(file, made.line), "--file");
  }
  if (invocation.options.contains("--json")) {
    std::string out;
    json::Writer(out)
        .begin_object()
        .key("key")
        .value(made.key)
        .key("line")
        .value(made.line)
        .end_object();
    print(out + "\n");
    return {};
  }
  print(made.key + "\n" + made.line + "\n");
  if (app::stderr_is_terminal()) {
    print_status(
        "The first line is the key: give it to its user, it is shown only now.\n"
        "The second is for the file of --api-keys.\n");
  }
  return {};
}

}  // namespace stator::cli
