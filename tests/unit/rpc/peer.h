/*
 * A gRPC server for the tests of rpc/client: one thread, one call after the other, each step waited for. It knows
 *   /test/Echo    answers every message with itself until the client half-closes, then OK
 *   /test/Count   answers with the number of messages it got (one byte) once the client half-closed
 *   /test/Many    answers with 100 messages of 10,000 bytes, then OK
 *   /test/Fail    fails with LEASE_NOT_FOUND and its details
 *   /test/Token   answers with the value of the `authorization` metadata
 *   /test/Never   reads nothing and answers nothing until the call is cancelled
 */
#ifndef TESTS_UNIT_RPC_PEER_H
#define TESTS_UNIT_RPC_PEER_H

struct peer;

/* Serves on a unix socket under a fresh temporary folder. */
struct peer *peer_start(void);
/* "unix:…". */
const char *peer_address(const struct peer *peer);
/* How many calls of /test/Never were seen cancelled. After peer_stop. */
int peer_cancelled(const struct peer *peer);
void peer_stop(struct peer *peer);
void peer_free(struct peer *peer);

#endif
