/*
 * Failures as gRPC carries them: status code, message, and in `grpc-status-details-bin` a google.rpc.Status with ErrorInfo
 * (domain "sandbox.lease.v1"), and RetryInfo and BadRequest where they apply. Thread: any.
 */
#ifndef RPC_STATUS_H
#define RPC_STATUS_H

#include "base/error.h"
#include <grpc/grpc.h>

#define RPC_ERROR_DOMAIN "sandbox.lease.v1"

/* The bytes for `grpc-status-details-bin`; an empty slice without memory. The caller unrefs. */
grpc_slice rpc_status_details(const struct error *err);
/* What a client got, as an error: the reason from ErrorInfo, else the best match for the code: UNAVAILABLE →
 * SERVER_UNAVAILABLE, CANCELLED and DEADLINE_EXCEEDED → ABORTED, other → INTERNAL with the message as detail. `trailing` may be NULL. Returns -1 and
 * *err, or 0 if code is GRPC_STATUS_OK. */
int rpc_status_read(grpc_status_code code, grpc_slice message, const grpc_metadata_array *trailing, struct error **err);

#endif
