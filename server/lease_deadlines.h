/*
 * The heap of deadlines inside a Lease table: an array in which no Lease has a later deadline than the two below it.
 * Each Lease knows its place. Thread: the loop's.
 */
#ifndef SERVER_LEASE_DEADLINES_H
#define SERVER_LEASE_DEADLINES_H

#include "server/lease_table.h"

/* Makes room for one more. Returns 0, or -1 without memory. */
int lease_deadlines_reserve(struct lease_table *table);
/* Room must have been made. */
void lease_deadlines_add(struct lease_table *table, struct lease *lease);
void lease_deadlines_remove(struct lease_table *table, struct lease *lease);
/* After the deadline of a Lease was changed. */
void lease_deadlines_moved(struct lease_table *table, struct lease *lease);

#endif
