/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "stator/connectors/stator_kv.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, stator_kv_last_error()); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

enum { kTokens = 16, kBlocks = 8, kBytes = 4096 };

static unsigned char keys_memory[kBlocks][kBytes / 2];
static unsigned char values_memory[kBlocks][kBytes / 2];

static stator_kv_options options(void) {
  stator_kv_options out;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  out.model = "test";
  out.dtype = "f32";
  out.layout = "c_test/1";
  out.block_tokens = kTokens;
  out.block_bytes = kBytes;
  out.host_bytes = 32 * kBytes;
  return out;
}

static int refusals(void) {
  stator_kv_cache* cache = NULL;
  stator_kv_options bad = options();
  stator_kv_found found = {.struct_size = sizeof found};
  CHECK(stator_kv_version() == 1);
  CHECK(strcmp(stator_kv_status_name(STATOR_KV_DEADLINE), "DEADLINE") == 0);
  CHECK(stator_kv_open(NULL, &cache) == STATOR_KV_INVALID);
  bad.struct_size = 0;
  CHECK(stator_kv_open(&bad, &cache) == STATOR_KV_INVALID);
  bad = options();
  bad.block_bytes = 0;
  CHECK(stator_kv_open(&bad, &cache) == STATOR_KV_INVALID && cache == NULL);
  CHECK(strstr(stator_kv_last_error(), "block_bytes") != NULL);
  CHECK(stator_kv_lookup(NULL, NULL, 0, &found) == STATOR_KV_INVALID);
  CHECK(stator_kv_poll(NULL, 1, NULL) == STATOR_KV_INVALID);
  stator_kv_close(NULL);
  return 0;
}

static int resharding(void) {
  /* 1 layer, 2 tokens, 4 heads of 1 byte: 0 … 7 and 8 … 15 in the order token, head. */
  const stator_kv_shape shape = {1, 2, 2, 4, 1};
  unsigned char whole[16];
  unsigned char parts[4][4];
  unsigned char back[16];
  void* const one[] = {whole};
  void* const four[] = {parts[0], parts[1], parts[2], parts[3]};
  void* const again[] = {back};
  const stator_kv_ranks from = {1, STATOR_KV_ORDER_NHD, one};
  const stator_kv_ranks cut = {4, STATOR_KV_ORDER_HND, four};
  const stator_kv_ranks to = {1, STATOR_KV_ORDER_NHD, again};
  const unsigned char second[4] = {1, 5, 9, 13};
  for (int i = 0; i < 16; ++i) {
    whole[i] = (unsigned char)i;
  }
  CHECK(stator_kv_reshard(&shape, &from, &cut) == STATOR_KV_OK);
  CHECK(memcmp(parts[1], second, sizeof second) == 0);
  CHECK(stator_kv_reshard(&shape, &cut, &to) == STATOR_KV_OK);
  CHECK(memcmp(whole, back, sizeof whole) == 0);
  const stator_kv_ranks three = {3, STATOR_KV_ORDER_NHD, four};
  CHECK(stator_kv_reshard(&shape, &from, &three) == STATOR_KV_INVALID);
  CHECK(strstr(stator_kv_last_error(), "4 KV heads") != NULL);
  const stator_kv_ranks unknown = {1, 7, one};
  CHECK(stator_kv_reshard(&shape, &unknown, &to) == STATOR_KV_INVALID);
  CHECK(stator_kv_reshard(NULL, &from, &to) == STATOR_KV_INVALID);
  return 0;
}

int main(void) {
  stator_kv_cache* cache = NULL;
  stator_kv_options opened = options();
  uint32_t tokens[4 * kTokens];
  stator_kv_key keys[4];
  uint64_t blocks[4] = {0, 1, 2, 3};
  stator_kv_region regions[2];
  stator_kv_result result = {.struct_size = sizeof result};
  stator_kv_found found = {.struct_size = sizeof found};
  stator_kv_stats stats = {.struct_size = sizeof stats};
  char hex[33];
  size_t pinned = 0;
  CHECK(refusals() == 0);
  CHECK(resharding() == 0);
  CHECK(stator_kv_open(&opened, &cache) == STATOR_KV_OK);
  CHECK(stator_kv_namespace(cache, hex) == STATOR_KV_OK && strlen(hex) == 32);

  regions[0] = (stator_kv_region){(uint64_t)(uintptr_t)keys_memory, kBytes / 2, kBytes / 2};
  regions[1] = (stator_kv_region){(uint64_t)(uintptr_t)values_memory, kBytes / 2, kBytes / 2};
  CHECK(stator_kv_memory(cache, regions, 1, kBlocks) == STATOR_KV_INVALID);
  int64_t memory = stator_kv_memory(cache, regions, 2, kBlocks);
  CHECK(memory > 0);

  for (uint32_t i = 0; i < 4 * kTokens; ++i) {
    tokens[i] = i + 1;
  }
  CHECK(stator_kv_keys_of_tokens(cache, NULL, "", 0, tokens, 4 * kTokens, keys, 4) == 4);
  for (int block = 0; block < 4; ++block) {
    memset(keys_memory[block], 10 + block, sizeof keys_memory[block]);
    memset(values_memory[block], 20 + block, sizeof values_memory[block]);
  }
  stator_kv_request request = {.struct_size = sizeof request, .keys = keys, .count = 4,
                               .tokens = tokens, .memory = memory, .blocks = blocks};
  int64_t put = stator_kv_put(cache, &request);
  CHECK(put > 0);
  CHECK(stator_kv_wait(cache, put, 60000, &result) == STATOR_KV_OK && result.blocks == 4);
  CHECK(stator_kv_release(cache, put) == STATOR_KV_OK);
  CHECK(stator_kv_poll(cache, put, NULL) == STATOR_KV_NOT_FOUND);

  CHECK(stator_kv_lookup(cache, keys, 4, &found) == STATOR_KV_OK);
  CHECK(found.present == 4 && found.host == 4 && found.disk == 0 && found.ask == 0);
  int64_t pin = stator_kv_pin(cache, keys, 4, 60000, &pinned);
  CHECK(pin > 0 && pinned == 4);
  CHECK(stator_kv_unpin(cache, pin) == STATOR_KV_OK);
  CHECK(stator_kv_unpin(cache, pin) == STATOR_KV_NOT_FOUND);

  uint64_t others[4] = {4, 5, 6, 7};
  request.blocks = others;
  request.limit_ms = 60000;
  int64_t get = stator_kv_get(cache, &request);
  CHECK(get > 0);
  CHECK(stator_kv_wait(cache, get, 60000, &result) == STATOR_KV_OK);
  CHECK(result.blocks == 4 && result.from_host == 4);
  CHECK(memcmp(keys_memory[2], keys_memory[6], sizeof keys_memory[2]) == 0);
  CHECK(memcmp(values_memory[3], values_memory[7], sizeof values_memory[3]) == 0);
  CHECK(stator_kv_release(cache, get) == STATOR_KV_OK);
  others[3] = kBlocks;
  CHECK(stator_kv_get(cache, &request) == STATOR_KV_INVALID);

  stator_kv_key named;
  CHECK(stator_kv_key_of_name(cache, "page", 4, &named) == STATOR_KV_OK);
  CHECK(stator_kv_lookup(cache, &named, 1, &found) == STATOR_KV_OK && found.present == 0);
  CHECK(stator_kv_flush(cache, 60000) == STATOR_KV_OK);
  CHECK(stator_kv_get_stats(cache, &stats) == STATOR_KV_OK);
  CHECK(stats.put_blocks == 4 && stats.get_blocks == 4 && stats.operations == 0);
  CHECK(stator_kv_metrics(cache, NULL, 0) > 100);
  stator_kv_close(cache);
  return 0;
}
