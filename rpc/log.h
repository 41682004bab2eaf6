/*
 * gRPC's own log lines as ours: errors only, unless the environment (GRPC_VERBOSITY) asks for more.
 */
#ifndef RPC_LOG_H
#define RPC_LOG_H

/* Before grpc_init; once. */
void rpc_log_install(void);

#endif
