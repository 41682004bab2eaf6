/*
 * The one function of picohttpparser that the gateway calls. The parser is bundled with h2o 2.2.5 and exported by
 * libh2o-evloop.so, but its header is not installed; this is the declaration of that version.
 *
 * Its chunk decoder is left alone on purpose: it takes a bare line feed for a line end and never tires of extensions and
 * trailers (see gateway/http_chunked.h).
 */
#ifndef GATEWAY_PICOHTTPPARSER_H
#define GATEWAY_PICOHTTPPARSER_H

#include <stddef.h>

struct phr_header {
  const char *name; /* NULL: a folded line, which goes on with the value before */
  size_t name_len;
  const char *value;
  size_t value_len;
};

/* Returns how many bytes the head takes, -1 if it is malformed (or has more than *num_headers fields), -2 if it is not
 * whole. last_len: how many of the bytes an earlier call saw; then nothing is parsed until the head's end is there. */
int phr_parse_request(const char *buf, size_t len, const char **method, size_t *method_len, const char **path,
                      size_t *path_len, int *minor_version, struct phr_header *headers, size_t *num_headers,
                      size_t last_len);

#endif
