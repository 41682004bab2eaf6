/*
 * Opening a WebSocket: see handshake.h.
 */
#define _GNU_SOURCE
#include "backend/websocket/handshake.h"

#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#define KEY_BYTES 16
#define REQUEST_BYTES 65536
#define RETRY_SECONDS_MOST 3600

/* --- the request --- */

static bool plain_text(const char *text) {
  for (const char *at = text; *at; at++)
    if (*at <= ' ' || *at == 0x7f)
      return false;
  return *text != '\0';
}

static int check_request(const struct websocket_request *request, struct error **err) {
  const struct websocket_endpoint *endpoint = request->endpoint;
  const struct {
    const char *name, *text;
  } parts[] = {{"host", endpoint->host},
               {"target", request->target},
               {"protocol", request->protocol},
               {"bearer token", endpoint->bearer ? endpoint->bearer : "none"}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (!plain_text(parts[i].text))
      return error_set_detail(err, REASON_INTERNAL, "websocket: the %s must be visible ASCII without spaces",
                              parts[i].name);
  if (request->target[0] != '/' || strlen(request->protocol) > HANDSHAKE_PROTOCOL_BYTES)
    return error_set_detail(err, REASON_INTERNAL, "websocket: the target or the protocol is not valid");
  return 0;
}

/* The key of this handshake, and what the server must make of it. */
static int make_key(struct handshake *handshake, struct buffer *key) {
  uint8_t bytes[KEY_BYTES], digest[SHA_DIGEST_LENGTH];
  char memory[128];
  struct buffer joined;
  random_bytes(bytes, sizeof bytes);
  if (text_base64(key, bytes, sizeof bytes) != 0)
    return -1;
  buffer_borrow(&joined, memory, sizeof memory);
  buffer_append(&joined, key->data, key->length);
  buffer_append_string(&joined, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
  SHA1(joined.data, joined.length, digest);
  buffer_borrow(&joined, handshake->accept, sizeof handshake->accept);
  return text_base64(&joined, digest, sizeof digest);
}

int handshake_start(struct handshake *handshake, const struct websocket_request *request, struct buffer *out,
                    struct error **err) {
  const struct websocket_endpoint *endpoint = request->endpoint;
  char memory[64];
  struct buffer key;
  *handshake = (struct handshake){.state = HANDSHAKE_HEAD};
  buffer_init(&handshake->answer, HANDSHAKE_HEAD_BYTES);
  if (check_request(request, err) != 0)
    return -1;
  memcpy(handshake->protocol, request->protocol, strlen(request->protocol) + 1);
  bool brackets = strchr(endpoint->host, ':') != NULL;
  buffer_borrow(&key, memory, sizeof memory);
  if (make_key(handshake, &key) != 0 ||
      buffer_append_format(out, "GET %s HTTP/1.1\r\nHost: %s%s%s:%u\r\n", request->target, brackets ? "[" : "",
                           endpoint->host, brackets ? "]" : "", endpoint->port) != 0 ||
      buffer_append_format(out,
                           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\nUser-Agent: lease-server\r\n",
                           buffer_text(&key), request->protocol) != 0 ||
      (endpoint->bearer && buffer_append_format(out, "Authorization: Bearer %s\r\n", endpoint->bearer) != 0) ||
      buffer_append_string(out, "\r\n") != 0)
    return error_set_memory(err);
  return 0;
}

void handshake_free(struct handshake *handshake) {
  buffer_free(&handshake->answer);
}

/* --- the answer --- */

static int broken(struct error **err, const char *what) {
  return error_set_detail(err, REASON_SANDBOX_NOT_READY, "websocket handshake: %s", what);
}

/* What the fields of the head say. */
struct head {
  int status;
  bool upgrade, connection, accept, protocol, extension, length_told, length_twice;
  size_t length;
  unsigned retry_after;
};

struct span {
  const char *text;
  size_t length;
};

static bool span_is(struct span span, const char *text) {
  return span.length == strlen(text) && strncasecmp(span.text, text, span.length) == 0;
}

static struct span trim(struct span span) {
  while (span.length > 0 && (span.text[0] == ' ' || span.text[0] == '\t')) {
    span.text++;
    span.length--;
  }
  while (span.length > 0 && (span.text[span.length - 1] == ' ' || span.text[span.length - 1] == '\t'))
    span.length--;
  return span;
}

/* A number of at most nine digits. Returns 0, or -1. */
static int span_number(struct span span, size_t *number) {
  *number = 0;
  if (span.length == 0 || span.length > 9)
    return -1;
  for (size_t i = 0; i < span.length; i++) {
    if (span.text[i] < '0' || span.text[i] > '9')
      return -1;
    *number = *number * 10 + (size_t)(span.text[i] - '0');
  }
  return 0;
}

/* Is `word` one of a list with commas? */
static bool list_has(struct span list, const char *word) {
  while (list.length > 0) {
    const char *comma = memchr(list.text, ',', list.length);
    size_t length = comma ? (size_t)(comma - list.text) : list.length;
    if (span_is(trim((struct span){list.text, length}), word))
      return true;
    size_t step = comma ? length + 1 : length;
    list.text += step;
    list.length -= step;
  }
  return false;
}

static int read_length(struct head *head, struct span value, struct error **err) {
  size_t length;
  if (span_number(value, &length) != 0)
    return broken(err, "Content-Length is not a number");
  head->length_twice = head->length_twice || head->length_told;
  head->length_told = true;
  head->length = length;
  return 0;
}

static int read_field(struct handshake *handshake, struct head *head, struct span name, struct span value,
                      struct error **err) {
  size_t seconds;
  if (span_is(name, "Upgrade"))
    head->upgrade = span_is(value, "websocket");
  else if (span_is(name, "Connection"))
    head->connection = head->connection || list_has(value, "upgrade");
  else if (span_is(name, "Sec-WebSocket-Accept"))
    head->accept = value.length == HANDSHAKE_ACCEPT_BYTES && memcmp(value.text, handshake->accept, value.length) == 0;
  else if (span_is(name, "Sec-WebSocket-Protocol"))
    head->protocol =
        value.length == strlen(handshake->protocol) && memcmp(value.text, handshake->protocol, value.length) == 0;
  else if (span_is(name, "Sec-WebSocket-Extensions"))
    head->extension = true;
  else if (span_is(name, "Retry-After") && span_number(value, &seconds) == 0)
    head->retry_after = 1000 * (unsigned)(seconds < RETRY_SECONDS_MOST ? seconds : RETRY_SECONDS_MOST);
  else if (span_is(name, "Content-Length"))
    return read_length(head, value, err);
  return 0;
}

static int read_line(struct handshake *handshake, struct head *head, struct span line, struct error **err) {
  const char *colon = memchr(line.text, ':', line.length);
  if (!colon || colon == line.text || line.text[0] == ' ' || line.text[0] == '\t' || colon[-1] == ' ' ||
      memchr(line.text, '\0', line.length) || memchr(line.text, '\r', line.length))
    return broken(err, "a header field that is none");
  size_t name_length = (size_t)(colon - line.text);
  struct span name = {line.text, name_length};
  struct span value = {colon + 1, line.length - name_length - 1};
  return read_field(handshake, head, name, trim(value), err);
}

/* "HTTP/1.1 101 …" */
static int read_status(struct span line, int *status, struct error **err) {
  size_t number;
  if (line.length < 12 || memcmp(line.text, "HTTP/1.1 ", 9) != 0 ||
      span_number((struct span){line.text + 9, 3}, &number) != 0 || (line.length > 12 && line.text[12] != ' ') ||
      number < 100 || number > 599)
    return broken(err, "the answer is not HTTP/1.1");
  *status = (int)number;
  return 0;
}

static int read_head(struct handshake *handshake, struct head *head, size_t length, struct error **err) {
  const char *at = (const char *)handshake->answer.data, *end = at + length - 2; /* the last line is empty */
  for (bool first = true; at < end; first = false) {
    const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
    struct span line = {at, (size_t)((stop ? stop : end) - at)};
    if ((first ? read_status(line, &head->status, err) : read_line(handshake, head, line, err)) != 0)
      return -1;
    at += line.length + 2;
  }
  return head->status ? 0 : broken(err, "an empty answer");
}

static int judge_open(struct handshake *handshake, const struct head *head, struct error **err) {
  if (!head->upgrade || !head->connection)
    return broken(err, "the server switched to something else");
  if (!head->accept)
    return broken(err, "Sec-WebSocket-Accept is not the right one");
  if (!head->protocol)
    return broken(err, "the server did not take the subprotocol");
  if (head->extension)
    return broken(err, "the server uses an extension that nobody asked for");
  handshake->state = HANDSHAKE_OPEN;
  buffer_free(&handshake->answer);
  return 0;
}

static void finish_refusal(struct handshake *handshake) {
  handshake->state = HANDSHAKE_REFUSED;
  handshake->refusal.body = buffer_text(&handshake->answer);
  handshake->refusal.body_length = handshake->answer.length;
}

static void begin_refusal(struct handshake *handshake, const struct head *head) {
  handshake->refusal = (struct websocket_refusal){.status = head->status, .retry_after = head->retry_after};
  buffer_clear(&handshake->answer);
  bool told = head->length_told && !head->length_twice && head->length <= HANDSHAKE_BODY_BYTES;
  handshake->body_length = told ? head->length : 0;
  handshake->state = HANDSHAKE_BODY;
  if (handshake->body_length == 0)
    finish_refusal(handshake);
}

/* Where the head ends in what has come, or 0. */
static size_t head_end(const struct buffer *answer, size_t seen) {
  size_t from = seen > 3 ? seen - 3 : 0;
  const uint8_t *end = answer->length > from ? memmem(answer->data + from, answer->length - from, "\r\n\r\n", 4) : NULL;
  return end ? (size_t)(end - answer->data) + 4 : 0;
}

static int receive_head(struct handshake *handshake, const uint8_t *bytes, size_t length, size_t *used,
                        struct error **err) {
  size_t before = handshake->answer.length;
  size_t room = HANDSHAKE_HEAD_BYTES - before;
  *used = length < room ? length : room;
  if (buffer_append(&handshake->answer, bytes, *used) != 0)
    return error_set_memory(err);
  size_t end = head_end(&handshake->answer, before);
  if (end == 0)
    return handshake->answer.length < HANDSHAKE_HEAD_BYTES ? 0 : broken(err, "the head of the answer is too long");
  *used = end - before;
  struct head head = {0};
  if (read_head(handshake, &head, end, err) != 0)
    return -1;
  if (head.status == 101)
    return judge_open(handshake, &head, err);
  begin_refusal(handshake, &head);
  return 0;
}

static int receive_body(struct handshake *handshake, const uint8_t *bytes, size_t length, size_t *used,
                        struct error **err) {
  size_t left = handshake->body_length - handshake->answer.length;
  size_t some = length < left ? length : left;
  *used += some;
  if (buffer_append(&handshake->answer, bytes, some) != 0)
    return error_set_memory(err);
  if (some == left)
    finish_refusal(handshake);
  return 0;
}

int handshake_receive(struct handshake *handshake, const uint8_t *bytes, size_t length, size_t *used,
                      struct error **err) {
  *used = 0;
  if (handshake->state == HANDSHAKE_HEAD && receive_head(handshake, bytes, length, used, err) != 0)
    return -1;
  if (handshake->state == HANDSHAKE_BODY)
    return receive_body(handshake, bytes + *used, length - *used, used, err);
  return 0;
}
