// SPDX-License-Identifier: Apache-2.0
// The C interface, used from C11 as a gateway would. Prints the line of a check that fails.
#include "stator/router/c_api.h"

#include <stdio.h>
#include <string.h>

enum { kBlockSize = 4, kTokens = 18, kBlocks = 4 };

static int failures = 0;

static void check(int holds, int line) {
  if (!holds) {
    fprintf(stderr, "line %d does not hold; last error: %s\n", line, stator_router_last_error());
    ++failures;
  }
}
#define CHECK(condition) check((condition), __LINE__)

static uint64_t local[kBlocks];
static uint64_t sequence[kBlocks];

static void test_hashes(void) {
  uint32_t tokens[kTokens];
  for (uint32_t i = 0; i < kTokens; ++i) {
    tokens[i] = i;
  }
  stator_router_prompt prompt = {.struct_size = sizeof prompt,
                                 .tokens = tokens,
                                 .token_count = kTokens,
                                 .block_size = kBlockSize};
  size_t count = 0;
  CHECK(stator_router_hash_blocks(&prompt, NULL, NULL, 0, &count) == STATOR_ROUTER_OK);
  CHECK(count == kBlocks);
  CHECK(stator_router_hash_blocks(&prompt, local, sequence, 3, &count) ==
        STATOR_ROUTER_INVALID_ARGUMENT);
  CHECK(stator_router_hash_blocks(&prompt, local, sequence, kBlocks, &count) == STATOR_ROUTER_OK);
  CHECK(local[0] == 9143094415614847814ULL);
  CHECK(sequence[1] == 9510318385840434533ULL);
  prompt.block_size = 0;
  CHECK(stator_router_hash_blocks(&prompt, local, sequence, kBlocks, &count) ==
        STATOR_ROUTER_INVALID_ARGUMENT);
}

static stator_router* make_router(void) {
  stator_router_config config = {
      .struct_size = sizeof config, .mode = "kv", .block_size = kBlockSize, .seed = 1};
  stator_router* router = NULL;
  CHECK(stator_router_create(&config, &router) == STATOR_ROUTER_OK);
  for (uint64_t id = 1; id <= 2; ++id) {
    stator_router_worker worker = {.struct_size = sizeof worker, .worker_id = id};
    CHECK(stator_router_add_worker(router, &worker) == STATOR_ROUTER_OK);
  }
  stator_router_run run = {.struct_size = sizeof run,
                           .worker_id = 2,
                           .external = sequence,
                           .local = local,
                           .count = kBlocks};
  CHECK(stator_router_apply_stored(router, &run) == STATOR_ROUTER_OK);
  return router;
}

static stator_router_request make_request(void) {
  stator_router_request request = {.struct_size = sizeof request,
                                   .request_id = "r",
                                   .prompt_tokens = kTokens,
                                   .sequence_hashes = sequence,
                                   .sequence_count = kBlocks};
  return request;
}

static void test_choosing_and_booking(void) {
  stator_router* router = make_router();
  stator_router_request request = make_request();
  stator_router_decision decision = {.struct_size = sizeof decision};
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_OK);
  CHECK(decision.worker_id == 2 && decision.overlap_blocks == kBlocks);
  CHECK(decision.prefill_tokens == kTokens - kBlocks * kBlockSize);

  stator_router_lease* lease = NULL;
  CHECK(stator_router_route(router, &request, &decision, &lease) == STATOR_ROUTER_OK);
  stator_router_load load = {.struct_size = sizeof load};
  CHECK(stator_router_read_load(router, 2, 0, &load) == STATOR_ROUTER_OK);
  CHECK(load.active_requests == 1 && load.prefill_tokens == 2 && load.active_blocks == 5);
  stator_router_lease_first_token(lease);
  stator_router_lease_add_output_tokens(lease, 3);
  CHECK(stator_router_read_load(router, 2, 0, &load) == STATOR_ROUTER_OK);
  CHECK(load.prefill_tokens == 0 && load.active_blocks == 6);
  stator_router_lease_free(lease);
  CHECK(stator_router_read_load(router, 2, 0, &load) == STATOR_ROUTER_OK);
  CHECK(load.active_requests == 0 && load.active_blocks == 0);

  CHECK(stator_router_apply_removed(router, 2, 0, &sequence[1], 1) == STATOR_ROUTER_OK);
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_OK);
  CHECK(decision.worker_id == 2 && decision.overlap_blocks == 1);
  CHECK(stator_router_apply_cleared(router, 2, 0) == STATOR_ROUTER_OK);
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_OK);
  CHECK(decision.overlap_blocks == 0);

  CHECK(stator_router_route(router, &request, &decision, &lease) == STATOR_ROUTER_OK);
  stator_router_destroy(router);
  stator_router_lease_free(lease);  // a lease may outlive its router
}

static void test_constraints_and_refusals(void) {
  stator_router* router = make_router();
  stator_router_request request = make_request();
  stator_router_decision decision = {.struct_size = sizeof decision};
  const uint64_t allowed[] = {1};
  request.allowed_worker_ids = allowed;
  request.allowed_count = 1;
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_OK);
  CHECK(decision.worker_id == 1);
  CHECK(stator_router_set_draining(router, 1, 0, 1) == STATOR_ROUTER_OK);
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_UNAVAILABLE);
  CHECK(strlen(stator_router_last_error()) > 0);
  CHECK(stator_router_remove_worker(router, 1, 0) == STATOR_ROUTER_OK);
  CHECK(stator_router_remove_worker(router, 1, 0) == STATOR_ROUTER_NOT_FOUND);
  CHECK(stator_router_set_draining(router, 1, 0, 1) == STATOR_ROUTER_NOT_FOUND);

  request = make_request();
  request.sequence_count = kBlocks + 1;
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_INVALID_ARGUMENT);
  request = make_request();
  request.sequence_hashes = NULL;
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_INVALID_ARGUMENT);
  CHECK(stator_router_select(NULL, &request, &decision) == STATOR_ROUTER_INVALID_ARGUMENT);
  CHECK(stator_router_create(NULL, &router) == STATOR_ROUTER_INVALID_ARGUMENT);
  stator_router_config config = {.struct_size = sizeof config, .mode = "best"};
  stator_router* none = NULL;
  CHECK(stator_router_create(&config, &none) == STATOR_ROUTER_INVALID_ARGUMENT);
  CHECK(none == NULL && strstr(stator_router_last_error(), "best") != NULL);
  stator_router_destroy(router);
  stator_router_destroy(NULL);
  stator_router_lease_free(NULL);
  stator_router_lease_first_token(NULL);
}

/// A caller compiled when the structs were shorter.
static void test_an_older_caller(void) {
  stator_router* router = make_router();
  stator_router_request request = make_request();
  request.allowed_count = 77;  // beyond what the caller's struct_size covers: not read
  request.struct_size = offsetof(stator_router_request, allowed_worker_ids);
  stator_router_decision decision = {.struct_size = offsetof(stator_router_decision, dp_rank),
                                     .dp_rank = 1234};
  CHECK(stator_router_select(router, &request, &decision) == STATOR_ROUTER_OK);
  CHECK(decision.worker_id == 2 && decision.dp_rank == 1234);
  stator_router_destroy(router);
}

int main(void) {
  CHECK(stator_router_abi_version() == STATOR_ROUTER_ABI_VERSION);
  test_hashes();
  test_choosing_and_booking();
  test_constraints_and_refusals();
  test_an_older_caller();
  return failures == 0 ? 0 : 1;
}
