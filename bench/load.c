/* SPDX-License-Identifier: Apache-2.0 */
/* Scrapes a page as many scrapers would: each scrape on a connection of its own.
 *
 *     cc -O2 -Wall -Wextra -pthread -o load load.c
 *     load PORT SCRAPERS SCRAPES PAUSE_US
 *
 * SCRAPERS threads make SCRAPES requests each to 127.0.0.1, gzip asked for, and rest PAUSE_US
 * between two. A scrape takes from before connect() to the last byte of the body. Printed is one
 * line of name=value; a scrape that fails is counted and has no latency. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_SIZE = 8192, TIMEOUT_S = 20 };

static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                              "Accept: application/openmetrics-text;version=1.0.0;q=0.9,"
                              "text/plain;version=0.0.4;q=0.5\r\n"
                              "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n";

typedef struct {
    pthread_t thread;
    double *us;
    int done, failed;
    size_t bytes; /* of the last body */
} Scraper;

static struct sockaddr_in place;
static int scrapes, pause_us;
static pthread_barrier_t together;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Returns the length of the body that a head announces, -1 where it ends with the connection. */
static long announced(const char *head)
{
    for (const char *line = head; (line = strstr(line, "\r\n")); ) {
        line += 2;
        if (strncasecmp(line, "content-length:", 15) == 0)
            return strtol(line + 15, NULL, 10);
    }
    return -1;
}

static bool read_answer(int sock, size_t *bytes)
{
    static __thread char head[HEAD_SIZE], body[1 << 16];
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        ssize_t n = recv(sock, head + have, sizeof head - 1 - have, 0);
        if (n <= 0)
            return false;
        have += (size_t)n;
        head[have] = 0;
        end = memmem(head, have, "\r\n\r\n", 4);
        if (!end && have == sizeof head - 1)
            return false;
    }
    if (have < 12 || memcmp(head + 8, " 200", 4) != 0)
        return false;
    *bytes = have - (size_t)(end + 4 - head);
    *end = 0;
    long length = announced(head);
    while (length < 0 || *bytes < (size_t)length) {
        ssize_t n = recv(sock, body, sizeof body, 0);
        if (n < 0)
            return false;
        if (n == 0)
            return length < 0;
        *bytes += (size_t)n;
    }
    return true;
}

static bool scrape(size_t *bytes)
{
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {TIMEOUT_S, 0};
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool good = connect(sock, (struct sockaddr *)&place, sizeof place) == 0 &&
                send(sock, request, sizeof request - 1, MSG_NOSIGNAL) ==
                    (ssize_t)(sizeof request - 1) &&
                read_answer(sock, bytes);
    close(sock);
    return good;
}

static void *run(void *argument)
{
    Scraper *s = argument;
    pthread_barrier_wait(&together);
    for (int i = 0; i < scrapes; i++) {
        double begin = now_us();
        if (scrape(&s->bytes))
            s->us[s->done++] = now_us() - begin;
        else
            s->failed++;
        if (pause_us)
            usleep((useconds_t)pause_us);
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: load PORT SCRAPERS SCRAPES PAUSE_US\n");
        return 2;
    }
    place.sin_family = AF_INET;
    place.sin_port = htons((uint16_t)atoi(argv[1]));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int scrapers = atoi(argv[2]);
    scrapes = atoi(argv[3]);
    pause_us = atoi(argv[4]);
    Scraper *all = calloc((size_t)scrapers, sizeof *all);
    double *us = calloc((size_t)scrapers * (size_t)scrapes, sizeof *us);
    pthread_barrier_init(&together, NULL, (unsigned)scrapers);
    double begin = now_us();
    for (int i = 0; i < scrapers; i++) {
        all[i].us = calloc((size_t)scrapes, sizeof *us);
        pthread_create(&all[i].thread, NULL, run, &all[i]);
    }
    int done = 0, failed = 0;
    for (int i = 0; i < scrapers; i++) {
        pthread_join(all[i].thread, NULL);
        memcpy(us + done, all[i].us, (size_t)all[i].done * sizeof *us);
        done += all[i].done;
        failed += all[i].failed;
    }
    double seconds = (now_us() - begin) / 1e6;
    if (done == 0) {
        fprintf(stderr, "load: no scrape of %d worked\n", failed);
        return 1;
    }
    qsort(us, (size_t)done, sizeof *us, by_size);
    printf("scrapes=%d failed=%d bytes=%zu p50_ms=%.4f p99_ms=%.4f max_ms=%.4f seconds=%.3f\n",
           done, failed, all[0].bytes, us[done / 2] / 1e3, us[(int)((done - 1) * 0.99)] / 1e3,
           us[done - 1] / 1e3, seconds);
    return 0;
}
