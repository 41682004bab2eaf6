/*
 * What leasectl prints: Leases as a table or as JSON with the names of the HTTP API, and failures with a hint.
 */
#ifndef LEASECTL_OUTPUT_H
#define LEASECTL_OUTPUT_H

#include "base/buffer.h"
#include "base/error.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include <stdbool.h>
#include <stddef.h>

/* The Lease as a JSON object: id, pool, status, createdAt, expiresAt, lastUsedAt. */
int output_lease_json(struct buffer *out, const Sandbox__Lease__V1__Lease *lease);
/* Prints a table of Leases with the time that is left. */
void output_lease_table(Sandbox__Lease__V1__Lease *const *leases, size_t count, bool head);
/* Prints "leasectl: REASON: message" and what to do, or {"error":{…}} with json, on standard error. Returns 1. */
int output_failure(const struct error *err, bool json);
/* Writes a buffer to standard output; 0, or -1 if that fails. */
int output_write(const struct buffer *out);

#endif
