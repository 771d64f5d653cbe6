/* What holds for any device: its tables, its description, its end. */
#include "device/device.h"

#include "device/matmul.h"
#include <stdio.h>
#include <stdlib.h>

void device_close(struct device **dev)
{
    struct device *d = *dev;
    if (!d)
        return;
    if (d->matmul) {
        d->matmul->ops->destroy(&d->matmul->state);
        free(d->matmul);
    }
    free(d);
    *dev = NULL;
}

const struct kernels *device_kernels(const struct device *dev, enum dtype compute)
{
    return dev->table[compute];
}

const struct kernels *device_null_kernels(const struct device *dev, enum dtype compute)
{
    return dev->table[compute] ? &dev->null_table[compute] : NULL;
}

const char *device_describe(const struct device *dev, char *buf, size_t cap)
{
    snprintf(buf, cap,
             "%s, %s, %d thread%s, matrix products by %s, bf16 ones %s, fp16 "
             "ones widened to fp32",
             dev->name, device_isa_name(dev->isa), dev->n_threads, dev->n_threads == 1 ? "" : "s",
             dev->matmul->ops->name, device_native_bf16(dev) ? "native" : "widened to fp32");
    return buf;
}

bool device_native_bf16(const struct device *dev)
{
    return dev->matmul->ops->bf16 && dev->matmul->ops->bf16(dev->matmul->state);
}
