// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/exec_credential.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "stator/io/child_process.h"
#include "stator/io/file_descriptor.h"
#include "stator/json/value.h"

namespace stator::kube {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr size_t kAnswerMax = size_t{1} << 20;
constexpr auto kTimeMax = 60s;
constexpr auto kLeast = 30s;

/// "2026-01-02T03:04:05Z", a fraction of a second allowed; other zones are not said here.
std::optional<WallTime> parse_time(std::string_view text) {
  std::array<int, 6> parts{};
  constexpr std::array<std::pair<size_t, size_t>, 6> kAt = {
      {{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}}};
  if (text.size() < 20 || text.back() != 'Z') {
    return std::nullopt;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* begin = text.data() + kAt.at(i).first;
    const auto [end, failed] = std::from_chars(begin, begin + kAt.at(i).second, parts.at(i));
    if (failed != std::errc() || end != begin + kAt.at(i).second) {
      return std::nullopt;
    }
  }
  const std::chrono::year_month_day day{std::chrono::year(parts[0]),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!day.ok()) {
    return std::nullopt;
  }
  const auto since = std::chrono::sys_days(day).time_since_epoch() + std::chrono::hours(parts[3]) +
                     std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]);
  return WallTime(std::chrono::duration_cast<WallTime::duration>(since));
}

/// All that comes until the end, or nothing when it takes too long.
Result<std::string> read_answer(int descriptor, std::string_view program) {
  std::string answer;
  const SystemClock clock;
  const TimePoint end = clock.now() + kTimeMax;
  while (answer.size() <= kAnswerMax) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now());
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0) {
      return Error(Code::kDeadline,
                   fmt::format("the kubeconfig's program '{}' takes longer than {} s", program,
                               kTimeMax.count()));
    }
    std::array<char, 4096> piece;
    const ssize_t size = ::read(descriptor, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size <= 0) {
      return answer;
    }
    answer.append(piece.data(), static_cast<size_t>(size));
  }
  return Error(Code::kTooLarge,
               fmt::format("the kubeconfig's program '{}' says more than 1 MiB", program));
}

}  // namespace

bool ExecCredential::is_good(WallTime now) const {
  return (!token.empty() || !certificate.empty()) && (!expires || now + kLeast < *expires);
}

Result<ExecCredential> parse_exec_credential(std::string_view text) {
  const auto object = json::parse(text, {.depth_max = 32, .values_max = 1000});
  if (!object || object->text_at({"kind"}) != "ExecCredential") {
    return Error(Code::kCorrupt, "the answer is no ExecCredential");
  }
  ExecCredential credential;
  credential.token = object->text_at({"status", "token"});
  credential.certificate = object->text_at({"status", "clientCertificateData"});
  credential.key = object->text_at({"status", "clientKeyData"});
  if (credential.certificate.empty() != credential.key.empty()) {
    return Error(Code::kCorrupt,
                 "the ExecCredential has a certificate without its key, or a key "
                 "without its certificate");
  }
  if (credential.token.empty() && credential.certificate.empty()) {
    return Error(Code::kCorrupt, "the ExecCredential has neither a token nor a certificate");
  }
  if (const std::string_view end = object->text_at({"status", "expirationTimestamp"});
      !end.empty()) {
    credential.expires = parse_time(end);
    if (!credential.expires) {
      return Error(Code::kCorrupt, "the ExecCredential's expirationTimestamp is no time in UTC");
    }
  }
  return credential;
}

Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin) {
  const std::string& program = plugin.command.front();
  Value info = Value::object();
  info["apiVersion"] = plugin.api_version;
  info["kind"] = "ExecCredential";
  info["spec"]["interactive"] = false;
  if (!plugin.cluster.is_null()) {
    info["spec"]["cluster"] = plugin.cluster;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error(Code::kIo, "no pipe for the kubeconfig's program: too many open files?");
  }
  const io::FileDescriptor from(ends[0]);
  std::optional<io::FileDescriptor> into(std::in_place, ends[1]);
  io::ChildSetup setup{.output = ends[1], .error = STDERR_FILENO};
  setup.environment = plugin.environment;
  setup.environment.push_back("KUBERNETES_EXEC_INFO=" + json::to_text(info));
  auto child = io::start_child(plugin.command, setup);
  into.reset();
  if (!child) {
    return Error(child.error().code(),
                 fmt::format("{}{}{}", child.error().message(),
                             plugin.install_hint.empty() ? "" : ": ", plugin.install_hint));
  }
  auto answer = read_answer(from.get(), program);
  if (!answer) {
    ::kill(*child, SIGKILL);
  }
  int status = 0;
  while (::waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer) {
    return std::move(answer.error());
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error(Code::kUnauthenticated,
                 fmt::format("the kubeconfig's program '{}' failed with status {}", program,
                             WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }
  STATOR_TRY(ExecCredential credential, parse_exec_credential(*answer),
             fmt::format("running the kubeconfig's program '{}'", program));
  return credential;
}

}  // namespace stator::kube
