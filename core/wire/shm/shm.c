#include "core/wire/shm/shm.h"

#include "core/base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHM_HUGE = 2 << 20 }; /* of x86-64, and of arm64 with pages of 4 KiB */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Sparse: a communicator that never stages costs address space only. */
static size_t own_bytes(void)
{
    return tern_wire_shm_stage_offset(TERN_WIRE_SHM_COMMS, 0) + sizeof(struct tern_flight_recorder);
}

/* A shared mapping of `fd` that huge pages fit: an address that is a multiple of theirs, which not
 * every kernel takes by itself.  MAP_FAILED as mmap does. */
static void *map_shared(int fd, size_t bytes)
{
    size_t spare = bytes >= SHM_HUGE ? SHM_HUGE : 0, page = (size_t)sysconf(_SC_PAGESIZE);

    bytes = (bytes + page - 1) & ~(page - 1); /* else the spare room behind it would stay */
    char *room = mmap(NULL, bytes + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED)
        return MAP_FAILED;
    char *p = spare ? (char *)(((uintptr_t)room + spare - 1) & ~(uintptr_t)(spare - 1)) : room;
    if (p > room)
        munmap(room, (size_t)(p - room));
    if (p < room + spare)
        munmap(p + bytes, (size_t)(room + spare - p));
    if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int saved = errno;
        munmap(p, bytes);
        errno = saved;
        return MAP_FAILED;
    }
    return p;
}

/* Shared memory gets huge pages where /sys/kernel/mm/transparent_hugepage/shmem_enabled says
 * "advise" or more.  As it is shipped, with "never", each is asked for outright (Linux 6.1), which
 * takes a first page that is there.  The rest is made of small ones. */
static void make_huge(char *p, size_t bytes)
{
    char how[80] = "";
    size_t whole = bytes & ~((size_t)SHM_HUGE - 1), at = 0;
    FILE *f = whole ? fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re") : NULL;

    if (!f)
        return;
    bool known = fgets(how, sizeof how, f) != NULL;
    fclose(f);
    if (!known || strstr(how, "[deny]"))
        return;
    if (!strstr(how, "[never]")) {
        madvise(p, whole, MADV_HUGEPAGE);
        return;
    }
    do
        *(volatile char *)(p + at) = 0;
    while (madvise(p + at, SHM_HUGE, MADV_COLLAPSE) == 0 && (at += SHM_HUGE) < whole);
}

static int new_memory(const char *name, size_t bytes, char **base, struct tern_err *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0)
        return tern_err_sys(err, "cannot make a shared memory segment");
    if (ftruncate(fd, (off_t)bytes) < 0) {
        tern_err_sys(err, "cannot make a shared memory segment of %zu bytes", bytes);
        close(fd);
        return -1;
    }
    void *p = map_shared(fd, bytes);
    if (p == MAP_FAILED) {
        tern_err_sys(err, "cannot map a shared memory segment of %zu bytes", bytes);
        close(fd);
        return -1;
    }
    *base = p;
    return fd;
}

int tern_wire_shm_open_own(struct tern_wire_shm *s, struct tern_err *err)
{
    char *base;

    s->fd = new_memory("tern-fabric", own_bytes(), &base, err);
    if (s->fd < 0)
        return -1;
    s->head = (struct tern_wire_shm_head *)base;
    tern_rand_system(s->head->token, sizeof s->head->token);
    return 0;
}

void tern_wire_shm_close_own(struct tern_wire_shm *s)
{
    if (!s->head)
        return;
    for (int i = 0; i < s->n_buffers; i++)
        tern_wire_shm_buffer_delete(s, i);
    munmap(s->head, own_bytes());
    close(s->fd);
    s->head = NULL;
}

static void *map_fd(pid_t pid, int fd, size_t bytes)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    int here = open(path, O_RDWR | O_CLOEXEC);
    if (here < 0)
        return NULL;
    void *p = MAP_FAILED;
    /* The same numbers may mean another file here; a shorter one would fault when touched. */
    if (fstat(here, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes)
        p = map_shared(here, bytes);
    close(here);
    return p == MAP_FAILED ? NULL : p;
}

void tern_wire_shm_map_peer(struct tern_wire_shm_peer *p, pid_t pid, int fd,
                            const uint8_t token[16])
{
    struct tern_wire_shm_head *head = map_fd(pid, fd, own_bytes());

    p->process = TERN_PROCESS_NONE;
    if (!head)
        return;
    p->maps =
        memcmp(head->token, token, 16) == 0 ? calloc(TERN_WIRE_SHM_REGIONS, sizeof *p->maps) : NULL;
    if (!p->maps) {
        munmap(head, own_bytes());
        return;
    }
    p->head = head;
    p->pid = pid;
    tern_process_open(&p->process, pid);
}

void tern_wire_shm_unmap_peer(struct tern_wire_shm_peer *p)
{
    if (!p->head)
        return;
    for (int i = 0; i < TERN_WIRE_SHM_REGIONS; i++)
        if (p->maps[i].base)
            munmap(p->maps[i].base, p->maps[i].bytes);
    free(p->maps);
    tern_process_close(&p->process);
    munmap(p->head, own_bytes());
    p->head = NULL;
}

int tern_wire_shm_buffer_new(struct tern_wire_shm *s, size_t bytes, bool huge, struct tern_err *err)
{
    int i = 0;
    char *base;

    while (i < TERN_WIRE_SHM_REGIONS && s->buffers[i].base)
        i++;
    if (i == TERN_WIRE_SHM_REGIONS)
        return tern_err_set(err, TERN_FAILED,
                            "%d shared buffers are in use, which is the most a rank may have: "
                            "allocate fewer, larger ones",
                            TERN_WIRE_SHM_REGIONS);
    bytes = bytes ? (bytes + 4095) & ~(size_t)4095 : 4096;
    int fd = new_memory("tern-buffer", bytes, &base, err);
    if (fd < 0)
        return -1;
    if (huge)
        make_huge(base, bytes);
    struct tern_wire_shm_region *r = &s->head->regions[i];
    r->generation++;
    r->fd = fd;
    r->bytes = bytes;
    s->buffers[i] = (struct tern_wire_shm_buffer){base, bytes, NULL};
    if (i >= s->n_buffers)
        s->n_buffers = i + 1;
    return i;
}

void tern_wire_shm_buffer_delete(struct tern_wire_shm *s, int i)
{
    struct tern_wire_shm_buffer *b = &s->buffers[i];

    if (!b->base)
        return;
    munmap(b->base, b->bytes);
    /* Peers keep their mapping until the slot is used again; its pages must not stay with it. */
    fallocate(s->head->regions[i].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              (off_t)b->bytes);
    close(s->head->regions[i].fd);
    b->base = NULL;
}

int tern_wire_shm_buffer_find(const struct tern_wire_shm *s, const void *p, size_t bytes)
{
    for (int i = 0; i < s->n_buffers; i++) {
        const struct tern_wire_shm_buffer *b = &s->buffers[i];
        if (b->base && (const char *)p >= b->base &&
            (size_t)((const char *)p - b->base) <= b->bytes &&
            bytes <= b->bytes - (size_t)((const char *)p - b->base))
            return i;
    }
    return -1;
}

static uint64_t blocks_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

uint64_t tern_wire_shm_own_bytes(const struct tern_wire_shm *s)
{
    uint64_t bytes = blocks_of(s->fd);

    for (int i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].base)
            bytes += blocks_of(s->head->regions[i].fd);
    return bytes;
}

int tern_wire_shm_resident(uint64_t *bytes)
{
    char text[4096]; /* more than twice of what it is */
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    unsigned long long kib;

    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *at = strstr(text, "\nRssShmem:");
    if (!at || sscanf(at, "\nRssShmem: %llu", &kib) != 1)
        return -1;
    *bytes = (uint64_t)kib << 10;
    return 0;
}

char *tern_wire_shm_reach(struct tern_wire_shm_peer *p, const struct tern_wire_shm_place *at,
                          size_t bytes, struct tern_err *err)
{
    struct tern_wire_shm_map *m = &p->maps[at->region];

    if (!m->base || m->generation != at->generation) {
        const struct tern_wire_shm_region *r = &p->head->regions[at->region];
        if (m->base)
            munmap(m->base, m->bytes);
        m->base = map_fd(p->pid, r->fd, r->bytes);
        if (!m->base) {
            tern_err_sys(err, "cannot map %llu shared bytes of process %d",
                         (unsigned long long)r->bytes, (int)p->pid);
            return NULL;
        }
        m->bytes = r->bytes;
        m->generation = at->generation;
    }
    if (at->offset > m->bytes || bytes > m->bytes - at->offset) {
        tern_err_set(err, TERN_FAILED, "process %d offered a buffer that ends too early",
                     (int)p->pid);
        return NULL;
    }
    return m->base + at->offset;
}
