// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <grpcpp/version_info.h>
#include <openssl/crypto.h>
#include <boost/version.hpp>
#include <string>
#include <thread>
#include <vector>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/engine/cpu/kernels.h"

namespace stator::cli {
namespace {

enum class Verdict : uint8_t { kOk, kNote, kFix };

/// One line of the report.
struct Check {
  Verdict verdict = Verdict::kOk;
  std::string what;
  std::string found;
  std::string advice;  ///< what to do, for kNote and kFix
};

Check check_cores() {
  const unsigned cores = std::thread::hardware_concurrency();
  return {cores >= 2 ? Verdict::kOk : Verdict::kNote, "cores", fmt::to_string(cores),
          "one core is shared by frontend and engine; expect slow answers"};
}

Check check_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") != 0) {
    return {Verdict::kOk, "vector instructions", "AVX-512", ""};
  }
  if (__builtin_cpu_supports("avx2") != 0) {
    return {Verdict::kOk, "vector instructions", "AVX2", ""};
  }
  return {Verdict::kNote, "vector instructions", "SSE4.2 only",
          "the cpu engine runs, but several times slower"};
#else
  return {Verdict::kOk, "vector instructions", "portable kernels", ""};
#endif
}

Check check_memory() {
  struct sysinfo info{};
  sysinfo(&info);
  const double gib = static_cast<double>(info.totalram) * info.mem_unit / (1ULL << 30);
  return {gib >= 1 ? Verdict::kOk : Verdict::kFix, "memory", fmt::format("{:.1f} GiB", gib),
          "serve small models only, or add memory"};
}

Check check_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= 4096;
  return {enough ? Verdict::kOk : Verdict::kFix, "open files",
          fmt::format("{} (hard limit {})", limit.rlim_cur, limit.rlim_max),
          "each client needs one: run `ulimit -n 65536` or set LimitNOFILE in the service"};
}

Check check_port(const frontend::FrontendConfig& config) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(config.http.port);
  ::inet_pton(AF_INET, config.http.host.c_str(), &address.sin_addr);
  const int one = 1;
  ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return {free ? Verdict::kOk : Verdict::kFix, "port",
          fmt::format("{}:{} is {}", config.http.host, config.http.port, free ? "free" : "taken"),
          "stop what listens there, or choose another with --port"};
}

Check check_disk() {
  struct statvfs stats{};
  if (::statvfs("/tmp", &stats) != 0) {
    return {Verdict::kFix, "/tmp", "not readable", "make /tmp writable"};
  }
  const double gib =
      static_cast<double>(stats.f_bavail) * static_cast<double>(stats.f_frsize) / (1ULL << 30);
  return {gib >= 1 ? Verdict::kOk : Verdict::kNote, "space in /tmp", fmt::format("{:.1f} GiB", gib),
          "downloads and logs may fail"};
}

Check check_libraries() {
  return {Verdict::kOk, "libraries",
          fmt::format("{}, Boost {}.{}, gRPC {}", OpenSSL_version(OPENSSL_VERSION_STRING),
                      BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, GRPC_CPP_VERSION_STRING),
          ""};
}

}  // namespace

Status run_doctor(Invocation& invocation) {
  const std::vector<Check> checks = {check_cores(),
                                     check_isa(),
                                     check_memory(),
                                     check_files(),
                                     check_port(invocation.settings.frontend),
                                     check_disk(),
                                     check_libraries()};
  size_t to_fix = 0;
  for (const Check& check : checks) {
    static constexpr const char* kMarks[] = {"ok  ", "note", "FIX "};
    print(fmt::format("{}  {:<20} {}\n", kMarks[static_cast<int>(check.verdict)], check.what,
                      check.found));
    if (check.verdict != Verdict::kOk) {
      print(fmt::format("      {:<20} -> {}\n", "", check.advice));
    }
    to_fix += check.verdict == Verdict::kFix ? 1 : 0;
  }
  if (to_fix > 0) {
    return Error(Code::kUnavailable,
                 fmt::format("{} of {} checks need fixing", to_fix, checks.size()));
  }
  print("this machine is ready\n");
  return {};
}

}  // namespace stator::cli
