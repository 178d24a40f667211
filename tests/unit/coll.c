/* The lists of steps of core/coll, all ranks' side by side: what one sends another must receive. */
#include "tests/unit/tap.h"

#include "core/coll/program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 17, LONGEST = 4096 };

static size_t sent[RANKS][RANKS][LONGEST], received[RANKS][RANKS][LONGEST];
static int n_sent[RANKS][RANKS], n_received[RANKS][RANKS];

static void note(const struct tern_coll_program *p, int me)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct step *s = &p->steps[i];
        if (s->kind == STEP_SEND && n_sent[me][s->member] < LONGEST)
            sent[me][s->member][n_sent[me][s->member]++] = s->n;
        else if (s->kind == STEP_RECV && n_received[s->member][me] < LONGEST)
            received[s->member][me][n_received[s->member][me]++] = s->n;
    }
}

/* Programs of every rank for the part from *at on; how many are wrong. */
static int part(const struct tern_coll_shape *c, int n, const struct tern_coll_task *t, size_t *at)
{
    static struct tern_coll_program p;
    int wrong = 0;
    size_t done = 0;

    memset(n_sent, 0, sizeof n_sent);
    memset(n_received, 0, sizeof n_received);
    for (int r = 0; r < n; r++) {
        struct tern_coll_task mine = *t;
        mine.direct = c[r].p == 1 || (r % 2 && tern_coll_task_offers(&c[r], t, NULL));
        if (c[r].p > 1) /* a node decides together */
            mine.direct = c[r].node % 2 && tern_coll_task_offers(&c[r], t, NULL);
        tern_coll_program_clear(&p);
        size_t k = tern_coll_task_program(&c[r], &mine, *at, &p);
        wrong += p.failed || (r && k != done) || k == 0;
        tern_coll_program_check(&p, &c[r], &mine);
        done = k;
        note(&p, r);
    }
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            wrong += n_sent[a][b] != n_received[a][b] ||
                     memcmp(sent[a][b], received[a][b], (size_t)n_sent[a][b] * sizeof(size_t)) != 0;
    *at += done;
    return wrong;
}

static int shape(const int *node_of, int n)
{
    static const size_t counts[] = {1, 3, 64, 1000, 70001, 3000000};
    struct tern_coll_shape c[RANKS];
    struct tern_coll_model m = tern_coll_model_typical();
    int wrong = 0;

    for (int r = 0; r < n; r++)
        wrong += tern_coll_shape_make(&c[r], n, r, node_of, NULL) < 0;
    for (int a = TERN_COLL_NONE; a < TERN_COLL_ALGORITHMS; a++) {
        setenv("TERN_FABRIC_ALGORITHM",
               a ? tern_coll_algorithm_name((enum tern_coll_algorithm)a) : "", 1);
        for (int call = TERN_CALL_ALL_REDUCE; call <= TERN_CALL_BARRIER; call++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                struct tern_coll_task t = {.call = (enum tern_call)call,
                                           .type = k % 2 ? TERN_F32 : TERN_BF16,
                                           .root = n / 2,
                                           .count = call == TERN_CALL_BARRIER ? 1 : counts[k]};
                t.algorithm = tern_coll_choose(&c[0], &t, &m);
                for (int r = 1; r < n; r++) /* all choose alike, wherever they sit */
                    wrong += tern_coll_choose(&c[r], &t, &m) != t.algorithm;
                for (size_t at = 0; at < t.count && !wrong;)
                    wrong += part(c, n, &t, &at);
            }
    }
    for (int r = 0; r < n; r++)
        tern_coll_shape_free(&c[r]);
    return wrong;
}

/* What the list of rank 0 of very many uses beyond the stage and the work space. */
static size_t beyond(int size, int per_node, enum tern_call call, const char *algorithm)
{
    int *node_of = malloc((size_t)size * sizeof *node_of);
    struct tern_coll_model m = tern_coll_model_typical();
    struct tern_coll_task t = {.call = call, .type = TERN_F64, .count = 10000000};
    struct tern_coll_program p = {0};
    struct tern_coll_shape c;
    size_t most = 0;

    for (int r = 0; r < size; r++)
        node_of[r] = r / per_node;
    setenv("TERN_FABRIC_ALGORITHM", algorithm, 1);
    tern_coll_shape_make(&c, size, 0, node_of, NULL);
    t.algorithm = tern_coll_choose(&c, &t, &m);
    t.direct = c.p == 1;
    tern_coll_task_program(&c, &t, 0, &p);
    for (size_t i = 0; i < p.n; i++) {
        const struct step *s = &p.steps[i];
        int spots = s->kind == STEP_COPY     ? s->n_dst + 1
                    : s->kind == STEP_REDUCE ? s->n_dst + s->n_src
                                             : s->kind == STEP_RECV || s->kind == STEP_SEND;
        for (int k = 0; k < spots; k++) {
            const struct tern_coll_spot *at = &p.spots[s->spot + (uint32_t)k];
            size_t end = at->at + s->n * (s->kind == STEP_REDUCE ? 8 : 1);
            if (at->place == PLACE_STAGE && end > TERN_WIRE_SHM_STAGE_MOST)
                most =
                    end - TERN_WIRE_SHM_STAGE_MOST > most ? end - TERN_WIRE_SHM_STAGE_MOST : most;
        }
    }
    if (p.work > TERN_COLL_WORK_BYTES)
        most += p.work - TERN_COLL_WORK_BYTES;
    tern_coll_program_free(&p);
    tern_coll_shape_free(&c);
    free(node_of);
    return most;
}

/* The shortest message of the first list of a long all-reduce that rank 0 sends, in bytes. */
static size_t shortest(int size, int per_node, const char *algorithm)
{
    int *node_of = malloc((size_t)size * sizeof *node_of);
    struct tern_coll_model m = tern_coll_model_typical();
    struct tern_coll_task t = {.call = TERN_CALL_ALL_REDUCE, .type = TERN_F32, .count = 64 << 20};
    struct tern_coll_program p = {0};
    struct tern_coll_shape c;
    size_t least = SIZE_MAX;

    for (int r = 0; r < size; r++)
        node_of[r] = r / per_node;
    setenv("TERN_FABRIC_ALGORITHM", algorithm, 1);
    tern_coll_shape_make(&c, size, 0, node_of, NULL);
    t.algorithm = tern_coll_choose(&c, &t, &m);
    tern_coll_task_program(&c, &t, 0, &p);
    for (size_t i = 0; i < p.n; i++)
        if (p.steps[i].kind == STEP_SEND && p.steps[i].n < least)
            least = p.steps[i].n;
    tern_coll_program_free(&p);
    tern_coll_shape_free(&c);
    free(node_of);
    return least;
}

static void many_ranks(void)
{
    static const char *const ways[] = {"direct", "halving"};

    for (int i = 0; i < 2; i++) {
        size_t least = shortest(512, 32, ways[i]);
        ok(least >= 32 << 10, "16 nodes of 32 ranks, %s: messages of %zu bytes and more", ways[i],
           least);
    }
    for (int call = TERN_CALL_ALL_REDUCE; call <= TERN_CALL_ALL_GATHER; call++) {
        size_t n = beyond(20000, 2, (enum tern_call)call, "direct");
        ok(n == 0, "20000 ranks on two-rank nodes, call %d: %zu bytes too many", call, n);
    }
    size_t n = beyond(65536, 1, TERN_CALL_ALL_REDUCE, "halving");
    ok(n == 0, "65536 ranks by halving: %zu bytes too many", n);
}

static bool planned(int ranks, const char *call, size_t count, const char *with,
                    const char *without)
{
    const struct tern_coll_cluster s = {ranks, ranks, 0};
    struct tern_buf b = {0};
    bool good = tern_coll_plan(&s, call, TERN_F32, count, &b, NULL) == 0 && strstr(b.data, with) &&
                !strstr(b.data, without);

    if (!good)
        printf("# %s", b.data ? b.data : "nothing\n");
    tern_buf_free(&b);
    return good;
}

static void one_node(void)
{
    unsetenv("TERN_FABRIC_ALGORITHM");
    ok(planned(4, "all_reduce", 2, "handing over 8 bytes: out", "stage") &&
           planned(2, "reduce_scatter", 14, "handing over 112 bytes: in", "stage") &&
           planned(4, "all_gather", 28, "handing over 112 bytes: in", "stage") &&
           planned(4, "broadcast", 28, "handing over 112 bytes: out", "stage"),
       "what fits the flag's lines is handed over with it");
    ok(planned(2, "all_reduce", 29, "stage", "handing over") &&
           planned(8, "all_gather", 29, "stage", "handing over"),
       "what does not goes by the stage");
    setenv("TERN_FABRIC_CACHE", "2M", 1);
    ok(planned(2, "all_gather", 1 << 20,
               "copy 4194304 bytes: rank 1's buffer <- in\n"
               "meet the node\n",
               "stage"),
       "what no cache holds is put into the node peers' results, and read once");
    unsetenv("TERN_FABRIC_CACHE");
    ok(planned(2, "all_gather", 4096,
               "offer the buffer to the node, meet\n"
               "copy 16384 bytes: out+16384 <- rank 1's buffer\n"
               "meet the node\n", /* the own block lies there: in a plan, all buffers are NULL */
               "stage"),
       "gathered from where it lies: one meeting before, one behind");
}

/* How a mistake of an algorithm's may look.  From EARLY on the list is not made. */
enum mistake { NO_MISTAKE, BEYOND, STRANGER, SLOT, PEER, LONG, SPOTS, EARLY, WIDE, EMPTY, PAST };

/* Arguments that no list has: each is asserted against while the list is made. */
static void make_wrong(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                       struct tern_coll_program *p, enum mistake m)
{
    const struct tern_coll_reduce sum = {t->type, t->type, t->op, 0};
    const struct tern_coll_spot out = spot(PLACE_OUT, 0, 0);

    if (m == EARLY)
        tern_coll_program_wait(p, (struct span){p->n_slots, 1});
    else if (m == WIDE)
        tern_coll_program_hand(p, out, TERN_WIRE_SHM_INLINE + 1);
    else if (m == EMPTY)
        tern_coll_program_reduce(p, &sum, &out, 1, NULL, 0, 1);
    else if (m == PAST)
        tern_coll_task_program(c, t, t->count, p);
}

static void make_mistake(struct tern_coll_program *p, enum mistake m)
{
    for (size_t i = 0; i < p->n; i++) {
        struct step *s = &p->steps[i];
        const bool message = s->kind == STEP_SEND || s->kind == STEP_RECV;
        if (m == BEYOND && s->kind == STEP_REDUCE)
            p->spots[s->spot] = spot(PLACE_OUT, 0, (1000 - s->n) * 4 + 4);
        else if (m == STRANGER && message)
            s->member = 4;
        else if (m == SLOT && s->kind == STEP_WAIT)
            s->slot = p->n_slots;
        else if (m == PEER && p->n_spots)
            p->spots[0] = spot(PLACE_STAGE, 2, 0);
        else if (m == LONG && message)
            s->n = TERN_WIRE_CHUNK + 1;
        else if (m == SPOTS && s->kind == STEP_REDUCE)
            s->n_src = 4;
    }
    if (m == SPOTS)
        p->n_spots = 1;
}

/* Does a child that hands such a list over abort, before a step of it has run? */
static bool aborts(enum mistake mistake)
{
    static const int node_of[] = {0, 0, 1, 1};
    struct tern_coll_task t = {.call = TERN_CALL_ALL_REDUCE,
                               .type = TERN_F32,
                               .count = 1000,
                               .algorithm = TERN_COLL_DOUBLING};
    struct tern_coll_program p = {0};
    struct tern_coll_shape c;
    int status = 0;

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        close(STDERR_FILENO);
        tern_coll_shape_make(&c, 4, 0, node_of, NULL);
        tern_coll_task_program(&c, &t, 0, &p);
        make_wrong(&c, &t, &p, mistake);
        if (mistake >= EARLY)
            _exit(0);
        make_mistake(&p, mistake);
        tern_coll_program_check(&p, &c, &t);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

static void test_hand_over(void)
{
    ok(!aborts(NO_MISTAKE), "a list that is right is handed over to the engine");
    ok(aborts(BEYOND), "a list that writes four bytes behind its buffer is not run");
    ok(aborts(STRANGER), "a list with a message to no member is not run");
    ok(aborts(SLOT), "a list that waits for no message of its own is not run");
    ok(aborts(PEER), "a list with a place of no node peer is not run");
    ok(aborts(LONG), "a list with a message that no transport takes is not run");
    ok(aborts(SPOTS), "a list with more places than it has spots is not run");
    ok(aborts(EARLY), "a list that waits for a message before it is posted is not made");
    ok(aborts(WIDE), "a list that hands over more than a meeting takes is not made");
    ok(aborts(EMPTY), "a list that combines no places is not made");
    ok(aborts(PAST), "a list for elements behind the last one is not made");
}

int main(void)
{
    static const int uneven[][9] = {
        {0, 0, 0, 1, 1, 1, 2, 2, 2}, {0, 0, 0, 1, 1, 1, 2, 2, 3}, {0, 0, 0, 0, 0, 1, 1, 1, 2},
        {0, 1, 2, 0, 1, 2, 0, 1, 2}, {0, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3, 0},
    };
    int node_of[RANKS], wrong = 0;

    for (int n = 1; n <= RANKS; n++) {
        for (int r = 0; r < n; r++)
            node_of[r] = r;
        wrong = shape(node_of, n);
        ok(wrong == 0, "%d nodes of one rank: every message sent is awaited, and no other", n);
    }
    for (int p = 2; p <= 8; p *= 2) {
        for (int r = 0; r < 16; r++)
            node_of[r] = r / p;
        wrong = shape(node_of, 16);
        ok(wrong == 0, "16 ranks, %d a node: every message sent is awaited, and no other", p);
    }
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
        wrong = shape(uneven[i], 9);
        ok(wrong == 0,
           "9 ranks on uneven nodes, shape %zu: every message sent is awaited, and no other", i);
    }

    many_ranks();
    one_node();
    test_hand_over();

    struct tern_buf folded = {0};
    setenv("TERN_FABRIC_ALGORITHM", "halving", 1);
    ok(tern_coll_plan(&(struct tern_coll_cluster){7, 1, 6}, "reduce_scatter", TERN_F32, 99, &folded,
                      NULL) == 0 &&
           strstr(folded.data, "reduce_scatter: halving") && strstr(folded.data, "to rank 4") &&
           strstr(folded.data, "to rank 5"),
       "halving on seven nodes: the last one gives to the block of two before it");
    tern_buf_free(&folded);

    struct tern_buf b = {0};
    struct tern_err err = {0};
    struct tern_coll_cluster s = {4, 1, 2};
    unsetenv("TERN_FABRIC_ALGORITHM");
    ok(tern_coll_plan(&s, "all_reduce", TERN_F32, 2, &b, &err) == 0 &&
           strstr(b.data, "all_reduce: doubling") && strstr(b.data, "send #1: 8 bytes to rank 3"),
       "the plan of an all-reduce on four nodes: doubling, with its sends");
    ok(tern_coll_plan(&s, "all", TERN_F32, 2, &b, &err) < 0 && strstr(err.text, "none of"),
       "a plan of a call that does not exist is refused");
    s.rank = 4;
    ok(tern_coll_plan(&s, "barrier", TERN_F32, 2, &b, &err) < 0 && strstr(err.text, "rank 4 of 4"),
       "a plan for a rank that does not exist is refused");
    s.rank = 0;
    tern_buf_clear(&b);
    ok(tern_coll_plan_choices(&s, &b, &err) == 0 && strstr(b.data, "typical"),
       "the choices for a cluster, by typical numbers");
    tern_buf_free(&b);
    return tap_done();
}
