/* A command as on a Linux that has no system call newer than 4.18: they fail with ENOSYS, or with
 * EPERM as in containers whose filter does not know them.
 *
 *     old-kernel [-p] COMMAND [ARG...]
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    FIRST_NEW = 424, /* pidfd_send_signal, 5.1: from here on all architectures count alike */
    CLONE3 = 435,    /* every libc takes ENOSYS for an answer, and few another */
};

int main(int argc, char **argv)
{
    int refuse = EPERM, first = 2;

    if (argc < 2 || strcmp(argv[1], "-p") != 0)
        refuse = ENOSYS, first = 1;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE3, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_NEW, 0, 2),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refuse),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};

    if (argc <= first) {
        fprintf(stderr, "usage: old-kernel [-p] COMMAND [ARG...]\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0) {
        perror("old-kernel: seccomp");
        return 77;
    }
    execvp(argv[first], argv + first);
    perror(argv[first]);
    return 127;
}
