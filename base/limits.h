/*
 * The limits of the platform, each once. docs/limits.md shows them.
 */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* Identity */
#define LIMIT_IDENTITY_CHARACTERS 200     /* Consumer id, Subject id: Unicode characters */
#define LIMIT_TOKEN_LIFETIME_SECONDS 300  /* furthest `exp` from now */
#define LIMIT_TOKEN_SKEW_SECONDS 5        /* on top, for clocks that run ahead */
#define LIMIT_TOKEN_BYTES 8192
#define LIMIT_SECRETS_PER_CONSUMER 4      /* good at once, while rotating */

/* Leases */
#define LIMIT_TTL_DEFAULT_SECONDS 900
#define LIMIT_TTL_MAX_SECONDS 3600
#define LIMIT_IDEMPOTENCY_KEY_BYTES 200
#define LIMIT_POOL_NAME_BYTES 63
#define LIMIT_LEASE_ID_BYTES 38 /* "lease-" and 32 hexadecimal digits */
#define LIMIT_LIST_DEFAULT 50
#define LIMIT_LIST_MAX 100
#define LIMIT_CURSOR_BYTES 8192

/* Requests */
#define LIMIT_JSON_BODY_BYTES 1048576
#define LIMIT_JSON_DEPTH 32
#define LIMIT_JSON_VALUES 65536           /* values in one body, nested ones included */
#define LIMIT_HEADER_BYTES 32768          /* HTTP request line and headers together */
#define LIMIT_HEADER_COUNT 100
#define LIMIT_HEADER_SECONDS 10           /* to receive them */
#define LIMIT_IDLE_SECONDS 60             /* between two requests of a connection */
#define LIMIT_BODY_SECONDS 15             /* for a whole JSON body; between two pieces of a streamed one */
#define LIMIT_WRITE_SECONDS 30            /* for a client to take each 256 KiB of an answer */
#define LIMIT_HELD_BYTES 268435456        /* of bodies not yet whole in a gateway; as many of answers not yet taken */
#define LIMIT_LINGER_SECONDS 5            /* a closing connection lets its client read the last answer */
#define LIMIT_GRPC_MESSAGE_BYTES 11534336 /* 11 MiB: a whole small file and its frame */
#define LIMIT_MESSAGE_FIELDS 4096         /* fields in one protobuf message, nested ones included */
#define LIMIT_MESSAGE_DEPTH 8

/* Commands */
#define LIMIT_OUTPUT_BYTES 10485760 /* each of stdout and stderr of a unary exec */
#define LIMIT_ANSWER_BYTES 268435456 /* of all unary answers with output or whole files, at once */
#define LIMIT_COMMAND_BYTES 1048576
#define LIMIT_ENV_ENTRIES 256
#define LIMIT_ENV_BYTES 131072
#define LIMIT_SPOOL_BYTES 1048576 /* output the agent keeps for each stream of a command nobody reads */

/* Files */
#define LIMIT_PATH_BYTES 4096
#define LIMIT_FILE_BYTES 10485760     /* read or written whole */
#define LIMIT_TRANSFER_BYTES 67108864 /* streamed */
#define LIMIT_TRANSFERS 8
#define LIMIT_TRANSFERS_PER_LEASE 2
#define LIMIT_TRANSFER_SECONDS 120
#define LIMIT_CHUNK_BYTES 131072 /* file data or output in one message */

/* Shutdown: running calls get so long to end. */
#define LIMIT_SHUTDOWN_SECONDS 10

#endif
