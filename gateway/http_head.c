/*
 * picohttpparser finds the pieces of a head; what is allowed and what the framing fields mean is decided here.
 */
#include "gateway/http_head.h"

#include "base/limits.h"
#include "gateway/picohttpparser.h"

#include <string.h>

#define MALFORMED "Malformed HTTP request"

/* Text */

static char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? (char)(byte + ('a' - 'A')) : byte; }

bool http_text_is(struct http_text text, struct http_text other) {
  return text.length == other.length && (text.length == 0 || memcmp(text.data, other.data, text.length) == 0);
}

bool http_text_is_any_case(struct http_text text, struct http_text other) {
  if (text.length != other.length)
    return false;
  for (size_t i = 0; i < text.length; i++)
    if (lower(text.data[i]) != lower(other.data[i]))
      return false;
  return true;
}

static bool is_blank(char byte) { return byte == ' ' || byte == '\t'; }

static struct http_text trimmed(const char *data, size_t length) {
  while (length > 0 && is_blank(data[0])) {
    data++;
    length--;
  }
  while (length > 0 && is_blank(data[length - 1]))
    length--;
  return (struct http_text){.data = data, .length = length};
}

/* Takes the next member of a comma-separated list from the front of *list. Returns false at the end. */
static bool next_member(struct http_text *list, struct http_text *member) {
  if (!list->data)
    return false;
  const char *comma = memchr(list->data, ',', list->length);
  if (comma) {
    size_t length = (size_t)(comma - list->data);
    *member = trimmed(list->data, length);
    list->data += length + 1;
    list->length -= length + 1;
  } else {
    *member = trimmed(list->data, list->length);
    list->data = NULL;
  }
  return true;
}

/* Fields that say how the message is framed */

/* What is noted while the fields are read. */
struct framing {
  unsigned hosts, lengths, encodings;
  bool close, keep_alive; /* in any Connection field */
};

static int read_content_length(struct http_head *head, struct http_text value, struct error **err) {
  if (value.length == 0)
    return error_set(err, REASON_INVALID_REQUEST, "Content-Length must be a number");
  uint64_t number = 0;
  for (size_t i = 0; i < value.length; i++) {
    if (value.data[i] < '0' || value.data[i] > '9')
      return error_set(err, REASON_INVALID_REQUEST, "Content-Length must be a number");
    uint64_t digit = (uint64_t)(value.data[i] - '0');
    number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : number * 10 + digit;
  }
  head->has_length = true;
  head->content_length = number;
  return 0;
}

static void read_connection(struct framing *framing, struct http_text value) {
  struct http_text member;
  while (next_member(&value, &member)) {
    framing->close |= http_text_is_any_case(member, HTTP_TEXT("close"));
    framing->keep_alive |= http_text_is_any_case(member, HTTP_TEXT("keep-alive"));
  }
}

static void keep(struct http_head *head, enum http_field field, struct http_text value) {
  if (head->fields[field].data)
    head->repeated[field] = true;
  head->fields[field] = value;
}

static int read_field(struct http_head *head, struct framing *framing, struct http_text name, struct http_text value,
                      struct error **err) {
  if (http_text_is_any_case(name, HTTP_TEXT("host"))) {
    framing->hosts++;
  } else if (http_text_is_any_case(name, HTTP_TEXT("content-length"))) {
    framing->lengths++;
    return read_content_length(head, value, err);
  } else if (http_text_is_any_case(name, HTTP_TEXT("transfer-encoding"))) {
    framing->encodings++;
    head->chunked = http_text_is_any_case(value, HTTP_TEXT("chunked"));
  } else if (http_text_is_any_case(name, HTTP_TEXT("connection"))) {
    read_connection(framing, value);
  } else if (http_text_is_any_case(name, HTTP_TEXT("expect"))) {
    head->expects_continue = http_text_is_any_case(value, HTTP_TEXT("100-continue"));
  } else if (http_text_is_any_case(name, HTTP_TEXT("authorization"))) {
    keep(head, HTTP_AUTHORIZATION, value);
  } else if (http_text_is_any_case(name, HTTP_TEXT("content-digest"))) {
    keep(head, HTTP_CONTENT_DIGEST, value);
  } else if (http_text_is_any_case(name, HTTP_TEXT("content-type"))) {
    keep(head, HTTP_CONTENT_TYPE, value);
  } else if (http_text_is_any_case(name, HTTP_TEXT("idempotency-key"))) {
    keep(head, HTTP_IDEMPOTENCY_KEY, value);
  } else if (http_text_is_any_case(name, HTTP_TEXT("x-request-id"))) {
    keep(head, HTTP_REQUEST_ID, value);
  }
  return 0;
}

static int check_framing(struct http_head *head, const struct framing *framing, struct error **err) {
  if (framing->hosts > 1 || (framing->hosts == 0 && head->minor_version == 1))
    return error_set(err, REASON_INVALID_REQUEST, "A request needs exactly one Host header");
  if (framing->lengths > 1)
    return error_set(err, REASON_INVALID_REQUEST, "Content-Length must be given once");
  if (framing->encodings > 1 || (framing->encodings == 1 && (!head->chunked || head->minor_version == 0)))
    return error_set(err, REASON_INVALID_REQUEST, "Transfer-Encoding must be 'chunked'");
  if (framing->encodings > 0 && framing->lengths > 0)
    return error_set(err, REASON_INVALID_REQUEST, "Content-Length and Transfer-Encoding exclude each other");
  head->keep_alive = head->minor_version == 1 ? !framing->close : framing->keep_alive && !framing->close;
  if (head->minor_version == 0)
    head->expects_continue = false;
  return 0;
}

/* The head as a whole */

static bool is_token(struct http_text text) {
  static const char others[] = "!#$%&'*+-.^_`|~";
  for (size_t i = 0; i < text.length; i++) {
    char byte = text.data[i], letter = lower(byte);
    if ((letter < 'a' || letter > 'z') && (byte < '0' || byte > '9') && (byte == '\0' || !strchr(others, byte)))
      return false;
  }
  return text.length > 0;
}

/* Every line of a head ends with CR LF; the parser alone would take LF, too. */
static bool has_bare_line_feed(const char *bytes, size_t length) {
  const char *end = bytes + length;
  for (const char *at = bytes; at < end; at++) {
    at = memchr(at, '\n', (size_t)(end - at));
    if (!at)
      return false;
    if (at == bytes || at[-1] != '\r')
      return true;
  }
  return false;
}

static enum http_head_result refuse_size(const char *bytes, struct error **err) {
  bool line_ended = memchr(bytes, '\n', LIMIT_HEADER_BYTES) != NULL;
  error_set(err, line_ended ? REASON_HEADERS_TOO_LARGE : REASON_URI_TOO_LONG, NULL);
  return HTTP_HEAD_REFUSED;
}

static int check_head(struct http_head *head, const struct phr_header *fields, size_t count, struct error **err) {
  if (!is_token(head->method) || head->target.length == 0)
    return error_set(err, REASON_INVALID_REQUEST, MALFORMED);
  if (head->minor_version > 1)
    return error_set(err, REASON_INVALID_REQUEST, "HTTP version must be 1.0 or 1.1");
  struct framing framing = {0};
  for (size_t i = 0; i < count; i++) {
    if (!fields[i].name) /* obsolete line folding */
      return error_set(err, REASON_INVALID_REQUEST, MALFORMED);
    struct http_text name = {.data = fields[i].name, .length = fields[i].name_len};
    if (!is_token(name))
      return error_set(err, REASON_INVALID_REQUEST, MALFORMED);
    if (read_field(head, &framing, name, trimmed(fields[i].value, fields[i].value_len), err) < 0)
      return -1;
  }
  return check_framing(head, &framing, err);
}

enum http_head_result http_head_read(const char *bytes, size_t length, size_t seen, struct http_head *head, size_t *used,
                                     struct error **err) {
  struct phr_header fields[LIMIT_HEADER_COUNT];
  size_t count = LIMIT_HEADER_COUNT;
  *head = (struct http_head){0};
  int result = phr_parse_request(bytes, length, &head->method.data, &head->method.length, &head->target.data,
                                 &head->target.length, &head->minor_version, fields, &count, seen);
  if (result == -2 && length <= LIMIT_HEADER_BYTES)
    return HTTP_HEAD_PARTIAL;
  if (result == -2 || result > LIMIT_HEADER_BYTES)
    return refuse_size(bytes, err);
  if (result < 0) {
    bool too_many = count == LIMIT_HEADER_COUNT;
    error_set(err, too_many ? REASON_HEADERS_TOO_LARGE : REASON_INVALID_REQUEST, too_many ? NULL : MALFORMED);
    return HTTP_HEAD_REFUSED;
  }
  *used = (size_t)result;
  if (has_bare_line_feed(bytes, *used)) {
    error_set(err, REASON_INVALID_REQUEST, MALFORMED);
    return HTTP_HEAD_REFUSED;
  }
  return check_head(head, fields, count, err) < 0 ? HTTP_HEAD_REFUSED : HTTP_HEAD_WHOLE;
}

static void move(struct http_text *text, const char *from, const char *to) {
  if (text->data)
    text->data = to + (text->data - from);
}

void http_head_move(struct http_head *head, const char *from, const char *to) {
  move(&head->method, from, to);
  move(&head->target, from, to);
  for (size_t i = 0; i < HTTP_FIELD_COUNT; i++)
    move(&head->fields[i], from, to);
}
