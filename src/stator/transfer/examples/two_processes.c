/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes: one offers memory, the other writes into it and says so. From the repository:
 *
 *   cc -std=c11 -I src src/stator/transfer/examples/two_processes.c -L build/release/lib \
 *     -lstator_transfer -Wl,-rpath,$PWD/build/release/lib -o two_processes
 *   ./two_processes shm          # or tcp, cma
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stator/transfer/stator_transfer.h"

enum { kBytes = 1 << 20, kPatienceMs = 10000 };

static int failed(const char* what, long long status) {
  fprintf(stderr, "%s: %s\n", what, stator_transfer_status_name((int)status));
  return 1;
}

/* Offers a MiB, then waits for the word that it was written. */
static int offer(const char* backend, int port_pipe) {
  stator_transfer_agent* agent = stator_transfer_create("target");
  int status = stator_transfer_backend(agent, backend, "");
  if (status != STATOR_SUCCESS) {
    return failed("backend", status);
  }
  unsigned char* memory = stator_transfer_allocate(agent, kBytes);
  stator_transfer_range range = {(uint64_t)(uintptr_t)memory, kBytes, 0};
  stator_transfer_register(agent, STATOR_MEM_DRAM, &range, 1);
  int port = stator_transfer_listen(agent, "127.0.0.1", 0);
  if (port <= 0) {
    return failed("listen", port);
  }
  /* Where to ask for the metadata, and where the memory is. */
  struct {
    int port;
    stator_transfer_range range;
  } told = {port, range};
  if (write(port_pipe, &told, sizeof told) != (ssize_t)sizeof told) {
    return 1;
  }
  char peer[64];
  char message[64];
  const struct timespec pause = {0, 1000000};
  for (int i = 0; i < kPatienceMs; ++i) {
    if (stator_transfer_next_notification(agent, peer, sizeof peer, message, sizeof message) ==
        STATOR_SUCCESS) {
      int good = memory[0] == 42 && memory[kBytes - 1] == 42;
      printf("%s says \"%s\": %s\n", peer, message, good ? "the bytes are there" : "wrong bytes");
      stator_transfer_destroy(agent);
      return good ? 0 : 1;
    }
    nanosleep(&pause, NULL);
  }
  return failed("waiting", STATOR_CANCELED);
}

static int write_there(const char* backend, int port_pipe) {
  struct {
    int port;
    stator_transfer_range range;
  } told;
  if (read(port_pipe, &told, sizeof told) != (ssize_t)sizeof told) {
    return 1;
  }
  stator_transfer_agent* agent = stator_transfer_create("initiator");
  stator_transfer_backend(agent, backend, "");
  unsigned char* memory = stator_transfer_allocate(agent, kBytes);
  memset(memory, 42, kBytes);
  stator_transfer_range range = {(uint64_t)(uintptr_t)memory, kBytes, 0};
  stator_transfer_register(agent, STATOR_MEM_DRAM, &range, 1);

  char place[64];
  char peer[64];
  snprintf(place, sizeof place, "tcp://127.0.0.1:%d", told.port);
  int status = stator_transfer_fetch_metadata(agent, place, "target", peer, sizeof peer);
  if (status != STATOR_SUCCESS) {
    return failed("metadata", status);
  }
  /* A MiB as 16 pieces, made ready once; a transfer names pieces by number. */
  stator_transfer_run mine = {range.addr, kBytes / 16, 0, kBytes / 16, 16};
  stator_transfer_run theirs = {told.range.addr, kBytes / 16, 0, kBytes / 16, 16};
  int64_t from = stator_transfer_list_runs(agent, "", STATOR_MEM_DRAM, &mine, 1);
  int64_t to = stator_transfer_list_runs(agent, peer, STATOR_MEM_DRAM, &theirs, 1);
  int64_t transfer = stator_transfer_make(agent, STATOR_WRITE, from, to, "written");
  if (transfer < 0) {
    return failed("make", transfer);
  }
  status = stator_transfer_post(agent, transfer);
  if (status == STATOR_IN_PROGRESS) {
    status = stator_transfer_wait(agent, transfer, kPatienceMs);
  }
  if (status != STATOR_SUCCESS) {
    return failed("transfer", status);
  }
  stator_transfer_numbers numbers;
  stator_transfer_telemetry(agent, transfer, &numbers);
  fprintf(stderr, "%llu bytes in %.0f us\n", (unsigned long long)numbers.bytes,
          numbers.seconds * 1e6);
  stator_transfer_release(agent, transfer);
  stator_transfer_destroy(agent);
  return 0;
}

int main(int argc, char** argv) {
  const char* backend = argc > 1 ? argv[1] : "shm";
  int port_pipe[2];
  if (pipe(port_pipe) != 0) {
    return 1;
  }
  /* Fork before the first agent: agents have threads. */
  pid_t initiator = fork();
  if (initiator == 0) {
    _exit(write_there(backend, port_pipe[0]));
  }
  int mine = offer(backend, port_pipe[1]);
  int theirs = 1;
  waitpid(initiator, &theirs, 0);
  return mine == 0 && theirs == 0 ? 0 : 1;
}
