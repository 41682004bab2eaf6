/*
 * The sandboxd that is brought into containers, mapped from its file and measured once.
 */
#include "backend/podexec/podexec.h"

#include "base/digest.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM_BYTES (64 << 20)

static const uint8_t *map(int file, size_t *length) {
  struct stat facts;
  if (fstat(file, &facts) != 0)
    return NULL;
  if (!S_ISREG(facts.st_mode) || facts.st_size <= 0 || facts.st_size > PROGRAM_BYTES) {
    errno = EFBIG;
    return NULL;
  }
  *length = (size_t)facts.st_size;
  void *bytes = mmap(NULL, *length, PROT_READ, MAP_PRIVATE, file, 0);
  return bytes == MAP_FAILED ? NULL : bytes;
}

int podexec_program_read(struct podexec_program *program, const char *path, struct error **err) {
  uint8_t sum[DIGEST_SIZE];
  struct digest digest;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  *program = (struct podexec_program){0};
  program->bytes = file >= 0 ? map(file, &program->length) : NULL;
  int error = errno;
  if (file >= 0)
    close(file);
  if (!program->bytes)
    return error_set_errno(err, error, "cannot read %s", path);
  digest_start(&digest);
  digest_update(&digest, program->bytes, program->length);
  digest_finish(&digest, sum);
  text_hex(sum, sizeof sum, program->digest);
  return 0;
}

void podexec_program_free(struct podexec_program *program) {
  if (program->bytes)
    munmap((void *)(uintptr_t)program->bytes, program->length);
  *program = (struct podexec_program){0};
}
