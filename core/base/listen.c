#include "core/base/listen.h"

#include "core/base/again.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listen_at(const struct sockaddr *a, socklen_t len, int backlog, unsigned *port)
{
    struct sockaddr_storage is;
    socklen_t n = sizeof is;
    int fd = TERN_AGAIN(socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd < 0)
        return -1;
    if (a->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    if (bind(fd, a, len) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, (struct sockaddr *)&is, &n) < 0) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    *port = ntohs(is.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&is)->sin6_port
                                           : ((struct sockaddr_in *)&is)->sin_port);
    return fd;
}

int tern_listen(const char *host, int backlog, unsigned *port, struct tern_err *err)
{
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int fd = -1;

    if (!host || strcmp(host, "0.0.0.0") == 0) {
        fd = listen_at((const struct sockaddr *)&any6, sizeof any6, backlog, port);
        if (fd < 0) /* a kernel without IPv6 */
            fd = listen_at((const struct sockaddr *)&any4, sizeof any4, backlog, port);
    } else {
        int rc = getaddrinfo(host, "0", &hints, &list);
        if (rc)
            return tern_err_set(err, TERN_FAILED, "cannot listen on '%s': %s", host,
                                gai_strerror(rc));
        errno = EADDRNOTAVAIL;
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
            fd = listen_at(a->ai_addr, a->ai_addrlen, backlog, port);
        const int why = errno;
        freeaddrinfo(list);
        errno = why;
    }
    return fd < 0 ? tern_err_sys(err, "cannot listen on '%s'", host ? host : "*") : fd;
}
