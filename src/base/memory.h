/* What this process holds, as the kernel counts it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Bytes somewhere, borrowed. */
struct memory_span {
    const void *at;
    size_t n_bytes;
};

struct memory_use {
    int64_t peak;  /* VmHWM */
    int64_t anon;  /* RssAnon */
    int64_t file;  /* RssFile: program and libraries */
    int64_t shmem; /* RssShmem: what ranks of a node share */
};

/* Bytes, 0 where the kernel does not say.  Local. */
struct memory_use memory_use_now(void);

/* Bytes that new allocations may take without swapping, as the kernel estimates them, and no more
 * than the control groups of this process have left; INT64_MAX where neither says.  Local. */
int64_t memory_available(void);
/* The same with what may be swapped out: who takes more will be killed for it.  Local. */
int64_t memory_most(void);

/* The least that is left in any of the control groups, of either generation, that are mounted below
 * root; groups is /proc/self/cgroup's text.  INT64_MAX: there is no limit.  Local. */
int64_t memory_left_in_groups(const char *root, const char *groups);
