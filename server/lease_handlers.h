/*
 * The handlers of sandbox.lease.v1.LeaseService and the checks of their requests, for the table of methods. Checks run
 * on any thread, handlers on the loop; their context is the lease_service.
 */
#ifndef SERVER_LEASE_HANDLERS_H
#define SERVER_LEASE_HANDLERS_H

#include "server/call.h"

int lease_check_acquire(const ProtobufCMessage *request, struct error **err);
int lease_check_list(const ProtobufCMessage *request, struct error **err);
int lease_check_exec(const ProtobufCMessage *request, struct error **err);
int lease_check_stream_exec(const ProtobufCMessage *request, struct error **err);
int lease_check_read(const ProtobufCMessage *request, struct error **err);
int lease_check_write(const ProtobufCMessage *request, struct error **err);
int lease_check_download(const ProtobufCMessage *request, struct error **err);
int lease_check_upload(const ProtobufCMessage *request, struct error **err);

void lease_handle_access(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_acquire(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_get(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_list(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_release(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_delete(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_exec(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_stream_exec(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_read(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_write(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_download(struct call *call, const ProtobufCMessage *request, void *context);
void lease_handle_upload(struct call *call, const ProtobufCMessage *request, void *context);

#endif
