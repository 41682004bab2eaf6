/*
 * What the API server answers when it does not do what it was asked: HTTP status and Status object to a struct error.
 * Pure. Thread: any.
 */
#ifndef KUBERNETES_STATUS_H
#define KUBERNETES_STATUS_H

#include "base/error.h"
#include <stddef.h>

enum { STATUS_REASON_SIZE = 64 };

/* Stores an error for an answer that is no success, and returns -1. code: the HTTP status. REASON_SERVER_UNAVAILABLE
 * for what may pass and for what the operator has to mend (401, 403), else REASON_INTERNAL; the detail has the code,
 * the Status's reason and its message, cut. reason gets the Status's reason ("AlreadyExists"), "" if it has none. */
int status_error(int code, const char *body, size_t length, char reason[static STATUS_REASON_SIZE], struct error **err);

#endif
