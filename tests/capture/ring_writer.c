/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the marks of a graph: writes rows of records as the kernels do, each record as two
 * stores of 16 bytes in any order with pauses between them, and never waits for the reader.
 */
#include <emmintrin.h>
#include <pthread.h>
#include <stdint.h>

struct writer {
    uint64_t *ring;
    uint32_t marks, rows, replays, pause;
    uint64_t first;
    volatile int done;
    pthread_t thread;
};

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void store(uint64_t *place, uint64_t low, uint64_t high)
{
    _mm_store_si128((__m128i *)place, _mm_set_epi64x((long long)high, (long long)low));
}

static void *write_all(void *argument)
{
    struct writer *w = argument;
    uint32_t state = 12345;
    for (uint64_t replay = w->first; replay < w->first + w->replays; replay++) {
        uint64_t tag = replay & 0xffffffffu;
        uint64_t *row = w->ring + (replay & (w->rows - 1)) * w->marks * 4;
        for (uint32_t mark = 0; mark < w->marks; mark++) {
            uint64_t time = replay * 1000 + mark;
            uint64_t *place = row + mark * 4;
            uint64_t tail = tag | ((uint64_t)(mark & 0xff) << 32) | (1ull << 48);
            int late_head = next_random(&state) & 1;
            if (!late_head)
                store(place, time, tag | ((uint64_t)mark << 32));
            if (w->pause)
                for (volatile uint32_t n = next_random(&state) % w->pause; n; n--)
                    ;
            store(place + 2, ~time, tail);
            if (late_head)
                store(place, time, tag | ((uint64_t)mark << 32));
        }
    }
    w->done = 1;
    return 0;
}

int start(struct writer *w) { return pthread_create(&w->thread, 0, write_all, w); }
int finished(struct writer *w) { return w->done; }
void wait_for(struct writer *w) { pthread_join(w->thread, 0); }
