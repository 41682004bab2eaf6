/*
 * gRPC's library, for programs. Thread: the start's.
 */
#ifndef RPC_LIBRARY_H
#define RPC_LIBRARY_H

/* Instead of grpc_init, with which it begins; the program ends with grpc_shutdown as ever. */
void rpc_library_init(void);

#endif
