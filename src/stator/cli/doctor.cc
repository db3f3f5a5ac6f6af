// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <curl/curl.h>
#include <google/protobuf/stubs/common.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#include <algorithm>
#include <boost/version.hpp>
#include <string>
#include <thread>
#include <vector>

#include "stator/access/access_service.h"
#include "stator/app/dynamo_report.h"
#include "stator/app/engine_servers.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/credentials.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/upkeep.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/json/writer.h"
#include "stator/net/loopback.h"

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

/// Who may use what listens where.
Check check_access(const Settings& settings) {
  const auto& http = settings.frontend.http;
  const bool local = net::is_loopback_host(http.host);
  const bool known = settings.access.required() || !http.tls_client_ca_path.empty();
  Check check{Verdict::kOk, "who may use it",
              fmt::format("{}: {}", http.host, known ? "callers with credentials" : "anybody"),
              "make a key with `stator key new --file keys` and serve with --api-keys keys, or "
              "listen on this machine only: --host 127.0.0.1"};
  if (!local && !known) {
    check.verdict = Verdict::kFix;
  } else if (!local && http.tls_cert_path.empty()) {
    check.verdict = Verdict::kNote;
    check.found += ", without TLS";
    check.advice =
        "whoever is on the way reads keys and prompts: give --tls-cert-path and "
        "--tls-key-path, or put a TLS proxy before it";
  }
  return check;
}

/// Files of keys and tenants that a server would refuse.
void check_access_files(const access::AccessConfig& config, std::vector<Check>& checks) {
  if (!config.required() && config.tenants.empty()) {
    return;
  }
  SystemClock clock;
  Metrics metrics;
  const auto service = access::AccessService::start(config, clock, metrics);
  checks.push_back({service ? Verdict::kOk : Verdict::kFix, "keys and tenants",
                    service ? "readable" : "not usable", service ? "" : service.error().message()});
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
          fmt::format("OpenSSL {}, libcurl {}, nghttp2 {}, Boost {}.{}, protobuf {}",
                      OpenSSL_version(OPENSSL_VERSION_STRING),
                      curl_version_info(CURLVERSION_NOW)->version, nghttp2_version(0)->version_str,
                      BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)),
          ""};
}

/// Whether the server at `url` answers as the engine that was named.
Check check_engine(const app::WorkerSettings& worker, const std::string& url) {
  Check check{Verdict::kFix, "engine", hide_credentials(url), ""};
  if (!app::is_engine_server(worker.engine)) {
    check.advice = "say what it is: --engine vllm, sglang, trtllm, llamacpp or openai";
    return check;
  }
  const engine::adapters::AdapterConfig config{.kind = worker.engine,
                                               .url = url,
                                               .api_key = worker.server.api_key,
                                               .upstream_model = worker.server.upstream_model};
  auto facts = [&]() -> Result<engine::adapters::EngineFacts> {
    STATOR_TRY(const std::string host, engine::adapters::host_of(url));
    STATOR_TRY(const auto dialect, engine::adapters::make_dialect(worker.engine, {.host = host}));
    return engine::adapters::ask_engine(config, *dialect);
  }();
  if (!facts) {
    check.advice = hide_credentials(facts.error().message());
    return check;
  }
  check.verdict = Verdict::kOk;
  check.found += fmt::format(": {} {}, model {}, context {}", worker.engine, facts->version,
                             facts->model, facts->max_model_len);
  return check;
}

std::string as_json(const std::vector<Check>& checks) {
  static constexpr const char* kVerdicts[] = {"ok", "note", "fix"};
  std::string out;
  json::Writer json(out);
  json.begin_object().key("ready");
  json.value(std::ranges::find(checks, Verdict::kFix, &Check::verdict) == checks.end());
  json.key("checks").begin_array();
  for (const Check& check : checks) {
    json.begin_object().key("check").value(check.what).key("verdict");
    json.value(kVerdicts[static_cast<int>(check.verdict)]).key("found").value(check.found);
    if (check.verdict != Verdict::kOk) {
      json.key("advice").value(check.advice);
    }
    json.end_object();
  }
  json.end_array().end_object();
  return out + "\n";
}

std::string as_text(const std::vector<Check>& checks) {
  static constexpr const char* kMarks[] = {"ok  ", "note", "FIX "};
  std::string out;
  for (const Check& check : checks) {
    out += fmt::format("{}  {:<20} {}\n", kMarks[static_cast<int>(check.verdict)], check.what,
                       check.found);
    if (check.verdict != Verdict::kOk) {
      out += fmt::format("      {:<20} -> {}\n", "", check.advice);
    }
  }
  return out;
}

}  // namespace

Status run_doctor(Invocation& invocation) {
  if (const auto source = invocation.options.find("--from-dynamo");
      source != invocation.options.end()) {
    Settings settings;
    ConfigSchema schema;
    describe(schema, settings);
    return app::report_dynamo(schema, source->second, invocation.options.contains("--json"));
  }
  std::vector<Check> checks = {check_cores(),
                               check_isa(),
                               check_memory(),
                               check_files(),
                               check_port(invocation.settings.frontend),
                               check_access(invocation.settings),
                               check_disk(),
                               check_libraries()};
  check_access_files(invocation.settings.access, checks);
  const app::WorkerSettings& worker = invocation.settings.worker;
  for (const std::string& url : app::engine_urls(worker.server)) {
    checks.push_back(check_engine(worker, url));
  }
  const bool as_lines = invocation.options.contains("--json");
  print(as_lines ? as_json(checks) : as_text(checks));
  const auto to_fix = std::ranges::count(checks, Verdict::kFix, &Check::verdict);
  if (to_fix > 0) {
    return Error(Code::kUnavailable,
                 fmt::format("{} of {} checks need fixing", to_fix, checks.size()));
  }
  if (!as_lines) {
    print("this machine is ready\n");
  }
  return {};
}

}  // namespace stator::cli
