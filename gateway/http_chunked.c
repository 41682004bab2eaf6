#include "gateway/http_chunked.h"

#include "base/limits.h"

enum state {
  SIZE,           /* in the hexadecimal size */
  EXTENSION,      /* behind its semicolon */
  SIZE_LINE_FEED, /* the size line's CR was there */
  DATA,
  DATA_RETURN,    /* behind the data: CR … */
  DATA_LINE_FEED, /* … LF */
  TRAILER,        /* in a line behind the last chunk */
  TRAILER_LINE_FEED,
  END
};

enum { SIZE_DIGITS = 15 }; /* so that the size always fits */

static int hexadecimal(char byte) {
  if (byte >= '0' && byte <= '9')
    return byte - '0';
  if (byte >= 'a' && byte <= 'f')
    return byte - 'a' + 10;
  return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* What an extension or a trailer may hold. */
static bool is_text(char byte) { return (unsigned char)byte >= ' ' ? byte != 0x7f : byte == '\t'; }

static int size_step(struct http_chunked *chunked, char byte) {
  int digit = hexadecimal(byte);
  if (digit >= 0) {
    if (chunked->digits == SIZE_DIGITS)
      return -1;
    chunked->digits++;
    chunked->left = chunked->left * 16 + (uint64_t)digit;
    return SIZE;
  }
  if (chunked->digits == 0)
    return -1;
  return byte == '\r' ? SIZE_LINE_FEED : byte == ';' ? EXTENSION : -1;
}

static int skip_step(struct http_chunked *chunked, char byte, enum state state, enum state after_return) {
  if (byte == '\r')
    return (int)after_return;
  if (!is_text(byte) || chunked->skipped == LIMIT_HEADER_BYTES)
    return -1;
  chunked->skipped++;
  chunked->line++;
  return (int)state;
}

static int trailer_line_ended(struct http_chunked *chunked) {
  bool blank = chunked->line == 0;
  chunked->line = 0;
  return blank ? END : TRAILER;
}

static int size_line_ended(struct http_chunked *chunked) {
  chunked->digits = 0;
  chunked->line = 0;
  return chunked->left > 0 ? DATA : TRAILER;
}

/* The state after a byte of framing, or -1. */
static int step(struct http_chunked *chunked, char byte) {
  switch ((enum state)chunked->state) {
  case SIZE:
    return size_step(chunked, byte);
  case EXTENSION:
    return skip_step(chunked, byte, EXTENSION, SIZE_LINE_FEED);
  case SIZE_LINE_FEED:
    return byte == '\n' ? size_line_ended(chunked) : -1;
  case DATA_RETURN:
    return byte == '\r' ? DATA_LINE_FEED : -1;
  case DATA_LINE_FEED:
    return byte == '\n' ? SIZE : -1;
  case TRAILER:
    return skip_step(chunked, byte, TRAILER, TRAILER_LINE_FEED);
  case TRAILER_LINE_FEED:
    return byte == '\n' ? trailer_line_ended(chunked) : -1;
  case DATA:
  case END:
    break;
  }
  return -1;
}

enum http_chunked_result http_chunked_read(struct http_chunked *chunked, const char *bytes, size_t length, size_t *used,
                                           struct http_text *data) {
  for (size_t at = 0; at < length; at++) {
    if (chunked->state == DATA) {
      size_t piece = length - at < chunked->left ? length - at : (size_t)chunked->left;
      *data = (struct http_text){.data = bytes + at, .length = piece};
      chunked->left -= piece;
      if (chunked->left == 0)
        chunked->state = DATA_RETURN;
      *used = at + piece;
      return HTTP_CHUNKED_DATA;
    }
    int next = step(chunked, bytes[at]);
    if (next < 0)
      return HTTP_CHUNKED_MALFORMED;
    chunked->state = next;
    if (next == END) {
      *used = at + 1;
      return HTTP_CHUNKED_END;
    }
  }
  *used = length;
  return HTTP_CHUNKED_MORE;
}
