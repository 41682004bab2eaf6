/*
 * Runs a fuzz target on every file of a folder, each from a block of exactly its length: replay FOLDER
 */
#include "tests/fuzz/fuzz.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int replay_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0)
    return -1;
  long size = ftell(file);
  rewind(file);
  uint8_t *data = size >= 0 ? malloc((size_t)size) : NULL;
  int result = -1;
  if ((data != NULL || size == 0) && fread(data, 1, (size_t)size, file) == (size_t)size) {
    LLVMFuzzerTestOneInput(data, (size_t)size);
    result = 0;
  }
  free(data);
  fclose(file);
  return result;
}

int main(int argc, char **argv) {
  DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
  int seeds = 0;
  if (folder == NULL) {
    fprintf(stderr, "usage: replay FOLDER\n");
    return 2;
  }
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[4096];
    if (entry->d_name[0] == '.')
      continue;
    snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
    fprintf(stderr, "%s\n", path);
    if (replay_file(path) != 0) {
      perror(path);
      return 1;
    }
    seeds++;
  }
  closedir(folder);
  printf("%d seeds replayed\n", seeds);
  return seeds > 0 ? 0 : 1;
}
