/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "stator/transfer/stator_transfer.h"

#define CHECK(condition)                                    \
  do {                                                      \
    if (!(condition)) {                                     \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                             \
    }                                                       \
  } while (0)

int main(void) {
  char blob[4096];
  char peer[64];
  char message[64];
  CHECK(stator_transfer_version() == 1);
  CHECK(strcmp(stator_transfer_status_name(STATOR_NOT_FOUND), "NOT_FOUND") == 0);
  CHECK(stator_transfer_create("") == NULL);
  CHECK(stator_transfer_post(NULL, 1) == STATOR_INVALID_PARAM);
  stator_transfer_agent* a = stator_transfer_create("a");
  stator_transfer_agent* b = stator_transfer_create("b");
  CHECK(stator_transfer_backend(a, "carrier-pigeon", "") == STATOR_NOT_FOUND);
  CHECK(stator_transfer_backend(a, "tcp", "host=127.0.0.1") == STATOR_SUCCESS);
  CHECK(stator_transfer_backend(b, "tcp", "") == STATOR_SUCCESS);
  unsigned char* mine = stator_transfer_allocate(a, 4096);
  unsigned char* theirs = stator_transfer_allocate(b, 4096);
  CHECK(mine != NULL && theirs != NULL);
  memset(mine, 7, 4096);
  stator_transfer_range local = {(uint64_t)(uintptr_t)mine, 4096, 0};
  stator_transfer_range remote = {(uint64_t)(uintptr_t)theirs, 4096, 0};
  CHECK(stator_transfer_register(a, STATOR_MEM_DRAM, &local, 1) == STATOR_SUCCESS);
  CHECK(stator_transfer_register(b, STATOR_MEM_DRAM, &remote, 1) == STATOR_SUCCESS);
  int64_t size = stator_transfer_metadata(b, blob, sizeof blob);
  CHECK(size > 0 && size <= (int64_t)sizeof blob);
  CHECK(stator_transfer_load_peer(a, blob, (size_t)size, peer, sizeof peer) == STATOR_SUCCESS);
  CHECK(strcmp(peer, "b") == 0);
  int64_t from = stator_transfer_list(a, "", STATOR_MEM_DRAM, &local, 1);
  int64_t to = stator_transfer_list(a, peer, STATOR_MEM_DRAM, &remote, 1);
  CHECK(from > 0 && to > 0);
  remote.len = 8192;
  CHECK(stator_transfer_list(a, peer, STATOR_MEM_DRAM, &remote, 1) == STATOR_NOT_FOUND);
  int64_t transfer = stator_transfer_make(a, STATOR_WRITE, from, to, "done");
  CHECK(transfer > 0);
  CHECK(stator_transfer_post(a, transfer) == STATOR_IN_PROGRESS);
  CHECK(stator_transfer_wait(a, transfer, 60000) == STATOR_SUCCESS);
  CHECK(memcmp(mine, theirs, 4096) == 0);
  CHECK(stator_transfer_next_notification(b, peer, sizeof peer, message, sizeof message) ==
        STATOR_SUCCESS);
  CHECK(strcmp(peer, "a") == 0 && strcmp(message, "done") == 0);
  CHECK(stator_transfer_release(a, transfer) == STATOR_SUCCESS);
  stator_transfer_destroy(a);
  stator_transfer_destroy(b);
  return 0;
}
