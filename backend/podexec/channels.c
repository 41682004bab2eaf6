/*
 * The channels of pods/exec: see channels.h.
 */
#include "backend/podexec/channels.h"

#include "base/json.h"
#include "base/text.h"
#include <string.h>

static int broken(struct error **err, const char *what) {
  return error_set_detail(err, REASON_SANDBOX_NOT_READY, "pods/exec: %s", what);
}

void channels_init(struct channels *channels) {
  *channels = (struct channels){0};
  buffer_init(&channels->status, CHANNELS_STATUS_BYTES);
}

void channels_free(struct channels *channels) {
  buffer_free(&channels->status);
}

static int take(struct channels *channels, const uint8_t *bytes, size_t length, const struct channels_events *events,
                void *context, struct error **err) {
  switch (channels->channel) {
  case CHANNEL_STDOUT:
  case CHANNEL_STDERR:
    if (length > 0)
      events->output(context, channels->channel, bytes, length);
    return 0;
  case CHANNEL_STATUS:
    if (length > 0 && buffer_append(&channels->status, bytes, length) != 0)
      return broken(err, "a status that is too long");
    return 0;
  case CHANNEL_CLOSE: /* a stream has ended: its program says so itself */
    return 0;
  default:
    return length == 0 ? 0 : broken(err, "a message on a channel that is not for us");
  }
}

int channels_receive(struct channels *channels, const uint8_t *bytes, size_t length, bool first, bool last,
                     const struct channels_events *events, void *context, struct error **err) {
  if (first)
    channels->begun = false;
  if (!channels->begun && length > 0) {
    channels->begun = true;
    channels->channel = *bytes++;
    length--;
  }
  (void)last;
  return channels->begun ? take(channels, bytes, length, events, context, err) : 0;
}

/* --- the status --- */

/* Control characters would make a log hard to read; what is not UTF-8 is repaired. */
static void copy_message(struct json_text text, char *message, size_t size) {
  struct buffer out;
  buffer_borrow(&out, message, size);
  size_t length = text.length;
  while (length > 0 && (length > (size - 1) / 3 || !text_valid(text.data, length)))
    length--;
  message[0] = '\0';
  if (length > 0)
    buffer_append(&out, text.data, length);
  for (size_t i = 0; i < out.length; i++)
    if (message[i] >= 0 && (message[i] < ' ' || message[i] == 0x7f))
      message[i] = ' ';
}

void channels_status_message(const char *text, size_t length, char *message, size_t size) {
  CLEANUP_JSON struct json *json = json_parse(text, length, NULL);
  struct json_text found = {0};
  message[0] = '\0';
  if (json && json_is_object(json) && json_get_text(json, "message", &found, NULL) == 0)
    copy_message(found, message, size);
}

/* 0 to 255. Returns 0, or -1 and *code stays. */
static int read_code(struct json_text text, int *code) {
  int number = 0;
  if (text.length < 1 || text.length > 3)
    return -1;
  for (size_t i = 0; i < text.length; i++) {
    if (text.data[i] < '0' || text.data[i] > '9')
      return -1;
    number = number * 10 + (text.data[i] - '0');
  }
  if (number > 255)
    return -1;
  *code = number;
  return 0;
}

/* The cause "ExitCode" of details.causes. Returns 0, or -1: there is none. */
static int exit_code(const struct json *status, int *code) {
  const struct json *details = NULL, *causes = NULL, *cause, *value;
  const void *position = NULL;
  struct json_text name;
  if (json_get_object(status, "details", &details, NULL) != 0 || !details)
    return -1;
  while (json_next(details, &position, &name, &value))
    if (name.length == 6 && memcmp(name.data, "causes", 6) == 0 && json_is_array(value))
      causes = value;
  position = NULL;
  while (causes && json_next(causes, &position, &name, &cause)) {
    struct json_text reason, number;
    if (!json_is_object(cause) || json_get_text(cause, "reason", &reason, NULL) != 0 ||
        json_get_text(cause, "message", &number, NULL) != 0 || !reason.data || strcmp(reason.data, "ExitCode") != 0)
      continue;
    return read_code(number, code);
  }
  return -1;
}

int channels_end_read(const struct channels *channels, struct channels_end *end, struct error **err) {
  const char *text = buffer_text(&channels->status);
  struct json_text status = {0};
  *end = (struct channels_end){0};
  if (channels->status.length == 0)
    return 0;
  CLEANUP_JSON struct json *json = json_parse(text, channels->status.length, NULL);
  if (!json || !json_is_object(json) || json_get_text(json, "status", &status, NULL) != 0 || !status.data)
    return broken(err, "a status that makes no sense");
  end->told = true;
  end->exited = strcmp(status.data, "Success") == 0 || exit_code(json, &end->exit_code) == 0;
  if (!end->exited)
    channels_status_message(text, channels->status.length, end->message, sizeof end->message);
  return 0;
}
