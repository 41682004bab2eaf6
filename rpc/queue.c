/*
 * Completion queues, and the hand-over of a tag to them. gRPC's library is not built for ThreadSanitizer, which
 * therefore cannot see that a tag coming out of a queue happens after it was put in; the two annotations tell it, and
 * what it sees inside that library it is told to leave alone.
 */
#include "rpc/queue.h"

#include <grpc/support/time.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

/* ThreadSanitizer calls this at start. uv_pipe: libuv closes files by a bare system call, so that the number of a pipe of
 * uv_spawn seems to be in use still when a thread of its pool gets it for a file. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
  return "called_from_lib:libgrpc.so.29\n"
         "called_from_lib:libgpr.so.29\n"
         "race:libgrpc.so.29\n"
         "race:libgpr.so.29\n"
         "race:libupb.so.29\n"
         "race:libabsl_\n"
         "race:uv_pipe\n"
         "thread:libgpr.so.29\n";
}

#define TAG_RELEASE(tag) __tsan_release(tag)
#define TAG_ACQUIRE(tag) __tsan_acquire(tag)
#else
#define TAG_RELEASE(tag) ((void)(tag))
#define TAG_ACQUIRE(tag) ((void)(tag))
#endif

void rpc_tag_publish(struct rpc_tag *tag) { TAG_RELEASE(tag); }

grpc_call_error rpc_start_batch(grpc_call *call, const grpc_op *operations, size_t count, struct rpc_tag *tag) {
  TAG_RELEASE(tag);
  return grpc_call_start_batch(call, operations, count, tag, NULL);
}

void rpc_queue_run(grpc_completion_queue *queue) {
  for (;;) {
    grpc_event event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (event.type == GRPC_QUEUE_SHUTDOWN)
      return;
    struct rpc_tag *tag = event.tag;
    TAG_ACQUIRE(tag);
    tag->run(tag, event.success != 0);
  }
}
