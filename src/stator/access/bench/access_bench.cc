// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "stator/access/access_service.h"
#include "stator/access/test/jwt_signer.h"
#include "stator/core/assert.h"
#include "stator/io/replace_file.h"

namespace stator::access {
namespace {

std::string in_temporary_folder(const std::string& name, const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() / name;
  STATOR_ASSERT(io::replace_file(path, text), "the folder is writable");
  return path;
}

net::HttpRequest request_with(const std::string& credential) {
  net::HttpRequest request("POST", "/v1/chat/completions");
  request.add_header("host", "localhost");
  request.add_header("content-type", "application/json");
  request.add_header("authorization", "Bearer " + credential);
  return request;
}

/// One of 100,000 keys, tenant's budget included.
void BM_Key(benchmark::State& state) {
  std::string lines;
  NewKey key;
  for (int i = 0; i < state.range(0); ++i) {
    key = make_key(Role::kUser, "tenant" + std::to_string(i % 100));
    lines += key.line + "\n";
  }
  const std::string file = in_temporary_folder("stator-access-bench-keys", lines);
  SystemClock clock;
  Metrics metrics;
  const auto service = AccessService::start({.api_keys = file}, clock, metrics);
  const net::HttpRequest request = request_with(key.key);
  for (auto _ : state) {
    auto caller = (*service)->authenticate(request);
    benchmark::DoNotOptimize(caller->budget->enter(clock.now()));
    caller->budget->leave();
  }
}
BENCHMARK(BM_Key)->Arg(100'000);

void BM_Token(benchmark::State& state, const char* algorithm, uint32_t cache) {
  const JwtSigner signer(algorithm, "k");
  const std::string file = in_temporary_folder("stator-access-bench-jwks", signer.key_set());
  SystemClock clock;
  Metrics metrics;
  const auto service = AccessService::start({.jwks = file, .jwt_cache_max = cache}, clock, metrics);
  const std::string end = std::to_string(unix_seconds(clock.wall_now()) + 3600) + "}";
  const net::HttpRequest requests[] = {
      request_with(signer.sign(R"({"sub":"alice","role":"user","iss":"https://id","exp":)" + end)),
      request_with(signer.sign(R"({"sub":"bob","role":"user","iss":"https://id","exp":)" + end))};
  size_t i = 0;
  for (auto _ : state) {  // two tokens and room for one: always cold
    benchmark::DoNotOptimize((*service)->authenticate(requests[cache == 1 ? i++ % 2 : 0]));
  }
}
BENCHMARK_CAPTURE(BM_Token, cached, "RS256", 16);
BENCHMARK_CAPTURE(BM_Token, cold_RS256, "RS256", 1);
BENCHMARK_CAPTURE(BM_Token, cold_ES256, "ES256", 1);
BENCHMARK_CAPTURE(BM_Token, cold_EdDSA, "EdDSA", 1);

}  // namespace
}  // namespace stator::access
