/*
 * Header blocks: the fields that gRPC over HTTP/2 asks for in a request, an answer and a status, and what those of the
 * other side mean. A status text travels percent-encoded.
 */
#include "backend/wire/wire_internal.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

#define LITERAL (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define CONTENT_TYPE "application/grpc"

static nghttp2_nv field(const char *name, const char *value, size_t length, uint8_t flags) {
  return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), length, flags};
}

static nghttp2_nv fixed(const char *name, const char *value) {
  return field(name, value, strlen(value), LITERAL);
}

/* --- what we send --- */

int wire_header_submit_request(struct wire_call *call, const char *path) {
  nghttp2_nv fields[] = {
      fixed(":method", "POST"),
      fixed(":scheme", "http"),
      field(":path", path, strlen(path), NGHTTP2_NV_FLAG_NO_COPY_NAME),
      fixed(":authority", "sandbox"),
      fixed("te", "trailers"),
      fixed("content-type", CONTENT_TYPE),
  };
  return nghttp2_submit_request(call->wire->session, NULL, fields, sizeof fields / sizeof fields[0],
                                &wire_output_provider, call);
}

int wire_header_submit_answer(struct wire_call *call) {
  nghttp2_nv fields[] = {fixed(":status", "200"), fixed("content-type", CONTENT_TYPE)};
  return nghttp2_submit_response(call->wire->session, call->stream, fields, sizeof fields / sizeof fields[0],
                                 &wire_output_provider);
}

/* The caller frees with memory_free; NULL without memory. */
static char *encode_text(const char *text, size_t *length) {
  static const char digits[] = "0123456789ABCDEF";
  size_t count = strlen(text), used = 0;
  char *out = memory_new(3 * count + 1);
  if (!out)
    return NULL;
  for (size_t i = 0; i < count; i++) {
    uint8_t byte = (uint8_t)text[i];
    if (byte >= 0x20 && byte <= 0x7E && byte != '%') {
      out[used++] = text[i];
    } else {
      out[used++] = '%';
      out[used++] = digits[byte >> 4];
      out[used++] = digits[byte & 15];
    }
  }
  *length = used;
  return out;
}

/* The fields behind the messages; with `lead` further ones in front. */
static int submit_end(struct wire_call *call, const nghttp2_nv *lead, size_t lead_count) {
  char number[16];
  nghttp2_nv fields[4];
  size_t count = 0;
  for (; count < lead_count; count++)
    fields[count] = lead[count];
  snprintf(number, sizeof number, "%d", call->status);
  fields[count++] = field("grpc-status", number, strlen(number), NGHTTP2_NV_FLAG_NO_COPY_NAME);
  CLEANUP_MEMORY char *text = NULL;
  if (call->text) {
    size_t length = 0;
    text = encode_text(call->text, &length);
    if (!text)
      return NGHTTP2_ERR_NOMEM;
    fields[count++] = field("grpc-message", text, length, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  }
  if (lead_count > 0)
    return nghttp2_submit_response(call->wire->session, call->stream, fields, count, NULL);
  return nghttp2_submit_trailer(call->wire->session, call->stream, fields, count);
}

int wire_header_submit_trailers(struct wire_call *call) {
  return submit_end(call, NULL, 0);
}

int wire_header_submit_status(struct wire_call *call, const char *http_status) {
  nghttp2_nv lead[] = {
      field(":status", http_status, strlen(http_status), NGHTTP2_NV_FLAG_NO_COPY_NAME),
      fixed("content-type", CONTENT_TYPE),
  };
  return submit_end(call, lead, sizeof lead / sizeof lead[0]);
}

/* --- what we receive --- */

static bool equal(nghttp2_vec text, const char *word) {
  return text.len == strlen(word) && memcmp(text.base, word, text.len) == 0;
}

static bool is_grpc(nghttp2_vec type) {
  size_t length = strlen(CONTENT_TYPE);
  if (type.len < length || memcmp(type.base, CONTENT_TYPE, length) != 0)
    return false;
  return type.len == length || type.base[length] == '+' || type.base[length] == ';';
}

/* Decimal of up to 3 digits, or -1. */
static int number_of(nghttp2_vec text) {
  int number = 0;
  if (text.len == 0 || text.len > 3)
    return -1;
  for (size_t i = 0; i < text.len; i++) {
    if (text.base[i] < '0' || text.base[i] > '9')
      return -1;
    number = 10 * number + (text.base[i] - '0');
  }
  return number;
}

static int digit_of(uint8_t byte) {
  if (byte >= '0' && byte <= '9')
    return byte - '0';
  if (byte >= 'A' && byte <= 'F')
    return byte - 'A' + 10;
  if (byte >= 'a' && byte <= 'f')
    return byte - 'a' + 10;
  return -1;
}

/* Percent-decodes what fits. Control characters become spaces: the text goes to logs. */
static size_t decode_text(nghttp2_vec text, uint8_t out[static WIRE_TEXT_LIMIT]) {
  size_t used = 0;
  for (size_t i = 0; i < text.len && used < WIRE_TEXT_LIMIT; i++) {
    uint8_t byte = text.base[i];
    if (byte == '%' && text.len - i > 2 && digit_of(text.base[i + 1]) >= 0 && digit_of(text.base[i + 2]) >= 0) {
      byte = (uint8_t)(digit_of(text.base[i + 1]) << 4 | digit_of(text.base[i + 2]));
      i += 2;
    }
    out[used++] = byte < 0x20 || byte == 0x7F ? ' ' : byte;
  }
  return used;
}

static void take_text(struct wire_call *call, nghttp2_vec value) {
  uint8_t decoded[WIRE_TEXT_LIMIT];
  size_t length = decode_text(value, decoded);
  struct buffer repaired CLEANUP_BUFFER;
  buffer_init(&repaired, 3 * sizeof decoded);
  if (text_repair(&repaired, decoded, length) != 0 || repaired.length == 0)
    return;
  size_t kept = repaired.length < WIRE_TEXT_LIMIT ? repaired.length : WIRE_TEXT_LIMIT;
  while (kept > 0 && kept < repaired.length && (repaired.data[kept] & 0xC0) == 0x80)
    kept--;
  memory_free(call->text);
  call->text = memory_string_of((const char *)repaired.data, kept);
}

static void take_answer_field(struct wire_call *call, nghttp2_vec name, nghttp2_vec value) {
  if (equal(name, ":status")) {
    call->http_status = number_of(value);
  } else if (equal(name, "content-type")) {
    call->grpc = is_grpc(value);
  } else if (equal(name, "grpc-status")) {
    int status = number_of(value);
    call->peer_status = status < 0 || status > 16 ? WIRE_UNKNOWN : status;
  } else if (equal(name, "grpc-message")) {
    take_text(call, value);
  }
}

static int take_request_field(struct wire_call *call, nghttp2_vec name, nghttp2_vec value) {
  if (equal(name, ":method")) {
    call->post = equal(value, "POST");
  } else if (equal(name, "content-type")) {
    call->grpc = is_grpc(value);
  } else if (equal(name, ":path") && !call->path && value.len < WIRE_PATH_SIZE) {
    call->path = memory_string_of((const char *)value.base, value.len);
    if (!call->path)
      return -1;
  }
  return 0;
}

int wire_header_take(struct wire_call *call, nghttp2_rcbuf *name, nghttp2_rcbuf *value) {
  nghttp2_vec name_bytes = nghttp2_rcbuf_get_buf(name), value_bytes = nghttp2_rcbuf_get_buf(value);
  call->header_bytes += name_bytes.len + value_bytes.len + 32;
  if (call->header_bytes > WIRE_HEADER_LIMIT)
    return -1;
  if (call->wire->options.role == WIRE_SERVER)
    return take_request_field(call, name_bytes, value_bytes);
  take_answer_field(call, name_bytes, value_bytes);
  return 0;
}

/* An answer that is none of gRPC: the status that stands for its HTTP status. */
static int status_of_http(int http_status) {
  switch (http_status) {
  case 400:
    return WIRE_INTERNAL;
  case 401:
    return 16;
  case 403:
    return 7;
  case 404:
    return WIRE_UNIMPLEMENTED;
  case 429:
  case 502:
  case 503:
  case 504:
    return WIRE_UNAVAILABLE;
  default:
    return WIRE_UNKNOWN;
  }
}

void wire_header_check_answer(struct wire_call *call) {
  if (call->http_status >= 100 && call->http_status <= 199)
    return;
  if (call->http_status == 200 && call->grpc)
    return;
  int status = call->http_status == 200 ? WIRE_UNKNOWN : status_of_http(call->http_status);
  wire_call_fail(call, NGHTTP2_CANCEL, status, "the answer is not gRPC's");
}

void wire_header_end_call(struct wire_call *call) {
  nghttp2_session *session = call->wire->session;
  wire_header_check_answer(call);
  if (call->over)
    return;
  if (nghttp2_session_get_stream_local_close(session, call->stream) == 0)
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
  if (call->peer_status < 0)
    wire_call_end(call, WIRE_UNKNOWN, "the answer ended without a status");
  else if (call->peer_status == WIRE_OK && !wire_receive_complete(call))
    wire_call_end(call, WIRE_INTERNAL, "the last message is cut short");
  else
    wire_call_end(call, call->peer_status, call->text);
}
