#include "core/base/rand.h"

#include "core/base/again.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t tern_rand_u64(uint64_t seed, uint64_t stream, uint64_t i)
{
    return mix(mix(mix(seed) ^ stream) ^ i);
}

double tern_rand_unit(uint64_t seed, uint64_t stream, uint64_t i)
{
    return (double)(tern_rand_u64(seed, stream, i) >> 11) * 0x1p-53;
}

double tern_rand_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    double u = 1.0 - tern_rand_unit(seed, stream, 2 * i); /* in (0, 1]: the logarithm is finite */
    double v = tern_rand_unit(seed, stream, 2 * i + 1);

    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

uint64_t tern_rand_below(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)tern_rand_u64(seed, stream, i) * n) >> 64);
}

/* Half the bits of the square that holds n. */
static unsigned half_bits(uint64_t n)
{
    unsigned half = 1;

    while (half < 31 && ((uint64_t)1 << (2 * half)) < n)
        half++;
    return half;
}

uint64_t tern_rand_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    const unsigned half = half_bits(n);
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (tern_rand_u64(seed ^ mix(round), stream, right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint64_t tern_rand_permute_back(uint64_t seed, uint64_t stream, uint64_t place, uint64_t n)
{
    const unsigned half = half_bits(n);
    const uint64_t mask = ((uint64_t)1 << half) - 1;

    do {
        uint64_t left = place >> half, right = place & mask;
        for (uint64_t round = 4; round-- > 0;) {
            uint64_t before = right ^ (tern_rand_u64(seed ^ mix(round), stream, left) & mask);
            right = left;
            left = before;
        }
        place = left << half | right;
    } while (place >= n);
    return place;
}

void tern_rand_system(void *to, unsigned len)
{
    for (unsigned done = 0; done < len;) {
        ssize_t n = TERN_AGAIN(getrandom((char *)to + done, len - done, 0));
        if (n <= 0) {
            perror("tern: getrandom");
            abort();
        }
        done += (unsigned)n;
    }
}
