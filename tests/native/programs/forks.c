/* forks.c - fork in the middle of a storm (M16). In the child the host's memory keeps working, whatever the other
 * threads were doing; any other device refuses, on every path, and nothing of the parent's is given back. */
#include "arena.h"

#include <sys/wait.h>

#define THREADS 4u
#define FORKS 12u
#define CACHED 700u /* bytes: a size that the forking thread has cached blocks of */

static arena device;
static tm_manager *host, *remote;
static _Atomic bool over;
static void *inherited; /* a live block of the device */

static void storm(unsigned number)
{
    random_t random = random_of(number);
    void *blocks[16] = {NULL};
    while (!over) {
        unsigned at = (unsigned)random_below(&random, 16);
        tm_manager *which = at % 2 ? host : remote;
        (void)tm_free(which, blocks[at]);
        blocks[at] = random_percent(&random, 80) ? tm_allocate(which, 1 + random_below(&random, 9000)) : NULL;
        if (random_percent(&random, 2))
            (void)tm_trim(which, 10000);
    }
    for (unsigned i = 0; i < 16; i++)
        (void)tm_free(i % 2 ? host : remote, blocks[i]);
}

/* --- in the child ------------------------------------------------------------------------------------ */

static void use_host(unsigned number)
{
    void *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        size_t size = 1 + i * 150 + number;
        blocks[i] = tm_allocate(host, size);
        EXPECT(blocks[i] != NULL, "%zu bytes in the child", size);
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < 64; i++)
        EXPECT(tm_free(host, blocks[i]) == TM_OK, "block %zu in the child", i);
}

static void expect_forked(const void *address)
{
    tm_error error;
    tm_last_error(&error);
    EXPECT(address == NULL, "%p from the parent's device", address);
    EXPECT(error.status == TM_FORKED, "status %d", (int)error.status);
}

static void use_remote(void)
{
    size_t calls = device.allocations + device.releases + device.refusals;
    EXPECT(tm_try_allocate(remote, CACHED) == NULL, "a cached block in the child");
    expect_forked(tm_allocate(remote, CACHED));
    expect_forked(tm_allocate(remote, 8191));
    expect_forked(tm_allocate(remote, 1 << 20));
    expect_forked(tm_allocate_aligned(remote, CACHED, 4096));
    EXPECT(tm_free(remote, inherited) == TM_OK, "a free in the child does nothing");
    EXPECT(tm_trim(remote, 0) == 0, "a trim in the child does nothing");
    EXPECT(tm_manager_close(remote) == TM_OK, "a close in the child");
    tm_manager_destroy(remote);
    EXPECT(device.allocations + device.releases + device.refusals == calls, "a call to the parent's device");
}

static void child(void)
{
    (void)alarm(60); /* a lock that another thread held would never be free */
    use_host(0);
#if !defined(__SANITIZE_THREAD__) /* it can't start threads in the child of a process with threads */
    run_threads(2, use_host);
#endif
    use_remote();
    (void)tm_trim(host, 0);
    use_host(1);
    tm_manager_destroy(host);
    _exit(0);
}

static void fork_once(unsigned number)
{
    int status;
    pid_t pid = fork();
    EXPECT(pid >= 0, "fork %u", number);
    if (pid == 0)
        child();
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "child %u ended with %#x", number, status);
}

/* --- in the parent ----------------------------------------------------------------------------------- */

static void fork_often(void)
{
    unsigned forks = 1 + FORKS * test_scale / 100;
    for (unsigned number = 0; number < forks; number++) {
        void *cached = tm_allocate(remote, CACHED);
        EXPECT(cached != NULL, "%u bytes", CACHED);
        EXPECT(tm_free(remote, cached) == TM_OK, "%u bytes", CACHED);
        EXPECT((cached = tm_allocate(remote, CACHED)) != NULL && tm_free(remote, cached) == TM_OK,
               "a hot pair");
        fork_once(number);
        (void)usleep(1000);
    }
}

static void run(unsigned number)
{
    if (number < THREADS) {
        storm(number);
        return;
    }
    fork_often();
    over = true;
}

/* A quiet process: the child knows exactly what the parent knew. */
static void fork_quietly(void)
{
    tm_statistics before, after;
    tm_get_statistics(host, &before);
    if (fork() == 0) {
        tm_get_statistics(host, &after);
        EXPECT(memcmp(&before, &after, sizeof after) == 0, "the same statistics in the child");
        EXPECT_VALID(host);
        _exit(0);
    }
    int status;
    EXPECT(wait(&status) > 0 && status == 0, "the child ended with %#x", status);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    (void)alarm(200);
    arena_init(&device, 8 << 20);
    tm_backend backend = arena_backend(&device, 0);
    tm_options options = options_of(8192, TM_UNLIMITED);
    host = manager_of(tm_host_backend(), &options);
    remote = manager_of(&backend, &options);
    inherited = tm_allocate(remote, 100);
    run_threads(THREADS + 1, run);
    fork_quietly();
    EXPECT(tm_free(remote, inherited) == TM_OK, "the parent's block is still its own");
    EXPECT_VALID(host);
    EXPECT_VALID(remote);
    arena_agrees(&device, remote);
    tm_manager_destroy(host);
    tm_manager_destroy(remote);
    arena_destroy(&device);
    return 0;
}
