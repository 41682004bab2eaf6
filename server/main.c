/*
 * lease-server. A new backend is one line in this table.
 */
#include "server/program.h"

#include <stddef.h>

int main(int argc, char **argv) {
  static const struct program_backend backends[] = {
      {"local", backend_local_new},
      {"kubernetes", backend_kubernetes_new},
      {NULL, NULL},
  };
  return program_run(argc, argv, backends);
}
