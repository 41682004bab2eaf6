#include "gateway/reply.h"

#include "base/json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The start of every head, made at build time. */
#define STATUS_LINE(code, phrase)                                                                                      \
  case code:                                                                                                           \
    return HTTP_TEXT("HTTP/1.1 " #code " " phrase "\r\n")

static struct http_text status_line(int status) {
  switch (status) {
    STATUS_LINE(200, "OK");
    STATUS_LINE(201, "Created");
    STATUS_LINE(204, "No Content");
    STATUS_LINE(400, "Bad Request");
    STATUS_LINE(401, "Unauthorized");
    STATUS_LINE(404, "Not Found");
    STATUS_LINE(405, "Method Not Allowed");
    STATUS_LINE(408, "Request Timeout");
    STATUS_LINE(409, "Conflict");
    STATUS_LINE(410, "Gone");
    STATUS_LINE(411, "Length Required");
    STATUS_LINE(413, "Content Too Large");
    STATUS_LINE(414, "URI Too Long");
    STATUS_LINE(415, "Unsupported Media Type");
    STATUS_LINE(422, "Unprocessable Content");
    STATUS_LINE(429, "Too Many Requests");
    STATUS_LINE(431, "Request Header Fields Too Large");
    STATUS_LINE(501, "Not Implemented");
    STATUS_LINE(502, "Bad Gateway");
    STATUS_LINE(503, "Service Unavailable");
    STATUS_LINE(504, "Gateway Timeout");
    STATUS_LINE(500, "Internal Server Error");
  default:
    return (struct http_text){.data = NULL, .length = 0};
  }
}

static void add(struct buffer *head, const char *text) {
  int full = buffer_append_string(head, text);
  assert(full == 0);
  (void)full;
}

static void add_text(struct buffer *head, struct http_text text) {
  int full = buffer_append(head, text.data, text.length);
  assert(full == 0);
  (void)full;
}

static void add_number(struct buffer *head, uint64_t number) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  add_text(head, (struct http_text){.data = digits + at, .length = sizeof digits - at});
}

static void add_header(struct buffer *head, struct http_text start, const char *value) {
  add_text(head, start);
  add(head, value);
  add_text(head, HTTP_TEXT("\r\n"));
}

static void add_status(struct buffer *head, int status) {
  struct http_text line = status_line(status);
  if (line.data) {
    add_text(head, line);
    return;
  }
  add_text(head, HTTP_TEXT("HTTP/1.1 "));
  add_number(head, (uint64_t)status);
  add_text(head, HTTP_TEXT(" \r\n"));
}

static void add_content(struct buffer *head, const struct reply *reply) {
  if (reply->content == REPLY_EMPTY)
    return;
  add_text(head, reply->content == REPLY_JSON ? HTTP_TEXT("Content-Type: application/json\r\nContent-Length: ")
                                              : HTTP_TEXT("Content-Type: application/octet-stream\r\nContent-Length: "));
  add_number(head, reply->content_length);
  add_text(head, HTTP_TEXT("\r\n"));
}

static void add_retry_after(struct buffer *head, unsigned seconds) {
  add_text(head, HTTP_TEXT("Retry-After: "));
  add_number(head, seconds);
  add_text(head, HTTP_TEXT("\r\n"));
}

size_t reply_head(const struct reply *reply, char head[static REPLY_HEAD_BYTES]) {
  struct buffer text;
  buffer_borrow(&text, head, REPLY_HEAD_BYTES);
  add_status(&text, reply->status);
  if (reply->date)
    add_header(&text, HTTP_TEXT("Date: "), reply->date);
  add_content(&text, reply);
  add_text(&text, HTTP_TEXT("X-Request-Id: "));
  add_text(&text, reply->request_id);
  add_text(&text, HTTP_TEXT("\r\n"));
  if (reply->content_digest)
    add_header(&text, HTTP_TEXT("Content-Digest: "), reply->content_digest);
  if (reply->allow)
    add_header(&text, HTTP_TEXT("Allow: "), reply->allow);
  if (reply->status == 401)
    add_text(&text, HTTP_TEXT("WWW-Authenticate: Bearer\r\n"));
  if (reply->retry_after_seconds > 0)
    add_retry_after(&text, reply->retry_after_seconds);
  if (reply->connection != REPLY_CONNECTION_DEFAULT)
    add_text(&text, reply->connection == REPLY_CONNECTION_CLOSE ? HTTP_TEXT("Connection: close\r\n")
                                                                : HTTP_TEXT("Connection: keep-alive\r\n"));
  add_text(&text, HTTP_TEXT("\r\n"));
  return text.length;
}

int reply_error_body(struct buffer *out, const struct error *err, struct http_text request_id) {
  const char *code = reason_name(error_reason(err)), *message = error_message(err);
  if (buffer_append_string(out, "{\"error\":{\"code\":\"") < 0 || buffer_append_string(out, code) < 0 ||
      buffer_append_string(out, "\",\"message\":") < 0 || json_write_string(out, message, strlen(message)) < 0 ||
      buffer_append_string(out, ",\"requestId\":") < 0 || json_write_string(out, request_id.data, request_id.length) < 0)
    return -1;
  return buffer_append_string(out, "}}");
}

unsigned reply_retry_after(const struct error *err) {
  enum reason reason = error_reason(err);
  int status = reason_http_status(reason);
  if (status != 429 && !(status == 503 && reason_retryable(reason)))
    return 0;
  unsigned milliseconds = error_retry_after(err);
  return milliseconds < 1000 ? 1 : milliseconds / 1000 + (milliseconds % 1000 != 0);
}

void reply_date(int64_t seconds, char text[static REPLY_DATE_BYTES]) {
  static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  time_t time = (time_t)seconds;
  struct tm parts;
  gmtime_r(&time, &parts);
  /* Not strftime: the names must not follow the locale. */
  snprintf(text, REPLY_DATE_BYTES, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[parts.tm_wday % 7], parts.tm_mday % 32,
           months[parts.tm_mon % 12], (parts.tm_year + 1900) % 10000, parts.tm_hour % 24, parts.tm_min % 60,
           parts.tm_sec % 61);
}
