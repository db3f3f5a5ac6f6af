// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/command.h"

int main(int argc, char** argv) {
  return stator::cli::run_command_line(argc, argv);
}
