/*
 * UTF-8, base64 and hexadecimal: repaired text is valid, and what the readers take is what the writers write.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "base/memory.h"
#include "base/text.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

typedef int codec_read(struct buffer *out, const char *text, size_t length);
typedef int codec_write(struct buffer *out, const void *bytes, size_t length);

static void check_codec(const uint8_t *data, size_t size, codec_read *read, codec_write *write) {
  struct buffer there CLEANUP_BUFFER;
  struct buffer back CLEANUP_BUFFER;
  buffer_init(&there, SIZE_MAX);
  buffer_init(&back, SIZE_MAX);
  if (read(&there, (const char *)data, size) == 0)
    PROMISE(write(&back, there.data, there.length) == 0 && back.length == size &&
            memcmp(buffer_text(&back), data, size) == 0);
  buffer_free(&there);
  buffer_free(&back);
  PROMISE(write(&there, data, size) == 0 && read(&back, buffer_text(&there), there.length) == 0);
  PROMISE(back.length == size && memcmp(buffer_text(&back), data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  const uint8_t *data = size > 0 ? input : (const uint8_t *)"";
  struct buffer repaired CLEANUP_BUFFER;
  buffer_init(&repaired, SIZE_MAX);
  bool valid = text_valid(data, size);
  PROMISE(text_repair(&repaired, data, size) == 0 && text_valid(buffer_text(&repaired), repaired.length));
  PROMISE(valid == (repaired.length == size && memcmp(buffer_text(&repaired), data, size) == 0));
  PROMISE(text_characters(buffer_text(&repaired), repaired.length) <= size);
  if (text_blank(data, size))
    PROMISE(valid);
  check_codec(data, size, text_unbase64, text_base64);
  check_codec(data, size, text_unbase64url, text_base64url);
  return 0;
}
