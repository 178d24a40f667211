#include "cmd/ledger/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- frames */

void watch_frame_begin(struct watch_frame *f, int columns, int rows)
{
    watch_frame_free(f);
    f->columns = columns < 1 ? 1 : columns < WATCH_COLUMNS_MAX ? columns : WATCH_COLUMNS_MAX;
    f->rows = rows < 1 ? 1 : rows < WATCH_ROWS_MAX ? rows : WATCH_ROWS_MAX;
}

void watch_frame_free(struct watch_frame *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->lines[i]);
    f->n = 0;
}

/* Bytes of a colour's sequence at the beginning of `s`; 0: there is none. */
static size_t color_of(const char *s, size_t len)
{
    size_t n = 2;

    if (len < 3 || s[0] != '\033' || s[1] != '[')
        return 0;
    while (n < len && ((s[n] >= '0' && s[n] <= '9') || s[n] == ';'))
        n++;
    return n < len && s[n] == 'm' ? n + 1 : 0;
}

/* Characters, each of which takes a column; colours take none. */
static int width_of(const char *s, size_t len)
{
    int width = 0;

    for (size_t i = 0; i < len;) {
        size_t n = color_of(s + i, len - i);
        width += n == 0;
        n = n ? n : tern_str_utf8(s + i, len - i);
        i += n ? n : 1;
    }
    return width;
}

void watch_frame_add(struct watch_frame *f, const char *text, size_t len)
{
    struct tern_buf b = {0};
    const bool cut = width_of(text, len) > f->columns;
    bool colored = false;

    if (f->n == f->rows)
        return;
    for (int at = 0; len > 0;) {
        size_t n = color_of(text, len);
        if (n) {
            tern_buf_add(&b, text, f->color ? n : 0);
            colored |= f->color;
        } else if (at == f->columns - cut) {
            break;
        } else {
            n = tern_str_character(text, len);
            if (n == 0 || (n > 1 && !f->utf8)) {
                n = n ? n : 1;
                tern_buf_puts(&b, "?");
            } else {
                tern_buf_add(&b, text, n);
            }
            at++;
        }
        text += n;
        len -= n;
    }
    tern_buf_puts(&b, cut ? "+" : "");
    tern_buf_puts(&b, colored ? "\033[0m" : "");
    f->lines[f->n++] = b.data ? b.data : tern_strdup("");
}

/* ---------------------------------------------------------------- the terminal */

static struct screen {
    int keys; /* where keys come from */
    struct termios before;
    volatile sig_atomic_t taken;   /* it has our modes and shows our screen */
    volatile sig_atomic_t changed; /* another size, or back from a stop */
    int stderr_fd, messages;       /* -1: none; the log's, until the screen is given back */
    sigset_t waiting;              /* the mask while it waits for keys */
    sigset_t later; /* signals that come then alone: never between two halves of a frame */
    char input[64]; /* bytes of keys that came */
    size_t n_input;
    char *shown[WATCH_ROWS_MAX]; /* the screen's lines */
    int columns, rows;
} screen = {.keys = -1, .stderr_fd = -1, .messages = -1};

/* Signals that end the process: the terminal is given back first. */
static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGSEGV,
                           SIGBUS, SIGABRT, SIGFPE, SIGILL,  SIGXCPU};

/* Safe in a signal's handler, as all until open. */
static int send(const char *s, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, s, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
            poll(&p, 1, 1000);
        } else if (n < 0 && errno != EINTR) {
            return -1;
        }
        s += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void take(void)
{
    /* The other screen, if it is not there; no cursor, lines end at the edge. */
    static const char other[] = "\033[?1049h", begin[] = "\033[?25l\033[?7l";
    const bool again = screen.taken;
    struct termios t = screen.before;

    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    t.c_iflag &= ~(tcflag_t)(IXON | ICRNL | INLCR);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    /* In the background the process stops here, by SIGTTOU, until it is in front. */
    screen.taken = 1;
    screen.changed = 1;
    while (tcsetattr(screen.keys, TCSANOW, &t) < 0 && errno == EINTR)
        ;
    if (!again)
        send(other, sizeof other - 1);
    send(begin, sizeof begin - 1);
}

static void give_back(void)
{
    /* To the last line, as a terminal that has no other screen keeps this one. */
    static const char end[] = "\033[0m\033[999;1H\r\n\033[?7h\033[?25h\033[?1049l";

    if (!screen.taken)
        return;
    screen.taken = 0;
    if (tcgetpgrp(screen.keys) != getpgrp()) /* a shell has it */
        return;
    send(end, sizeof end - 1);
    while (tcsetattr(screen.keys, TCSANOW, &screen.before) < 0 && errno == EINTR)
        ;
}

/* What the log said meanwhile. */
static void give_messages(void)
{
    char some[1024];
    ssize_t n;

    if (screen.messages < 0)
        return;
    dup2(screen.stderr_fd, STDERR_FILENO);
    for (off_t at = 0; (n = pread(screen.messages, some, sizeof some, at)) > 0; at += n)
        if (write(STDERR_FILENO, some, (size_t)n) < 0)
            break;
    close(screen.messages);
    screen.messages = -1;
}

static void end(int sig)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t this;

    give_back();
    give_messages();
    sigaction(sig, &usual, NULL);
    sigemptyset(&this);
    sigaddset(&this, sig);
    raise(sig); /* comes when the handler has returned */
    sigprocmask(SIG_UNBLOCK, &this, NULL);
}

static void note(int sig)
{
    (void)sig;
    screen.changed = 1;
}

static void stop(int sig);

static void on_stop(void (*handler)(int))
{
    struct sigaction a = {.sa_handler = handler, .sa_mask = screen.later};

    sigaction(SIGTSTP, &a, NULL);
}

/* Ctrl-Z: the shell has its terminal, until fg. */
static void stop(int sig)
{
    const int kept = errno;
    sigset_t this, all;

    give_back();
    on_stop(SIG_DFL);
    sigemptyset(&this);
    sigaddset(&this, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &this, &all); /* it stops here */
    sigprocmask(SIG_SETMASK, &all, NULL);
    on_stop(stop);
    take();
    errno = kept;
}

/* After a stop that could not be seen, by SIGSTOP. */
static void resume(int sig)
{
    const int kept = errno;

    (void)sig;
    if (screen.taken)
        take();
    errno = kept;
}

bool watch_screen_can(void)
{
    const char *term = getenv("TERM");

    if (!isatty(STDOUT_FILENO) || !term || !*term || strcmp(term, "dumb") == 0)
        return false;
    if (screen.keys < 0)
        screen.keys = isatty(STDIN_FILENO) ? STDIN_FILENO : open("/dev/tty", O_RDWR | O_CLOEXEC);
    return screen.keys >= 0;
}

static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = end}, old;

    sigfillset(&a.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ends[i], &a, NULL);
    sigemptyset(&screen.later);
    sigaddset(&screen.later, SIGTSTP);
    sigaddset(&screen.later, SIGCONT);
    sigaddset(&screen.later, SIGWINCH);
    /* While a handler waits for the terminal in the background, others may end the process. */
    a = (struct sigaction){.sa_handler = resume, .sa_mask = screen.later};
    sigaction(SIGCONT, &a, NULL);
    a.sa_handler = note;
    sigaction(SIGWINCH, &a, NULL);
    if (sigaction(SIGTSTP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        on_stop(stop);
    sigprocmask(SIG_BLOCK, &screen.later, &screen.waiting);
    sigdelset(&screen.waiting, SIGTSTP);
    sigdelset(&screen.waiting, SIGCONT);
    sigdelset(&screen.waiting, SIGWINCH);
}

int watch_screen_open(struct tern_err *err)
{
    if (tcgetattr(screen.keys, &screen.before) < 0)
        return tern_err_set(err, TERN_FAILED, "cannot read the terminal's modes: %s",
                            strerror(errno));
    if (isatty(STDERR_FILENO) && (screen.messages = memfd_create("messages", MFD_CLOEXEC)) >= 0) {
        screen.stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        dup2(screen.messages, STDERR_FILENO);
    }
    catch_signals();
    atexit(watch_screen_close);
    take();
    return 0;
}

void watch_screen_close(void)
{
    give_back();
    give_messages();
    for (int i = 0; i < WATCH_ROWS_MAX; i++) {
        free(screen.shown[i]);
        screen.shown[i] = NULL;
    }
}

void watch_screen_size(int *ret_columns, int *ret_rows)
{
    struct winsize w = {0};

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
    *ret_columns = w.ws_col ? w.ws_col : 80;
    *ret_rows = w.ws_row ? w.ws_row : 24;
}

void watch_screen_again(void)
{
    screen.changed = 1;
}

int watch_screen_draw(const struct watch_frame *f, struct tern_err *err)
{
    enum { MESSAGES_MAX = 64 << 10 };
    struct tern_buf b = {0};

    /* What a reader says at each look would grow without an end. */
    if (screen.messages >= 0 && lseek(screen.messages, 0, SEEK_CUR) > MESSAGES_MAX &&
        ftruncate(screen.messages, 0) == 0)
        lseek(screen.messages, 0, SEEK_SET);
    if (screen.changed || f->columns != screen.columns || f->rows != screen.rows) {
        screen.changed = 0;
        tern_buf_puts(&b, "\033[2J");
        for (int i = 0; i < WATCH_ROWS_MAX; i++) {
            free(screen.shown[i]);
            screen.shown[i] = NULL;
        }
    }
    screen.columns = f->columns;
    screen.rows = f->rows;
    for (int i = 0; i < f->rows; i++) {
        const char *now = i < f->n ? f->lines[i] : "",
                   *was = screen.shown[i] ? screen.shown[i] : "";
        if (strcmp(now, was) == 0)
            continue;
        tern_buf_printf(&b, "\033[%d;1H%s", i + 1, now);
        if (width_of(now, strlen(now)) < width_of(was, strlen(was)))
            tern_buf_puts(&b, "\033[K");
        free(screen.shown[i]);
        screen.shown[i] = tern_strdup(now);
    }
    int rc = tern_buf_check(&b, "a screen", err);
    if (rc == 0 && b.len && send(b.data, b.len) < 0)
        rc = tern_err_set(err, TERN_FAILED, "cannot write to the terminal: %s", strerror(errno));
    tern_buf_free(&b);
    return rc;
}

/* ---------------------------------------------------------------- keys */

/* Bytes that came within the time are in `input`: 1; none: 0; the terminal is gone: -1; it changed:
 * 2. */
static int wait_input(double seconds)
{
    struct pollfd p = {.fd = screen.keys, .events = POLLIN};
    const struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};

    if (screen.changed)
        return 2;
    int rc = ppoll(&p, 1, &t, &screen.waiting);
    if (screen.changed)
        return 2;
    if (rc <= 0)
        return rc < 0 && errno != EINTR ? -1 : 0;
    ssize_t n =
        read(screen.keys, screen.input + screen.n_input, sizeof screen.input - screen.n_input);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0)
        return -1;
    screen.n_input += (size_t)n;
    return 1;
}

/* A key's sequence of `n` bytes behind the ESC: "[A", "OA", "[5~". */
static int key_of(const char *s, size_t n)
{
    static const struct {
        const char *bytes;
        int key;
    } keys[] = {
        {"A", WATCH_KEY_UP},       {"B", WATCH_KEY_DOWN},     {"C", WATCH_KEY_RIGHT},
        {"D", WATCH_KEY_LEFT},     {"H", WATCH_KEY_HOME},     {"F", WATCH_KEY_LAST},
        {"1~", WATCH_KEY_HOME},    {"7~", WATCH_KEY_HOME},    {"4~", WATCH_KEY_LAST},
        {"8~", WATCH_KEY_LAST},    {"5~", WATCH_KEY_PAGE_UP}, {"6~", WATCH_KEY_PAGE_DOWN},
        {"Z", WATCH_KEY_BACK_TAB},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i].bytes) == n - 1 && memcmp(keys[i].bytes, s + 1, n - 1) == 0)
            return keys[i].key;
    return WATCH_KEY_OTHER;
}

/* The first key of the input, and its bytes; 0: it is not whole. */
static size_t first_key(int *ret_key)
{
    const char *s = screen.input;
    const size_t len = screen.n_input;

    *ret_key = len && (unsigned char)*s < 0x80 ? *s : WATCH_KEY_OTHER;
    if (len == 0 || *s != '\033')
        return len ? 1 : 0;
    if (len == 1)
        return 0;
    if (s[1] != '[' && s[1] != 'O') {
        *ret_key = WATCH_KEY_ESCAPE;
        return 1;
    }
    for (size_t i = 2; i < len; i++)
        if (s[i] >= 0x40 && s[i] <= 0x7e) { /* ECMA-48: a sequence's final byte */
            *ret_key = key_of(s + 1, i);
            return i + 1;
        }
    *ret_key = WATCH_KEY_OTHER;
    return len == sizeof screen.input ? len : 0;
}

int watch_screen_key(double seconds)
{
    /* Bytes of one key may come apart on a slow line; behind this, it was the Escape key. */
    static const double escape_seconds = 0.2;
    int key;

    for (size_t n; (n = first_key(&key)) == 0;) {
        const bool begun = screen.n_input > 0;
        int rc = wait_input(begun ? escape_seconds : seconds);
        if (rc == 0 && begun) {
            screen.n_input = 0;
            return WATCH_KEY_ESCAPE;
        }
        if (rc != 1)
            return rc == 0 ? WATCH_KEY_NONE : rc == 2 ? WATCH_KEY_REDRAW : WATCH_KEY_END;
    }
    size_t n = first_key(&key);
    screen.n_input -= n;
    memmove(screen.input, screen.input + n, screen.n_input);
    return key;
}
