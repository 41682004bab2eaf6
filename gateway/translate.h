/*
 * Between JSON and the messages of sandbox.lease.v1: what more than one handler needs. Thread: any.
 */
#ifndef GATEWAY_TRANSLATE_H
#define GATEWAY_TRANSLATE_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "gateway/http_head.h"

#include "sandbox/lease/v1/lease.pb-c.h"

#include <stdbool.h>

/* The text field of a JSON object as a string for a message: *out belongs to the object; "" if it is absent. 0, or -1 and
 * REASON_INVALID_JSON (another type) or REASON_INVALID_REQUEST (U+0000, which a message cannot hold). */
int translate_text(const struct json *object, const char *name, char **out, struct error **err);

enum translate_encoding { TRANSLATE_UTF8, TRANSLATE_BASE64 };

/* The field "encoding" of a JSON object; utf8 if it is absent. 0, or -1 and *err. */
int translate_encoding(const struct json *object, enum translate_encoding *encoding, struct error **err);

/* Appends a Lease as JSON. 0, or -1 without memory. */
int translate_lease(struct buffer *out, const Sandbox__Lease__V1__Lease *lease);
/* Appends {"lease":…}. */
int translate_only_lease(struct buffer *out, const Sandbox__Lease__V1__Lease *lease);

#endif
