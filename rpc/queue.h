/*
 * Completion queues: every tag is a `struct rpc_tag`, and a queue thread calls its function. Thread: as each line says.
 */
#ifndef RPC_QUEUE_H
#define RPC_QUEUE_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stddef.h>

struct rpc_tag {
  /* On the queue's thread. `ok` is the event's success. */
  void (*run)(struct rpc_tag *tag, bool ok);
};

/* The struct that a tag is a member of. */
#define RPC_TAG_OWNER(tag, type, member) ((type *)(void *)((char *)(tag) - offsetof(type, member)))

/* Starts a batch with `tag` (the only way a batch is started: it also tells ThreadSanitizer of the hand-over). Any
 * thread. */
grpc_call_error rpc_start_batch(grpc_call *call, const grpc_op *operations, size_t count, struct rpc_tag *tag);
/* For other calls that take a tag: before handing it over. */
void rpc_tag_publish(struct rpc_tag *tag);
/* Runs tags until the queue is shut down and drained. */
void rpc_queue_run(grpc_completion_queue *queue);

#endif
