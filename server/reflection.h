/*
 * Server reflection, v1 and v1alpha: a client with no proto file at hand (grpcurl, say) asks what is served here. The
 * two versions are the same messages under two package names. Thread: the loop's.
 */
#ifndef SERVER_REFLECTION_H
#define SERVER_REFLECTION_H

#include "base/error.h"
#include "server/call.h"
#include <stddef.h>

struct reflection;

/* Of the descriptors built into the program. NULL and *err. */
struct reflection *reflection_new(struct error **err);
/* After the last call has ended. */
void reflection_free(struct reflection *reflection);
/* Ends every stream. */
void reflection_stop(struct reflection *reflection);

/* Their handlers' context is the reflection. */
const struct call_method *reflection_methods(size_t *count);

#endif
