/* core/wire/ofi: which networks a variable of libfabric's chooses, and the error where ranks find
 * that networks lead nowhere. */
#include "tests/unit/tap.h"

/* struct trial is the file's own. */
#include "core/wire/ofi/iface.c"
#include "core/wire/ofi/try.c"

enum { RANKS = 2 };

static void clear(void)
{
    static const char *const vars[] = {"FI_NET_IFACE", "FI_TCP_IFACE", "FI_SOCKETS_IFACE",
                                       "FI_UDP_IFACE", "TERN_FABRIC_RAILS"};

    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++)
        unsetenv(vars[i]);
}

static const char *asked(const char *provider)
{
    const char *var, *name = tern_wire_ofi_iface_asked(provider, &var);

    return name ? name : "none";
}

static void test_variable(void)
{
    clear();
    setenv("FI_NET_IFACE", "net0", 1);
    setenv("FI_TCP_IFACE", "tcp0", 1);
    is(asked("net"), "net0", "FI_NET_IFACE comes first for provider net");
    is(asked("tcp;ofi_rxm"), "tcp0", "FI_TCP_IFACE counts for tcp below another provider");
    is(asked("udp"), "none", "no other provider's variable counts for udp");
    is(asked("tcpx"), "none", "a provider's name is compared as a whole");
    setenv("FI_NET_IFACE", "", 1);
    is(asked("net"), "tcp0", "a variable that is empty chooses no network");
    setenv("FI_UDP_IFACE", "udp0", 1);
    is(asked("udp;ofi_rxd"), "udp0", "FI_UDP_IFACE counts for udp");
}

/* The error of ranks of which rank 0 got no answer over the rails `bad` (a bit each) of `n`. */
static const char *error_of(enum rail_rule rule, int n, uint8_t bad)
{
    static struct tern_err err;
    struct fi_fabric_attr fabric = {.prov_name = (char *)"tcp"};
    struct fi_info info = {.fabric_attr = &fabric};
    struct ofi o = {.rank = 1, .size = RANKS, .n_rails = n, .rule = rule};
    struct way ways[RANKS][RAILS_TRIED] = {0};
    struct trial trial = {.ways = {.way = ways}};
    uint8_t votes[RANKS][TERN_WIRE_ADDRESS] = {0};

    o.trial = &trial;
    for (int i = 0; i < n; i++) {
        o.rails[i].info = &info;
        snprintf(o.rails[i].name, sizeof o.rails[i].name, "eth%d", i);
        snprintf(o.rails[i].where, sizeof o.rails[i].where, "10.0.%d.2", i);
    }
    for (int r = 0; r < RANKS; r++) {
        struct ballot b = {.magic = RECORD_MAGIC, .partner = !r};
        b.good = (uint8_t)(((1u << n) - 1) & ~(r == 0 ? bad : 0u));
        memcpy(votes[r], &b, sizeof b);
    }
    err = (struct tern_err){0};
    if (tern_wire_ofi_try_settle(&o, votes[0], TERN_WIRE_ADDRESS, &err) == 0)
        return "none";
    return err.code == TERN_TEMPFAIL ? err.text : "an error of another code";
}

static void test_error(void)
{
    clear();
    setenv("TERN_FABRIC_RAILS", "eth0,eth1", 1);
    const char *text = error_of(RAILS_LIST, 2, 2);
    has(text, "of the rails named, these lead nowhere: eth1 (10.0.1.2)",
        "one of two requested networks leads nowhere: the error says that of this one alone");
    ok(!strstr(text, "eth0 ("), "the error does not name the network that works");
    has(text, "Name others by launch.rails (TERN_FABRIC_RAILS, now eth0,eth1)",
        "the error has the setting that requested them");
    has(error_of(RAILS_LIST, 2, 3), "the rails named lead nowhere: eth0 ",
        "both requested networks lead nowhere: the error says so");
    setenv("FI_TCP_IFACE", "eth", 1);
    setenv("TERN_FABRIC_RAILS", "any", 1);
    text = error_of(RAILS_ANY, 2, 3);
    has(text, "of the networks that FI_TCP_IFACE leaves, none leads anywhere",
        "the error names the variable that left these networks");
    has(text, "TERN_FABRIC_RAILS, now any) or FI_TCP_IFACE (eth)",
        "the error has both settings, as they are");
    clear();
    text = error_of(RAILS_ALL, 1, 1);
    has(text, "the network between the nodes leads nowhere: eth0 ",
        "a single network that is dead");
    has(text, "now not set) or FI_TCP_IFACE (not set)", "settings that are not set are so called");
}

int main(void)
{
    test_variable();
    test_error();
    return tap_done();
}
