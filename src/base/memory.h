/* What this process holds, as the kernel counts it. */
#pragma once
#include <stdint.h>

struct memory_use {
    int64_t peak;  /* VmHWM */
    int64_t anon;  /* RssAnon */
    int64_t file;  /* RssFile: program and libraries */
    int64_t shmem; /* RssShmem: what ranks of a node share */
};

/* Bytes, 0 where the kernel does not say.  Local. */
struct memory_use memory_use_now(void);

/* Bytes that new allocations may take without swapping, as the kernel estimates them, and no more
 * than the control group has left; INT64_MAX where neither says.  Local. */
int64_t memory_available(void);
