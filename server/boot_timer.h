/*
 * One timer on the boot clock, which counts suspended time and does not jump when the wall clock is set (libuv's own
 * timers stand still during suspend). Thread: the loop's.
 */
#ifndef SERVER_BOOT_TIMER_H
#define SERVER_BOOT_TIMER_H

#include "base/error.h"
#include <stdint.h>
#include <uv.h>

struct boot_timer;

/* NULL and *err. */
struct boot_timer *boot_timer_new(uv_loop_t *loop, void (*fired)(void *context), void *context, struct error **err);
/* `fired` is called once when clock_boot() has reached `deadline`, in a later turn of the loop; INT64_MAX: not at
 * all. Replaces what was set before. */
void boot_timer_set(struct boot_timer *timer, int64_t deadline);
/* `fired` is not called any more; the memory goes in a later turn of the loop. */
void boot_timer_free(struct boot_timer *timer);

#endif
