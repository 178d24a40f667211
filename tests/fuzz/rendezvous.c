/* Connections to a supervisor, and messages for its beacon: frames of the rendezvous with bytes
 * changed, by ranks that know the key and by strangers.  The supervisor goes on, and real ranks
 * meet afterwards.  FUZZ_RUNS: how many connections. */
#include "core/base/str.h"
#include "core/task/beacon.h"
#include "core/wire/rendezvous.h"
#include "core/wire/rendezvous_frame.h"
#include "core/wire/wireup.h"
#include "tests/fuzz/mutate.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 3, BLOB = TERN_WIRE_BLOB };
static const char *const words[] = {"TNF1", "\x01", "\x02", "\xff\xff\xff\xff",
                                    "\x7f", "\x03", NULL};
static uint8_t key[RENDEZVOUS_KEY];
static unsigned port;

static void read_address(const char *address)
{
    const char *hex = strrchr(address, '/') + 1;

    port = (unsigned)atoi(strrchr(address, ':') + 1);
    for (int i = 0; i < RENDEZVOUS_KEY; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        key[i] = (uint8_t)byte;
    }
}

static int enter(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        abort();
    return fd;
}

/* HELLO and one BLOB of rank `r`; returns the length. */
static size_t speech(char to[2 * sizeof(struct rendezvous_frame) + BLOB], uint32_t r)
{
    struct rendezvous_frame h = {
        .magic = RENDEZVOUS_MAGIC, .kind = RENDEZVOUS_HELLO, .rank = r, .size = SIZE};

    memcpy(h.key, key, sizeof key);
    memcpy(to, &h, sizeof h);
    h.kind = RENDEZVOUS_BLOB;
    h.bytes = BLOB;
    memcpy(to + sizeof h, &h, sizeof h);
    memset(to + 2 * sizeof h, (int)r, BLOB);
    return 2 * sizeof h + BLOB;
}

static void say(int fd, const char *data, size_t len)
{
    if (send(fd, data, len, MSG_NOSIGNAL) < 0)
        return; /* it was refused already */
}

static void serve(struct tern_wire_rendezvous *r, int times)
{
    for (int i = 0; i < times; i++)
        if (tern_wire_rendezvous_step(r, NULL) < 0)
            ok(0, "the supervisor goes on");
}

static void fuzz_frames(struct tern_wire_rendezvous *r, int n)
{
    char whole[2 * sizeof(struct rendezvous_frame) + BLOB], heard[4096];

    for (int i = 0; i < n; i++) {
        int fd[2] = {enter(), fuzz_pick(3) ? -1 : enter()};
        for (int k = 0; k < 2 && fd[k] >= 0; k++) {
            size_t len, all = speech(whole, fuzz_pick(SIZE + 1));
            char *data = fuzz_mutate(whole, all, words, &len);
            size_t cut = fuzz_pick((uint32_t)len + 1);
            say(fd[k], data, cut);
            serve(r, 1);
            say(fd[k], data + cut, len - cut);
            free(data);
        }
        serve(r, 2);
        for (int k = 0; k < 2 && fd[k] >= 0; k++) {
            if (recv(fd[k], heard, sizeof heard, MSG_DONTWAIT) < 0)
                heard[0] = 0;
            close(fd[k]);
        }
        serve(r, 2);
    }
}

/* All ranks, as they should: each gets all blobs. */
static bool meet(struct tern_wire_rendezvous *r)
{
    char whole[2 * sizeof(struct rendezvous_frame) + BLOB], heard[4096];
    const size_t want = sizeof(struct rendezvous_frame) + SIZE * BLOB;
    int fd[SIZE], met = 0;

    for (int k = 0; k < SIZE; k++) {
        fd[k] = enter();
        say(fd[k], whole, speech(whole, (uint32_t)k));
    }
    for (int i = 0; i < 2000; i++) {
        serve(r, 1);
        usleep(100);
    }
    for (int k = 0; k < SIZE; k++) {
        ssize_t n = recv(fd[k], heard, sizeof heard, MSG_DONTWAIT);
        met += n == (ssize_t)want && heard[want - 1] == SIZE - 1;
        close(fd[k]);
    }
    return met == SIZE;
}

static void fuzz_beacons(int n)
{
    static const char seed[] = "node-7:3:4711/00112233445566778899aabbccddeeff/"
                               "00000000000000000000ffff7f000001,fe80000000000000000000000000abcd";
    static const char *const parts[] = {":", "/", ",", "0", "ff", "-1", "99999999999999999999",
                                        "x", " ", NULL};
    int found = 0;

    for (int i = 0; i < n; i++) {
        struct tern_task_beacon_client a;
        size_t len;
        char *data = fuzz_mutate(seed, sizeof seed - 1, parts, &len);
        char *text = tern_strf("%.*s", (int)len, data);
        setenv("TERN_RUN_BEACON", text, 1);
        if (tern_task_beacon_find(&a)) {
            found++;
            tern_task_beacon_drop(&a);
        }
        free(text);
        free(data);
    }
    ok(found > 0, "beacons: %d of %d understood", found, n);
}

int main(void)
{
    struct tern_err err = {0};
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", SIZE, &err);
    int n = fuzz_runs(3000);

    if (!r) {
        ok(0, "%s", err.text);
        return tap_done();
    }
    read_address(tern_wire_rendezvous_address(r));
    ok(meet(r), "ranks meet before");
    fuzz_frames(r, n);
    serve(r, 10);
    ok(meet(r), "ranks meet after %d hostile connections", n);
    tern_wire_rendezvous_close(r);
    fuzz_beacons(fuzz_runs(3000));
    return tap_done();
}
