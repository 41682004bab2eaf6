/*
 * JSON: strict reading on top of cJSON, and writing straight into a buffer. Thread: any.
 *
 * Reading differs from cJSON alone: the text must be valid UTF-8 and one value, nested at most LIMIT_JSON_DEPTH;
 * nothing but white space may follow; lone surrogates are refused; U+0000 in strings is kept (a string has a length).
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json; /* a parsed value; owns everything below it */

/* A string inside a value: valid UTF-8, may hold NULs, a NUL behind it. data is NULL if the field is absent or null. */
struct json_text {
  const char *data;
  size_t length;
};

/* NULL and REASON_INVALID_JSON (the detail tells where, and quotes nothing), or REASON_INTERNAL without memory. Takes
 * at most LIMIT_JSON_VALUES values, which bounds the memory for a text from a stranger. Free with json_free. */
struct json *json_parse(const char *text, size_t length, struct error **err);
/* The same with any number of values: for our own configuration and for the API server. */
struct json *json_parse_trusted(const char *text, size_t length, struct error **err);
/* Wipes the strings first: they may be secrets. */
void json_free(struct json *json);
void json_cleanup(struct json **json);
#define CLEANUP_JSON __attribute__((cleanup(json_cleanup)))

bool json_is_object(const struct json *json);

/* Fields of an object. Names are exact; where a name stands twice, the last one counts. null reads as absent. A field
 * of another type is REASON_INVALID_JSON. Return 0, or -1 and *err. */
int json_get_text(const struct json *object, const char *name, struct json_text *text, struct error **err);
/* An integer in [-2^53, 2^53] written without fraction or exponent. */
int json_get_integer(const struct json *object, const char *name, bool *present, int64_t *value, struct error **err);
int json_get_boolean(const struct json *object, const char *name, bool *present, bool *value, struct error **err);
/* NULL if absent; the value belongs to `object`. */
int json_get_object(const struct json *object, const char *name, const struct json **value, struct error **err);

/* Walks the members of an object, or the elements of an array (name is then empty). Start with *position = NULL.
 * Returns false at the end. */
bool json_next(const struct json *container, const void **position, struct json_text *name, const struct json **value);
/* The value itself as text, integer, array: 0, or -1 if it is of another type. */
int json_as_text(const struct json *value, struct json_text *text);
int json_as_integer(const struct json *value, int64_t *number);
bool json_is_array(const struct json *value);
/* Appends the value as JSON without white space; numbers as they were spelled. 0, or -1 if the buffer is full (what was
 * appended stays). */
int json_write_value(struct buffer *out, const struct json *value);

/* Writing: appends the string in quotes, escaped; invalid UTF-8 becomes U+FFFD. 0, or -1 if the buffer is full (it is
 * then unchanged). Part of //base:core: needs libc alone. */
int json_write_string(struct buffer *out, const char *text, size_t length);
/* The same without the quotes: for a long string that is written piece by piece. Cut it only where a character begins. */
int json_write_escaped(struct buffer *out, const char *text, size_t length);

#endif
