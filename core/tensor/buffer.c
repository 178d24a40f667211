/* Each thread's room for packed operands. */
#include "core/tensor/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

/* The room goes with the thread: the key is for that alone. */
static pthread_key_t with_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&with_thread, free);
}

float *tern_tensor_buffer(size_t bytes)
{
    static __thread float *buffer;
    static __thread size_t size;
    void *p = NULL;

    if (size >= bytes)
        return buffer;
    if (posix_memalign(&p, HUGE_PAGE, bytes) != 0)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    pthread_once(&once, make_key);
    pthread_setspecific(with_thread, p);
    free(buffer);
    buffer = p;
    size = bytes;
    return buffer;
}
