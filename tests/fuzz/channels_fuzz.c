/*
 * What pods/exec sends on its channels: messages of any length, whole or in parts, never hold more than a status may
 * have, and the status at the end is read or refused. Each message is a byte of its length, one of whether it comes in
 * parts, and its bytes. The script's answers are read out of standard output on the way.
 */
// Sources: backend/podexec/channels.c backend/podexec/script.c base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "backend/podexec/channels.h"
#include "backend/podexec/script.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static void on_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct script_reader *reader = context;
  size_t used;
  PROMISE(length > 0 && (channel == CHANNEL_STDOUT || channel == CHANNEL_STDERR));
  script_read(reader, bytes, length, &used);
  PROMISE(used > 0 && used <= length);
}

static int give(struct channels *channels, struct script_reader *reader, const uint8_t *bytes, size_t length,
                size_t part) {
  static const struct channels_events events = {.output = on_output};
  CLEANUP_ERROR struct error *err = NULL;
  int result = 0;
  for (size_t at = 0; result == 0 && (at < length || at == 0); at += part) {
    size_t some = length - at < part ? length - at : part;
    result = channels_receive(channels, bytes + at, some, at == 0, at + some == length, &events, reader, &err);
    PROMISE((result == 0) == (err == NULL));
  }
  PROMISE(channels->status.length <= CHANNELS_STATUS_BYTES);
  return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct channels channels;
  struct channels_end end;
  struct script_reader reader = {0};
  CLEANUP_ERROR struct error *err = NULL;
  char message[40];
  channels_init(&channels);
  while (size >= 2) {
    size_t length = data[0] < size - 2 ? data[0] : size - 2;
    size_t part = data[1] == 0 ? length + 1 : data[1];
    if (give(&channels, &reader, data + 2, length, part) != 0)
      break;
    data += 2 + length;
    size -= 2 + length;
  }
  if (channels_end_read(&channels, &end, &err) == 0)
    PROMISE(end.exit_code >= 0 && end.exit_code <= 255 && memchr(end.message, '\0', sizeof end.message));
  channels_status_message(buffer_text(&channels.status), channels.status.length, message, sizeof message);
  PROMISE(memchr(message, '\0', sizeof message) != NULL);
  channels_free(&channels);
  return 0;
}
